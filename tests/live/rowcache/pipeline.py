# SPDX-License-Identifier: BSD-3-Clause
"""pipeline.py SOCKET DATABASE FLAG - several reads sent at once; the pool has 4 connections.

While FLAG is there, what MariaDB answers of the row 7771 is held up, see stall.py."""
import os
import subprocess
import sys

import resp
from resp import wait_for

PATH, DATABASE, FLAG = sys.argv[1:]
MARIADB = ["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BN", "shop"]


def sql(text):
    return subprocess.run([*MARIADB, "-e", text], check=True, capture_output=True, text=True).stdout.strip()


class Client(resp.Client):
    """Of commands that are lines of words; several are sent at once."""

    def __init__(self):
        super().__init__(PATH)

    def send(self, *commands):
        self.socket.sendall(b"".join(self.packed(*command.split()) for command in commands))

    def answer(self):
        try:
            return super().answer()
        except resp.Error as error:
            return f"-{error}"

    def __call__(self, *commands):
        self.send(*commands)
        return [self.answer() for _ in commands]


other = Client()


def info(name):
    return int(float(dict(line.split(":", 1) for line in other("INFO")[0].splitlines() if ":" in line)[name]))


def row(i, v=1):
    return '{"id":%d,"v":%d}' % (i, v)


def settle():
    """The log is applied, and the last row that was read could be kept."""
    other(f"WAITGTID {sql('SELECT @@gtid_binlog_pos')}")
    wait_for(lambda: other("GET a:10000") == [row(10000)] and kept("a:10000"))
    other("DEL a:10000", "GET a:10000")
    assert kept("a:10000")


def kept(key):
    before = info("keyspace_hits")
    other(f"GET {key}")
    return info("keyspace_hits") > before


class Lock:
    """Nobody reads the table meanwhile, but its own statements."""

    def __init__(self, table):
        self.session = subprocess.Popen([*MARIADB, "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self(f"LOCK TABLES {table} WRITE")

    def __call__(self, statement):
        self.session.stdin.write(f"{statement}; SELECT 'done';\n")
        self.session.stdin.flush()
        assert self.session.stdout.readline() == "done\n", statement

    def release(self):
        self("UNLOCK TABLES")
        self.session.stdin.close()
        assert self.session.wait(60) == 0


def waiting():
    return int(sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST "
                   "WHERE STATE LIKE 'Waiting for table%' AND USER = 'rc'"))


def together():
    """All connections of the pool are used; replies come in their order."""
    settle()
    lock, c = Lock("a"), Client()
    c.send("GET a:1", "HGET a:2 v", "GET a:20001", "GET wrong", "MGET a:3 a:4", "EXISTS a:5 a:20002", "GET a:1", "GET a:6",
           "ECHO x", "GET a:7")
    wait_for(lambda: waiting() == 4)
    lock.release()
    answers = [c.answer() for _ in range(10)]
    assert answers[3].startswith("-ERR a key is"), answers
    assert answers[:3] + answers[4:] == [row(1), "1", None, [row(3), row(4)], 1, row(1), row(6), "x", row(7)], answers


def counted():
    """A row that came early was missing all the same."""
    settle()
    before = [info(name) for name in ("keyspace_hits", "keyspace_misses", "shared_reads", "database_queries")]
    keys = range(100, 140)
    for wanted in ([0, 40, 0, 40], [40, 40, 0, 40]):
        assert Client()(*[f"GET a:{i}" for i in keys]) == [row(i) for i in keys]
        now = [info(name) for name in ("keyspace_hits", "keyspace_misses", "shared_reads", "database_queries")]
        assert [b - a for a, b in zip(before, now)] == wanted, (before, now)
    assert info("early_reads") >= 20


def barriers():
    """Nothing is read for what stands behind a command that may change what it means."""
    settle()
    for i, command in enumerate(("SELECT 0", "DEL a:9", "WAITGTID 0-1-1", "CLIENT REPLY ON", "RESET", "MULTI", "GET", "SCAN 0",
                                 "EXEC", "FLUSHDB", "HELLO 2")):
        before, at = info("early_reads"), 1000 + 10 * i
        answers = Client()(f"GET a:{at}", command, f"GET a:{at + 1}")
        assert answers[0] == row(at) and answers[2] == row(at + 1), answers
        assert info("early_reads") == before, command
        assert Client()(f"GET a:{at + 2}", f"GET a:{at + 3}") == [row(at + 2), row(at + 3)]
        assert info("early_reads") == before + 1, command


def newer():
    """What came early is older than what was read before it: it is read again."""
    settle()
    lock, c = Lock("a"), Client()
    early = info("early_reads")
    open(FLAG, "w").close()
    c.send("GET a:50", "GET b:7771", "GET b:51")
    wait_for(lambda: os.path.exists(FLAG + ".held") and info("early_reads") == early + 2 and waiting() == 1)
    sql("UPDATE b SET v = 2")
    lock("UPDATE a SET v = 2 WHERE id = 50")
    lock.release()
    assert c.answer() == row(50, 2)
    os.unlink(FLAG)
    assert [c.answer(), c.answer()] == [row(7771, 2), row(51, 2)]


def left():
    """A client that goes while its rows are read takes nothing with it."""
    settle()
    lock, clients = Lock("a"), [Client() for _ in range(5)]
    for i, c in enumerate(clients):
        c.send(*[f"GET a:{j}" for j in range(3000 + 8 * i, 3016 + 8 * i)])
    wait_for(lambda: waiting() == 4)
    for c in clients[:4]:
        c.socket.close()
        c.file.close()
    lock.release() # the first answer cannot be sent: the others are still being read
    wait_for(lambda: info("connected_clients") == 2)
    assert [clients[4].answer() for _ in range(16)] == [row(j) for j in range(3032, 3048)]
    assert Client()("GET a:3000", "GET a:3001") == [row(3000), row(3001)]


for test in (together, counted, barriers, newer, left):
    test()
    print(test.__name__, file=sys.stderr)
