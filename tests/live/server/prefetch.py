# SPDX-License-Identifier: BSD-3-Clause
"""prefetch.py SOCKET POLICY: what is read the same way again is there already."""
import random
import sys

import client
from client import QUERY, TRANSACTION, Tagged

path, policy = sys.argv[1:]
rnd = random.Random(3)
BLOCK = 16384
clients = [Tagged(path) for _ in range(3)]
paths = [rnd.sample(range(1000), 40) for _ in range(10)]


def transaction(c, places, step):
    """One transaction; between its reads, others read something else."""
    slot = c.first
    c.begin(slot, 0, 7, TRANSACTION, b"trx")
    for i, block in enumerate(places):
        c.begin(slot + 1, slot, 8 + i % 3, QUERY)
        c.pread(BLOCK, block * BLOCK, slot + 1)
        step()
    c.end(slot)


def others():
    rnd.choice(clients[1:]).pread(BLOCK, rnd.randrange(1000, 2000) * BLOCK)


for places in paths:
    transaction(clients[0], places, others)
client.wait_for(lambda: clients[0].stats()["sequences_queued"] == 0)
before = clients[0].stats()
if policy != "ppm":  # that learns at once
    assert before["prefetch_hits"] == 0
for _ in range(2):
    for places in paths:
        transaction(clients[0], places, others)
after = clients[0].stats()
trx = [k for k in after["classes"] if k["kind"] == "query"]
prefetch_hits = sum(k["prefetch_hits"] for k in trx)
used, issued = sum(k["used"] for k in trx), sum(k["issued"] for k in trx)
assert prefetch_hits == after["prefetch_hits"] and used == after["used"]
assert issued == after["prefetches"]
wasted = sum(k["wasted"] for k in trx)
assert wasted == after["wasted"]
assert 0 <= issued - used - wasted <= after["prefetch_blocks"]
if policy == "none":
    assert after["prefetch_hits"] == after["prefetches"] == after["rules"] == 0
    assert after["misses"] + after["hits"] == 3 * 800
else:
    assert after["rules"] > 400 and (policy == "ppm" or after["matches"] > 0)
    assert prefetch_hits > 600, after  # of 800
    assert after["used"] > 0.7 * after["prefetches"], after
client.passed(f"{prefetch_hits} prefetch hits, {after['used']} used of {after['prefetches']}")
