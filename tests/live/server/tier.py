# SPDX-License-Identifier: BSD-3-Clause
"""tier.py URI IMAGE fill|change|renew|move|read [MIN MAX] - a client of a server with a second tier.

The image, which the server serves, is the truth: this client is the only one that writes.
fill: writes other data everywhere, flushes, and reads all twice, until the tier has what it
took.  change: writes to, zeroes or trims parts of every fourth block, without a flush, and
reads them.  renew: writes other data everywhere, and reads nothing.  move: as compactions do,
reads runs in the first third, which the tier has, and writes as many to the second; reads
those, and then goes on with the third, which it does not read.  read: reads all, and
counts the hits of the tier.  overwrite: writes to some blocks, of a server that may be any.
overlay: as fill, of a server whose writes do not get into the image."""
import json
import os
import sys
import time

import nbd

BLOCK = 16384
uri, path, mode = sys.argv[1:4]


def stats():
    out = os.popen(f"{os.environ['BUILD_DIR']}/bin/quickmine stat --json '{uri}'").read()
    return json.loads(out)


def settled():
    """The queue of the tier is empty: what was inserted has been written."""
    end = time.monotonic() + 60
    while stats().get("tier_queued", 0) > 0:
        assert time.monotonic() < end, "the tier does not write what it has queued"
        time.sleep(0.01)


h = nbd.NBD()
h.connect_uri(uri)
size = h.get_size()
blocks = size // BLOCK
image = open(path, "rb", buffering=0)


def check(offset, length):
    got = h.pread(length, offset)
    image.seek(offset)
    assert got == image.read(length), f"wrong bytes in {length} at {offset}"


def read_all():
    at = 0
    while at < size:  # alone, several at once, and parts
        length = min(size - at, (BLOCK, 5 * BLOCK, BLOCK // 2)[at // BLOCK % 3])
        check(at, length)
        at += length if length >= BLOCK else BLOCK


if mode == "overwrite":
    for block in range(0, blocks, 7):
        h.pwrite(os.urandom(BLOCK), block * BLOCK)
    h.flush()
elif mode == "overlay":
    written = [os.urandom(64) * (BLOCK // 64) for _ in range(blocks)]
    for block in range(blocks):
        h.pwrite(written[block], block * BLOCK)
    for block in [*range(blocks), *range(blocks)]:
        assert h.pread(BLOCK, block * BLOCK) == written[block], f"wrong bytes in {block}"
        if block % 256 == 255:
            settled()
elif mode == "fill":
    for block in range(blocks):
        h.pwrite(os.urandom(64) * (BLOCK // 64), block * BLOCK)
    h.flush()
    for block in [*range(blocks), *range(blocks)]:
        check(block * BLOCK, BLOCK)
        if block % 256 == 255:
            settled()
elif mode == "renew":
    for block in range(blocks):
        h.pwrite(os.urandom(64) * (BLOCK // 64), block * BLOCK)
        if block % 64 == 63:
            settled()
elif mode == "move":
    run, third = 64 * BLOCK, blocks // 3 * BLOCK
    for at in [*range(0, third, BLOCK), *range(0, third, BLOCK)]:
        check(at, BLOCK)
        if at % (256 * BLOCK) == 0:
            settled()

    def move(to):
        for at in range(0, third, run):
            check(at, run)
            h.pwrite(os.urandom(64) * (run // 64), to + at)
            settled()
        return stats()["tier_handed_on"]

    sample = move(third)
    print(f"{sample} handed on as a sample")
    assert 0 < sample < third // BLOCK // 4, f"{sample} handed on as a sample"
    for i in range(third // BLOCK):  # by no run
        check(third + i * 7 % (third // BLOCK) * BLOCK, BLOCK)
        if i % 256 == 255:
            settled()
    moved = move(2 * third) - sample
    print(f"{moved} handed on")
    assert moved > third // BLOCK * 3 // 4, f"{moved} handed on"
elif mode == "change":
    for block in range(0, blocks, 4):
        at, kind = block * BLOCK, block // 4 % 3
        if kind == 0:
            h.pwrite(os.urandom(1000), at + 100, nbd.CMD_FLAG_FUA if block % 8 else 0)
        elif kind == 1:
            h.zero(BLOCK, at)
        else:
            h.trim(BLOCK, at)
        check(at, BLOCK)
elif mode == "read":
    first = stats()
    before = first.get("tier_hits", 0)
    assert first.get("tier_io", "threads") in ("io_uring", "threads"), first["tier_io"]
    read_all()
    hits = stats().get("tier_hits", 0) - before
    least, most = map(int, sys.argv[4:6]) if len(sys.argv) > 4 else (0, size)
    print(f"{hits} hits of the tier")
    assert least <= hits <= most, f"{hits} hits of the tier, not {least} to {most}"
h.shutdown()
