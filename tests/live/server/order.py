# SPDX-License-Identifier: BSD-3-Clause
"""order.py SOCKET GATES PID MODE: changes of the same bytes, over several connections."""
import errno
import os
import signal
import sys

import nbd
import client
from client import Tagged
from gates import Pending, await_call, calls, is_waiting, plain, pwrite, shut, unshut

path, gates, pid, mode = sys.argv[1:]


def begun(what, offset):
    return f"begin {what} {offset}" in calls()


def order():
    """A change waits for an earlier one that is slow, and no other does.  Each request has
    a connection: one connection's may be carried out one at a time."""
    a, b = Tagged(path), Tagged(path)
    c, d = plain(a.session), client.connect(path)
    earlier = {
        "write": lambda at: pwrite(a.h, b"slow" * 256, at),
        "zero": lambda at: Pending(c, c.aio_zero, 1024, at),
        "trim": lambda at: Pending(c, c.aio_trim, 1024, at),
    }
    later = {
        "write": lambda at: pwrite(b.h, b"late" * 256, at + 512 | b.first << 48),
        "zero": lambda at: Pending(d, d.aio_zero, 1024, at + 512),
        "trim": lambda at: Pending(d, d.aio_trim, 1024, at + 512),
    }
    other = client.connect(path)
    at = 0
    for first in earlier:
        for second in later:
            shut(at)
            slow = earlier[first](at)
            await_call(f"begin {first} {at}")
            late = later[second](at)
            # What does not overlap goes on, and reads and FLUSH do.
            other.pwrite(b"side" * 128, at + 1536)
            other.flush()
            assert other.pread(512, at + 1536) == b"side" * 128
            is_waiting(slow, late)
            assert not begun(second, at + 512)
            unshut(at)
            assert slow.wait() == late.wait() == 0
            lines = calls()
            assert (lines.index(f"end {first} {at}")
                    < lines.index(f"begin {second} {at + 512}"))
            was = b"slow" if first == "write" else bytes(4)
            data = b"late" if second == "write" else bytes(4)
            want = was * 128 + data * 256 + b"side" * 128
            assert a.pread(2048, at) == other.pread(2048, at) == want
            at += 65536
    client.passed("order")


def many():
    """Many wait, for one and for each other."""
    slow_one = client.connect(path)
    shut(0)
    slow = pwrite(slow_one, b"slow" * 128, 0)
    await_call("begin write 0")
    connections = [client.connect(path) for _ in range(40)]
    pending = [pwrite(h, b"%04d" % i * 128, 0) for i, h in enumerate(connections)]
    client.connect(path).pwrite(b"side" * 128, 4096)
    is_waiting(slow, *pending)
    unshut(0)
    assert slow.wait() == 0
    for p in pending:
        assert p.wait() == 0
    lines = [x for x in calls() if x.endswith("write 0")]
    assert lines == ["begin write 0", "end write 0"] * 41, lines
    # The cache has what the disk has.
    read = [bytes(h.pread(512, 0)) for h in connections]
    assert len(set(read)) == 1 and read[0] != b"slow" * 128
    client.passed("many")


def stopped():
    """A server that is stopped does not wait to carry out what waits for its turn."""
    a, b = Tagged(path), client.connect(path)
    shut(0)
    slow = pwrite(a.h, b"slow" * 128, 0)
    await_call("begin write 0")
    late = pwrite(b, b"late" * 128, 0)
    is_waiting(slow, late)
    os.kill(int(pid), signal.SIGTERM)
    assert late.wait() == errno.ESHUTDOWN
    unshut(0)
    assert slow.wait() == 0
    client.passed("stopped")


def left():
    """What has been sent is carried out in its turn, though its client has gone."""
    a, b, c = Tagged(path), client.connect(path), client.connect(path)
    shut(0)
    slow = pwrite(b, b"slow" * 128, 0)
    await_call("begin write 0")
    late = pwrite(c, b"late" * 128, 0)
    is_waiting(slow, late)
    c.aio_disconnect()
    while c.aio_get_direction() & nbd.AIO_DIRECTION_WRITE:
        c.poll(-1)
    late = c = None  # closes it
    is_waiting(slow)
    unshut(0)
    assert slow.wait() == 0
    client.wait_for(lambda: calls().count("end write 0") == 2)
    client.wait_for(lambda: a.stats()["connections"] == 2)
    assert a.pread(4, 0) == b"late"
    client.passed("left")


globals()[mode]()
