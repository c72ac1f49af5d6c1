# SPDX-License-Identifier: BSD-3-Clause
"""A Redis client of one connection, which sends what it is told when it is told to: redis-py decides
for itself when it connects, reads and tries again."""
import socket
import time


class Error(Exception):
    """An error that was replied, without its '-'."""


class Client:
    def __init__(self, path, port=0):
        """To a Unix socket; or to a port of 127.0.0.1."""
        self.socket = socket.socket(socket.AF_INET if port else socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port) if port else path)
        self.file = self.socket.makefile("rb")

    @staticmethod
    def packed(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def send(self, *words):
        self.socket.sendall(self.packed(*words))

    def __call__(self, *words):
        self.send(*words)
        return self.answer()

    def answer(self):
        line = self.file.readline().decode()
        kind, rest = line[:1], line[1:].strip()
        if kind == "*":
            return [self.answer() for _ in range(int(rest))]
        if kind == "$":
            return None if rest == "-1" else self.file.read(int(rest) + 2)[:-2].decode()
        if kind == ":":
            return int(rest)
        if kind == "-":
            raise Error(rest)
        assert kind == "+", line
        return rest

    def numbers(self):
        """INFO's fields, as text."""
        return dict(line.split(":", 1) for line in self("INFO").splitlines() if ":" in line)


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "a condition does not come true"
        time.sleep(.02)
