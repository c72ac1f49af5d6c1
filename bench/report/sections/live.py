# SPDX-License-Identifier: BSD-3-Clause
"""live - the replays against servers over the device model.

The cache is warmed with the requests that come before the measured ones; those are the
beginning of the trace's second half, in segments of the same length.  A segment is one
repetition: all policies get the same ones.
"""

from statistics import median

from report.book import Number
from report.jobs import POLICIES

# The paper's storage: 15 disks of 10,000 RPM, striped (§5.3); a scheduler that reorders
# to save seeks (§6.2).
DEVICE = ("device=disk", "device-disks=15", "device-queue=sstf")
# Of 250 GB each, of which a database of 40 or 60 GB fills the outermost part: seeks are
# as short here.
DISK_GB, DATABASE_GB = 250, {"tpcw": 40, "rubis": 40, "tpcc": 60}
# Workers enough that the disks' queues, and not they, are what is waited for.  The default
# finds its own number.
WORKERS = ("prefetch-threads=16", "prefetch-queue=256")
SEGMENT_READS = {True: 6_000, False: 40_000}  # by whether the comparison is quick
SEGMENTS = {True: 3, False: 5}
WARM_READS = {True: 100_000, False: None}


def parameters(jobs, workload, trace, policy, size):
    block = trace.info.get("block_size")
    level = workload.level if policy.contexts else "none"
    own = [f"policy={policy.policy}", f"block-size={block}"]
    if not policy.default:
        own += [f"level={level}", "shards=1", *WORKERS]
    # As in the simulator: the paper counts data only, the defaults count everything.
    own += ["preset=paper", f"cache-blocks={size // block}"] if policy.paper else [
        f"cache-size={size}"]
    if policy.trained:
        own.append(jobs.parameter("trained", trace.trained()))
    return own


def latencies(context, workload, trace, index):
    """A list with a dict of Numbers for each policy; empty while it is not known."""
    jobs = context.jobs
    evidence = trace.evidence()
    if evidence is None:
        return []
    length, count = SEGMENT_READS[jobs.quick], SEGMENTS[jobs.quick]
    # A part that is short against the whole, so that it is alike.
    length = max(1, min(length, (trace.reads - trace.warmup) // 20))
    warm = min(WARM_READS[jobs.quick] or trace.warmup, trace.warmup)
    end = max(evidence.get("end"), trace.recording.about.get("device_bytes", 0))
    span = trace.recording.about["database_bytes"] * DISK_GB // DATABASE_GB[workload.name]
    names = [p.name for p in POLICIES.values() if p.live]
    if jobs.quick and index != 0:
        names = ["none", "quickmine", "defaults"]
    unit = jobs.live(
        trace.name, f"read latency, cache {index + 1} of 3", (end + 4095) // 4096 * 4096,
        trace.recording.clients, (*DEVICE, f"device-span={span}"),
        trace.cut(trace.warmup - warm, warm),
        [trace.cut(trace.warmup + i * length, length) for i in range(count)],
        [(name, parameters(jobs, workload, trace, POLICIES[name],
                           workload.sizes(trace.recording)[index])) for name in names])
    run = context.book.ask(unit)
    if run is None:
        return []
    return [figures(run, i) for i in range(len(run.get("servers")))]


def figures(run, server):
    def each(path, unit):
        segments = run.get(f"servers.{server}.segments")
        return [run.number(f"servers.{server}.segments.{i}.{path}", unit)
                for i in range(len(segments))]

    def middle(path, unit):
        return middle_of(each(path, unit), unit)

    means = each("latency_us.mean", "us")
    used = [Number(u.value / p.value, "percent") for u, p in
              zip(each("server.used", "count"), each("server.prefetches", "count"))
              if u is not None and p is not None and p.value]
    rates = [Number(r.value / s.value, "count") for r, s in
             zip(each("reads", "count"), each("seconds", "seconds")) if s.value]
    return {
        "name": run.get(f"servers.{server}.name"),
        "means": means,
        "median": middle_of(means, "us"),
        "least": min(means, key=lambda n: n.value),
        "most": max(means, key=lambda n: n.value),
        "p99": middle("latency_us.p99", "us"),
        "misses": middle("server.miss_ratio", "percent"),
        "dropped": middle("server.dropped", "count"),
        "accuracy": middle_of(used, "percent"),
        "rate": middle_of(rates, "count"),
        "queue": run.number(f"servers.{server}.device.queue_us.mean", "us"),
        "response": run.number(f"servers.{server}.device.response_us.mean", "us"),
        "late": run.number(f"servers.{server}.device.late_us.mean", "us"),
    }


def ratios(server, base):
    """Its mean latency against another's, of the same segment each: what a segment happens
    to read then matters less than for either."""
    return [Number(one.value / other.value, "times")
            for one, other in zip(server["means"], base["means"]) if other.value]


def against(servers, name, other="none"):
    """The median of a server's ratios to another; None if one is not there, or the same."""
    by_name = {server["name"]: server for server in servers}
    if name == other or name not in by_name or other not in by_name:
        return None
    return middle_of(ratios(by_name[name], by_name[other]), "times")


def middle_of(numbers, unit):
    """The median, which is one of them if their count is odd; None of none."""
    numbers = sorted((n for n in numbers if n is not None), key=lambda n: n.value)
    if not numbers:
        return None
    if len(numbers) % 2:
        return numbers[len(numbers) // 2]
    return Number(median(n.value for n in numbers), unit)
