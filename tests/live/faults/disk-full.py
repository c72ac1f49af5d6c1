# SPDX-License-Identifier: BSD-3-Clause
"""disk-full.py SOCKET few|many|again: so many rules, and so long a recording, that they
fit, or do not; or that there are rules already."""
import random
import sys
import time

import client
from client import Tagged

path, how = sys.argv[1:]
a = Tagged(path)
blocks = a.size // 4096
if how == "again":
    assert a.stats()["rules"] > 0, a.stats()["rules"]
rnd = random.Random(7)
tours = [[rnd.randrange(blocks) for _ in range(60)] for _ in range(60)]


def walk(i):
    a.begin(a.first, klass=i, name=b"a name that takes its room in the recording")
    for block in tours[i % len(tours)]:
        assert a.pread(4096, block * 4096, a.first) == bytes(4096)
    a.end(a.first)


# Each twice, with more in between than is cached: what was seen once is not saved.
for i in range(30):
    walk(i % 15)
if how == "many":
    # Rules that change are saved now and then, and when the server ends.
    end = time.monotonic() + 60
    while not (a.stats()["rules_save_errors"] and a.stats().get("record_error")):
        i += 1
        walk(i)
        assert time.monotonic() < end, (i, a.stats()["rules_save_errors"])
client.wait_for(lambda: a.stats()["sequences_queued"] == 0)
if how != "many":
    assert not a.stats().get("record_error"), a.stats()["record_error"]
    assert a.stats()["rules_save_errors"] == 0
client.passed(f"{how}: {i + 1} contexts, {a.stats()['rules']} rules")
