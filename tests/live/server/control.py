# SPDX-License-Identifier: BSD-3-Clause
"""control.py SOCKET MODE: the tagged view and its control window over the wire."""
import json
import struct
import sys
import uuid

import nbd
import client
from client import BEGIN, END, JOIN, QUERY, TRANSACTION, WINDOW, Tagged, record, refused

path, mode = sys.argv[1:3]
SIZE = 1000000


def views():
    """What is announced for each view."""
    plain = client.connect(path)
    assert plain.get_size() == SIZE
    assert plain.can_trim() and plain.can_zero() and plain.can_cache()
    tagged = Tagged(path)
    h = tagged.h
    assert h.get_size() == (1 << 63) - (1 << 47)
    assert not h.can_trim() and not h.can_zero() and not h.can_fast_zero()
    assert h.can_cache() and h.can_flush() and h.can_multi_conn()
    assert not h.is_read_only()
    assert (tagged.size, tagged.block) == (SIZE, 16384)
    assert tagged.flags & 2 == 0
    exports = []
    listing = nbd.NBD()
    listing.set_opt_mode(True)
    listing.connect_unix(path)
    listing.opt_list(lambda name, description: exports.append(name))
    listing.opt_abort()
    assert exports == ["", "ctx"], exports
    try:
        client.connect(path, "other")
        raise AssertionError("there is no such export")
    except nbd.Error:
        pass
    # Both views are of the same bytes.
    plain.pwrite(b"hello", 12345)
    assert tagged.pread(5, 12345, tagged.first) == b"hello"
    tagged.pwrite(b"bye", 12346, tagged.first)
    assert plain.pread(5, 12345) == b"hbyeo"
    client.passed("views")


def window():
    """The control window as a file: any part of it can be read."""
    tagged = Tagged(path)
    whole = tagged.h.pread(1024, WINDOW)
    assert whole[512:] == bytes(512)
    assert tagged.h.pread(100, WINDOW + 450) == whole[450:550]
    assert tagged.h.pread(4096, WINDOW + 8192) == bytes(4096)
    across = tagged.h.pread(4096, WINDOW + client.STATS - 2048)
    assert across[:2048] == bytes(2048) and across[2048:2049] == b"{"
    stats = tagged.stats()
    assert stats["sessions"] == 1 and stats["policy"] == "auto"
    client.passed("window")


def bad_records():
    a, b = Tagged(path), Tagged(path)
    assert a.session != b.session
    s = a.first
    good = record(BEGIN, a.session, s, 0, 1, QUERY, b"good")
    write = a.h.pwrite
    bad = [
        record(BEGIN, a.session ^ 1, s, 0, 1, QUERY),
        record(BEGIN, 0, s, 0, 1, QUERY),
        record(9, a.session, s, 0, 1, QUERY),
        record(BEGIN, a.session, 0, 0, 1, QUERY),
        record(BEGIN, a.session, s + a.count, 0, 1, QUERY),
        record(BEGIN, a.session, 0x7FFF, 0, 1, QUERY),
        record(BEGIN, a.session, s, 0, 1, 0),
        record(BEGIN, a.session, s, 0, 1, 77),
        record(BEGIN, a.session, s, s, 1, QUERY),
        record(BEGIN, a.session, s, s + 1, 1, QUERY),
        record(BEGIN, a.session, s, b.first, 1, QUERY),
        record(END, a.session, s, 0, 1),
        record(JOIN, a.session, s),
        struct.pack("<IHHQQHHI40x440s", BEGIN, s, 0, a.session, 1, QUERY, 440, 0,
                    b"x" * 440),
        b"garbage!" * 64,
        bytes(512),
        b"\xff" * 512,
    ]
    for r in bad:
        refused("EINVAL", write, r, WINDOW)
        refused("EINVAL", write, good + r, WINDOW)
    refused("EINVAL", write, good[:511], WINDOW)
    refused("EINVAL", write, good + b"x", WINDOW)
    refused("EINVAL", write, good, WINDOW + 1)
    stats = a.stats()
    assert stats["contexts_open"] == 0 and stats["contexts_begun"] == 0
    assert stats["bad_records"] == 2 * len(bad) + 3
    # Reads are none the worse: not even in slots that make no sense.
    for slot in [0, s, s + 1, b.first, 0x7FFE]:
        assert len(a.pread(4096, 0, slot)) == 4096
    a.end(s)  # nothing was begun there
    assert a.stats()["ignored_ends"] == 1
    write(good + record(END, a.session, s), WINDOW + 512 * 7)
    assert a.stats()["contexts_begun"] == 1
    client.passed("bad records")


