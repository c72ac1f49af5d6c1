#!/usr/bin/env python3
"""portals.py SOCKET - two portals of the extended protocol, run in turns and in pieces."""
import socket
import struct
import sys


def message(kind, *parts):
    body = b"".join(p if isinstance(p, bytes) else p.encode() + b"\0" for p in parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def parse(name, query):
    return message(b"P", name, query, struct.pack("!h", 0))


def bind(portal, name):
    return message(b"B", portal, name, struct.pack("!hhh", 0, 0, 0))


def execute(portal, rows):
    return message(b"E", portal, struct.pack("!i", rows))


def main():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1])
        answers = s.makefile("rb")

        def exchange(*messages):
            """Until the server is ready for the next query."""
            s.sendall(b"".join(messages))
            while True:
                kind, size = struct.unpack("!ci", answers.read(5))
                body = answers.read(size - 4)
                if kind == b"E":
                    sys.exit(body.decode())
                if kind == b"Z":
                    return

        exchange(message(b"", struct.pack("!i", 3 << 16), "user", "qm", "database",
                         "postgres", b"\0"))
        sync = message(b"S")
        exchange(parse("a", "SELECT one FROM big WHERE id > 0"),
                 parse("b", "SELECT two FROM big WHERE id > 0"), sync)
        exchange(bind("pa", "a"), execute("pa", 1000),
                 bind("pb", "b"), execute("pb", 1000),
                 execute("pa", 1000), execute("pb", 0), sync)
        exchange(bind("", "b"), execute("", 0), bind("", "b"), execute("", 0), sync)
        s.sendall(message(b"X"))


main()
