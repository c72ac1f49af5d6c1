# SPDX-License-Identifier: BSD-3-Clause
"""gates.py - for clients of a server over gated.py; argv[1:3] are its socket and gates."""
import os
import sys

import nbd
import client
from client import Tagged

path, gates = sys.argv[1:3]


def shut(offset):
    open(f"{gates}/{offset}", "w").close()


def unshut(offset):
    os.unlink(f"{gates}/{offset}")


def calls():
    try:
        with open(gates + "/calls") as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def await_call(line):
    client.wait_for(lambda: line in calls())


def plain(session):
    return client.connect(path, "plain-%016x" % session)


class Pending:
    """A request that is sent, and not waited for."""

    def __init__(self, h, send, *args):
        self.h, self.error, self.done = h, None, False
        self.cookie = send(*args, completion=self.complete)
        while h.aio_get_direction() & nbd.AIO_DIRECTION_WRITE:
            h.poll(-1)

    def complete(self, error):
        self.done, self.error = True, error if isinstance(error, int) else error.value
        return 1

    def is_done(self):
        while not self.done and self.h.poll(0) == 1:
            pass
        return self.done

    def wait(self):
        client.wait_for(self.is_done)
        return self.error


def pwrite(h, data, offset):
    return Pending(h, h.aio_pwrite, nbd.Buffer.from_bytearray(bytearray(data)), offset)


def error_of(f, *args):
    try:
        f(*args)
    except nbd.Error as e:
        return e.errno
    return None




def is_waiting(*pending):
    """Others are served meanwhile, many times: these would have been answered by then."""
    other = Tagged(path)
    for _ in range(200):
        other.pread(512, 0)
    assert not any(p.is_done() for p in pending)
    other.close()