def isolation():
    """A slot is of the session that it was lent to, and nobody else's."""
    a, b = Tagged(path), Tagged(path)
    a.begin(a.first, klass=11, kind=TRANSACTION, name=b"mine")
    b.pread(16384, 0, a.first)
    a.pread(16384, 0, a.first)
    (k,) = [k for k in a.stats()["classes"] if k["name"] == "mine"]
    assert k["reads"] == 1 and k["class"] == "%016x" % 11
    refused("EINVAL", b.begin, a.first)
    # One who knows the session's number is a member.
    c = Tagged(path, a.session)
    assert (c.session, c.first) == (a.session, a.first)
    c.pread(16384, 0, a.first)
    (k,) = [k for k in a.stats()["classes"] if k["name"] == "mine"]
    assert k["reads"] == 2
    a.close()
    assert c.stats()["contexts_open"] == 1
    c.close()
    client.wait_for(lambda: b.stats()["contexts_open"] == 0)
    client.wait_for(lambda: b.stats()["sessions"] == 1)
    client.passed("isolation")


def never_ended():
    """A hundred thousand contexts are begun and not one is ended."""
    a = Tagged(path)
    begun = 0
    while begun < 100000:
        records = b"".join(
            record(BEGIN, a.session, a.first + (begun + i) % a.count, 0,
                   begun + i, QUERY) for i in range(1000))
        a.h.pwrite(records, WINDOW)
        a.pread(4096, 0, a.first + begun % a.count)
        begun += 1000
    stats = a.stats()
    assert stats["contexts_begun"] == begun
    assert stats["contexts_open"] <= a.count
    assert len(stats["classes"]) <= 4096
    (other,) = [k for k in stats["classes"] if k["kind"] == "other"]
    assert other["contexts"] > 90000
    a.close()
    client.passed("never ended")


def deep():
    """Contexts nest, but not without end."""
    a = Tagged(path)
    for i in range(64):
        a.begin(a.first + i, a.first + i - 1 if i else 0)
    refused("EINVAL", a.begin, a.first + 64, a.first + 63)
    assert len(a.pread(4096, 0, a.first + 63)) == 4096
    a.end(a.first)
    assert a.stats()["contexts_open"] == 0
    client.passed("deep")


def sessions():
    """When there are no slots left, one does without."""
    clients = []
    while not clients or clients[-1].count:
        clients.append(Tagged(path))
        assert len(clients) < 3000
    last, number = clients[-1], clients[-1].session
    assert number != 0 and last.first == 0
    refused("EINVAL", last.begin, 1)
    assert len(last.pread(4096, 0, 1)) == 4096
    # They can be fenced nevertheless, and joined.
    other, fenced = Tagged(path), Tagged(path)
    assert other.count == fenced.count == 0
    join = Tagged(path, number)
    assert join.session == number
    other.h.pwrite(client.fence(fenced.session), WINDOW)
    fenced.pread(4096, 0)
    refused("ESHUTDOWN", fenced.pwrite, b"x", 0)
    refused("EINVAL", Tagged, path, fenced.session)
    clients[0].close()
    client.wait_for(lambda: last.header() or last.count)
    assert last.session == number
    last.begin(last.first)
    join.pread(16384, 0, last.first)
    (k,) = [k for k in last.stats()["classes"] if k["contexts"]]
    assert k["reads"] == 1
    client.passed(f"{len(clients)} sessions")


