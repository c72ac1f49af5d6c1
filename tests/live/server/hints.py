# SPDX-License-Identifier: BSD-3-Clause
"""hints.py SOCKET refused|learned|alone: reads that are told of by QM_WIRE_READS."""
import random
import struct
import sys

from client import (BEGIN, QUERY, WINDOW, Tagged, connect, passed, record, refused,
                    wait_for)

BLOCK = 4096
READS = 5


def reads(session, entries):
    data = struct.pack("<IHHQ", READS, len(entries), 0, session)
    for slot, offset, length in entries:
        data += struct.pack("<QII", slot << 48 | offset, length, 0)
    return data.ljust(512, b"\0")


def test_refused(path):
    t = Tagged(path)
    assert t.flags & 4
    slot = t.first

    def bad(data):
        refused("EINVAL", t.h.pwrite, data, WINDOW)

    good = reads(t.session, [(slot, 0, BLOCK)])
    bad(reads(t.session, []))
    bad(good[:4] + struct.pack("<H", 32) + good[6:])
    bad(good[:6] + b"\1" + good[7:])
    bad(good[:8] + struct.pack("<Q", t.session + 1) + good[16:])
    bad(reads(t.session, [(slot, 0, 0)]))
    bad(reads(t.session, [(t.first + t.count, 0, BLOCK)]))
    bad(reads(t.session, [(0x7FFF, 0, BLOCK)]))
    bad(good[:28] + b"\1" + good[29:])
    bad(good[:511] + b"\1")
    bad(reads(t.session, [(slot, 0, 0x7FFFFFFF)]))
    bad(reads(t.session, [(slot, 0, 1 << 20)] * 31) * 3)
    # None of a message takes effect if one record is bad.
    bad(record(BEGIN, t.session, slot, 0, 1, QUERY) + reads(t.session, []))
    assert t.stats()["contexts_open"] == 0
    assert t.stats()["hints"]["blocks"] == 0
    # What lies beyond the end is ignored, and no slot need be open.
    t.h.pwrite(reads(t.session, [(slot, 1 << 40, BLOCK), (0, 64 << 20, BLOCK),
                                 (slot, (64 << 20) - 100, 1 << 20)]), WINDOW)
    assert t.stats()["hints"]["blocks"] == 1
    t.close()
    passed("what is no sense is refused, what lies beyond ignored")


def klass(stats, name):
    return next((c for c in stats["classes"] if c["name"] == name), None)


def rounds(tagged, plain, hinted, n):
    """Two threads, whose chains of blocks are mixed anew in each round."""
    chains = [[(1000 * i + 37 * j % 500) for j in range(60)] for i in (1, 2, 3, 4)]
    chance = random.Random(1)
    for turn in range(n):
        at = [0] * len(chains)
        order = [i for i, chain in enumerate(chains) for _ in chain]
        chance.shuffle(order)
        for i in range(len(chains)):
            tagged.begin(tagged.first + i, klass=9, name=b"hinted")
        for i in order:
            block = chains[i][at[i]]
            at[i] += 1
            entry = reads(tagged.session, [(tagged.first + i, block * BLOCK, BLOCK)])
            first = chance.random() < 0.5
            if hinted and first:
                tagged.h.pwrite(entry, WINDOW)
            plain.pread(BLOCK, block * BLOCK)
            if hinted and not first:
                tagged.h.pwrite(entry, WINDOW)
        # A scan drives out what was cached.
        for block in range(8000, 8600):
            if hinted:
                tagged.h.pwrite(reads(tagged.session, [(0, block * BLOCK, BLOCK)]), WINDOW)
            plain.pread(BLOCK, block * BLOCK)


def test_learned(path):
    tagged, plain = Tagged(path), connect(path)
    before = tagged.stats()
    rounds(tagged, plain, True, 12)
    after = tagged.stats()
    used = after["used"] - before["used"]
    assert used > 500, f"{used} prefetches were used"
    c = klass(after, "hinted")
    joined = after["hints"]["joined"] - before["hints"]["joined"]
    assert joined == 12 * (240 + 600), joined
    hits = c["hits"] + c.get("prefetch_hits", c.get("promotes"))
    assert hits + c["misses"] >= 12 * 240 - 100, c
    assert c["used"] > 500, c
    tagged.close()
    plain.shutdown()
    passed("what is told of is learned, prefetched, and counted for its class")


def test_alone(path):
    tagged, plain = Tagged(path), connect(path)
    tagged.begin(tagged.first, klass=9, name=b"hinted")

    def read(block, hinted):
        if hinted:
            tagged.h.pwrite(reads(tagged.session, [(tagged.first, block * BLOCK, BLOCK)]),
                            WINDOW)
        plain.pread(BLOCK, block * BLOCK)

    for block in range(10):
        read(block, True)
    before = tagged.stats()
    for block in range(10, 20):
        read(block, False)
    wait_for(lambda: tagged.stats()["hints"]["unhinted"] -
             before["hints"]["unhinted"] >= 10)
    for block in range(20, 25):
        tagged.h.pwrite(reads(tagged.session, [(tagged.first, block * BLOCK, BLOCK)]),
                        WINDOW)
    wait_for(lambda: tagged.stats()["hints"]["unread"] - before["hints"]["unread"] >= 5)
    assert tagged.stats()["hints"]["sessions"] == 1
    assert tagged.stats()["hints"]["sessions"] == 1
    tagged.close()
    other = Tagged(path)
    wait_for(lambda: other.stats()["hints"]["sessions"] == 0)
    # From now on the connection's reads are its own.
    hints = other.stats()["hints"]
    plain.pread(BLOCK, 30 * BLOCK)
    assert other.stats()["hints"] == hints
    passed("what stays alone is counted, and an agent that goes leaves no trace")


globals()[f"test_{sys.argv[2]}"](sys.argv[1])
