# SPDX-License-Identifier: BSD-3-Clause
"""views.py SOCKET MODE: what is passed through, and when nothing is cached."""
import os
import struct
import sys

import nbd
import client
from client import Tagged

path, mode = sys.argv[1:]


def extents():
    """Of the plain view they are those of the layer below; of the tagged one, one."""
    h = nbd.NBD()
    h.add_meta_context("base:allocation")
    h.connect_unix(path)
    h.pwrite(b"x" * 65536, 65536)
    h.pread(65536, 0)
    found = []
    h.block_status(1 << 20, 0, lambda c, o, entries, e: found.extend(entries))
    pairs = list(zip(found[::2], found[1::2]))
    assert pairs[0] == (65536, 3) and pairs[1] == (65536, 0), pairs
    t = nbd.NBD()
    t.add_meta_context("base:allocation")
    t.set_export_name("ctx")
    t.connect_unix(path)
    found.clear()
    t.block_status(1 << 20, 0, lambda c, o, entries, e: found.extend(entries))
    assert found[1] == 0
    client.passed("extents")


def cache():
    """NBD_CMD_CACHE loads, once, what fits."""
    h, a = client.connect(path), Tagged(path)
    h.cache(100000, 5000)
    s = a.stats()
    assert (s["device_blocks"], s["device_reads"], s["reads"]) == (7, 1, 0), s
    h.cache(100000, 5000)
    assert a.stats()["device_reads"] == 1
    assert h.pread(100000, 5000) == bytes(100000)
    s = a.stats()
    assert (s["hits"], s["device_reads"]) == (7, 1)
    a.h.cache(16384, 0x4001 << 48 | 50 * 16384)  # slots do not matter
    a.pread(16384, 50 * 16384)
    assert a.stats()["hits"] == 8
    size = h.get_size()
    h.cache(size, 0)  # more than fits: only as much as does
    assert a.stats()["device_blocks"] <= 7 + 1 + s["cache_blocks"]
    client.refused("EINVAL", a.h.cache, 16384, size)
    client.passed("cache")


def uncached():
    """Over a plugin that does not promise multi-conn, nothing is cached, and all works."""
    h, a = client.connect(path), Tagged(path)
    assert not h.can_multi_conn() and not a.h.can_multi_conn()
    for _ in range(2):
        h.pwrite(b"abc", 16383)
        assert a.pread(3, 16383) == b"abc"
    a.begin(a.first)
    assert a.pread(16384, 0, a.first)[-1:] == b"a"
    s = a.stats()
    assert s["hits"] == s["misses"] == s["prefetch_hits"] == 0 and s["reads"] == 3, s
    client.passed("uncached")


def cached():
    h, a = client.connect(path), Tagged(path)
    assert h.can_multi_conn() == (sys.argv[2] == "cached")
    for _ in range(2):
        h.pread(3, 5)
    assert a.stats()["hits"] == 1
    client.passed("cached")


def grown():
    """The device is larger than it was when the server started."""
    h = client.connect(path)
    assert h.get_size() == 3000000
    h.pwrite(b"end", 2999997)
    assert h.pread(3, 2999997) == b"end"
    assert h.pread(2, 1999999) == bytes(2)
    a = Tagged(path)
    assert a.size == 3000000
    s = a.stats()  # the block that it ended in was read again
    assert (s["hits"], s["misses"]) == (0, 3), s
    # It is larger still, and then as large as before: who is connected is told of the first,
    # once somebody has found it, and no more of it after the second.
    for size, told in ((3000000, 0), (4000000, 4000000), (3000000, 0)):
        os.truncate(os.path.dirname(path) + "/image", size)
        assert client.connect(path).get_size() == size
        a.header()
        assert (a.size, a.size_now) == (3000000, told), (a.size, a.size_now)
    client.passed("grown")


def far():
    """All bits of an offset matter: each byte of this device tells where it is."""
    h, a = client.connect(path), Tagged(path)
    a.begin(a.first)
    for _ in range(2):
        for bits in range(12, 48):
            at = min((1 << bits) + 8 * bits, a.size - 16)
            want = struct.pack(">QQ", at, at + 8)
            for slot in (0, a.first, 0x7FFE):
                assert a.pread(16, at, slot) == want, (slot, at)
            assert h.pread(16, at) == want, at
    client.passed("far")


def full():
    """The cache takes what cache-size says, and not much less, when all of it is used."""
    h, a = client.connect(path), Tagged(path)
    for at in range(0, a.size, 1 << 20):
        h.pread(1 << 20, at)
        h.pwrite(bytes(1 << 20), at)
    used = a.stats()["cache_bytes"]
    assert 0.8 * (16 << 20) < used <= 16 << 20, used
    client.passed(f"{used} bytes of cache-size=16M")


globals()[mode]()
