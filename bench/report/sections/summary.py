"""summary - the figures that one looks for first; also the first table of bench/RESULTS.md."""

from report import paper
from report.book import computed
from report.jobs import POLICIES
from report.model import Section, Table
from report.sections import MISSING
from report.sections.live import against, latencies
from report.sections.performance import cache_cells
from report.sections.simulated import outcome


def section(context):
    result = Section("summary", "Summary")
    tables = [t for t in (against_paper(context), miss_rates(context)) if t.rows]
    return result.add(*tables) if tables else result.text(MISSING)


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
