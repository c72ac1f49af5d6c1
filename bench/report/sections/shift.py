# SPDX-License-Identifier: BSD-3-Clause
"""shift - figure 9: prefetch hits over time while what is popular changes (§6.2).

C-Miner* is trained on the first third of the trace, C-Miner+ again after each third, both
on reads separated by thread ("de-tangled"), and QuickMine learns as it goes.  Nothing is a
warm-up here.
"""

from report import charts
from report.book import Number
from report.model import Chart, Section, Table
from report.sections import MISSING
from report.sections.simulated import sizes_of
from report.recordings import WORKLOADS

PARTS = 3
POINTS = 60
TITLES = {"cminer": "C-Miner*", "cminer+": "C-Miner+", "quickmine": "QuickMine, paper"}


def section(context):
    result = Section("shift", "Prefetch hits over time, as patterns change (figure 9)")
    workload = WORKLOADS[0]
    trace = context.trace(f"{workload.name}-shift", workload.level, whole=True)
    if trace is None:
        return result.text(MISSING)
    seconds = trace.info.get("duration_us") / 1e6
    trained = context.jobs.train(trace.name, trace.cut(0, trace.reads // PARTS), trace.detangled)
    size = sizes_of(workload, trace)[0]
    options = ["--cache-size", str(size), "--preset", "paper",
               "--series", f"{max(seconds / POINTS, 0.001):.3f}"]
    series, rows = [], []
    for name in TITLES:
        own = ["--policy", name, "--level",
               workload.level if name == "quickmine" else trace.detangled]
        if name == "cminer+":
            own += ["--retrain", str(trace.reads // PARTS)]
        run = context.book.ask(context.jobs.sim(
            trace.name, trace.all(), f"{TITLES[name]} over time", (*own, *options),
            trained if name != "quickmine" else None))
        run = run.find(policy=name) if run else None
        if not run:
            continue
        points = [(0, 0)] + [(point["seconds"] / 60, point["prefetch_hits"] / 1000)
                             for point in run.get("series") or []]
        series.append((TITLES[name], charts.POLICY[name], "-", points))
        rows.append([TITLES[name], run.number("prefetch_hits", "count"),
                     *by_part(points, PARTS),
                     run.number("miss_ratio", "percent"), run.number("prefetches", "count"),
                     run.number("accuracy", "percent")])
    if not series:
        return result.text(MISSING)
    shift = trace.recording.shift / 60
    marks = []
    while shift and shift * (len(marks) + 1) < seconds / 60:
        marks.append((shift * (len(marks) + 1), "others are popular" if not marks else ""))
    result.text("C-Miner* is trained on the first third of the trace, and has its rules "
                "from the start; C-Miner+ is trained again after each third; both "
                "on reads separated by thread. QuickMine begins with nothing, and learns as "
                "it goes. Dotted: where other rows of the database become popular.")
    result.add(Chart(
        charts.lines("shift", "Prefetch hits over time", series, "minutes",
                     "prefetch hits so far, thousands", marks=marks),
        f"{workload.title}, simulated: prefetch hits so far"), Table(
            "shift", "Prefetch hits by part of the trace",
            ["policy", "prefetch hits", "1st third", "2nd third", "last third", "misses",
             "prefetches", "accuracy"], rows))
    result.text("The paper: no prefetch hits of C-Miner* after the first 10 minutes; more with "
                "retraining at 10 and 20 minutes; most, and steadily, with QuickMine.",
                explain(rows), kind="why")
    return result


def by_part(points, parts):
    """How many prefetch hits came in each part of the time."""
    end = points[-1][0]

    def until(minutes):
        return max((total for at, total in points if at <= minutes + 1e-9), default=0)

    edges = [until(end * i / parts) for i in range(parts + 1)]
    return [Number(1000 * (b - a), "count") for a, b in zip(edges, edges[1:])]


def explain(rows):
    said = []
    for row in rows:
        first, last = row[2].value, row[4].value
        if first:
            said.append(f"{row[0]} {last / first:.2f} times")
    return ("Here, prefetch hits in the last third against the first: " + "; ".join(said) + "."
            if said else None)
