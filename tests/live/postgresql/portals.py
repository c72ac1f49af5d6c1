#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""portals.py SOCKET FIRST - two portals of the extended protocol, run in turns and in pieces;
each connection executes FIRST before them."""
import socket
import struct
import sys
import time


def message(kind, *parts):
    body = b"".join(p if isinstance(p, bytes) else p.encode() + b"\0" for p in parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def parse(name, query):
    return message(b"P", name, query, struct.pack("!h", 0))


def bind(portal, name):
    return message(b"B", portal, name, struct.pack("!hhh", 0, 0, 0))


def execute(portal, rows):
    return message(b"E", portal, struct.pack("!i", rows))


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb")
        self.exchange(b"Z", message(b"", struct.pack("!i", 3 << 16), "user", "qm",
                                    "database", "postgres", b"\0"))
        self.exchange(b"Z", message(b"Q", sys.argv[2]))

    def exchange(self, until, *messages):
        """Sends them, and returns the rows that come before an answer of this kind."""
        rows = []
        self.socket.sendall(b"".join(messages))
        while True:
            kind, size = struct.unpack("!ci", self.answers.read(5))
            body = self.answers.read(size - 4)
            if kind == b"E":
                sys.exit(body.decode())
            if kind == b"D":
                rows.append(body[6:].decode())  # of one column
            if kind == until:
                return rows

    def close(self):
        self.socket.sendall(message(b"X"))
        self.answers.close()
        self.socket.close()


def main():
    one, two = Connection(sys.argv[1]), Connection(sys.argv[1])
    sync, flush = message(b"S"), message(b"H")

    one.exchange(b"Z", parse("a", "SELECT one FROM big WHERE id > 0"),
                 parse("b", "SELECT two FROM big WHERE id > 0"), sync)
    # In pieces, and in turns.
    one.exchange(b"Z", bind("pa", "a"), execute("pa", 1000),
                 bind("pb", "b"), execute("pb", 1000),
                 execute("pa", 1000), execute("pb", 0), sync)
    # The second is planned and started when the first has been.
    one.exchange(b"Z", bind("pa", "a"), bind("pb", "b"), execute("pb", 0),
                 execute("pa", 0), sync)
    # The unnamed portal ends when there is another one.
    one.exchange(b"Z", bind("", "b"), execute("", 0), bind("", "b"), execute("", 0), sync)
    # Between pieces, no query is current.
    one.exchange(b"s", bind("pa", "a"), execute("pa", 1000), flush)
    until = time.monotonic() + 60
    while (open_now := two.exchange(b"Z", message(
            b"Q", "SELECT connections + transactions + queries - ended FROM quickmine_stat"))) != ["5"]:
        # The server's process of a client before us may not have ended yet.
        if time.monotonic() > until:
            sys.exit(f"{open_now[0]} contexts are open, not 2 here and 3 there")
        time.sleep(.05)
    one.exchange(b"Z", sync)
    one.close()
    two.close()


main()
