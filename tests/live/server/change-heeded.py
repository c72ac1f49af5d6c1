# SPDX-License-Identifier: BSD-3-Clause
"""change-heeded.py SOCKET CONTROL: the policy works by what was set, not only reports it.

The server has policy=quickmine, degree=1 and level=query; its cache is of 256 blocks.
"""
import json
import socket
import sys

import client
from client import QUERY, TRANSACTION, Tagged

BLOCK = 16384
path, control = sys.argv[1:]
a = Tagged(path)
plain = client.connect(path)


def change(**settings):
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(json.dumps({"set": settings}).encode() + b"\n")
    answer = json.loads(s.recv(1 << 16))
    assert len(answer["changed"]) == len(settings), answer


def evict():
    """Nothing that contexts read before is in the cache after this."""
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


# The degree.
tour = [10, 3, 25, 31, 7, 40, 22, 55]
a.begin(a.first, kind=TRANSACTION)
a.begin(a.first + 1, parent=a.first, kind=QUERY)
read(tour, a.first + 1)
a.end(a.first + 1)
a.end(a.first)
learned(28)  # of eight blocks: each two of the four that follow one
few = prefetches(tour[:2], 1)
assert few == 1, few
change(degree="4")
many = prefetches(tour[:2], 2)
client.passed(f"degree: {few}, then {many} blocks")
