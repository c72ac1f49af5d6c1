# SPDX-License-Identifier: BSD-3-Clause
"""cached.py URI COUNT: reads what is cached, until SIGTERM; says how often, and how long the longest took.
The file COUNT has how often so far."""
import os
import signal
import sys
import time

import nbd

stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
h = nbd.NBD()
h.connect_uri(sys.argv[1])
reads, longest = 0, 0
while not stopping:
    i = 4 + reads % 4
    start = time.monotonic()
    assert h.pread(1 << 20, i << 20) == bytes([i + 1]) * (1 << 20), f"block {i}"
    longest = max(longest, time.monotonic() - start)
    reads += 1
    with open(sys.argv[2] + ".new", "w") as out:
        out.write(str(reads))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    time.sleep(0.01)
print(f"{reads} cached reads, the longest took {longest * 1000:.0f} ms")
