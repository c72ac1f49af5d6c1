# SPDX-License-Identifier: BSD-3-Clause
"""Clients of a server with the device filter: client.py ACTION SOCKET [ARGUMENT]..."""
import json
import os
import random
import sys
import time

import nbd

BLOCK = 16384


def connect(path):
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///?socket=" + path)
    return h


def timed_read(h, block):
    begun = time.monotonic()
    h.pread(BLOCK, block * BLOCK)
    return time.monotonic() - begun


def data(path, device):
    """Writes, zeros and reads of any size and place, up to 16 at a time, that do not
    overlap while they are under way; the bytes must be those of a plain array.  Zeroing
    is no faster than writing, unless there is no device."""
    h = connect(path)
    size = h.get_size()
    assert h.can_zero() and h.can_fast_zero() == (device == "none")
    model = bytearray(size)
    r = random.Random(3)
    for _ in range(120):
        flying, used = [], []
        for _ in range(16):
            offset = r.randrange(size)
            length = min(r.choice((1, 512, 4096, 16384, 100000)), size - offset)
            if any(offset < b and a < offset + length for a, b in used):
                continue
            used.append((offset, offset + length))
            what = r.choice("wwzrrc")
            if what == "w":
                bytes_ = r.randbytes(length)
                model[offset:offset + length] = bytes_
                buf = nbd.Buffer.from_bytearray(bytearray(bytes_))
                flying.append((h.aio_pwrite(buf, offset), buf, None, 0))
            elif what == "z":
                model[offset:offset + length] = bytes(length)
                flying.append((h.aio_zero(length, offset), None, None, 0))
            elif what == "c":
                flying.append((h.aio_cache(length, offset), None, None, 0))
            else:
                buf = nbd.Buffer(length)
                flying.append((h.aio_pread(buf, offset), buf, offset, length))
        for cookie, buf, offset, length in flying:
            while not h.aio_command_completed(cookie):
                h.poll(-1)
            if offset is not None:
                assert buf.to_bytearray() == model[offset:offset + length], "other bytes"
    h.flush()
    for offset in range(0, size, 1 << 20):
        assert h.pread(1 << 20, offset) == model[offset:offset + (1 << 20)], "other bytes"
    h.shutdown()


def depth1(path, count):
    """Random reads one by one; prints their mean in microseconds."""
    h = connect(path)
    blocks = h.get_size() // BLOCK
    r = random.Random(1)
    times = [timed_read(h, r.randrange(blocks)) for _ in range(int(count))]
    print(json.dumps({"mean": sum(times) / len(times) * 1e6}))
    h.shutdown()


def switch(path, file):
    """A file that switches the times on and off; prints how many reads were made, and how
    many of them before it was there and after it was seen to be gone."""
    h = connect(path)
    fast = 50
    for i in range(fast):
        timed_read(h, i)
    total = fast
    open(file, "w").close()
    while True:  # a read of the store takes no less than 60 ms
        total += 1
        if timed_read(h, 0) > 0.06:
            break
    # That one may have been slow because the machine is busy; by now, the file is seen.
    total += 1
    timed_read(h, 0)
    os.unlink(file)
    while True:
        total += 1
        if timed_read(h, 0) < 0.06:
            break
    for i in range(fast):
        timed_read(h, i)
    total += fast
    print(json.dumps({"total": total, "fast": 2 * fast}))
    h.shutdown()


def vanish(path):
    """Goes away without a word while a read is waiting."""
    h = connect(path)
    h.aio_pread(nbd.Buffer(BLOCK), 0)
    while h.aio_get_direction() == nbd.AIO_DIRECTION_WRITE:
        h.poll(-1)
    os._exit(0)


globals()[sys.argv[1]](*sys.argv[2:])
