# SPDX-License-Identifier: BSD-3-Clause
"""fresh.py SOCKET SECONDS: nobody ever reads less than what was acknowledged last.

Each block holds a number, that of its last write.  Writers raise it, readers on other
connections read; a read must bring a number between the one that was acknowledged before
it began and the one that was sent before it ended.  Meanwhile contexts keep the prefetch
threads busy with the same blocks.
"""
import random
import struct
import sys
import threading
import time

from client import QUERY, Tagged

path, seconds = sys.argv[1], float(sys.argv[2])
BLOCK, BLOCKS = 16384, 48
sent, acked = [0] * BLOCKS, [0] * BLOCKS
end = time.monotonic() + seconds
failures, reads, writes = [], [0] * 3, [0] * 2


def number(n, size):
    return struct.pack("<Q", n) * (size // 8)


def writer(which):
    a, rnd = Tagged(path), random.Random(which)
    while time.monotonic() < end and not failures:
        b = rnd.randrange(which, BLOCKS, 2)  # each block has one writer
        sent[b] += 1
        how = rnd.random()
        if how < 0.8:
            a.pwrite(number(sent[b], BLOCK), b * BLOCK)
        else:  # in two parts
            a.pwrite(number(sent[b], 4096), b * BLOCK)
            a.pwrite(number(sent[b], BLOCK - 4096), b * BLOCK + 4096)
        acked[b] = sent[b]
        writes[which] += 1


def check(data, before, after, b):
    for at in (0, 4088, 4096, BLOCK - 8):
        (n,) = struct.unpack_from("<Q", data, at)
        if not before <= n <= after:
            failures.append(f"block {b} at {at}: {n} is not in {before} to {after}")


def reader(which):
    a, rnd = Tagged(path), random.Random(100 + which)
    tours = [random.Random(i).sample(range(BLOCKS), 12) for i in range(6)]
    while time.monotonic() < end and not failures:
        a.begin(a.first, kind=QUERY)
        for b in rnd.choice(tours):
            n = min(rnd.choice([1, 1, 1, 3]), BLOCKS - b)
            before = acked[b:b + n]
            data = a.pread(n * BLOCK, b * BLOCK, a.first)
            after = sent[b:b + n]
            for i in range(n):
                check(data[i * BLOCK:(i + 1) * BLOCK], before[i], after[i], b + i)
            reads[which] += 1
        a.end(a.first)


threads = [threading.Thread(target=writer, args=(i,)) for i in range(2)]
threads += [threading.Thread(target=reader, args=(i,)) for i in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not failures, failures[:5]
stats = Tagged(path).stats()
assert min(reads) > 10 and min(writes) > 10
print(f"ok: {sum(reads)} reads, {sum(writes)} writes, {stats['prefetches']} prefetches, "
      f"{stats['used']} used, {stats['cancelled']} cancelled")
assert stats["prefetches"] > 10
assert stats["overtaken"] == stats["cancelled"]  # the old name
