# SPDX-License-Identifier: BSD-3-Clause
"""bounds.py SOCKET PID PORT [DIRECTORY] - what one client may cost the daemon: max-reply is 1M, max-request 1M.  With
DIRECTORY: what it says when what it keeps there is damaged."""
import os
import resource
import sys

import resp
from resp import wait_for

PATH, PID, PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LONG = "the reply is longer than max-reply"


class Client(resp.Client):
    def __init__(self, port=0):
        super().__init__(PATH, port)

    def fails(self, text, *words):
        try:
            answer = self(*words)
        except resp.Error as error:
            assert text in str(error), (text, str(error))
            return
        raise AssertionError((text, str(answer)[:200]))

    def info(self, name):
        return float(self.numbers()[name])

    def queries(self):
        """SELECTs that clients waited for: without read-ahead's, which come when they like."""
        fields = self.numbers()
        return int(fields["database_queries"]) - int(fields["readahead_queries"])

    def of(self, client, name):
        """A number of another client, as CLIENT LIST has it."""
        for line in self("CLIENT", "LIST").splitlines():
            fields = dict(field.split("=", 1) for field in line.split(" "))
            if fields["id"] == str(client):
                return int(fields[name])
        raise AssertionError("no such client")

    def all(self, name):
        return [int(field.split("=")[1]) for line in self("CLIENT", "LIST").splitlines()
                for field in line.split(" ") if field.startswith(name + "=")]


def replies():
    c = Client()
    rows = [f"big:{i}" for i in range(1, 41)]
    # From the database, and, once they are kept, from there: 40 rows of 64K.
    c("FLUSHDB")
    c.fails(LONG, "MGET", *rows)
    for row in rows:
        wait_for(lambda: not asks(c, row))
    c.fails(LONG, "MGET", *rows)
    c.fails(LONG, "MGET", *["big:1"] * 20)
    assert len(c("MGET", *rows[:15])) == 15 and len(c("GET", "big:1")) > 65536
    assert c("EXISTS", *rows, *rows, "big:99") == 80
    c.fails(LONG, "HMGET", "big:1", *["v"] * 17)
    assert [len(v) for v in c("HMGET", "big:1", *["v"] * 15)] == [65536] * 15
    c.fails("up to 4096 fields", "HMGET", "big:1", *["v"] * 4097)
    assert c("HMGET", "big:1", *["nix"] * 4095, "id") == [None] * 4095 + ["1"]
    # The first error is the answer: the database is not asked for what comes behind it.
    before = c.queries()
    c.fails("there is no table", "MGET", "nix:1")
    c.fails("a key is", "MGET", "wrong", *[f"big:{i}" for i in range(1000, 1100)])
    assert c.queries() == before

    c("SELECT", 1)
    c("SET", "k", b"x" * 65536)
    c.fails(LONG, "MGET", *["k"] * 16)
    assert c("ECHO", "same connection") == "same connection"
    assert len(c("MGET", *["k"] * 15)) == 15
    # COUNT is a hint: 2000 keys of 2000 bytes are not told at once.
    for i in range(2000):
        c.send("SET", b"%02000d" % i, "")
    assert [c.answer() for _ in range(2000)] == ["OK"] * 2000
    cursor, seen, steps = "0", set(), 0
    while steps == 0 or cursor != "0":
        cursor, keys = c("SCAN", cursor, "COUNT", 10**9)
        assert sum(map(len, keys)) < 3 << 20
        seen.update(keys)
        steps += 1
    assert len(seen) == 2001 and steps > 1, (len(seen), steps)
    c("FLUSHDB")


def asks(c, key):
    before = c.queries()
    c("GET", key)
    return c.queries() > before


def taken_at_once():
    """Long replies that the kernel takes without a wait hold up nothing behind them.  A TCP socket's
    buffer grows with what was sent."""
    c = Client(PORT)
    for _ in range(100):
        for _ in range(3):
            c.send("HMGET", "big:1", *["v"] * 15)
        for _ in range(3):
            assert list(map(len, c.answer())) == [65536] * 15
        assert c("PING") == "PONG"


def given_back():
    """A command of many words holds no memory when it has been carried out."""
    c, other = Client(), Client()
    number = c("CLIENT", "ID")
    # Of rows of 64K, which are not copied.
    assert c("EXISTS", *["big:1"] * 30000) == 30000
    assert other.of(number, "argv-mem") < 30000
    # A word that is announced gets no more room than it needs.
    long = hold(600000, other)
    long.socket.sendall(b"x\r\n")
    assert len(long.answer()) == 600000
    held = hold(600000, other)
    assert max(other.all("tot-mem")) < 700000, other.all("tot-mem")
    held.socket.close()


