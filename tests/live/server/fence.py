# SPDX-License-Identifier: BSD-3-Clause
"""fence.py SOCKET GATES PID MODE: fencing a session, over the wire."""
import errno
import os
import signal
import sys

import client
from client import FENCE, JOIN, WINDOW, Tagged, record, refused
from gates import (Pending, await_call, calls, error_of, is_waiting, plain, pwrite, shut,
                   unshut)

path, gates, pid, mode = sys.argv[1:]


def send_fence(h, session):
    return pwrite(h, client.fence(session), WINDOW)


def fence():
    """The answer comes when what was being carried out has ended; later requests of the
    session, and those that were in the server's socket, change nothing."""
    for n, what in enumerate(("write", "zero", "trim")):
        at = n * 65536
        a, b = Tagged(path), Tagged(path)
        member, zeros = Tagged(path, a.session), plain(a.session)
        a.pwrite(b"here" * 128, at + 8192)
        shut(at)
        h = a.h if what == "write" else zeros
        if what == "write":
            slow = pwrite(h, b"slow" * 128, at)
        else:
            slow = Pending(h, getattr(h, "aio_" + what), 512, at)
        await_call(f"begin {what} {at}")
        # The server serves one request of a connection at a time, or sixteen.
        late = pwrite(h, b"late" * 128, at + 8192) if mode == "in_turn" else None
        fenced = send_fence(b.h, a.session)
        client.wait_for(lambda: error_of(member.pwrite, b"x", at + 16384) == "ESHUTDOWN")
        assert error_of(plain, a.session) is not None
        assert error_of(Tagged, path, a.session) == "EINVAL"
        is_waiting(fenced)
        unshut(at)
        assert fenced.wait() == 0
        assert f"end {what} {at}" in calls()
        assert slow.wait() == 0
        if late:
            assert late.wait() == errno.ESHUTDOWN
        for f, args in ((member.pwrite, (b"x", at)), (zeros.pwrite, (b"x", at)),
                        (zeros.zero, (512, at)), (zeros.trim, (512, at))):
            refused("ESHUTDOWN", f, *args)
        assert member.pread(4, at + 8192) == zeros.pread(4, at + 8192) == b"here"
        assert b.pread(4, at) == (b"slow" if what == "write" else bytes(4))
        b.pwrite(b"mine", at)
        assert b.pread(4, at) == b"mine"
        b.h.pwrite(client.fence(a.session), WINDOW)  # again
        for h in a.h, member.h, zeros:
            h.shutdown()
        client.wait_for(lambda: b.stats()["sessions"] == 1)
        b.h.pwrite(client.fence(a.session), WINDOW)  # it is gone
        b.close()
        client.passed(f"{mode}: {what}")


def quick():
    """What needs no slow request: with a plugin that serves one at a time, too."""
    a, b = Tagged(path), Tagged(path)
    refused("EINVAL", a.h.pwrite, client.fence(a.session), WINDOW)
    a.pwrite(b"x", 0)
    for bad in (client.fence(0), client.fence(b.session) * 2,
                client.fence(b.session) + record(JOIN, b.session, 0),
                record(JOIN, b.session, 0) + client.fence(b.session),
                record(FENCE, b.session, 1), record(FENCE, b.session, 0, 1),
                record(FENCE, b.session, 0, klass=1), record(FENCE, b.session, 0, kind=1),
                record(FENCE, b.session, 0, name=b"x")):
        refused("EINVAL", a.h.pwrite, bad, WINDOW)
    b.pwrite(b"x", 0)  # none of these had an effect
    a.h.pwrite(client.fence(a.session ^ 1), WINDOW)
    # A member of several sessions is refused when one of them is fenced.
    both = Tagged(path, a.session)
    both.h.pwrite(record(JOIN, b.session, 0), WINDOW)
    both.pwrite(b"y", 0)
    Tagged(path).h.pwrite(client.fence(b.session), WINDOW)
    refused("ESHUTDOWN", both.pwrite, b"z", 0)
    a.pwrite(b"a", 1)
    assert a.pread(2, 0) == b"ya"
    # ... and that has left nothing behind in the other.
    c = Tagged(path)
    c.h.pwrite(client.fence(a.session), WINDOW)
    refused("ESHUTDOWN", a.pwrite, b"z", 0)
    # Bad names.
    for name in ("plain-", "plain-0123456789abcde", "plain-0123456789abcdeg",
                 "plain-0x23456789abcdef", "plain-0000000000000000",
                 "plain-00123456789abcdef", "plain-%016x" % b.session):
        assert error_of(client.connect, path, name) is not None, name
    p = client.connect(path, "plain-%016X" % c.session)
    assert p.get_size() == c.size and p.can_trim() and p.can_zero()
    p.zero(512, 0)
    # It is a member: the session goes on without the connection that began it.
    number = c.session
    c.close()
    client.wait_for(lambda: Tagged(path, number).session == number)
    p.shutdown()
    client.passed("quick")


def gone():
    """A client that does not wait for its fence's end leaves nothing behind."""
    a, b = Tagged(path), Tagged(path)
    shut(0)
    slow = pwrite(a.h, b"slow", 0)
    await_call("begin write 0")
    before = b.stats()
    c = Tagged(path)
    send_fence(c.h, a.session)
    client.wait_for(lambda: error_of(Tagged, path, a.session) == "EINVAL")
    c.h.aio_disconnect()
    while not c.h.aio_is_closed() and not c.h.aio_is_dead():
        c.h.poll(-1)
    client.wait_for(lambda: b.stats()["connections"] == before["connections"])
    assert not slow.is_done()
    unshut(0)
    assert slow.wait() == 0
    a.close()
    client.wait_for(lambda: b.stats()["sessions"] == 1)
    client.passed("gone")


def stopped():
    """A server that is stopped does not wait for fences."""
    a, b = Tagged(path), Tagged(path)
    shut(0)
    slow = pwrite(a.h, b"slow", 0)
    await_call("begin write 0")
    fenced = send_fence(b.h, a.session)
    client.wait_for(lambda: error_of(Tagged, path, a.session) == "EINVAL")
    os.kill(int(pid), signal.SIGTERM)
    assert fenced.wait() == errno.ESHUTDOWN
    unshut(0)
    assert slow.wait() == 0
    client.passed("stopped")


globals()[mode if mode != "in_turn" else "fence"]()
