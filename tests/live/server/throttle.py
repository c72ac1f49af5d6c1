# SPDX-License-Identifier: BSD-3-Clause
"""throttle.py SOCKET on|off: a class that does not benefit is off, one that does is on.

Of two classes, one reads the same paths again and again; the other reads the same two
blocks and then others each time, never the same, so that all rules that it makes are wrong.
"""
import random
import sys

import client
from client import QUERY, Tagged

path, throttle = sys.argv[1:]
rnd = random.Random(5)
BLOCK = 16384
USEFUL, USELESS = 1, 2
c = Tagged(path)
paths = [rnd.sample(range(1000), 20) for _ in range(40)]
starts = [rnd.sample(range(1000, 2000), 2) for _ in range(100)]
TIMES = 600
# Each once: a block that comes again may find what was prefetched for another context.
once = iter(rnd.sample(range(2000, 2000 + 2 * TIMES * 4), 2 * TIMES * 4))


def context(klass, places):
    c.begin(c.first, 0, klass, QUERY)
    for block in places:
        c.pread(BLOCK, block * BLOCK, c.first)
    c.end(c.first)


def both():
    for _ in range(TIMES):
        context(USEFUL, rnd.choice(paths))
        context(USELESS, rnd.choice(starts) + [next(once) for _ in range(4)])
    client.wait_for(lambda: c.stats()["sequences_queued"] == 0)
    return {int(k["class"], 16): k for k in c.stats()["classes"]}


before = both()
after = both()
issued = after[USELESS]["issued"] - before[USELESS]["issued"]
reads = after[USELESS]["reads"] - before[USELESS]["reads"]
assert after[USEFUL]["state"] == "on"
assert after[USEFUL]["used"] > 0.5 * after[USEFUL]["issued"] > 0
assert int(after[USEFUL]["set"], 16) == USEFUL
assert after[USELESS]["used"] == 0, after
if throttle == "on":
    assert after[USELESS]["state"] == "off", after
    assert issued < reads / 100, (issued, reads)
else:
    assert after[USELESS]["state"] == "on"
    assert issued > reads / 20, (issued, reads)
client.passed(f"throttle={throttle}: {issued} prefetches for {reads} useless reads")
