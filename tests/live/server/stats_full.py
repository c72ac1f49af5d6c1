# SPDX-License-Identifier: BSD-3-Clause
"""stats_full.py SOCKET STATS STALL: more requests are in flight than a small cache can
keep note of, one for each connection.  The disk stops while the file STALL is there."""
import os
import sys

import nbd
import client

path, stats_path, stall = sys.argv[1:]
COUNT, BLOCK = 100, 16384
requests = []
for i in range(COUNT):
    h = client.connect(path)
    requests.append((h, h.aio_pread(nbd.Buffer(BLOCK), i * BLOCK)))
client.wait_for(lambda: client.socket_stats(stats_path)["device_reads"] == COUNT)
s = client.socket_stats(stats_path)
assert (s["hits"], s["prefetch_hits"], s["misses"]) == (0, 0, COUNT), s
os.unlink(stall)
for h, request in requests:
    while not h.aio_command_completed(request):
        h.poll(-1)
assert client.socket_stats(stats_path)["misses"] == COUNT
