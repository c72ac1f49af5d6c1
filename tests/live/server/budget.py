# SPDX-License-Identifier: BSD-3-Clause
"""budget.py SOCKET CONTROL: sequential readers, and a budget of prefetch reads.

The server begins with prefetch-rate=1/day.  How many prefetch reads there may have been
between two looks at the statistics follows from the time from before the first to after the
second, so that a slow machine changes nothing.  A read is counted at its end: each thread that
prefetches may have had one under way at the first look.
"""
import json
import math
import random
import socket
import sys
import time

import client

BLOCK = 16384
BLOCKS = (1 << 30) // BLOCK
THREADS = 2

path, control = sys.argv[1:]
rnd = random.Random(3)
c = client.Tagged(path)


def change(rate):
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(json.dumps({"set": {"prefetch-rate": rate}}).encode() + b"\n")
    answer = json.loads(s.makefile().readline())
    assert "error" not in answer, answer


def read_runs(runs):
    for _ in range(runs):
        c.begin(c.first)
        start = rnd.randrange(BLOCKS - 20)
        for block in range(start, start + 20):
            c.pread(BLOCK, block * BLOCK, c.first)
        c.end(c.first)


def look():
    before = time.monotonic()
    stats = c.stats()
    return before, stats["prefetch_reads"], time.monotonic(), stats


def bounded(n, reads):
    """Reads until there were that many prefetch reads with a budget of n a second."""
    looks = [look()]
    while looks[-1][1] < looks[0][1] + reads:
        read_runs(3)
        looks.append(look())
        assert looks[-1][2] < looks[0][0] + 120, "it does not prefetch"
    for i, first in enumerate(looks):
        for last in looks[i + 1:]:
            most = n * math.ceil(last[2] - first[0]) + THREADS
            assert last[1] - first[1] <= most, (first[:3], last[:3], most)


read_runs(20)
stats = c.stats()
assert stats["prefetch_rate"] == "1/day" and stats["prefetch_reads"] == 0, stats
assert stats["over_rate"] > 0 and stats["prefetches"] == 0, stats
assert stats["device_reads"] >= 350, stats
client.passed("one a day: none yet")
change("20/s")
bounded(20, 60)
client.passed("20 a second")
change("100/s")
bounded(100, 200)
client.passed("100 a second")
change("off")
before = c.stats()
assert before["prefetch_rate"] == "off", before
read_runs(50)
# Threads that are late prefetch little of a run: what is read meanwhile is not.
client.wait_for(lambda: read_runs(3) or
                c.stats()["prefetch_reads"] > before["prefetch_reads"] + 30)
assert c.stats()["over_rate"] == before["over_rate"]
client.passed("no budget")
change("40/s")
bounded(40, 80)
client.passed("40 a second")
