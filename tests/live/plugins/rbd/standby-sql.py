# SPDX-License-Identifier: BSD-3-Clause
"""standby-sql.py load|run|check SOCKET [FILE]: registers in a database, and a checker of them.

Each row is a register with a counter, which one client alone adds 1 to.  "run" has clients
that change and read registers until SIGTERM: a client must find in its own registers just what
it has written, and in others' at least what was acknowledged before the statement began and at
most what was begun before it ended.  FILE has the number of statements, FILE.acknowledged the
counters; "check" compares the rows with these.
"""
import os
import random
import signal
import subprocess
import sys
import threading
import time

REGISTERS = 1500  # two a page: more pages than MariaDB's smallest buffer pool has
CLIENTS = 4

command, sock, *rest = sys.argv[1:]
mariadb = ["mariadb", "--no-defaults", "-S", sock, "-u", "root", "-BN", "--unbuffered"]
stopping = threading.Event()
failures = []
begun = [0] * REGISTERS
acknowledged = [0] * REGISTERS
longest = [0.0] * CLIENTS
changes = [0] * CLIENTS
reads = [0] * CLIENTS


def load():
    sql = ["CREATE DATABASE s; USE s;",
           "CREATE TABLE r (n INT PRIMARY KEY, v BIGINT NOT NULL, pad VARCHAR(7000)) CHARSET latin1;"]
    sql += [f"INSERT INTO r VALUES ({n}, 0, REPEAT('x', 7000));" for n in range(REGISTERS)]
    subprocess.run(mariadb, input="\n".join(sql), text=True, check=True)


def client(number):
    rnd = random.Random(number)
    own = range(number, REGISTERS, CLIENTS)
    process = subprocess.Popen([*mariadb, "s"], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)

    def ask(sql):
        start = time.monotonic()
        process.stdin.write(sql)
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        longest[number] = max(longest[number], time.monotonic() - start)
        return int(answer)  # nothing: the statement has failed

    while not stopping.is_set():
        n = rnd.choice(own)
        begun[n] += 1
        value = ask(f"UPDATE r SET v = v + 1 WHERE n = {n}; SELECT v FROM r WHERE n = {n};\n")
        assert value == begun[n], f"register {n} has {value} after {begun[n]}"
        acknowledged[n] = value
        changes[number] += 1
        for n in (rnd.choice(own), rnd.randrange(REGISTERS), rnd.randrange(REGISTERS)):
            least = acknowledged[n]
            value = ask(f"SELECT v FROM r WHERE n = {n};\n")
            assert least <= value <= begun[n], f"register {n}: {value}, of {least} to {begun[n]}"
            reads[number] += 1
    process.stdin.close()
    assert process.wait() == 0


def guarded(number):
    try:
        client(number)
    except Exception as e:
        failures.append(f"client {number}: {e!r}")
        stopping.set()


def write(path, text):
    with open(path + ".new", "w") as out:
        out.write(text)
    os.rename(path + ".new", path)


def run(path):
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(CLIENTS)]
    for t in threads:
        t.start()
    while not stopping.wait(0.2):
        write(path, str(sum(changes) + sum(reads)))
    for t in threads:
        t.join()
    if failures:
        sys.exit("; ".join(failures))
    write(path + ".acknowledged", "\n".join(map(str, acknowledged)))
    print(f"{sum(changes)} changes and {sum(reads)} reads, 0 wrong; "
          f"longest statement {max(longest) * 1000:.0f} ms")


def check(path):
    rows = subprocess.run([*mariadb, "s", "-e", "SELECT v FROM r ORDER BY n"], text=True,
                          check=True, stdout=subprocess.PIPE).stdout.split()
    wanted = open(path).read().split()
    wrong = [n for n in range(REGISTERS) if rows[n] != wanted[n]]
    if len(rows) != REGISTERS or wrong:
        sys.exit(f"{len(rows)} registers; these have other values: {wrong[:20]}")


if command == "load":
    load()
elif command == "run":
    run(*rest)
else:
    check(*rest)
