# SPDX-License-Identifier: BSD-3-Clause
"""readahead.py SOCKET PATTERN: blocks of 16 KiB in an order, one at a time."""
import random
import struct
import sys

import client
from client import Tagged

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
    assert pattern == "ended"
    return range(5000, 5300)


blocks = list(order())
for block in blocks:
    read(block)


s = tagged.stats()
said = {k: s[k] for k in ("reads", "misses", "prefetch_hits", "prefetches", "device_reads",
                          "device_blocks")}
assert s["reads"] == len(blocks), said
if pattern == "random":
    assert s["prefetches"] < len(blocks) // 10, said
elif pattern == "strided":  # what lies between is not read
    assert s["prefetch_hits"] > len(blocks) // 2, said
    assert s["device_blocks"] < len(blocks) + 64, said
elif pattern == "ended":  # at most what a window has: no more than was read
    assert s["misses"] < 20, said
    assert s["prefetches"] < 2 * len(blocks), said
else:
    assert s["misses"] < len(blocks) // 10, said
    assert s["device_reads"] < len(blocks) // (2 if pattern == "backward" else 4), said
    assert s["device_blocks"] < len(blocks) * 2, said
client.passed(f"{pattern}: {said}")
