#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""back.py TRACE MARK

When reads are in queries again after the read of one sector that is the mark, by the clock of the
server that recorded them; and for how long no read in a query came at most.  Fails if there
is none."""
import sys

trace, mark = sys.argv[1], (16001 + int(sys.argv[2])) * 512  # as do-lib's note()
queries, since, last, first, pause = set(), None, None, None, 0
for line in open(trace, errors="replace"):
    f = line.split()
    if not line.endswith("\n") or f[0] not in "BER":
        continue
    us = int(f[1])
    if f[0] == "B" and f[3] == "query":
        queries.add(f[2])
    elif f[0] == "E":
        queries.discard(f[2])
    elif f[0] == "R" and int(f[3]) == mark and int(f[4]) == 512:
        since, first, pause = us, None, 0
    elif f[0] == "R" and f[2] in queries:
        if since is not None:
            first = us if first is None else first
            pause = max(pause, us - (last or us))
        last = us
if first is None:
    sys.exit(1)
print(f"contexts are back {(first - since) / 1000:.0f} ms after the mark; the longest pause of "
      f"reads in queries since was {pause / 1000:.0f} ms")
