# SPDX-License-Identifier: BSD-3-Clause
"""beyond - what the paper does not compare: eviction, levels, bounds."""

from report import charts
from report.jobs import DEFAULT, POLICIES
from report.model import Chart, Charts, Section, Table
from report.sections import MISSING
from report.sections.simulated import sizes_of
from report.units import size as size_text

EVICTIONS = {"lru": "LRU", "lfu": "LFU", "mru": "MRU", "arc": "ARC", "s3fifo": "S3-FIFO",
             "wtinylfu": "W-TinyLFU",
             "adaptive": "adaptive", "belady": "Belady (bound)"}
LEVEL_POLICIES = ("seq", "run", "quickmine", "defaults")


def named(policy):
    """With a level it is not what a user gets by setting nothing."""
    return f"policy {policy.policy}" if policy.default else policy.title


def section(context):
    result = Section("beyond", "Beyond the paper: eviction, levels, bounds")
    there = False
    for workload, trace in context.workloads():
        blocks = [*evictions(workload, trace), *levels(workload, trace)]
        there = there or bool(blocks)
        result.add(*blocks)
    return result if there else result.text(MISSING)


def bar(label, colour, run):
    return (label, colour, 100 * run.get("miss_ratio"), None, None)


def miss_chart(name, title, rows, caption):
    return Chart(charts.bars(name, title, rows, "misses, % of blocks read",
                             lambda v: f"{v:.1f} %"), caption)


def evictions(workload, trace):
    """Each eviction without prefetching, with the default policy, and with perfect
    knowledge, which with Belady's eviction is as good as it gets."""
    size = sizes_of(workload, trace)[0]
    rows, plain, mined = [], [], []
    for eviction in EVICTIONS:
        options = ["--eviction", eviction, "--cache-size", str(size)]
        runs = []
        for policy, label in (("none", "no prefetching"), (DEFAULT, "QuickMine"),
                              ("perfect", "perfect knowledge")):
            run = None
            if policy != "perfect" or eviction in ("lru", "belady"):
                own = ["--level", workload.level] if policy == "perfect" else []
                run = trace.sim(f"eviction {eviction}, {label}",
                                ["--policy", policy, *own, *options])
            runs.append(run.find(policy=policy) if run else None)
        none, ours, bound = runs
        if none:
            plain.append(bar(EVICTIONS[eviction], charts.POLICY["none"], none))
        if ours:
            mined.append(bar(EVICTIONS[eviction], charts.POLICY["defaults"], ours))
        if none or ours:
            rows.append([EVICTIONS[eviction], *(run.number("miss_ratio", "percent") if run else None
                                     for run in runs),
                         *(run.number("device_reads", "count") if run else None
                           for run in (none, ours))])
    if not rows:
        return
    about = f"cache of {size_text(size)}, metadata included"
    yield Charts([
        miss_chart(f"{workload.name}-eviction-none", f"{workload.title}: eviction", plain,
                   f"{workload.title}, {about}: eviction without prefetching"),
        miss_chart(f"{workload.name}-eviction-quickmine",
                   f"{workload.title}: eviction with QuickMine", mined,
                   f"{workload.title}, {about}: eviction with policy {DEFAULT}")])
    yield Table(
        f"{workload.name}-evictions", f"{workload.title}, simulated, {about}: misses by "
        "eviction",
        ["eviction", "no prefetching", f"policy {DEFAULT}", "perfect knowledge",
         "device reads, no prefetching", "device reads, QuickMine"], rows)


def levels(workload, trace):
    size = sizes_of(workload, trace)[0]
    names = ("none", trace.detangled, "transaction", "query")
    runs = {}
    for policy in map(POLICIES.get, LEVEL_POLICIES):
        run = trace.sim(f"{named(policy)} at all levels", [
            "--policy", policy.policy, "--level", ",".join(names),
            "--cache-size", str(size), *(("--preset", "paper") if policy.paper else ())])
        for level in names:
            runs[policy.name, level] = run.find(level=level) if run else None
    rows, drawn = [], {"quickmine": [], "defaults": []}
    for policy in LEVEL_POLICIES:
        for level in names:
            run = runs[policy, level]
            if not run:
                continue
            rows.append([named(POLICIES[policy]), level, run.number("miss_ratio", "percent"),
                         run.number("prefetches", "count"), run.number("accuracy", "percent"),
                         run.number("rules", "count"), run.number("rules_bytes", "mib")])
            if policy in drawn:
                drawn[policy].append(bar(
                    level, charts.POLICY[policy if level != "none" else "none"], run))
    if not rows:
        return
    yield Charts([miss_chart(
        f"{workload.name}-levels-{policy}", f"{workload.title}: levels", bars,
        f"{workload.title}, cache of {size_text(size)}: {named(POLICIES[policy])}, by whose "
        "reads are mined together") for policy, bars in drawn.items() if bars])
    yield Table(
        f"{workload.name}-levels", f"{workload.title}, simulated, cache of "
        f"{size_text(size)}: what contexts bring, to others as well (level none: "
        "without). The paper's algorithm mines a context when it ends, so that one that lasts "
        "as long as the trace teaches it nothing.",
        ["policy", "level", "misses", "prefetches", "accuracy", "rules", "memory of rules"],
        rows)
