# SPDX-License-Identifier: BSD-3-Clause
"""nonsense.py SOCKET - a Redis that can be taken over, and then answers reads with something else."""
import itertools
import socket
import sys
import threading

WRONG = itertools.cycle([
    b":1\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n", b"*2\r\n+a\r\n+b\r\n", b"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n",
    b"*2\r\n:1\r\n*0\r\n", b"*1\r\n*2\r\n:1\r\n:2\r\n", b":1\r\n:2\r\n", b"*2\r\n:1\r\n:1\r\n+x"])


def answer(words):
    name = words[0].upper()
    if name == b"SELECT":
        return b"+OK\r\n"
    if name == b"SCRIPT":
        return b"$40\r\n" + b"0" * 40 + b"\r\n"
    if name == b"EVALSHA" or (name == b"EVAL" and words[2] == b"1"):
        return b":1\r\n"
    if len(words) == 1 or name == b"DEL":  # DBSIZE of its own
        return b":0\r\n"
    return next(WRONG)


def serve(connection):
    with connection, connection.makefile("rb") as commands:
        try:
            for line in commands:
                words = []
                for _ in range(int(line[1:])):
                    length = int(commands.readline()[1:])
                    words.append(commands.read(length + 2)[:-2])
                connection.sendall(answer(words))
        except OSError:
            pass  # it has hung up


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
