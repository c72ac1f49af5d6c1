# SPDX-License-Identifier: BSD-3-Clause
"""prefetches - figure 8: how many prefetches were issued, and how many were used (§6.2)."""

from report import charts, paper
from report.jobs import POLICIES
from report.model import Chart, Charts, Section, Table
from report.sections import MISSING
from report.sections.performance import cache_cells, caption
from report.sections.simulated import outcome
from report.units import write


def section(context):
    result = Section("prefetches", "Prefetches issued, and their accuracy (figure 8)")
    names = [name for name in POLICIES if name != "none"]
    any_there = False
    for workload, trace in context.workloads():
        runs = {name: outcome(workload, trace, name) for name in names}
        drawn, rows = [], []
        for index in range(3):
            here = [(name, by_size[index]) for name, by_size in runs.items()
                    if by_size[index]]
            if here:
                drawn += draw(workload, trace, index, here)
            for name, run in here:
                rows.append([
                    *cache_cells(workload, trace, index),
                    POLICIES[name].title, run.number("prefetches", "count"),
                    paper.number("prefetches", "count", workload=workload.name, size=index,
                                 policy=name),
                    run.number("used", "count"), run.number("wasted", "count"),
                    run.number("accuracy", "percent"),
                    paper.number("accuracy", "percent", workload=workload.name, size=index,
                                 policy=name),
                    run.number("coverage", "percent")])
        if not rows:
            continue
        any_there = True
        result.add(Charts(drawn), Table(
            f"{workload.name}-prefetches",
            f"{workload.title}, simulated: prefetches issued in the measured half, and what "
            "became of these (the paper's: in an hour, of a larger database)",
            ["cache", "the paper's", "policy", "issued", "paper: issued", "used", "went unused",
             "accuracy", "paper: accuracy", "coverage"], rows))
        result.text(*explain(workload, runs), kind="why")
    return result if any_there else result.text(MISSING)


def draw(workload, trace, index, here):
    """The smallest cache only, like the paper's text; the tables have all."""
    if index != 0:
        return
    title = f"{workload.title}, {caption(workload, trace, index)}"
    rows = [(POLICIES[n].title, charts.POLICY[n], r.get("prefetches") / 1000, None, None)
            for n, r in here]
    yield Chart(
        charts.bars(f"{workload.name}-issued", f"{workload.title}: prefetches issued", rows,
                    "prefetches issued, thousands", lambda v: f"{v:,.1f}"), title)
    rows = []
    for name, run in here:
        said = paper.find("accuracy", workload=workload.name, size=index, policy=name)
        rows.append((POLICIES[name].title, charts.POLICY[name],
                     100 * (run.get("accuracy") or 0), None,
                     100 * said["value"] if said and said["value"] else None))
    yield Chart(
        charts.bars(f"{workload.name}-accuracy", f"{workload.title}: accuracy", rows,
                    "used, % of those issued", lambda v: f"{v:.1f} %",
                    paper="the paper's, where its text gives a number"), title)


def explain(workload, runs):
    ours, theirs = runs["quickmine"][0], runs["cminer"][0]
    if ours and theirs and theirs.get("prefetches"):
        times = ours.get("prefetches") / theirs.get("prefetches")
        verb = "as many prefetches as" if times >= 1 else "of the prefetches of"
        yield (f"{workload.title}, smallest cache: QuickMine issues {times:.1f} times {verb} "
               f"C-Miner*, and {write(ours.get('accuracy') or 0, 'percent')} of them are used "
               f"({write(theirs.get('accuracy') or 0, 'percent')} of C-Miner*'s).")
