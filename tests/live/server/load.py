# SPDX-License-Identifier: BSD-3-Clause
"""load.py SOCKET BUSY on|off: prefetching beside demands, on a device that is busy while
there is a file BUSY.
"""
import os
import random
import sys
import threading

import client

path, busy, throttle = sys.argv[1:]
BLOCK = 16384
STREAMS, OTHERS = 12, 3
PART = (1 << 30) // BLOCK // 2 // STREAMS
stopping = False


def stream(number):
    """Reads a part of the device's first half, on and on; what it reads is prefetched."""
    h, at = client.connect(path), 0
    while not stopping:
        h.pread(BLOCK, (number * PART + at) * BLOCK)
        at = (at + 1) % PART
    h.shutdown()


def others(seed):
    """Reads blocks of the second half in no order: demands."""
    h, rnd = client.connect(path), random.Random(seed)
    while not stopping:
        h.pread(BLOCK, (1 << 29) + rnd.randrange((1 << 29) // BLOCK) * BLOCK)
    h.shutdown()


observer = client.Tagged(path)


def percent():
    return observer.stats()["load"]["percent"]


def is_less():
    load = observer.stats()["load"]
    return load["percent"] <= 50 and load["slowness"] > 1.5


def more(key, n):
    before = observer.stats()[key]
    client.wait_for(lambda: observer.stats()[key] >= before + n, 60)


if os.path.exists(busy):
    os.remove(busy)
threads = [threading.Thread(target=stream, args=(i,)) for i in range(STREAMS)]
threads += [threading.Thread(target=others, args=(i,)) for i in range(OTHERS)]
for t in threads:
    t.start()
try:
    more("prefetches", 1000)
    # A machine that is busy itself may have looked like a device that is, for long.
    client.wait_for(lambda: percent() == 100, 150)
    with open(busy, "w", encoding="utf-8"):
        pass
    if throttle == "on":
        # So few that the thread keeps up with them, or none: how many that is depends on
        # how fast the streams come here.
        client.wait_for(is_less, 60)
        more("throttled", 100)
        more("prefetches", 3)  # it never stops for good
    else:
        more("device_reads", 500)
        assert percent() == 100 and observer.stats()["throttled"] == 0
    os.remove(busy)
    client.wait_for(lambda: percent() == 100, 150)
    more("prefetches", 300)
finally:
    stopping = True
    for t in threads:
        t.join()
end = observer.stats()
assert end["withheld"] == end["throttled"]  # the old name
client.passed(f"{end['throttled']} throttled")
