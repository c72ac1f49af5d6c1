# SPDX-License-Identifier: BSD-3-Clause
"""kinds - every kind of workload, with every policy, at equal total memory.

What somebody gets who sets nothing but the cache's size, against the best that any of the
policies with any eviction would have given: a choice that takes knowing the workload.
"""

from report import charts
from report.book import computed
from report.jobs import DEFAULT
from report.model import Chart, Section, Table
from report.recordings import KINDS, WORKLOADS, CLIENTS
from report.sections import MISSING

OTHERS = {"none": "no prefetching", "seq": "SEQ", "amp": "AMP", "mithril": "Mithril",
          "quickmine": "QuickMine, paper's rules", "ppm": "QuickMine, associations"}
EVICTIONS = {True: "lru,wtinylfu", False: "lru,arc,s3fifo,wtinylfu"}
READS = {True: 250_000, False: 600_000}
NAMES = {"lru": "LRU", "arc": "ARC", "s3fifo": "S3-FIFO", "wtinylfu": "W-TinyLFU"}


def recordings(context):
    """(title, recording) of each workload that is there."""
    for name, title in [(f"{w.name}-{CLIENTS}", w.title) for w in WORKLOADS] + [
            (k.name, k.title) for k in KINDS]:
        recording = context.recording(name)
        if recording is not None:
            yield title, recording


def section(context):
    result = Section("kinds", "Every kind of workload, at equal memory")
    quick, rows, drawn = context.jobs.quick, [], []
    for title, recording in recordings(context):
        run = context.book.ask(context.jobs.regret(recording, EVICTIONS[quick], READS[quick]))
        if run is None:
            continue
        sizes = sorted({item["size"] for item in run.result})
        for number, size in enumerate(sizes):
            row = row_of(title, run, size)
            if row is None:
                continue
            rows.append(row)
            if number == len(sizes) // 2:
                drawn.append((title, row))
    if not rows:
        return result.text(MISSING)
    result.text(
        "Memory is that of the cache in all: blocks, what is kept about them, and rules. For each "
        "policy the best of the evictions "
        + ", ".join(NAMES[e] for e in EVICTIONS[quick].split(","))
        + " is shown, which takes knowing the workload; sequential policies look at each "
        "context's reads or at all of them, whichever is better. The default is one policy for "
        "all. Cache sizes are 5, 15 and 45 % of what the recording reads. The first half of "
        f"the first {READS[quick]:,} read requests is not counted.")
    result.add(Chart(
        charts.compared("kinds", "Misses by workload", [
            (title, {"LRU": row[2].value, "best of the others": row[-6].value,
                     "default": row[-3].value}) for title, row in drawn], "misses, % of blocks read"),
        "Misses at the second size: plain LRU, the best of all policies and evictions for that "
        "workload and size, and the default"))
    return result.add(Table(
        "kinds", "Simulated, at equal total memory: misses of blocks read, each policy with "
        "its best eviction",
        ["workload", "memory", "LRU", *OTHERS.values(), "which is best", "the best's misses",
         "the best's device reads, of LRU's", "default's device reads, of LRU's",
         "default's misses", "of the best's", "of W-TinyLFU's"], rows))


def row_of(title, run, size):
    """A row of the table; None without what all is compared with."""
    def find(**fields):
        for index, item in enumerate(run.result):
            if item["size"] == size and all(item[k] == v for k, v in fields.items()):
                yield item["misses"], index

    def best(**fields):
        found = [f for f in find(**fields)]
        return min(found)[1] if found else None

    def number(index, field, unit):
        return None if index is None else run.number(f"{index}.{field}", unit)

    lru = best(policy="none", eviction="lru")
    tiny = best(policy="none", eviction="wtinylfu")
    mine = best(policy=DEFAULT, eviction="")
    others = [i for p in OTHERS for m, i in find(policy=p) if run.result[i]["eviction"]]
    if lru is None or mine is None or not others:
        return None
    first = min(others, key=lambda i: run.result[i]["misses"])
    chosen = run.result[first]

    def by(unit, index, field, base):
        return computed(unit, lambda a, b: a / b, number(index, field, "count"),
                        number(base, field, "count"))

    return [
        title, number(lru, "size", "mib"), number(lru, "miss_ratio", "percent"),
        *(number(min((f for f in find(policy=p) if run.result[f[1]]["eviction"]),
                     default=(0, None))[1], "miss_ratio", "percent") for p in OTHERS),
        f"{OTHERS[chosen['policy']]}, {NAMES[chosen['eviction']]}",
        number(first, "miss_ratio", "percent"),
        by("times", first, "device_reads", lru), by("times", mine, "device_reads", lru),
        number(mine, "miss_ratio", "percent"), by("times", mine, "misses", first),
        by("times", mine, "misses", tiny)]
