# SPDX-License-Identifier: BSD-3-Clause
"""rules.py SOCKET learn|use|shrunk|empty: rules that are learned, or are there from before."""
import sys

import client
from client import QUERY, Tagged

a = Tagged(sys.argv[1])
places = [b * 16384 for b in (10, 3, 25, 31, 7, 40, 22, 55)]


def tour():
    a.begin(a.first, kind=QUERY)
    for offset in places:
        a.pread(16384, offset, a.first)
    a.end(a.first)


if sys.argv[2] == "empty":
    assert a.stats()["rules"] == 0
elif sys.argv[2] == "learn":
    tour()
    client.wait_for(lambda: a.stats()["rules"] > 0)
elif sys.argv[2] == "shrunk":
    # What follows these two blocks by the rules lies beyond the end, partly.
    assert a.size == 600 * 1024 and a.stats()["rules"] > 0
    a.begin(a.first, kind=QUERY)
    for offset in places[:4]:
        a.pread(16384, offset, a.first)
    assert a.stats()["prefetch_hits"] > 0
    client.wait_for(lambda: a.stats()["device_blocks"] >= 4)
else:
    assert a.stats()["rules"] > 0
    tour()
    s = a.stats()
    assert s["prefetch_hits"] == len(places) - 2, s
client.passed(sys.argv[2])
