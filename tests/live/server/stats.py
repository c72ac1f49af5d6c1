# SPDX-License-Identifier: BSD-3-Clause
"""stats.py SOCKET STATS: the statistics, by socket and through the window."""
import glob
import socket
import sys
import time

import client
from client import QUERY, STATS, WINDOW, Tagged

path, stats_path = sys.argv[1:]
a = Tagged(path)
a.begin(a.first, 0, 42, QUERY, "gr\u00fc\u00df \u0001 dich".encode() + b"\xff")
for block in [1, 2, 3, 1, 2, 3]:
    a.pread(16384, block * 16384, a.first)
a.pread(20000, 100)  # blocks 0 and 1
a.pwrite(b"abc", 7)
s = client.socket_stats(stats_path)
w = a.stats()
for key in ["uptime_us", "latency_us"]:
    s.pop(key), w.pop(key)
assert s == w, (s, w)
assert s["version"] and s["policy"] == "none" and s["level"] == "query"
assert s["eviction"] == "adaptive" and s["block_size"] == 16384
assert s["cache_blocks"] == 100 and s["prefetch_blocks"] == 0
assert s["cache_bytes"] > 4 * 16384
assert (s["reads"], s["read_bytes"]) == (7, 6 * 16384 + 20000)
assert (s["writes"], s["write_bytes"]) == (1, 3)
assert (s["hits"], s["prefetch_hits"], s["misses"]) == (4, 0, 4)
assert s["promotes"] == s["prefetch_hits"]  # the old name
assert (s["device_reads"], s["device_blocks"]) == (4, 4)
assert s["prefetches"] == s["used"] == s["wasted"] == s["failed"] == s["dropped"] == 0
for key in ["rules", "prefixes", "rules_bytes", "sequences", "sequences_shed",
            "lookups", "matches", "recorded", "record_dropped"]:
    assert s[key] == 0, key
assert (s["contexts_open"], s["contexts_begun"]) == (1, 1)
assert (s["sessions"], s["connections"]) == (1, 1)
(k,) = s["classes"]
assert k["class"] == "%016x" % 42 and k["kind"] == "query" and k["state"] == "on"
assert k["name"] == "gr\u00fc\u00df ? dich?"
assert (k["contexts"], k["reads"], k["hits"], k["misses"]) == (1, 6, 3, 3)
assert k["latency_us"] > 0
latency = a.stats()["latency_us"]
assert latency["count"] == 7
assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"]
assert latency["max"] >= latency["mean"] > 0
times, counts = zip(*latency["histogram"])
assert list(times) == sorted(set(times)) and min(counts) > 0 and sum(counts) == 7
ranked = [us for us, n in latency["histogram"] for _ in range(n)]
assert ranked[3] == latency["p50"] and ranked[6] == latency["p99"]

# One who asks all the time keeps the server busy for a tenth of it.


def computed(process):
    """Seconds of processors' time."""
    total = 0
    for task in glob.glob(f"/proc/{process}/task/*/schedstat"):
        with open(task, encoding="ascii") as file:
            total += int(file.read().split()[0]) / 1e9
    return total


with open(path.replace(".sock", ".pid"), encoding="ascii") as file:
    server = int(file.read())
for i in range(1000):
    a.begin(a.first + 1, 0, 1000 + i, QUERY)
began, before = time.monotonic(), computed(server)
for _ in range(10):
    a.h.pread(1, WINDOW | STATS)
took, ran = time.monotonic() - began, computed(server) - before
assert ran < 0.2 * took, (ran, took)

# One who connects and does not read keeps nobody waiting.
silent = [socket.socket(socket.AF_UNIX) for _ in range(5)]
for c in silent:
    c.connect(stats_path)
assert client.socket_stats(stats_path)["reads"] == 7
client.passed("statistics")

# What is read in a query counts for its own class, and in the totals for the classes of
# what it is nested in, each once, however often a class is around it.
b = Tagged(path)
outer, inner, again, deep = (b.first + n for n in range(4))
b.begin(outer, 0, 71, client.TRANSACTION, b"transaction")
b.begin(inner, outer, 72, QUERY, b"query")
b.begin(again, inner, 71, client.TRANSACTION, b"")  # as a procedure may call itself
b.begin(deep, again, 73, QUERY, b"deep")
b.pread(16384, 40 * 16384, outer)
b.pread(2 * 16384, 40 * 16384, inner)
b.pread(16384, 40 * 16384, again)
b.pread(3 * 16384, 40 * 16384, deep)
seen = {k["name"]: k for k in client.socket_stats(stats_path)["classes"]}
numbers = {name: [seen[name][key] for key in
                  ("reads", "hits", "misses", "total_reads", "total_hits",
                   "total_prefetch_hits", "total_misses")]
           for name in ("transaction", "query", "deep")}
assert numbers == {"transaction": [2, 1, 1, 7, 4, 0, 3],
                   "query": [2, 1, 1, 6, 4, 0, 2],
                   "deep": [3, 2, 1, 3, 2, 0, 1]}, numbers
for k in seen.values():
    assert k["promotes"] == k["prefetch_hits"]  # the old names
    assert k["total_promotes"] == k["total_prefetch_hits"]
    assert (k["total_latency_us"] > 0) == (k["total_reads"] > 0), k
    # Nothing is nested in it: both are the mean of the same requests.
    assert k["name"] != "deep" or k["total_latency_us"] == k["latency_us"], k
# Four requests, of which two are its own: the sum of all their times.
times = [seen[name]["latency_us"] for name in ("transaction", "query", "deep")]
total = 4 * seen["transaction"]["total_latency_us"]
assert abs(total - (2 * times[0] + times[1] + times[2])) < 0.02, (total, times)
# The one that most was read in comes first, what is nested in it included.
names = [k["name"] for k in client.socket_stats(stats_path)["classes"]]
assert names.index("transaction") < names.index("query") < names.index("deep"), names
# More classes around it than are counted: the innermost count.
slots = [b.first + 10 + n for n in range(20)]
for n, slot in enumerate(slots):
    b.begin(slot, slots[n - 1] if n else 0, 100 + n, QUERY, b"nested %d" % n)
b.pread(16384, 40 * 16384, slots[-1])
seen = {k["name"]: k["total_reads"] for k in client.socket_stats(stats_path)["classes"]}
assert [seen[f"nested {n}"] for n in range(20)] == [0] * 4 + [1] * 16, seen
client.passed("nested contexts")
