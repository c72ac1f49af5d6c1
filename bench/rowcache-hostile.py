# SPDX-License-Identifier: BSD-3-Clause
"""rowcache-hostile.py SOCKET PAIRS GETS MANY - the clients of bench/rowcache-hostile."""
import os
import resource
import socket
import statistics
import subprocess
import sys
import threading

PATH, PAIRS, GETS, MANY = sys.argv[1], *map(int, sys.argv[2:])


def connect():
    one = socket.socket(socket.AF_UNIX)
    one.connect(PATH)
    return one


def settle():
    """Returns when the daemon has taken up all that was connected, sent and closed before."""
    with connect() as one:  # is accepted behind the others
        for _ in range(50):  # wake-ups: of 10,000 sockets, each finds some
            one.sendall(b"PING\r\n")
            assert one.recv(100) == b"+PONG\r\n"


def rate():
    out = subprocess.run(["redis-benchmark", "-s", PATH, "-c", "1", "-n", str(GETS), "--csv", "GET", "item:1"],
                         check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    return float(out.strip().splitlines()[-1].split('","')[1])


class Behaviour:
    """act() is called each_second times a second while it is on."""
    each_second = 0

    def begin(self):
        pass

    def act(self):
        pass

    def end(self):
        pass

    def run(self, ended):
        while not ended.wait(.05):
            for _ in range(self.each_second // 20):
                self.act()


class Idle(Behaviour):
    def begin(self):
        self.all = [connect() for _ in range(MANY)]

    def end(self):
        for one in self.all:
            one.close()


class Slow(Idle):
    each_second = 1000

    def begin(self):
        super().begin()
        self.at = 0
        for one in self.all:
            one.sendall(b"*2\r\n$3\r\nGET\r\n$1000000\r\n")

    def act(self):
        self.all[self.at % MANY].sendall(b"x")
        self.at += 1


class Huge(Behaviour):
    each_second = 100

    def act(self):
        one = connect()
        one.sendall(b"*2\r\n$3\r\nGET\r\n$536870912\r\n")
        assert b"invalid bulk length" in one.recv(100)
        one.close()


def measure(name, behaviour):
    def beside():
        ended = threading.Event()
        behaviour.begin()
        settle()
        thread = threading.Thread(target=behaviour.run, args=(ended,))
        thread.start()
        result = rate()
        ended.set()
        thread.join()
        behaviour.end()
        settle()
        return result

    shares = []
    for pair in range(PAIRS):  # each is the first in every second pair: what is first may be slower
        if pair % 2:
            alone, other = rate(), beside()
        else:
            other, alone = beside(), rate()
        shares.append(100 * other / alone)
    low, middle, high = statistics.quantiles(shares, n=4) if len(shares) > 1 else shares * 3
    print(f"{name:8s} {middle:6.1f} % {low:6.1f} % {high:6.1f} %", flush=True)


soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
print(f"GETs a second of one client beside each, in per cent of those without, {PAIRS} pairs of {GETS} GETs,\n"
      f"{MANY} connections, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}:\n")
print(f"{'':8s} {'median':>8s} {'quartiles':>17s}")
for name, kind in (("nobody", Behaviour), ("idle", Idle), ("slow", Slow), ("huge", Huge)):
    measure(name, kind())
