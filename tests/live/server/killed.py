# SPDX-License-Identifier: BSD-3-Clause
"""killed.py DIRECTORY FILTER BLOCK-SIZE VERIFY CYCLES SEED: see the script killed."""
import os
import random
import re
import signal
import subprocess
import sys
import time

import nbd

from cells import Cells

where, library, block, verify, cycles, seed = sys.argv[1:]
rnd = random.Random(int(seed))
sock = where + "/k.sock"
sizes = ["16M", "24M", "40M"] if block == "256K" else ["8M", "12M", "16M", "40M"]


def remove(name):
    try:
        os.unlink(where + "/" + name)
    except FileNotFoundError:
        pass


def start(n):
    env = dict(os.environ, LD_PRELOAD=os.environ.get("SANITIZER", ""),
               ASAN_OPTIONS="detect_leaks=0")
    if rnd.random() < .25:
        env["QUICKMINE_TEST_BOOT_ID"] = "boot-%d" % n # the machine was started anew
    remove("k.sock")
    remove("k.pid")
    with open(where + "/log", "a") as log:
        p = subprocess.Popen(
            ["nbdkit", "-f", "-t", "16", "-U", sock, "-P", where + "/k.pid",
             "--filter=" + library, "file", where + "/image", "cache-size=2M",
             "block-size=" + block, "policy=auto", "tier=" + where + "/tier",
             "tier-size=" + rnd.choice(sizes), "tier-admit=" + rnd.choice(["all", "auto"]),
             "tier-verify=" + verify], stderr=log, env=env)
    while not (os.path.exists(where + "/k.pid") and os.path.getsize(where + "/k.pid")):
        if p.poll() is not None:
            sys.exit("it does not start")
        time.sleep(.02)
    return p


def connect():
    h = nbd.NBD()
    h.connect_unix(sock)
    return h


size = os.path.getsize(where + "/image")
cells = Cells(size, int(seed))
for cycle in range(int(cycles)):
    cells.seed = int(seed) * 1000 + cycle
    server = start(cycle)
    try:
        h = connect()
        for at in range(0, cells.n, 64): # what was seen stays
            seen = cells.check(h, at, min(64, cells.n - at))
            for i, v in enumerate(seen):
                cells.acknowledged[at + i] = max(cells.acknowledged[at + i], v)
        if cells.wrong:
            break
        wanted = cells.writes + rnd.randrange(20, 2000)
        threads = cells.threads(sock, ends=True)
        while cells.writes < wanted and any(t.is_alive() for t in threads[:4]):
            time.sleep(.005)
        if server.poll() is not None:
            sys.exit("it has ended by itself")
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    for t in threads:
        t.join()
with open(where + "/log") as f:
    log = f.read()
recovered = len(re.findall("there from before", log))
print(block, verify, "cycles", cycle + 1, "versions", sum(cells.begun), "recovered", recovered)
sys.exit(1 if cells.wrong or recovered == 0 else 0)
