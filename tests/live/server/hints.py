# SPDX-License-Identifier: BSD-3-Clause
"""hints.py SOCKET refused|learned|alone|lies|beside: reads that are told of by QM_WIRE_READS."""
import random
import struct
import sys
import threading
import time

import nbd

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


PATIENCE = 4.5  # seconds, less than the server's
late = 0  # reads that this test itself was so long about that the server may have given up


def tell_and_read(tagged, plain, slot, block, told_first=True):
    """Reads a block, and tells of the read before or afterwards."""
    global late
    entry = reads(tagged.session, [(slot, block * BLOCK, BLOCK)])
    began = time.monotonic()
    if told_first:
        tagged.h.pwrite(entry, WINDOW)
    data = plain.pread(BLOCK, block * BLOCK)
    if not told_first:
        tagged.h.pwrite(entry, WINDOW)
    late += time.monotonic() - began > PATIENCE
    return data


def rounds(tagged, plain, n):
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
            tell_and_read(tagged, plain, tagged.first + i, block, chance.random() < 0.5)
        # A scan drives out what was cached.
        for block in range(8000, 8600):
            tell_and_read(tagged, plain, 0, block)


def test_learned(path):
    tagged, plain = Tagged(path), connect(path)
    before = tagged.stats()
    rounds(tagged, plain, 12)
    after = tagged.stats()
    used = after["used"] - before["used"]
    assert used > 500, f"{used} prefetches were used"
    c = klass(after, "hinted")
    joined = after["hints"]["joined"] - before["hints"]["joined"]
    assert 12 * (240 + 600) - late <= joined <= 12 * (240 + 600), (joined, late)
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


def lie(chance, liar, victim):
    """A record of reads that are none, or not the liar's to say, and whether it must be refused.

    Who knows a session's number is a member: it is not known here."""
    top, size = 1 << 64, 64 << 20
    offset, length = chance.choice([
        (0, 1 << 32), (0, 0xFFFFFFFF), (0, 1 << 31), (0, (2 << 20) + 1), (0, 0),
        (1 << 63, BLOCK), (top - 1, BLOCK), (top - BLOCK, BLOCK), ((1 << 48) - 1, 2 << 20),
        ((1 << 48) - 1, 1), (size - 1, 2 << 20), (size, BLOCK), (size - BLOCK, 0xFFFFFFFF)])
    slot = chance.choice([0, liar.first, liar.first + liar.count - 1, liar.first + liar.count,
                          victim.first, victim.first + 1, 0x7FFF, 0x8000, 0xFFFF])
    session = chance.choice([liar.session] * 6 + [victim.session ^ 1, 0, top - 1, liar.session ^ 1])
    count = chance.choice([1] * 6 + [0, 2, 31, 32, 0x7FFF, 0xFFFF])
    where = (slot << 48 | offset) % top
    data = struct.pack("<IHHQ", READS, count, 0, session)
    data += struct.pack("<QII", where, length % (1 << 32), length >> 32)
    entries = min(count, 31) if chance.random() < 0.5 else 1
    data = (data + data[16:32] * (entries - 1)).ljust(512, b"\0")[:512]
    slot = where >> 48
    good = (session == liar.session and 1 <= count <= 31 and count == max(entries, 1) and
            1 <= length <= 2 << 20 and
            (slot == 0 or liar.first <= slot < liar.first + liar.count))
    return data, not good


def tell_lies(path, victim, seed, rounds):
    chance, liar = random.Random(seed), Tagged(path)
    kinds = {True: 0, False: 0}
    for turn in range(rounds):
        data, bad = lie(chance, liar, victim)
        if turn % 7 == 0:  # or anything at all
            data, bad = data[:4] + chance.randbytes(508), True
        try:
            # A bad one after a good one, in the same WRITE, now and then; or half of one.
            liar.h.pwrite(data if turn % 5 else data + data, WINDOW | chance.choice([0, 512]))
            assert not bad, f"taken: {data.hex()}"
        except nbd.Error as e:
            assert bad and e.errno == "EINVAL", f"{e}: {data.hex()}"
        kinds[bad] += 1
        if turn % 50 == 0:
            refused("EINVAL", liar.h.pwrite, data[:511], WINDOW)
    assert min(kinds.values()) > rounds // 50, kinds
    liar.close()


def test_lies(path):
    """Others' lies are refused, or reach what is theirs: all reads of an honest one stay its."""
    honest, plain = Tagged(path), connect(path)
    honest.begin(honest.first, klass=77, name=b"honest")
    failed = []

    def other(seed):
        try:
            tell_lies(path, honest, seed, 2000)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=other, args=(seed,)) for seed in (1, 2, 3)]
    for t in threads:
        t.start()
    n = 0
    # At places that no lie names.
    while n < 2000 or any(t.is_alive() for t in threads):
        block = 4000 + n % 4000
        assert tell_and_read(honest, plain, honest.first, block) == bytes(BLOCK)
        n += 1
    for t in threads:
        t.join()
    assert not failed, failed
    c = klass(honest.stats(), "honest")
    assert n - late <= c["hits"] + c["misses"] + c.get("prefetch_hits", 0) <= n, (c, n, late)
    honest.close()
    plain.shutdown()
    passed(f"three that lie change nothing of {n} honest reads")


def test_beside(path):
    """While an agent stands still, one of another session goes on, and reads."""
    slow, slow_plain, fast, fast_plain = Tagged(path), connect(path), Tagged(path), connect(path)
    slow.begin(slow.first, klass=78, name=b"slow")
    slow.h.pwrite(reads(slow.session, [(slow.first, 0, BLOCK)]), WINDOW)
    slow_plain.pread(BLOCK, 0)
    fast.begin(fast.first, klass=79, name=b"fast")
    for attempt in range(20):
        before, began = slow.stats(), time.monotonic()
        for block in range(100, 150):
            slow_plain.pread(BLOCK, block * BLOCK)
        # Until what came a second later has met.
        while time.monotonic() - began < 1.5:
            for block in range(3000, 3050):
                fast.h.pwrite(reads(fast.session, [(fast.first, block * BLOCK, BLOCK)]), WINDOW)
                fast_plain.pread(BLOCK, block * BLOCK)
        for block in range(100, 150):
            slow.h.pwrite(reads(slow.session, [(slow.first, block * BLOCK, BLOCK)]), WINDOW)
        took, after = time.monotonic() - began, slow.stats()
        if took < PATIENCE:  # else the machine was so slow that the patience had an end
            break
    assert took < PATIENCE, "20 attempts took too long"
    assert after["hints"]["unhinted"] == before["hints"]["unhinted"], (before["hints"], after["hints"])
    for t in slow, fast:
        t.close()
    for h in slow_plain, fast_plain:
        h.shutdown()
    passed("what an agent that stood still says late is joined, however busy others are")


globals()[f"test_{sys.argv[2]}"](sys.argv[1])
