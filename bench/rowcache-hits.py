# SPDX-License-Identifier: BSD-3-Clause
"""rowcache-hits.py DIR CACHE-PID REDIS-PID ROUNDS GETS ROWS CLIENTS - the client of bench/rowcache-hits."""
import os
import socket
import statistics
import subprocess
import sys

DIR, CACHE, REDIS, ROUNDS, GETS, ROWS, CLIENTS = sys.argv[1], *map(int, sys.argv[2:])
SERVERS = (("cache", CACHE), ("redis", REDIS))
TICK = os.sysconf("SC_CLK_TCK")


def processor(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


def measure(name, pid, pipeline):
    """Seconds a GET, by the clock and of the server's CPU time."""
    before = processor(pid)
    out = subprocess.run(["redis-benchmark", "-s", f"{DIR}/{name}.sock", "-c", str(CLIENTS), "-n", str(GETS),
                          "-P", str(pipeline), "-r", str(ROWS), "--csv", "GET", "shop.item:__rand_int__"],
                         check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    return 1 / float(out.strip().splitlines()[-1].split('","')[1]), (processor(pid) - before) / GETS


def queries():
    out = subprocess.run(["redis-cli", "-s", f"{DIR}/cache.sock", "INFO", "database"], check=True, capture_output=True,
                         text=True).stdout
    return int(out.split("database_queries:")[1].split()[0])


def fill():
    """Each row is asked for as redis-benchmark does, and what the cache says is set in Redis."""
    sockets = [socket.socket(socket.AF_UNIX) for _ in SERVERS]
    for one, (name, _) in zip(sockets, SERVERS):
        one.connect(f"{DIR}/{name}.sock")
    cache, redis = (one.makefile("rwb") for one in sockets)
    for begin in range(0, ROWS, 100):
        keys = [b"shop.item:%012d" % row for row in range(begin, min(begin + 100, ROWS))]
        cache.write(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key) for key in keys))
        cache.flush()
        for key in keys:
            head = cache.readline()
            if not head.startswith(b"$") or head.startswith(b"$-"):
                sys.exit(f"{key}: {head}")
            value = cache.read(int(head[1:]) + 2)
            redis.write(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n%s%s" % (len(key), key, head, value))
        redis.flush()
        for key in keys:
            if redis.readline() != b"+OK\r\n":
                sys.exit(f"{key}: redis does not take it")


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:5.2f} ({low:.2f} to {high:.2f})"


empty = {name: resident(pid) for name, pid in SERVERS}
fill()
print("Bytes of resident memory a row: " +
      ", ".join(f"{name} {(resident(pid) - empty[name]) / ROWS:.0f}" for name, pid in SERVERS) + "\n")
print(f"A GET of qm-rowcache as a multiple of Redis's, {ROUNDS} rounds of {GETS} GETs, {CLIENTS} clients, "
      f"{os.cpu_count()} processors:\n\n{'pipeline':>8s}  {'by the clock':24s}  {'CPU of the server':24s}")
filled = queries()
for pipeline in (1, 16):
    clock, cpu = [], []
    for turn in range(ROUNDS):
        pair = {name: measure(name, pid, pipeline) for name, pid in (SERVERS if turn % 2 else SERVERS[::-1])}
        clock.append(pair["cache"][0] / pair["redis"][0])
        cpu.append(pair["cache"][1] / pair["redis"][1])
    print(f"{pipeline:8d}  {spread(clock):24s}  {spread(cpu):24s}", flush=True)
if queries() != filled:
    sys.exit("not each GET was a hit")