class Refused(Exception):
    pass


def hold(size, watcher):
    """A client that has sent all of a word of that size but its end."""
    c = Client()
    number = c("CLIENT", "ID")
    try:
        c.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size + b"x" * (size - 1))
        wait_for(lambda: watcher.of(number, "qbuf") >= size)
    except (AssertionError, OSError):
        raise Refused(c.file.readline()) from None
    return c


def input():
    """Clients that fill the memory for commands: others are served."""
    other, holders = Client(), []
    for size in (1000000, 1000000, 900000, 400000, 200000):
        holders.append(hold(size, other))
    try:
        for _ in range(50):
            holders.append(hold(100000, other))
        raise AssertionError("there is no bound")
    except Refused as refused:
        assert "OOM the command is too long" in str(refused), refused
    for _ in range(100):
        holders.append(hold(50000, other))
    assert len(other("ECHO", "x" * 50000)) == 50000
    for holder in holders: # nothing was taken from those that were there
        holder.socket.sendall(b"x\r\n")
        assert len(holder.answer()) >= 50000
    # All is given back, though they stay connected.
    wait_for(lambda: other.info("client_buffers_bytes") <= (len(holders) + 1) * 65536)
    # One alone has half: of an endless command, the connection ends; others are served.
    hog = Client()
    try:
        for i in range(100):
            hog.socket.sendall((b"" if i else b"*1000\r\n$4\r\nMSET\r\n") + b"$100000\r\n" + b"x" * 100000 + b"\r\n")
            number = i
        raise AssertionError("there is no bound")
    except OSError:
        assert 10 < number < 25, number
    assert b"OOM" in hog.file.readline()
    assert len(other("ECHO", "x" * 1000000)) == 1000000
    # So are those of words without bytes.
    hog = Client()
    try:
        hog.socket.sendall(b"*1000000\r\n" + b"$0\r\n\r\n" * 999999)
    except OSError:
        pass
    assert b"OOM" in hog.file.readline()
    assert len(other("ECHO", "x" * 1000000)) == 1000000


def no_files():
    """When no file can be opened, connections wait, and the loop does not spin."""
    c = Client()
    soft, hard = resource.prlimit(PID, resource.RLIMIT_NOFILE)
    before = c.info("accept_failures")
    resource.prlimit(PID, resource.RLIMIT_NOFILE, (1, hard))
    late = Client()
    late.send("PING")
    wait_for(lambda: c.info("accept_failures") > before)
    # A loop that spins tries it again with each command.
    before = c.info("accept_failures")
    for _ in range(2000):
        assert c("PING") == "PONG"
    assert c.info("accept_failures") - before < 1000
    resource.prlimit(PID, resource.RLIMIT_NOFILE, (soft, hard))
    assert late.answer() == "PONG"
    assert Client()("PING") == "PONG"


def damaged():
    c = Client()
    c("SELECT", 1)
    keys = [f"key{i}" for i in range(300)]
    for key in keys:
        c("SET", key, b"x" * 100000)
    c("SET", "there", "")
    for at, _, names in os.walk(os.path.join(sys.argv[4], "plain")):
        for name in names:
            # Names of cold keys' files are their hashes; the log and others stay.
            if len(os.path.basename(at)) == 2 and os.path.getsize(os.path.join(at, name)) >= 100000:
                os.truncate(os.path.join(at, name), 50)
    lost = []
    for key in keys:
        try:
            assert len(c("GET", key)) == 100000
        except resp.Error as error:
            assert str(error).startswith("MISCONF"), error
            lost.append(key)
    assert lost, "no key was cold"
    for words in (["MGET", "there", lost[0], "there"], ["EXISTS", "there", lost[0]], ["TYPE", lost[0]]):
        c.fails("MISCONF", *words)
    assert c("MGET", "there", "nix", "") == ["", None, None] and c("EXISTS", "there", "nix", "") == 1
    assert c("TYPE", "there") == "string" and c("TYPE", "nix") == "none"


if len(sys.argv) > 4:
    damaged()
    sys.exit()
for test in (replies, taken_at_once, given_back, input, no_files):
    test()
    print(test.__name__, file=sys.stderr)
