# SPDX-License-Identifier: BSD-3-Clause
"""client.py - a client of the tagged export, in few lines, for the tests.

It speaks the wire of quickmine-protocol(7) by itself, over libnbd.
"""
import json
import socket
import struct
import sys
import time

import nbd

WINDOW = 0x7FFF << 48
STATS = 1 << 20
BEGIN, END, JOIN, FENCE = 1, 2, 3, 4
CONNECTION, THREAD, TRANSACTION, QUERY = 1, 2, 3, 4


def connect(path, export=""):
    h = nbd.NBD()
    h.set_strict_mode(0)  # the server's answers are what is tested, not libnbd's
    h.set_export_name(export)
    h.connect_unix(path)
    return h


def record(op, session, slot, parent=0, klass=0, kind=0, name=b""):
    return struct.pack("<IHHQQHHI40x440s", op, slot, parent, session, klass, kind,
                       len(name), 0, name)


def fence(session):
    return record(FENCE, session, 0)


def hint(op, kind, slot, parent):
    return WINDOW | 1 << 46 | op << 43 | kind << 39 | slot << 24 | parent << 9


class Tagged:
    """A connection to the tagged export, and its session."""

    def __init__(self, path, session=None):
        self.h = connect(path, "ctx")
        if session is not None:
            self.h.pwrite(record(JOIN, session, 0), WINDOW)
        self.header()

    def header(self):
        data = self.h.pread(512, WINDOW)
        (magic, self.version, self.flags, self.size, self.block, self.first,
         self.count, zero, self.session) = struct.unpack("<8sIIQIIIIQ", data[:48])
        assert magic == b"MINECTX1" and self.version == 1 and zero == 0
        self.instance, self.boot_id = struct.unpack("<Q16s", data[48:72])
        (self.size_now,) = struct.unpack("<Q", data[72:80])
        self.volume = data[80:96]
        assert data[96:] == bytes(416)

    def begin(self, slot, parent=0, klass=1, kind=QUERY, name=b""):
        self.h.pwrite(record(BEGIN, self.session, slot, parent, klass, kind, name),
                      WINDOW)

    def end(self, slot):
        self.h.pwrite(record(END, self.session, slot), WINDOW)

    def pread(self, count, offset, slot=0):
        return self.h.pread(count, slot << 48 | offset)

    def pwrite(self, data, offset, slot=0, flags=0):
        self.h.pwrite(data, slot << 48 | offset, flags)

    def stats(self):
        return json.loads(self.h.pread(1 << 20, WINDOW | STATS).rstrip(b"\0"))

    def close(self):
        self.h.shutdown()


def refused(errno, f, *args):
    """Calls f, which the server must refuse with that error."""
    try:
        f(*args)
    except nbd.Error as e:
        assert e.errno == errno, f"{e.errno} instead of {errno}: {e}"
        return
    raise AssertionError(f"not refused: {f} {args}")


def socket_stats(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    data = b""
    while True:
        part = s.recv(1 << 16)
        if not part:
            return json.loads(data)
        data += part


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def passed(text):
    print(f"ok: {text}")
    sys.stdout.flush()
