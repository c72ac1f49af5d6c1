# SPDX-License-Identifier: BSD-3-Clause
"""stall.py SOCKET FILE: while FILE is there, the disk does not answer."""
import os
import random
import sys
import threading

import client
from client import Tagged

path, stall = sys.argv[1:]
BLOCK = 16384
rnd = random.Random(1)
plain = client.connect(path)
a = Tagged(path)
size = a.size
data = rnd.randbytes(size)
for offset in range(0, size, 1 << 20):
    plain.pwrite(data[offset:offset + (1 << 20)], offset)
tour = rnd.sample(range(size // BLOCK // 2), 12)


def walk(context):
    a.begin(a.first, klass=context)
    for b in tour:
        assert a.pread(BLOCK, b * BLOCK, a.first) == data[b * BLOCK:][:BLOCK]
    a.end(a.first)


for _ in range(100):
    walk(1)
    plain.pread(size // 2, size // 2)  # the tour's blocks go
    if a.stats()["prefetches"] > 0:
        break
else:
    raise AssertionError("the tour is not learned")
cached = size - 4 * BLOCK
plain.pread(BLOCK, cached)

open(stall, "w").close()
finished = []


def wait_for_disk(what, *args):
    h = client.connect(path)
    finished.append((what, args, getattr(h, what)(*args)))
    h.shutdown()


new = rnd.randbytes(BLOCK)
missing = [b * BLOCK for b in tour[3:6]]
threads = [threading.Thread(target=wait_for_disk, args=args) for args in
           [("pread", BLOCK, offset) for offset in missing for _ in range(3)] +
           [("pwrite", new, cached + BLOCK), ("flush",), ("zero", BLOCK, cached + 2 * BLOCK)]]
for thread in threads:
    thread.start()
# A context that walks the tour, too: its prefetches hang as well.
b = Tagged(path)
b.begin(b.first, klass=1)
walker = threading.Thread(target=lambda: [b.pread(BLOCK, x * BLOCK, b.first) for x in tour])
walker.start()
client.wait_for(lambda: a.stats()["connections"] == len(threads) + 3)
# Who reads what is cached does not wait.
for _ in range(1000):
    assert plain.pread(BLOCK, cached) == data[cached:cached + BLOCK]
assert not finished and walker.is_alive()

os.unlink(stall)
for thread in threads + [walker]:
    thread.join(60)
    assert not thread.is_alive()
for what, args, result in finished:
    if what == "pread":
        assert result == data[args[1]:args[1] + args[0]]
assert len(finished) == len(threads)
assert a.pread(3 * BLOCK, cached) == data[cached:cached + BLOCK] + new + bytes(BLOCK)
client.passed("all waited, and nothing was lost")
