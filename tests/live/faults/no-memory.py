# SPDX-License-Identifier: BSD-3-Clause
"""no-memory.py SOCKET CONTROL [--long]: the same work again and again, and each time
another allocation fails, or all of them for a while."""
import mmap
import random
import struct
import sys
import time

import nbd
import client
from client import Tagged

path = sys.argv[1]
with open(sys.argv[2], "r+b") as f:
    control = mmap.mmap(f.fileno(), 32)
BLOCK = 4096
SIZE = 2 << 20
model = bytearray(SIZE)
rnd = random.Random(1)
tour = rnd.sample(range(SIZE // BLOCK), 20)


def fail(succeed, count):
    control[:] = struct.pack("<4q", succeed, count, 0, 0)


def asked_and_failed():
    return struct.unpack("<4q", control[:])[2:]


def attempt(f, *args):
    """Its result, or None if there was no memory for it."""
    try:
        return f(*args)
    except nbd.Error as e:
        # A connection that is refused has no better reason.
        assert e.errno in ("ENOMEM", None, "ENOTCONN", "EINVAL", "ENOTSUP") \
            or "connect" in str(e) or "handshake" in str(e), e
        if f.__name__ == "pread":
            assert e.errno == "ENOMEM", e
        return None


def check(h, offset, count):
    data = attempt(h.pread, count, offset)
    assert data is None or data == model[offset:offset + count], (offset, count)


def write(h, offset, count):
    data = rnd.randbytes(count)
    try:
        h.pwrite(data, offset)
    except nbd.Error as e:
        assert e.errno == "ENOMEM", e
        fail(-1, 0)  # it may have been carried out, or not
        h.pwrite(data, offset)
    model[offset:offset + count] = data


def open_tagged():
    a = Tagged(path)
    return a if a.count > 0 else None  # no memory for a session: no slots


def work(n):
    plain = attempt(client.connect, path)
    if plain is None:
        return
    a = attempt(open_tagged)
    klass = 1 + n % 50
    if a is not None:
        attempt(a.begin, a.first, 0, klass, client.TRANSACTION, b"n%d" % klass)
        attempt(a.begin, a.first + 1, a.first, 7, client.QUERY, b"tour")
        for block in tour:
            data = attempt(a.pread, BLOCK, block * BLOCK, a.first + 1)
            assert data is None or data == model[block * BLOCK:(block + 1) * BLOCK]
    write(plain, rnd.randrange(SIZE - 20000), rnd.choice([1, 500, 4096, 20000]))
    write(plain, rnd.choice(tour) * BLOCK, BLOCK)
    offset = rnd.randrange(SIZE - 300000)
    check(plain, offset + 1, 299999)
    check(plain, offset // BLOCK * BLOCK, 65536)
    attempt(plain.cache, 65536, offset)
    if a is not None:
        attempt(a.stats)
        attempt(a.end, a.first)
        attempt(a.close)
    attempt(plain.shutdown)


def verify():
    fail(-1, 0)
    h = client.connect(path)
    for offset in range(0, SIZE, 1 << 18):
        assert h.pread(1 << 18, offset) == model[offset:offset + (1 << 18)], offset
    h.shutdown()


h = client.connect(path)
h.pwrite(rnd.randbytes(1 << 18), 0)
model[:1 << 18] = h.pread(1 << 18, 0)
fail(-1, 0)
work(0)
places = asked_and_failed()[0]
assert places > 50, f"only {places} allocations: is it preloaded?"
total = rounds = 0
started = time.monotonic()
n = 0
while n < places * 1.2:
    for count in (1, 1 << 30) if n % 4 == 0 else (1,):
        fail(n, count)
        work(n)
        total += asked_and_failed()[1]
        verify()
        rounds += 1
    n += 1
    if len(sys.argv) < 4 and n > 20:
        n += n // 5
# All is well again.
a = Tagged(path)
a.begin(a.first, 0, 1)
client.wait_for(lambda: a.stats()["connections"] == 2)
s = a.stats()
assert s["sessions"] == 1 and s["contexts_open"] == 2, s["contexts_open"]  # a's, and h's own
client.passed(f"{rounds} rounds, {total} allocations failed")
