# SPDX-License-Identifier: BSD-3-Clause
"""readahead.py SOCKET PATTERN: blocks of 16 KiB in an order, one at a time.

pieces: a file of 125 extents; told: the same, and the server is told of them by
QM_WIRE_EXTENTS, and refuses what is no sense.  lies: told of others."""
import random
import struct
import sys

import client
from client import WINDOW, Tagged, refused

BLOCK = 16384
path, pattern = sys.argv[1:]
plain = client.connect(path)
tagged = Tagged(path)
rng = random.Random(1)


def read(block):
    data = plain.pread(BLOCK, block * BLOCK)
    for at in (0, BLOCK - 8):  # the plugin's bytes are their own offset
        assert struct.unpack_from(">Q", data, at)[0] == block * BLOCK + at


def order():
    if pattern == "forward":
        return range(1000, 3000)
    if pattern == "backward":
        return range(3000, 1000, -1)
    if pattern == "strided":
        return range(1000, 9000, 8)
    if pattern == "interleaved":  # 8 streams over one connection
        return [s * 8000 + i for i in range(250) for s in range(8)]
    if pattern == "random":
        return [rng.randrange(65536) for i in range(2000)]
    if pattern in ("pieces", "told"):
        return [b for first in pieces for b in range(first, first + PIECE)]
    if pattern == "lies":
        return range(990, 3000)
    assert pattern == "ended"
    return range(5000, 5300)


def extents(session, entries, op=6):
    data = struct.pack("<IHHQ", op, len(entries), 0, session)
    for offset, length in entries:
        data += struct.pack("<QQ", offset, length)
    return data.ljust(512, b"\0")


def tell(entries):
    """A file, in records that go on from each other."""
    records = [extents(tagged.session, entries[at:at + 31])
               for at in range(0, len(entries), 30)]
    tagged.h.pwrite(b"".join(records), WINDOW)


def bad(data):
    refused("EINVAL", tagged.h.pwrite, data, WINDOW)


PIECE = 16
pieces = [1000 + i * 37 % 125 * 4 * PIECE for i in range(125)]
if pattern == "told":
    assert tagged.flags & 8
    good = extents(tagged.session, [(0, 4096), (8192, 4096)])
    bad(extents(tagged.session, []))
    bad(good[:4] + struct.pack("<H", 32) + good[6:])
    bad(good[:6] + b"\1" + good[7:])
    bad(good[:8] + struct.pack("<Q", tagged.session + 1) + good[16:])
    bad(good[:511] + b"\1")
    bad(extents(tagged.session, [(0, 0)]))
    bad(extents(tagged.session, [(100, 512)]))
    bad(extents(tagged.session, [(512, 100)]))
    bad(extents(tagged.session, [(1 << 48, 512)]))
    bad(extents(tagged.session, [((1 << 48) - 512, 1024)]))
    bad(extents(tagged.session, [(512, (1 << 64) - 512)]))
    bad(good * 257)
    tagged.h.pwrite(good * 256, WINDOW)
    tell([(1 << 47, 1 << 47), ((1 << 30) - 512, 1024)])  # beyond the device: ignored
    tell([(first * BLOCK, PIECE * BLOCK) for first in pieces])
if pattern == "lies":  # no block is followed by the next one
    tell([((1000 + i * 37 % 2000) * BLOCK, BLOCK) for i in range(2000)])

blocks = list(order())
for block in blocks:
    read(block)


s = tagged.stats()
said = {k: s[k] for k in ("reads", "misses", "prefetch_hits", "prefetches", "device_reads",
                          "device_blocks")}
assert s["reads"] == len(blocks), said
if s["prefetches"] > 0:  # four of those that were watched would have been used
    assert s["watched"] >= 4, s
if pattern == "random":
    assert s["prefetches"] < len(blocks) // 10, said
elif pattern == "strided":  # what lies between is not read
    assert s["prefetch_hits"] > len(blocks) // 2, said
    assert s["device_blocks"] < len(blocks) + 64, said
elif pattern == "pieces":  # at least the first of each
    assert s["misses"] >= 125, said
elif pattern == "told":  # and nothing behind the file's end
    assert s["misses"] < 20, said
    assert s["device_blocks"] < len(blocks) + 64, said
elif pattern == "ended":  # at most what a window has: no more than was read
    assert s["misses"] < 20, said
    assert s["prefetches"] < 2 * len(blocks), said
else:
    assert s["misses"] < len(blocks) // 10, said
    assert s["device_reads"] < len(blocks) // (2 if pattern == "backward" else 4), said
    assert s["device_blocks"] < len(blocks) * 2, said
client.passed(f"{pattern}: {said}")
