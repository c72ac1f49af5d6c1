# SPDX-License-Identifier: BSD-3-Clause
"""performance - figures 5 to 7: how reads ended, and how long they took (§6.1)."""

from report import charts, paper
from report.book import Number, computed
from report.jobs import POLICIES
from report.model import Chart, Charts, Section, Table
from report.sections import MISSING
from report.sections.live import against, latencies
from report.sections.simulated import outcome, share, sizes_of
from report.sections.why import differences, percent
from report.units import size as size_text

LATE = 0.1  # of the disks' mean response: more is too much


def caption(workload, trace, index):
    size = sizes_of(workload, trace)[index]
    entry = paper.find("setup", workload=workload.name)
    return f"cache of {size_text(size)} (the paper's: {entry['sizes'][index]})"


def cache_cells(workload, trace, index):
    """The same in two cells of a table."""
    entry = paper.find("setup", workload=workload.name)
    return [Number(sizes_of(workload, trace)[index], "mib"), entry["sizes"][index]]


def paper_miss(workload, index, policy):
    """The paper's rate of misses, from what it says of LRU's and the reduction."""
    base = paper.number("baseline_miss", "percent", workload=workload.name, size=index)
    if policy == "none" or base is None:
        return base if policy == "none" else None
    less = paper.number("miss_reduction", "percent", workload=workload.name, size=index,
                        policy=policy)
    return computed("percent", lambda b, r: b * (1 - r), base, less)


def misses_table(workload, trace, index, runs, lru):
    rows = []
    for name, run in runs:
        rows.append([
            POLICIES[name].title,
            computed("percent", lambda h, r: h / r, run.number("hits", "count"),
                     run.number("reads", "count")),
            computed("percent", lambda h, r: h / r, run.number("prefetch_hits", "count"),
                     run.number("reads", "count")),
            run.number("miss_ratio", "percent"),
            paper_miss(workload, index, name),
            None if name == "none" or lru is None else computed(
                "percent", lambda m, b: 1 - m / b, run.number("misses", "count"),
                lru.number("misses", "count")),
            paper.number("miss_reduction", "percent", workload=workload.name, size=index,
                         policy=name),
            run.number("misses", "count"),
            run.number("device_reads", "count"),
        ])
    return Table(
        f"{workload.name}-outcomes-{index}",
        f"{workload.title}, simulated, {caption(workload, trace, index)}: of blocks read",
        ["policy", "hits", "prefetch hits", "misses", "paper's misses", "fewer than LRU",
         "paper: fewer", "blocks missed", "blocks read from the device"], rows)


def section(context, workload):
    result = Section(f"{workload.name}", f"{workload.title}: misses and read latency "
                     f"(figure {workload.figure})")
    trace = context.main(workload)
    if trace is None:
        return result.text(MISSING)
    runs = {name: outcome(workload, trace, name) for name in POLICIES}
    evidence = trace.evidence()
    live = [latencies(context, workload, trace, index) for index in range(3)]
    drawn, tables = [], []
    for index in range(3):
        here = [(name, by_size[index]) for name, by_size in runs.items() if by_size[index]]
        if not here:
            continue
        lru = runs["none"][index]
        rows = []
        for name, run in here:
            reported = paper_miss(workload, index, name)
            rows.append((POLICIES[name].title, share(run, "hits"), share(run, "prefetch_hits"),
                         share(run, "misses"), reported.value if reported else None))
        drawn.append(Chart(
            charts.outcomes(f"{workload.name}-outcomes-{index}",
                            f"{workload.title}: hits, prefetch hits and misses by policy", rows),
            f"Simulated, {caption(workload, trace, index)}"))
        tables.append(misses_table(workload, trace, index, here, lru))
    if drawn:
        result.add(Charts(drawn))
    result.text(*differences(workload, trace, runs, evidence), kind="why")
    result.add(*tables)
    latency_blocks(result, workload, trace, live)
    return result


def latency_blocks(result, workload, trace, live):
    drawn, tables = [], []
    for index, servers in enumerate(live):
        if not servers:
            continue
        base = next((s for s in servers if s["name"] == "none"), None)
        rows, lines = [], []
        for server in servers:
            policy = POLICIES[server["name"]]
            ratio = paper.number("latency_ratio", "times", workload=workload.name,
                                 size=index, policy=policy.name)
            reported = (base["median"].value / 1000 * ratio.value
                        if base and ratio else None)
            rows.append((policy.title, charts.POLICY[policy.name],
                         server["median"].value / 1000,
                         (server["least"].value / 1000, server["most"].value / 1000),
                         reported))
            lines.append([
                policy.title, server["median"], server["least"], server["most"],
                against(servers, policy.name), ratio, server["p99"], server["misses"], server["accuracy"],
                server["dropped"], server["rate"], server["queue"], server["late"]])
        drawn.append(Chart(
            charts.bars(f"{workload.name}-latency-{index}",
                        f"{workload.title}: mean read latency by policy", rows,
                        "mean read latency, ms", lambda v: f"{v:.2f}",
                        paper="LRU's here, times the paper's ratio"),
            f"Live, {caption(workload, trace, index)}; "
            "bar: median of the segments, line: least to most"))
        tables.append(Table(
            f"{workload.name}-latency-{index}",
            f"{workload.title}, live, {caption(workload, trace, index)}: latency of read "
            "requests; medians over the segments, also of the ratio to LRU in each",
            ["policy", "mean latency", "least", "most", "of LRU's", "paper: of LRU's", "p99",
             "misses", "accuracy", "prefetches dropped", "reads a second", "wait for a disk",
             "replies late by"], lines))
    if drawn:
        result.add(Charts(drawn)).text(lateness(live), kind="why").add(*tables)


def lateness(live):
    """Whether the machine kept up with the model of the disks."""
    shares = [s["late"].value / s["response"].value for servers in live for s in servers
              if s["late"] and s["response"] and s["response"].value]
    if not shares:
        return None
    text = (f"The machine: replies came later than the model had them due by up to "
            f"{percent(max(shares))} of the disks' mean response ({percent(sum(shares) / len(shares))} "
            "on average over policies and caches). ")
    if max(shares) > LATE:
        return text + "It was too busy for these latencies to be trusted."
    return text.rstrip()
