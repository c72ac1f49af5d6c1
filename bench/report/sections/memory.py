# SPDX-License-Identifier: BSD-3-Clause
"""memory - what rules take, and what a plain cache would do with it.

At equal total memory: blocks, what the server keeps about them, and rules.
"""

from report.book import computed
from report.jobs import POLICIES
from report.model import Section, Table
from report.recordings import BLOCK
from report.sections import MISSING
from report.sections.performance import cache_cells
from report.sections.simulated import outcome

PLAIN = ("lru", "wtinylfu")


def section(context):
    result = Section("memory", "At equal total memory")
    rows = []
    for workload, trace in context.workloads():
        for name in ("quickmine", "defaults"):
            for index, run in enumerate(outcome(workload, trace, name)):
                if run:
                    rows.append(row(workload, trace, POLICIES[name], index, run))
    if not rows:
        return result.text(MISSING)
    return result.text(
        "Rules are memory that a plain cache would spend on blocks. Here LRU and W-TinyLFU, "
        "which prefetch nothing, have as much as blocks, their metadata and the rules take "
        "together with QuickMine.").add(Table(
            "equal-memory", "Simulated, at equal total memory: misses, and blocks read from "
            "the device, of blocks read",
            ["workload", "cache", "the paper's", "policy", "total memory", "of it rules",
             "misses", "LRU's misses", "W-TinyLFU's misses", "fewer than LRU",
             "fewer than W-TinyLFU", "device reads", "LRU's", "W-TinyLFU's"], rows))


def device(run):
    return computed("percent", lambda d, r: d / r, run.number("device_reads", "count"),
                    run.number("reads", "count")) if run else None


def row(workload, trace, policy, index, run):
    # A plain cache's size includes its metadata; whole blocks, so that less than one more
    # does not make another run.
    total = run.get("total_bytes") // BLOCK * BLOCK
    plain = trace.sim(f"LRU and W-TinyLFU with all that {policy.title} takes",
                      ["--policy", "none", "--eviction", ",".join(PLAIN),
                       "--cache-size", str(total)])
    others = [plain.find(eviction=e) if plain else None for e in PLAIN]
    misses = run.number("misses", "count")
    return [
        workload.title, *cache_cells(workload, trace, index), policy.title,
        run.number("total_bytes", "mib"),
        computed("percent", lambda r, t: r / t, run.number("rules_bytes", "mib"),
                 run.number("total_bytes", "mib")),
        run.number("miss_ratio", "percent"),
        *(o.number("miss_ratio", "percent") if o else None for o in others),
        *(computed("percent", lambda m, b: 1 - m / b, misses, o.number("misses", "count"))
          if o else None for o in others),
        device(run), *(device(o) for o in others)]
