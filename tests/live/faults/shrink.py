# SPDX-License-Identifier: BSD-3-Clause
"""shrink.py SOCKET DIR file|disk|grown: the device ends earlier than it did.

A file is cut off (DIR/file), or a disk's end moves (DIR/end; what it holds is DIR/image),
and comes back with other bytes than it had.
"""
import os
import random
import sys
import threading

import client
from client import Tagged, refused

path, directory, how = sys.argv[1:]
BLOCK = 16384
FULL = 4 << 20
END = (2 << 20) + 5000  # in the middle of a block
LAST = END // BLOCK
rnd = random.Random(1)
image = directory + ("/file" if how == "file" else "/image")


def ends_at(size):
    if how == "file":
        os.truncate(image, size)
        return
    with open(directory + "/end.new", "w") as f:
        f.write(str(size))
    os.rename(directory + "/end.new", directory + "/end")


def on_disk(count, offset):
    with open(image, "rb") as f:
        f.seek(offset)
        return f.read(count)


def shrinks():
    plain = client.connect(path)
    a = Tagged(path)
    others = [client.connect(path) for _ in range(4)]
    assert a.size == FULL
    data = rnd.randbytes(FULL)
    for offset in range(0, FULL, 1 << 20):
        plain.pwrite(data[offset:offset + (1 << 20)], offset)
    # Of these nobody will ask the disk again.
    cached = FULL - 3 * BLOCK
    # The first half of the tour will stay, the second will go.
    tour = rnd.sample(range(LAST), 6) + rnd.sample(range(LAST + 1, FULL // BLOCK - 4), 6)

    def here(h, count, offset):
        assert h.pread(count, offset) == data[offset:offset + count], (count, offset)

    def walk(n):
        a.begin(a.first, klass=1)
        for b in tour[:n]:
            assert a.pread(BLOCK, b * BLOCK, a.first) == data[b * BLOCK:][:BLOCK]
        a.end(a.first)

    def forget():
        """Reads so much else of the first half that nothing of the tour is cached."""
        for _ in range(2):
            for b in range(LAST):
                if b not in tour:
                    here(plain, BLOCK, b * BLOCK)
                here(plain, 3 * BLOCK, cached)
                here(plain, BLOCK, LAST * BLOCK)

    walk(len(tour))
    client.wait_for(lambda: a.stats()["sequences"] > 0)
    forget()

    ends_at(END)
    # Who asks for what is gone learns it, each time; nobody is told of zeros.
    gone = [b for b in range(LAST + 4, FULL // BLOCK - 4) if b not in tour]
    for _ in range(2):
        for b in gone[:5]:
            refused("EIO", plain.pread, BLOCK, b * BLOCK)
            refused("EIO", a.pread, 700, b * BLOCK + 100)
            refused("EIO", plain.cache, BLOCK, b * BLOCK)
    # A request that reaches beyond the end fails as a whole, but not those who wait for
    # its first blocks.
    for _ in range(2):
        for b in range(LAST - 4):
            here(plain, BLOCK, b * BLOCK)
            here(plain, 3 * BLOCK, cached)
            here(plain, BLOCK, LAST * BLOCK)
    if how == "disk":
        open(directory + "/stall", "w").close()
    found = []
    first = (LAST - 2) * BLOCK

    def beyond(h):
        refused("EIO", h.pread, 4 * BLOCK, first)
        found.append(b"")

    def within(h):
        found.append(h.pread(BLOCK, first))

    def blocks_read():
        return sum(a.stats()[outcome] for outcome in ("hits", "prefetch_hits", "misses"))

    before = blocks_read()
    threads = [threading.Thread(target=f, args=[h]) for f, h in
               zip([beyond, within, within, within], others)]
    threads[0].start()
    if how == "disk":
        client.wait_for(lambda: blocks_read() == before + 4)
    for thread in threads[1:]:
        thread.start()
    if how == "disk":
        client.wait_for(lambda: blocks_read() == before + 7)
        os.unlink(directory + "/stall")
    for thread in threads:
        thread.join()
    assert sorted(found) == [b""] + 3 * [data[first:first + BLOCK]]
    for _ in range(2):
        here(plain, 2 * BLOCK, first)

    # Prefetches of what is gone fail silently, and are counted.
    forget()
    failed = a.stats()["failed"]
    a.begin(a.first, klass=1)
    for b in tour[:6]:
        assert a.pread(BLOCK, b * BLOCK, a.first) == data[b * BLOCK:][:BLOCK]
    client.wait_for(lambda: a.stats()["failed"] > failed)
    for b in tour[6:]:
        refused("EIO", a.pread, BLOCK, b * BLOCK, a.first)
    a.end(a.first)

    if how == "disk":
        # Writes beyond the end fail, and what was cached of the place is not believed.
        # (A file would become longer.)
        refused("ENOSPC", plain.pwrite, b"y" * BLOCK, cached)
        refused("EIO", plain.pread, BLOCK, cached)
        here(plain, 2 * BLOCK, cached + BLOCK)
        # One that reaches beyond the end stores what fits, and fails.
        at = (LAST - 1) * BLOCK
        refused("ENOSPC", a.pwrite, b"z" * 2 * BLOCK, at)
        data = data[:at] + b"z" * (END - at) + data[END:]
        assert on_disk(END - at, at) == b"z" * (END - at)
        here(plain, BLOCK, at)

    # New connections see the new size, by either view, and not a cached byte beyond it.
    plain2, a2 = client.connect(path), Tagged(path)
    assert plain2.get_size() == END and a2.size == END
    for h in plain2, a2:
        refused("EINVAL", h.pread, 1, cached + BLOCK)
        refused("EINVAL", h.pread, BLOCK, LAST * BLOCK)
        refused("EINVAL", h.pread, 1, END)
        here(h, 1, END - 1)
        here(h, END - LAST * BLOCK, LAST * BLOCK)
        here(h, 5 * BLOCK, 3 * BLOCK)
        refused("ENOSPC", h.pwrite, b"x", END)
    refused("EINVAL", a2.h.cache, BLOCK, cached)
    # What they write all see.
    new = rnd.randbytes(3 * BLOCK)
    plain2.pwrite(new[:BLOCK], 5 * BLOCK)
    a2.pwrite(new[BLOCK:], 6 * BLOCK)
    data = data[:5 * BLOCK] + new + data[8 * BLOCK:]
    for h in plain, a, plain2, a2:
        here(h, 4 * BLOCK, 4 * BLOCK + 5)

    if how == "disk":
        # The image has had no end: what comes back is something else.
        with open(image, "r+b") as f:
            f.seek(END)
            f.write(rnd.randbytes(FULL - END))

    ends_at(FULL)
    data = on_disk(FULL, 0)
    plain3, a3 = client.connect(path), Tagged(path)
    assert plain3.get_size() == FULL and a3.size == FULL
    for _ in range(2):
        for h in plain, a, plain3, a3:
            here(h, 3 * BLOCK, cached)
            here(h, 3 * BLOCK, LAST * BLOCK)
            here(h, BLOCK, gone[0] * BLOCK)
    walk(len(tour))
    hits = a.stats()["hits"]
    here(plain3, 3 * BLOCK, cached)
    assert a.stats()["hits"] == hits + 3  # cached again
    for offset in range(0, FULL, 1 << 20):
        here(plain, 1 << 20, offset)
    client.passed(f"{how}: {a.stats()['failed']} prefetches failed")


def grows():
    old = client.connect(path)
    assert old.get_size() == END
    old.pwrite(b"A" * BLOCK, 0)
    assert old.pread(BLOCK, 0) == b"A" * BLOCK
    assert old.pread(5000, END - 5000) == bytes(5000)
    with open(image, "r+b") as f:
        f.seek(END)
        f.write(b"more" * BLOCK)
    ends_at(FULL)
    new = client.connect(path)
    assert new.get_size() == FULL
    assert new.pread(BLOCK + 5000, END - 5000) == bytes(5000) + b"more" * (BLOCK // 4)
    # While a write is in flight, nobody sees it before others who come after him do not.
    open(directory + "/hold", "w").close()

    def write():
        h = client.connect(path)
        h.pwrite(b"B" * BLOCK, 0)
        h.shutdown()

    writer = threading.Thread(target=write)
    writer.start()
    client.wait_for(lambda: on_disk(BLOCK, 0) == b"B" * BLOCK)
    first = new.pread(2 * BLOCK - 7, 7)[:1]
    second = old.pread(1, 7)
    assert (first, second) != (b"B", b"A"), "new, then old"
    os.unlink(directory + "/hold")
    writer.join()
    for h in new, old, new:
        assert h.pread(BLOCK, 0) == b"B" * BLOCK
    new.pwrite(b"C" * BLOCK, END - 5000)
    assert old.pread(5000, END - 5000) == b"C" * 5000
    assert new.pread(BLOCK, END - 5000) == b"C" * BLOCK
    client.passed("grown")


grows() if how == "grown" else shrinks()
