# SPDX-License-Identifier: BSD-3-Clause
"""change-heeded.py SOCKET CONTROL none|degree|level: the policy works by what was set, not only reports it.

The server has policy=quickmine, degree=1 and level=query; its cache is of 256 blocks.
"""
import json
import socket
import sys

import client
from client import QUERY, TRANSACTION, Tagged

BLOCK = 16384
path, control, what = sys.argv[1:]
a = Tagged(path)
plain = client.connect(path)


def change(**settings):
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(json.dumps({"set": settings}).encode() + b"\n")
    answer = json.loads(s.recv(1 << 16))
    assert len(answer["changed"]) == len(settings), answer


def evict():
    """Nothing that contexts read before is in the cache after this.  Once only: what is learned
    of these reads, when contexts start anew, would be prefetched, and be counted."""
    for block in range(1000, 1600):
        plain.pread(BLOCK, block * BLOCK)


def read(places, slot):
    for block in places:
        a.pread(BLOCK, block * BLOCK, slot)


def learned(rules):
    """That many: the sequence is not queued any more while it is mined."""
    client.wait_for(lambda: a.stats()["rules"] >= rules)


def prefetches(places, least):
    """How many come of reading these two, once there are that many."""
    evict()
    before = a.stats()["prefetches"]
    a.begin(a.first, kind=TRANSACTION)
    a.begin(a.first + 1, parent=a.first, kind=QUERY)
    read(places, a.first + 1)
    client.wait_for(lambda: a.stats()["prefetches"] >= before + least)
    a.end(a.first + 1)
    a.end(a.first)
    return a.stats()["prefetches"] - before


def begin_query():
    a.begin(a.first + 1, parent=a.first, kind=QUERY)


tour = [10, 3, 25, 31, 7, 40, 22, 55]
a.begin(a.first, kind=TRANSACTION)
begin_query()
if what != "level":
    read(tour, a.first + 1)
    a.end(a.first + 1)
    a.end(a.first)
    learned(28)  # of eight blocks: each two of the four that follow one
    if what == "degree":
        change(degree="4")
    n = prefetches(tour[:2], 2 if what == "degree" else 1)
    assert n == 1 or what == "degree", n
    client.passed(f"{n} blocks with {what} changed")
else:
    # Of contexts that are open when it changes, too.  The reads of both queries are one sequence
    # then; were they two, of four blocks each, there would be 12 rules of them.
    change(level="transaction")
    read(tour[:4], a.first + 1)
    a.end(a.first + 1)
    begin_query()
    read(tour[4:], a.first + 1)
    a.end(a.first + 1)
    a.end(a.first)
    learned(28)
    client.passed("level: the reads of two queries are one sequence")
