# SPDX-License-Identifier: BSD-3-Clause
"""change-reset.py SOCKET CONTROL: what was counted before a reset does not count any more."""
import socket
import sys

import client

BLOCK = 16384
path, control = sys.argv[1:]


def reset():
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(b'{"set": {"statistics": "reset"}}\n')
    assert b"error" not in s.recv(65536)


def of_class(stats):
    return [k for k in stats["classes"] if k["name"] == "reset"][0]


c = client.Tagged(path)
c.begin(c.first, klass=77, kind=client.QUERY, name=b"reset")
for n in range(50):
    c.pread(BLOCK, n * BLOCK, c.first)
before = c.stats()
assert before["reads"] >= 50 and of_class(before)["reads"] == 50
reset()
now = c.stats()
for key in ["reads", "read_bytes", "writes", "hits", "misses", "prefetch_hits", "prefetches", "used",
            "wasted", "device_reads", "contexts_begun", "lookups"]:
    assert now[key] == 0, (key, now[key])
assert now["latency_us"]["count"] == 0 and now["latency_us"]["histogram"] == []
assert all(of_class(now)[k] == 0 for k in ["reads", "contexts", "total_misses", "issued"])
assert now["held_blocks"] == before["held_blocks"] and now["connections"] == before["connections"]
assert now["uptime_us"] >= before["uptime_us"] and 0 < now["reset_us"] < now["uptime_us"]
for n in range(7):
    c.pread(BLOCK, n * BLOCK, c.first)
now = c.stats()
assert now["reads"] == 7 and now["hits"] + now["prefetch_hits"] + now["misses"] == 7
assert of_class(now)["reads"] == 7 and of_class(now)["total_latency_us"] > 0
latency = now["latency_us"]
assert latency["count"] == 7 and 0 < latency["p50"] <= latency["p99"] <= latency["max"] * 1.1
assert sum(n for _, n in latency["histogram"]) == 7
reset()
assert c.stats()["reads"] == 0
c.end(c.first)
