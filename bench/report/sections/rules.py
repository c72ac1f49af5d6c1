# SPDX-License-Identifier: BSD-3-Clause
"""rules - what context does to the number of rules that C-Miner* finds (§6.2)."""

from report import charts, paper
from report.book import computed
from report.model import Chart, Charts, Section, Table
from report.sections import MISSING

LEVELS = ("none", "detangled", "transaction", "query")
SAID = {"none": "as it came", "detangled": "by thread (de-tangled)",
        "transaction": "by transaction", "query": "by query"}


def section(context):
    result = Section("rules", "Rules with and without context (§6.2)")
    rows, drawn, paragraphs = [], [], []
    for workload, trace in context.workloads():
        counts = {}
        for level in LEVELS:
            run = context.book.ask(
                trace.trained(trace.detangled if level == "detangled" else level))
            if run:
                counts[level] = run
        if not counts:
            continue
        rows += [[
            workload.title, SAID[level], run.number("rules_unpruned", "count"),
            paper.number("rules", "count", workload=workload.name, level=level),
            run.number("rules", "count"), run.number("bytes", "mib"),
            ratio(counts, level, "rules_unpruned")]
            for level, run in counts.items()]
        drawn.append(Chart(charts.bars(
            f"{workload.name}-rules", f"{workload.title}: rules of C-Miner*",
            [(SAID[level], charts.BLUE if level != "none" else charts.POLICY["none"],
              (run.get("rules_unpruned") or 0) / 1000, None, None)
             for level, run in counts.items()],
            "rules without pruning, thousands", lambda v: f"{v:,.1f}"), workload.title))
        paragraphs.append(explain(workload, counts))
    if not rows:
        return result.text(MISSING)
    result.text("C-Miner* mines the first half of each trace, once in the order in which "
                "the server got the reads, and once separated by context and put one after "
                "the other. Without pruning by confidence, as in the paper.")
    result.add(Charts(drawn), Table(
        "rules", "Rules that C-Miner* finds in the first half of the trace",
        ["workload", "trace", "rules without pruning", "paper", "with pruning",
         "memory of those", "without pruning, of those of the trace as it came"], rows))
    return result.text(*paragraphs, kind="why")


def ratio(counts, level, what):
    if level == "none" or "none" not in counts:
        return None
    return computed("percent", lambda a, b: a / b, counts[level].number(what, "count"),
                    counts["none"].number(what, "count"))


def explain(workload, counts):
    if "none" not in counts or "detangled" not in counts:
        return None
    mixed, apart = (counts[level].get("rules_unpruned") for level in ("none", "detangled"))
    if not mixed or not apart:
        return None
    text = (f"{workload.title}: by thread, C-Miner* finds {apart / mixed:.2f} times the rules "
            "that it finds in the trace as it came")
    both = [paper.find("rules", workload=workload.name, level=level)
            for level in ("none", "detangled")]
    if all(both):
        text += f" (the paper: {both[1]['value'] / both[0]['value']:.2f} times)"
    return text + "."
