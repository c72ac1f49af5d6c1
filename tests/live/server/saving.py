# SPDX-License-Identifier: BSD-3-Clause
"""saving.py SOCKET learn N | saved N | failing N | known: rules, and whether they are saved."""
import sys

import client
from client import QUERY, Tagged

a = Tagged(sys.argv[1])
what = sys.argv[2]
n = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def tour(n):
    """Reads blocks in an order, twice: more of them than the cache holds."""
    for _ in range(2):
        a.begin(a.first, kind=QUERY)
        for i in range(n):
            a.pread(16384, (i * 577 % 1021) * 16384, a.first)
        a.end(a.first)


def count(key):
    return a.stats()[key]


if what == "learn":
    tour(n)
    client.wait_for(lambda: count("rules") > 0)
elif what == "saved":
    tour(n)
    client.wait_for(lambda: count("rules") > 0)
    before = count("rules_saves")  # one that began earlier may have found no rules yet
    tour(n)
    client.wait_for(lambda: count("rules_saves") > before)
elif what == "failing":
    before = count("rules_save_errors")
    tour(n)
    client.wait_for(lambda: count("rules_save_errors") >= before + 3)
    tour(n)
else:
    assert count("rules") > 0, a.stats()
client.passed(what)
