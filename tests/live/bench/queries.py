# SPDX-License-Identifier: BSD-3-Clause
"""queries.py FILE [COUNT] - a trace of queries that read the same four blocks, some of hundreds, in
one order."""
import random
import sys

r = random.Random(1)
paths = [[r.randrange(1500) for _ in range(4)] for _ in range(300)]
with open(sys.argv[1], "w", encoding="utf-8") as out:
    print("#quickmine-trace 1 block=16384\nB 0 1 thread 1 0", file=out)
    us = 1000
    for n in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1500):
        print("B", us, n + 2, "query", 7, 1, file=out)
        for block in paths[min(int(r.expovariate(1 / 60)), 299)]:
            us += 500
            print("R", us, n + 2, block * 16384, 16384, file=out)
        print("E", us + 100, n + 2, file=out)
        us += 500
    print("E", us, 1, file=out)