def readonly():
    """nbdkit -r refuses writes, so contexts come as hints."""
    a = Tagged(path)
    assert a.h.is_read_only() and a.flags & 2
    refused("EPERM", a.begin, a.first)
    a.h.cache(512 * 8, client.hint(BEGIN, QUERY, a.first, 0))
    a.h.cache(512, client.hint(BEGIN, QUERY, a.first + 1, a.first))
    a.pread(4096, 0, a.first)
    assert a.stats()["contexts_open"] == 2
    (k,) = [k for k in a.stats()["classes"] if k["reads"]]
    assert k["class"] == "%016x" % 7
    refused("EINVAL", a.h.cache, 512, client.hint(BEGIN, QUERY, a.first + a.count, 0))
    refused("EINVAL", a.h.cache, 100, client.hint(BEGIN, QUERY, a.first, 0))
    refused("EINVAL", a.h.cache, 512, WINDOW)
    a.h.cache(512, client.hint(END, 0, a.first, 0))
    assert a.stats()["contexts_open"] == 0
    refused("EPERM", a.pwrite, b"x", 0)
    client.passed("read-only")


def unwritable():
    """A device that cannot be written, on a server that could."""
    a = Tagged(path)
    assert not a.h.is_read_only() and a.flags & 2
    a.begin(a.first)
    assert len(a.pread(4096, 0, a.first)) == 4096
    refused("EPERM", a.pwrite, b"x", 0)
    refused("EPERM", a.pwrite, b"x", 0, a.first)
    assert client.connect(path).is_read_only()
    client.passed("unwritable")


def identity():
    """Which process this is, and which machine."""
    a, b, other = Tagged(path), Tagged(path), Tagged(sys.argv[3])
    assert a.instance == b.instance != 0
    assert other.instance not in (0, a.instance)
    with open("/proc/sys/kernel/random/boot_id") as f:
        assert a.boot_id == other.boot_id == uuid.UUID(f.read().strip()).bytes
    client.passed("identity")


def small_print():
    """What the protocol's page says of limits, and of what counts where."""
    a = Tagged(path)
    # The tagged view has no trimming and no zeroing.
    refused("EINVAL", a.h.trim, 4096, 0)
    refused("EINVAL", a.h.zero, 4096, 0)
    refused("EINVAL", a.h.zero, 4096, a.first << 48)
    # Slot 0, and a slot in which nothing is open, are in no class.
    a.pread(4096, 0)
    a.pread(4096, 0, a.first)
    assert a.stats()["reads"] == 2
    assert not any(k["reads"] or k["total_reads"] for k in a.stats()["classes"])
    # A read is in the innermost class; in those around it only with what is nested there.
    a.begin(a.first, klass=1, kind=TRANSACTION, name=b"outer")
    a.begin(a.first + 1, a.first, klass=2, name=b"inner")
    a.pread(4096, 0, a.first + 1)
    by_name = {k["name"]: k for k in a.stats()["classes"]}
    assert (by_name["outer"]["reads"], by_name["inner"]["reads"]) == (0, 1)
    assert by_name["outer"]["total_reads"] == by_name["inner"]["total_reads"] == 1
    # A WRITE holds 64 MiB of records at most.
    most = record(JOIN, a.session, 0) * ((64 << 20) // 512)
    a.h.pwrite(most, WINDOW)
    a.h.pwrite(most[:-512] + record(END, a.session, a.first), WINDOW)
    assert a.stats()["contexts_open"] == 0
    client.passed("small print")


def crowded():
    """Statistics that do not fit leave out the classes that were read in least."""
    a = Tagged(path)
    for i in range(4090):
        a.begin(a.first, klass=1000 + i, name=b"%04d" % i + b"x" * 430)
        if i % 50 == 49:
            a.pread(4096, 0, a.first)
    text = a.h.pread(1 << 20, WINDOW | client.STATS).rstrip(b"\0")
    assert len(text) < 1 << 20
    stats = json.loads(text)
    assert stats["contexts_begun"] == 4090
    names = [k["name"] for k in stats["classes"]]
    assert len(names) in (4096 >> i for i in range(1, 12)), len(names)
    assert {n[:4] for n in names} >= {"%04d" % i for i in range(49, 4090, 50)}
    client.passed(f"{len(names)} of 4090 classes")


if mode == "all":
    views()
    window()
    bad_records()
    isolation()
    deep()
    never_ended()
    sessions()
    small_print()
    crowded()
else:
    globals()[mode]()
