# SPDX-License-Identifier: BSD-3-Clause
"""load - latency by load, in virtual time, and whether live replays agree.

The simulator runs the cache, the policies and the device model by one clock, so nothing else
that the machine does is in the figures (quickmine-sim(1), VIRTUAL TIME).
"""

from report import charts
from report.book import Number, computed
from report.jobs import POLICIES
from report.model import Chart, Charts, Section, Table
from report.recordings import CLIENTS
from report.sections import MISSING
from report.sections.live import DATABASE_GB, DEVICE, DISK_GB, latencies
from report.sections.simulated import sizes_of
from report.units import size as size_text

# (clients, disks).  A recording has no more clients than it was made with, so that more load
# takes fewer disks.
LOADS = {True: ((1, 15), (4, 15), (10, 15), (10, 5), (10, 3)),
         False: ((1, 15), (2, 15), (4, 15), (10, 15), (10, 8), (10, 5), (10, 3), (10, 2))}
DISKS = 15
# Without prefetching by two evictions, and what the filter does by itself.
SERIES = (("LRU", "none", "lru", charts.POLICY["none"]),
          ("W-TinyLFU", "none", "wtinylfu", charts.BLUE),
          ("QuickMine, defaults", "defaults", None, charts.POLICY["defaults"]))


def section(context):
    result = Section("load", "Latency by load, in virtual time")
    rows, checks, drawn = [], [], []
    for workload, trace in context.workloads():
        found = {}
        for title, name, eviction, colour in SERIES:
            for load in LOADS[context.jobs.quick]:
                run = virtual(context, workload, trace, name, eviction, *load)
                if run:
                    found[title, load] = run
        if not found:
            continue
        rows += table_rows(workload, found, context)
        drawn += draw(workload, trace, found)
        checks += confirm(context, workload, trace, found)
    if not rows:
        return result.text(MISSING)
    result.text(
        "Each client makes its next request when the last was answered. The device is the model "
        f"of {DISKS} striped disks that the live measurements have, or of fewer: that is more "
        "load. In the charts, a load is how busy a W-TinyLFU cache without prefetching keeps "
        "the disks; the lower a curve, the faster the reads. The second half of each trace is "
        "counted; the processor takes no time.")
    result.add(Charts(drawn)) if drawn else None
    result.add(Table(
        "load", "In virtual time, the smallest cache: latency of read requests, reads a second, "
        "how busy the disks were, and blocks read from them a read",
        ["workload", "clients", "disks", "policy", "mean", "p50", "p99", "p99.9", "of W-TinyLFU's mean",
         "of its p99", "reads a second", "disks busy", "device reads a read"], rows))
    if checks:
        result.add(Table(
            "load-live", f"Virtual time against the live replays with {CLIENTS} clients, which "
            "read less of the trace and include the machine: mean latency against LRU's",
            ["workload", "policy", "virtual, of LRU's", "live, of LRU's"], checks))
    return result


def virtual(context, workload, trace, name, eviction, clients, disks):
    policy = POLICIES[name]
    size = sizes_of(workload, trace)[0]
    about = trace.recording.about
    span = about["database_bytes"] * DISK_GB // DATABASE_GB[workload.name]
    device = [d.removeprefix("device-").removeprefix("device=") for d in DEVICE
              if not d.startswith("device-disks=")] + [f"disks={disks}"]
    # LRU and W-TinyLFU prefetch nothing, and the default has nothing set but its size.
    run = trace.sim(
        f"{policy.title}{' with ' + eviction if eviction else ''}, {clients} clients, "
        f"{disks} disks", [
            "--policy", policy.policy, "--cache-size", str(size),
            "--device", ",".join([*device, f"span={span}"]), "--clients", str(clients),
            *(("--eviction", eviction) if eviction else ())])
    return run.find(cache_size=size) if run else None


def table_rows(workload, found, context):
    for load in LOADS[context.jobs.quick]:
        base = found.get(("W-TinyLFU", load))
        for title, *_ in SERIES:
            run = found.get((title, load))
            if not run:
                continue

            def of(path, run=run, base=base):
                return computed("times", lambda a, b: a / b, run.number(path, "us"),
                                base.number(path, "us")) if base and base is not run else None

            yield [workload.title, *(Number(n, "count") for n in load), title,
                   *(run.number(f"{p}_us", "us") for p in ("mean", "p50", "p99", "p999")),
                   of("mean_us"), of("p99_us"), run.number("reads_per_second", "count"),
                   run.number("utilisation", "percent"),
                   computed("decimal", lambda d, r: d / r, run.number("device_reads", "count"),
                            run.number("reads", "count"))]


def draw(workload, trace, found):
    size = size_text(sizes_of(workload, trace)[0])
    for field, what in (("mean_us", "mean"), ("p99_us", "p99")):
        series = [(title, colour, "o-", sorted(
            (100 * found["W-TinyLFU", load].get("utilisation"), run.get(field) / 1000)
            for (t, load), run in found.items() if t == title and ("W-TinyLFU", load) in found))
            for title, _, _, colour in SERIES]
        yield Chart(charts.lines(
            f"load-{workload.name}-{what}", f"{workload.title}: {what} latency by load", series,
            "load: how busy the disks are with W-TinyLFU, %", "ms"),
            f"{workload.title}, cache of {size}: {what} latency of reads, by load")


def confirm(context, workload, trace, found):
    """Ratios of means, which a machine that is slow at everything disturbs less."""
    ours, base = (found.get((title, (CLIENTS, DISKS))) for title in ("QuickMine, defaults", "LRU"))
    servers = {s["name"]: s for s in latencies(context, workload, trace, 0)}
    if ours and base and {"none", "defaults"} <= set(servers):
        yield [workload.title, POLICIES["defaults"].title,
               computed("times", lambda a, b: a / b, ours.number("mean_us", "us"),
                        base.number("mean_us", "us")),
               computed("times", lambda a, b: a / b, servers["defaults"]["median"],
                        servers["none"]["median"])]
