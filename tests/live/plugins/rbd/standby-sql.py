# SPDX-License-Identifier: BSD-3-Clause
"""standby-sql.py load|run|check SOCKET [FILE], judge FILE: registers in a database, and checkers.

Each row is a register with a counter, which one client alone adds 1 to.  "run" has clients
that change and read registers until SIGTERM: a client must find in its own registers just what
it has written, and in others' at least what was acknowledged before the statement began and at
most what was begun before it ended.  FILE has the number of statements, FILE.acknowledged the
counters, FILE.history.N each statement of client N; "check" compares the rows with the counters.

"judge" looks at the whole history once more, whoever served it: each register must have been one
counter.  No change is lost or made twice, and a read sees no less than what was acknowledged, or
seen by another statement, before it began.  FILE.takeovers has a line for each takeover: its kind,
who served, and when it began, by the clock of /proc/uptime.  Its pause is the longest statement
that ended between it and the next one.
"""
import collections
import glob
import itertools
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

REGISTERS = 1500  # two a page: more pages than MariaDB's smallest buffer pool has
CLIENTS = 4

LIMIT = 15.0  # seconds; longer pauses are counted

command, sock, *rest = sys.argv[1:]
mariadb = ["mariadb", "--no-defaults", "-S", sock, "-u", "root", "-BN", "--unbuffered"]
stopping = threading.Event()
failures = []
begun = [0] * REGISTERS
acknowledged = [0] * REGISTERS
longest = [0.0] * CLIENTS
changes = [0] * CLIENTS
reads = [0] * CLIENTS


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def load():
    sql = ["CREATE DATABASE s; USE s;",
           "CREATE TABLE r (n INT PRIMARY KEY, v BIGINT NOT NULL, pad VARCHAR(7000)) CHARSET latin1;"]
    sql += [f"INSERT INTO r VALUES ({n}, 0, REPEAT('x', 7000));" for n in range(REGISTERS)]
    subprocess.run(mariadb, input="\n".join(sql), text=True, check=True)


def client(number, history):
    rnd = random.Random(number)
    own = range(number, REGISTERS, CLIENTS)
    process = subprocess.Popen([*mariadb, "s"], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)

    def ask(kind, n, sql):
        start = now()
        process.stdin.write(sql)
        process.stdin.flush()
        answer = int(process.stdout.readline())  # nothing: the statement has failed
        end = now()
        longest[number] = max(longest[number], end - start)
        history.write(f"{kind} {n} {answer} {start:.9f} {end:.9f}\n")
        return answer

    while not stopping.is_set():
        n = rnd.choice(own)
        begun[n] += 1
        value = ask("W", n, f"UPDATE r SET v = v + 1 WHERE n = {n}; SELECT v FROM r WHERE n = {n};\n")
        assert value == begun[n], f"register {n} has {value} after {begun[n]}"
        acknowledged[n] = value
        changes[number] += 1
        for n in (rnd.choice(own), rnd.randrange(REGISTERS), rnd.randrange(REGISTERS)):
            least = acknowledged[n]
            value = ask("R", n, f"SELECT v FROM r WHERE n = {n};\n")
            assert least <= value <= begun[n], f"register {n}: {value}, of {least} to {begun[n]}"
            reads[number] += 1
    process.stdin.close()
    assert process.wait() == 0


def guarded(number, history):
    try:
        client(number, history)
    except Exception as e:
        failures.append(f"client {number}: {e!r}")
        stopping.set()


def write(path, text):
    with open(path + ".new", "w") as out:
        out.write(text)
    os.rename(path + ".new", path)


def run(path):
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    histories = [open(f"{path}.history.{n}", "w") for n in range(CLIENTS)]
    threads = [threading.Thread(target=guarded, args=(n, histories[n])) for n in range(CLIENTS)]
    for t in threads:
        t.start()
    while not stopping.wait(0.2):
        write(path, str(sum(changes) + sum(reads)))
    for t in threads:
        t.join()
    for history in histories:
        history.close()
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


def wrong_in(statements):
    """Of one register's (kind, value, start, end): what was lost, and what was read too old or
    too new, as sentences."""
    events, seen, begun, last = [], 0, 0, 0
    for number, (kind, value, start, end) in enumerate(statements):
        events += [(start, 0, number), (end, 1, number)]  # at once: as if side by side
    least = {}
    for when, over, number in sorted(events):
        kind, value, *_ = statements[number]
        if not over:
            least[number] = seen
            begun += kind == "W"
            continue
        if kind == "W":
            if value != last + 1:
                yield f"lost: a change made it {value} after {last}"
            last = value
        if value < least[number]:
            yield f"stale: {value} at {when:.3f}, and {least[number]} before"
        elif value > begun:
            yield f"invented: {value} at {when:.3f}, of {begun} changes"
        seen = max(seen, value)


def judge(path):
    registers, slow = collections.defaultdict(list), []
    for line in itertools.chain.from_iterable(map(open, sorted(glob.glob(path + ".history.*")))):
        kind, n, value, start, end = line.split()
        registers[int(n)].append((kind, int(value), float(start), float(end)))
        if float(end) - float(start) > 0.1:
            slow.append((float(start), float(end)))
    wrong = [f"register {n}: {text}" for n, statements in sorted(registers.items()) for text in wrong_in(statements)]
    takeovers = [line.split() for line in open(path + ".takeovers")]
    starts = [float(when) for _, _, when in takeovers] + [float("inf")]
    pauses = collections.defaultdict(list)
    for i, (kind, _, _) in enumerate(takeovers):
        pauses[kind].append(max((end - start for start, end in slow if starts[i] <= end < starts[i + 1]),
                                default=0.0))
    for kind, took in pauses.items():
        took.sort()
        print(f"{kind}: {len(took)} takeovers, pause {statistics.median(took):.1f} s (median), "
              f"{took[math.ceil(0.95 * len(took)) - 1]:.1f} s (95 %), {took[-1]:.1f} s (longest), "
              f"{sum(t > LIMIT for t in took)} above {LIMIT:.0f} s")
    served = collections.Counter(who for _, who, _ in takeovers)
    count = {what: sum(what in text for text in wrong) for what in ("lost", "stale", "invented")}
    print(f"{sum(map(len, registers.values()))} statements, {len(takeovers)} takeovers "
          f"({', '.join(f'{n} from {who}' for who, n in sorted(served.items()))}): " +
          ", ".join(f"{n} {what}" for what, n in count.items()))
    if wrong or not registers:
        sys.exit("\n".join(wrong[:20]) or "an empty history")


if command == "judge":
    judge(sock)
elif command == "load":
    load()
elif command == "run":
    run(*rest)
else:
    check(*rest)
