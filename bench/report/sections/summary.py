# SPDX-License-Identifier: BSD-3-Clause
"""summary - the figures that one looks for first; also the first table of bench/results/peers.md."""

from report import paper
from report.book import computed
from report.jobs import POLICIES
from report.model import Section, Table
from report.sections import MISSING
from report.sections.live import against, latencies
from report.sections.performance import cache_cells
from report.sections.simulated import outcome
from report.units import write


def section(context):
    result = Section("summary", "Summary")
    tables = [t for t in (against_paper(context), miss_rates(context)) if t.rows]
    return result.text(said(context)).add(*tables) if tables else result.text(MISSING)


def said(context):
    """The result in a sentence a workload: the smallest cache, where most is to be gained."""
    parts = []
    for workload, trace in context.workloads():
        lru, ours = (outcome(workload, trace, name)[0] for name in ("none", "defaults"))
        if not lru or not ours or not lru.get("misses"):
            continue
        fewer = computed("percent", lambda m, b: 1 - m / b, ours.number("misses", "count"),
                         lru.number("misses", "count"))
        reads = computed("times", lambda d, b: d / b, ours.number("device_reads", "count"),
                         lru.number("device_reads", "count"))
        text = (f"{workload.title}: {write(fewer.value, 'percent')} fewer misses with"
                f" {write(reads.value, 'times')} LRU's device reads")
        latency = against(latencies(context, workload, trace, 0), "defaults")
        if latency is not None:
            text += f", mean read latency {write(latency.value, 'times')} LRU's (live)"
        parts.append(text)
    return ("With nothing set but the cache's size, at the smallest of the three caches, against "
            "a plain LRU cache. " + "; ".join(parts) + ". How to read the figures is said in the "
            "next section.") if parts else None


def against_paper(context):
    rows = []
    for workload, trace in context.workloads():
        lru = outcome(workload, trace, "none")
        ours = {name: outcome(workload, trace, name) for name in ("quickmine", "defaults")}
        for index in range(3):
            live = latencies(context, workload, trace, index)

            def fewer(name, i=index):
                run = ours[name][i]
                if not run or not lru[i]:
                    return None
                return computed("percent", lambda m, b: 1 - m / b,
                                run.number("misses", "count"), lru[i].number("misses", "count"))

            if not lru[index]:
                continue
            rows.append([
                workload.title, *cache_cells(workload, trace, index),
                lru[index].number("miss_ratio", "percent"),
                paper.number("baseline_miss", "percent", workload=workload.name, size=index),
                fewer("quickmine"),
                paper.number("miss_reduction", "percent", workload=workload.name, size=index,
                             policy="quickmine"),
                fewer("defaults"),
                against(live, "quickmine"),
                paper.number("latency_ratio", "times", workload=workload.name, size=index,
                             policy="quickmine"),
                against(live, "defaults")])
    return Table(
        "summary", "QuickMine against LRU: misses (simulated) and mean read latency (live, "
        "over the model of 15 disks), with the paper's algorithm and with the defaults",
        ["workload", "cache", "the paper's", "LRU's misses", "paper", "fewer misses: paper's algorithm",
         "the paper", "defaults", "latency of LRU's: paper's algorithm", "the paper",
         "defaults"], rows)


def miss_rates(context):
    names = list(POLICIES)
    rows = []
    for workload, trace in context.workloads():
        runs = {name: outcome(workload, trace, name) for name in names}
        for index in range(3):
            cells = [runs[name][index].number("miss_ratio", "percent")
                     if runs[name][index] else None for name in names]
            if any(cells):
                rows.append([workload.title, *cache_cells(workload, trace, index), *cells])
    return Table(
        "miss-rates", "Misses, of blocks read, simulated: every policy on every workload",
        ["workload", "cache", "the paper's", *(POLICIES[name].title for name in names)], rows)
