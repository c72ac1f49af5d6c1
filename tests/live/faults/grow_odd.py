# SPDX-License-Identifier: BSD-3-Clause
"""grow_odd.py load|twice|broken SOCKET IMAGE BROKEN CHANGES SEED

load:   the image grows by 1 to 17 cells of 4 KiB, CHANGES times, under readers
twice:  the last, partial block is prefetched, then it grows again
broken: the same, but the prefetch connections are lost instead, while BROKEN is there
"""
import os
import random
import struct
import sys
import threading
import time

import client
from client import connect

how, path, image, broken, changes, seed = sys.argv[1:]
BLOCK, CELL, SIZE = 16384, 4096, 8 << 20
rnd = random.Random(int(seed))


def cell(i):
    return struct.pack("<Q", i + 1) * (CELL // 8)


def wait_for(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(.05)
    sys.exit("it never came")


def write_cells(first, n):
    # Data first, so that nobody sees zeros.
    with open(image, "r+b") as f:
        f.seek(first * CELL)
        f.write(b"".join(cell(i) for i in range(first, first + n)))


class Load:
    """Readers that open new connections, and see what each cell holds."""

    def __init__(self):
        self.bad, self.stop, self.reads, self.seen = [], False, 0, SIZE
        self.threads = [threading.Thread(target=self.run, args=(k,)) for k in range(6)]
        for t in self.threads:
            t.start()

    def run(self, k):
        r = random.Random(int(seed) * 10 + k)
        try:
            while not self.stop and not self.bad:
                h = connect(path)
                size = h.get_size()
                for _ in range(r.randrange(1, 12)):
                    self.read(h, r, size)
                self.seen = max(self.seen, size)
                h.shutdown()
        except Exception as e: # whatever it is
            self.bad.append(repr(e))

    def read(self, h, r, size):
        at = r.randrange(size // CELL) * CELL
        if r.random() < .7: # towards the end
            at = max(0, size - r.randrange(1, 40) * BLOCK) // CELL * CELL
        while at < size and not self.stop:
            count = min(r.choice([CELL, BLOCK, 4 * BLOCK]), size - at)
            data = h.pread(count, at)
            for i in range(0, count, CELL):
                if data[i:i + CELL] != cell((at + i) // CELL):
                    self.bad.append((at + i, size))
                    return
            self.reads += 1
            at += count

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()
        assert not self.bad, self.bad
        assert self.reads > 0


def load():
    write_cells(0, SIZE // CELL)
    readers = Load()
    size = SIZE
    for _ in range(int(changes)):
        n = rnd.choice([1, 1, 2, 3, 5, 17])
        write_cells(size // CELL, n)
        size += n * CELL
        # Readers have read what is there now, before it grows again.
        wait_for(lambda: readers.seen >= size or readers.bad)
        if readers.bad:
            break
    readers.end()


def statistic(name):
    return client.Tagged(path).stats()[name]


def prefetch_the_end():
    """The device ends in a partial block, and that is what was prefetched last."""
    os.truncate(image, SIZE + CELL)
    h, other = connect(path), connect(path)
    assert h.get_size() == SIZE + CELL
    first, last = 200, SIZE // BLOCK
    prefetched = statistic("prefetches")
    for _ in range(400): # until one is prefetched after the other
        h.pread(BLOCK, first * BLOCK)
        h.pread(CELL, last * BLOCK)
        for b in rnd.sample(range(0, 180), 90):
            other.pread(BLOCK, b * BLOCK)
    assert statistic("prefetches") > prefetched, "nothing is prefetched"
    before = statistic("prefetch_reads")
    h.pread(BLOCK, first * BLOCK) # whose successor is prefetched, and nothing else then
    wait_for(lambda: statistic("prefetch_reads") > before)


def twice():
    prefetch_the_end()
    reopened = statistic("prefetch_reopens")
    os.truncate(image, SIZE + 2 * CELL)
    h = connect(path)
    assert h.get_size() == SIZE + 2 * CELL
    wait_for(lambda: statistic("prefetch_reopens") > reopened)
    assert len(h.pread(BLOCK, 0)) == BLOCK


def lost():
    h = connect(path)
    for b in (200, 199, *range(300, 305)):
        try:
            h.pread(BLOCK, b * BLOCK)
        except client.nbd.Error:
            pass
    return statistic("prefetch_losses") > 0


def broken_connections():
    prefetch_the_end()
    with open(broken, "w"):
        pass
    wait_for(lost)
    os.unlink(broken)
    wait_for(lambda: statistic("prefetch_reopens") > 0)
    assert len(connect(path).pread(BLOCK, 0)) == BLOCK


{"load": load, "twice": twice, "broken": broken_connections}[how]()
