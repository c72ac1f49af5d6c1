# SPDX-License-Identifier: BSD-3-Clause
"""hostile.py SOCKET PORT DATABASE-SOCKET - what hostile clients cost others: the daemon has one connection to
MariaDB, four reads may wait for it, and 10,000 clients may be connected."""
import resource
import socket
import subprocess
import sys
import time

PATH, PORT, DATABASE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
MANY = 10000


class Client:
    def __init__(self, tcp=False):
        self.socket = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", PORT) if tcp else PATH)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in (str(word).encode() for word in words)))
        return self

    def answer(self):
        line = self.file.readline().decode().rstrip()
        if line[:1] == "$" and line != "$-1":
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        return line

    def __call__(self, *words):
        return self.send(*words).answer()

    def numbers(self):
        return dict(line.split(":", 1) for line in self("INFO").splitlines() if ":" in line)

    def number(self, name):
        return int(self.numbers()[name])

    def close(self):
        self.file.close()
        self.socket.close()


def wait_for(condition, what):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(.02)


class Lock:
    """Nobody reads the table until it is released."""

    def __enter__(self):
        self.sql = subprocess.Popen(["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BN", "--unbuffered"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.sql.stdin.write(b"LOCK TABLES shop.item WRITE; SELECT 'locked';\n")
        self.sql.stdin.flush()
        assert self.sql.stdout.readline() == b"locked\n"
        return self

    def __exit__(self, *_):
        self.sql.communicate(b"UNLOCK TABLES;\n")


def row(i):
    return '{"id":%d,"v":%d}' % (i, i)


def places(tcp):
    """Who waits for MariaDB and goes gives its place in the queue, and among the clients, to others."""
    c = Client()
    c("FLUSHDB")
    base = 500 if tcp else 100
    waiting = lambda n: lambda: c.number("database_waiting") == n
    cancelled = c.number("cancelled_reads")
    with Lock():
        misses = c.number("keyspace_misses")
        first = Client().send("GET", f"item:{base}")
        wait_for(lambda: c.number("keyspace_misses") > misses, "the first read has not come")
        wait_for(waiting(0), "the first read is not begun")
        some = [Client(tcp).send("GET", f"item:{base + i}") for i in range(1, 5)]
        wait_for(waiting(4), "four reads do not wait")
        assert c("GET", f"item:{base + 9}").startswith("-TRYAGAIN the database is slow: 4 reads wait already")
        # One that two wait for is not given up with one of them.
        other = Client().send("GET", f"item:{base + 1}")
        wait_for(lambda: c.number("shared_reads") >= 1, "a read is not shared")
        clients = c.number("connected_clients")
        for gone in some:
            gone.close()
        wait_for(waiting(1), "reads wait for clients that have gone")
        wait_for(lambda: c.number("connected_clients") == clients - 4, "clients that have gone count")
        assert c.number("cancelled_reads") == cancelled + 3
        # Those of a pipeline that are not carried out go, too.
        many = Client(tcp)
        for i in range(20, 23):
            many.send("GET", f"item:{base + i}")
        wait_for(waiting(2), "the first of a pipeline does not wait")
        many.close()
        wait_for(waiting(1), "a pipeline waits for a client that has gone")
        assert c.number("connected_clients") == clients - 4
        late = [Client().send("GET", f"item:{base + i}") for i in range(5, 8)]
        wait_for(waiting(4), "their places are not free")
    assert (first.answer(), other.answer()) == (row(base), row(base + 1))
    assert [one.answer() for one in late] == [row(base + i) for i in range(5, 8)]
    for one in [first, other] + late:
        one.close()
    assert c.number("keyspace_misses") > misses
    c.close()


def portions():
    """A command of more rows than the queue has places for is carried out, and leaves places to others."""
    c = Client()
    c("FLUSHDB")
    with Lock():
        many = Client().send("MGET", *(f"item:{i}" for i in range(1, 301)))
        wait_for(lambda: c.number("database_waiting") + c.number("keyspace_misses") > 0, "it is not begun")
        others = [Client().send("GET", f"item:{i}") for i in range(401, 404)]
        wait_for(lambda: c.number("database_waiting") >= 3, "others do not wait")
        # One that goes in the middle takes the rest of its rows with it.
        gone = Client().send("MGET", *(f"item:{i}" for i in range(501, 801)))
        wait_for(lambda: c.number("database_waiting") == 4, "it does not wait")
        gone.close()
        wait_for(lambda: c.number("database_waiting") == 3, "it waits for a client that has gone")
    assert many.answer() == "*300"
    assert [many.answer() for _ in range(300)] == [row(i) for i in range(1, 301)]
    assert [one.answer() for one in others] == [row(i) for i in range(401, 404)]
    misses = c.number("keyspace_misses")
    many.send("MGET", *(f"item:{i}" for i in range(1, 301)))
    assert many.answer() == "*300"
    assert [many.answer() for _ in range(300)] == [row(i) for i in range(1, 301)]
    assert c.number("keyspace_misses") == misses
    many.send("MGET", "item:900", "nothing:1", *(f"item:{i}" for i in range(901, 990)))
    assert many.answer().startswith("-ERR there is no table")
    assert many("PING") == "+PONG"
    for one in [many] + others + [c]:
        one.close()


def crowd():
    """10,000 connections of clients that send a byte now and then: one more is refused in Redis's words, those
    that are there are served, and nothing of it is left behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + 200:
        print(f"only {hard} files may be open: no crowd", file=sys.stderr)
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 200), hard))
    c = Client()
    wait_for(lambda: c.number("connected_clients") == 1, "others are there")
    slow = b"*2\r\n$3\r\nGET\r\n$6\r\nitem:1\r\n"
    hostile = []
    for _ in range(MANY - 1):
        one = socket.socket(socket.AF_UNIX)
        one.connect(PATH) # without a time limit, or a full backlog is an error
        one.settimeout(120)
        one.sendall(slow[:1])
        hostile.append(one)
    wait_for(lambda: c.number("connected_clients") == MANY, "not all are connected")
    late = Client()
    try:
        late.socket.sendall(b"PING\r\n")
    except OSError:
        pass
    assert late.answer() == "-ERR max number of clients reached"
    late.close()
    # Each byte of theirs is taken, and none is a command; each command of another is answered.
    before = c.numbers()
    asked = 1
    for at in range(1, 5):
        for i, one in enumerate(hostile):
            one.sendall(slow[at:at + 1])
            if i % 20 == 0:
                assert c("GET", "item:%d" % (1 + i % 1000)) == row(1 + i % 1000)
                assert c("PING") == "+PONG"
                asked += 2
    after = c.numbers()
    assert int(after["total_commands_processed"]) - int(before["total_commands_processed"]) == asked
    assert after["protocol_errors"] == before["protocol_errors"]
    # They are no worse off than others when they end what they have begun.
    for one in hostile[::50]:
        one.sendall(slow[5:])
    for one in hostile[::50]:
        assert one.recv(100).endswith(b'{"id":1,"v":1}\r\n')
    assert int(c.numbers()["client_buffers_bytes"]) <= MANY * 65536
    for one in hostile:
        one.close()
    wait_for(lambda: c.number("connected_clients") == 1, "they are not forgotten")
    assert c.number("rejected_connections") == 1
    assert Client()("PING") == "+PONG"


for test in (lambda: places(False), lambda: places(True), portions, crowd):
    test()
