# SPDX-License-Identifier: BSD-3-Clause
"""reading - what a reader has to know to judge the rest fairly."""

from statistics import median

from report.book import Number
from report.model import Section, Table
from report.recordings import CLIENTS, CONCURRENCY, WORKLOADS
from report.sections.live import DEVICE, SEGMENT_READS, SEGMENTS, WARM_READS, latencies, ratios


def section(context):
    quick = context.jobs.quick
    result = Section("reading", "How to read this page")
    result.text(
        "Recorded: MariaDB ran each workload on a storage server with QuickMine's filter, "
        "which wrote down every read and write of the device with its context. All else "
        "is made of these traces. Their first halves train and warm up, their second "
        "halves are measured (§5.3 of the paper: two hours, the second measured)."
        + (" This is a quick comparison: of long traces, the beginning only." if quick
           else ""),
        "Simulated: counts of hits, prefetch hits and misses. The simulator runs the server's "
        "own cache and mining code, event by event; a prefetched block is there at once. "
        "Its figures are exact and the same each time; they say nothing about time.",
        "Live: latencies. Each policy gets a server of its own (nbdkit, our filter, and "
        f"below it a model of the paper's storage: {' '.join(DEVICE)}), to which "
        f"{CLIENTS} clients replay the trace as fast as they are answered, writes "
        + (f"included. The last {WARM_READS[quick]:,} requests before the measured ones "
           if WARM_READS[quick] else "included. All requests of the first half ")
        + f"warm the cache and teach; {SEGMENTS[quick]} segments of up to "
        f"{SEGMENT_READS[quick]:,} reads are measured, all policies taking turns at each. "
        "The disks are a model, which a database fills as far as in the paper; queueing, "
        "threads, locks and connections are real. “Late” is by how much replies came after "
        "the time that the model had for them: the machine's doing, and in the latencies.",
        "Live and simulated misses differ: live, a queue that is full drops prefetches, what is "
        "learned comes a few requests later, requests of different clients come in another "
        "order, and what is measured is a smaller part of the trace.",
        "LRU's column is the server without prefetching. “Paper” is what the paper's text "
        "reports, relative reductions being taken of LRU's rate; what only its drawings "
        "show is left out. The clients are fewer here, as the caches are smaller: 4 % of "
        "the smallest cache must hold what they prefetch.")
    result.add(recordings_table(context), noise(context), machine(context))
    failed = [[unit.label, why] for unit, why in context.book.failed.values()]
    if failed:
        result.add(Table("failed", "What could not be run, and is missing below",
                         ["what", "why"], failed))
    return result


def recordings_table(context):
    rows = []
    names = [f"{w.name}-{CLIENTS}" for w in WORKLOADS] + ["tpcw-shift"] + [
        f"{w.name}-{n}" for w in WORKLOADS for n in CONCURRENCY if n != CLIENTS]
    for name in names:
        recording = context.recording(name)
        if not recording:
            continue
        about = recording.about

        def number(key, unit, name=name, about=about):
            return Number(about[key], unit, f"recordings/{name}#{key}") if key in about else None

        workload = next(w for w in WORKLOADS if w.name == recording.workload)
        trace = context.trace(name, workload.level)
        rows.append([
            name, number("clients", "count"), number("instances", "count"),
            number("database_bytes", "mib"), number("pool_bytes", "mib"),
            number("seconds", "seconds"), number("interactions_per_second", "fixed"),
            trace.info.number("reads", "count") if trace else None,
            trace.info.number("writes", "count") if trace else None,
            Number(trace.reads, "count") if trace else None,
            str(about.get("command", ""))])
    return Table("recordings", "The recordings",
                 ["name", "clients", "instances", "data", "buffer pool", "time",
                  "interactions a second", "reads", "writes", "reads used", "command"], rows)


def noise(context):
    """How far repetitions of the same live measurement are apart."""
    rows = []

    def spread(numbers):
        values = sorted(n.value for n in numbers)
        return (values[-1] - values[0]) / median(values) if values and median(values) else 0

    for workload, trace in context.workloads():
        for index in range(3):
            servers = latencies(context, workload, trace, index)
            base = next((s for s in servers if s["name"] == "none"), None)
            if not base:
                continue
            own = [spread(s["means"]) for s in servers]
            paired = [spread(ratios(s, base)) for s in servers if s is not base] or [0]
            rows.append([
                workload.title, Number(index + 1, "count"), Number(len(own), "count"),
                Number(sum(own) / len(own), "percent"), Number(max(own), "percent"),
                Number(sum(paired) / len(paired), "percent"), Number(max(paired), "percent")])
    return Table(
        "noise", "Noise of the live figures: from the least to the most of the segments' mean "
        "latencies, in percent of their median, which includes that segments read different "
        "things; and the same of the ratio to LRU's in the same segment, which does not",
        ["workload", "cache", "policies", "latency: on average", "at most",
         "ratio: on average", "at most"], rows)


def machine(context):
    return Table("machine", "The machine, and the versions",
                 ["what", "value"], [[key, str(value)] for key, value in context.host.items()])
