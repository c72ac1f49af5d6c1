# SPDX-License-Identifier: BSD-3-Clause
"""throttle.py SOCKET on|off: a class that does not benefit is off, one that does is on.

Of two classes, one reads the same paths again and again; the other reads the same two
blocks and then others each time, so that all rules that it makes are wrong.
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


def context(klass, places):
    c.begin(c.first, 0, klass, QUERY)
    for block in places:
        c.pread(BLOCK, block * BLOCK, c.first)
    c.end(c.first)


def both(times):
    for _ in range(times):
        context(USEFUL, rnd.choice(paths))
        context(USELESS, rnd.choice(starts) + rnd.sample(range(2000, 6000), 4))
    client.wait_for(lambda: c.stats()["sequences_queued"] == 0)
    return {int(k["class"], 16): k for k in c.stats()["classes"]}


before = both(600)
after = both(600)
issued = after[USELESS]["issued"] - before[USELESS]["issued"]
reads = after[USELESS]["reads"] - before[USELESS]["reads"]
assert after[USEFUL]["state"] == "on"
assert after[USEFUL]["used"] > 0.5 * after[USEFUL]["issued"] > 0
assert int(after[USEFUL]["set"], 16) == USEFUL
if throttle == "on":
    assert after[USELESS]["state"] == "off", after
    assert issued < reads / 100, (issued, reads)
else:
    assert after[USELESS]["state"] == "on"
    assert issued > reads / 20, (issued, reads)
client.passed(f"throttle={throttle}: {issued} prefetches for {reads} useless reads")
