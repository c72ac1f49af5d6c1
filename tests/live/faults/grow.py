# SPDX-License-Identifier: BSD-3-Clause
"""grow.py SOCKET IMAGE path|stream: the device becomes larger.

What the image has beyond its old end is written past the server, before anybody can know.
"""
import os
import random
import sys
import threading
import time

import client
from client import Tagged

path, image, how = sys.argv[1:]
BLOCK = 16384
END = (2 << 20) + 5000  # in the middle of a block
LAST = END // BLOCK
FULL = 4 << 20
rnd = random.Random(1)

with open(image, "rb") as f:
    data = f.read()
assert len(data) == END
old, old_tagged = client.connect(path), Tagged(path)
assert old.get_size() == END and old_tagged.size == END and old_tagged.size_now == 0


def here(h, count, offset):
    assert h.pread(count, offset) == data[offset:offset + count], (count, offset)


def become_larger():
    global data
    more = rnd.randbytes(FULL - END)
    with open(image, "r+b") as f:
        f.seek(END)
        f.write(more)
        f.flush()
        os.fsync(f.fileno())
    data += more


def path_beyond():
    # The block that the device ends in is in the cache, and in the tier if there is one.
    here(old, 5000, END - 5000)
    for _ in range(2):
        for b in range(LAST):
            here(old, BLOCK, b * BLOCK)
    here(old, 5000, END - 5000)
    become_larger()
    new, tagged = client.connect(path), Tagged(path)
    assert new.get_size() == FULL and tagged.size == FULL and tagged.stats()["size"] == FULL
    old_tagged.header()
    assert old_tagged.size == END and old_tagged.size_now == FULL and tagged.size_now == 0
    here(new, 2 * BLOCK, LAST * BLOCK)
    here(new, BLOCK, FULL - BLOCK)

    # It is cached as any other; the old connections load no part of the block that the
    # device ended in, but find what is cached.
    before = tagged.stats()["hits"]
    here(new, BLOCK, FULL - BLOCK)
    here(old, END - LAST * BLOCK, LAST * BLOCK)
    assert tagged.stats()["hits"] == before + 2
    for _ in range(3):
        for b in range(LAST + 1, FULL // BLOCK):  # the cache has room for 100 of these
            here(new, BLOCK, b * BLOCK)
        here(old, END - LAST * BLOCK, LAST * BLOCK)
        here(old_tagged, 100, END - 100)
        old.cache(END - LAST * BLOCK, LAST * BLOCK)
        here(new, BLOCK, LAST * BLOCK)
        for h in old, old_tagged, new, tagged:
            here(h, 3 * BLOCK, (LAST - 3) * BLOCK)

    # What is written on either side of the old end everybody sees.
    global data
    for h, offset in (new, END), (tagged, END - 100), (old, END - 200), (new, LAST * BLOCK):
        part = rnd.randbytes(200)
        h.pwrite(part, offset)
        data = data[:offset] + part + data[offset + 200:]
        for reader in new, tagged:
            here(reader, BLOCK, LAST * BLOCK)
        for reader in old, old_tagged:
            here(reader, END - LAST * BLOCK, LAST * BLOCK)

    # Blocks beyond the old end are prefetched, over connections that know of them.
    tour = rnd.sample(range(LAST + 1, FULL // BLOCK), 12)
    end = time.monotonic() + 60
    while True:
        before = tagged.stats()["prefetch_hits"]
        tagged.begin(tagged.first, klass=1)
        for b in tour:
            assert tagged.pread(BLOCK, b * BLOCK, tagged.first) == data[b * BLOCK:][:BLOCK]
        tagged.end(tagged.first)
        if tagged.stats()["prefetch_hits"] > before:
            break
        assert time.monotonic() < end, tagged.stats()
        for _ in range(2):
            for b in range(LAST):
                here(new, BLOCK, b * BLOCK)
    with open(image, "rb") as f:
        assert f.read() == data


def stream_beyond():
    become_larger()
    new = client.connect(path)
    assert new.get_size() == FULL

    # While the one thread that prefetches is busy with other streams, the old connection
    # comes to its end, and finds what is prefetched for it in the queue still.
    def run(h, start, end):
        for offset in range(start * BLOCK, end, BLOCK):
            here(h, min(BLOCK, end - offset), offset)

    for turn in range(8):
        streams = [(client.connect(path), LAST + 20 * i, (LAST + 20 * (i + 1)) * BLOCK)
                   for i in range(1, 6)]
        threads = [threading.Thread(target=run, args=a)
                   for a in streams + [(old, LAST - 9 - turn, END)]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        run(new, LAST - 9, (LAST + 20) * BLOCK)
        run(new, 0, (LAST - 24) * BLOCK)
    s = Tagged(path).stats()
    assert s["prefetch_hits"] > 0, s


(path_beyond if how == "path" else stream_beyond)()
client.passed(how)
