#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ioprio.py CONSOLE - whether the I/O scheduler of the guest of `ioprio` got each prefetch read with
the priority that was asked for, and each read of a client with that of the process.

Which reads of the layer below are prefetches is told by nbdkit's log filter: the server's own
connections are the first.  No block is read twice, and the kernel reads no more than is asked for,
so a request belongs to the read whose bytes it has.
"""
import collections
import sys

OWN = 1  # connection: of prefetch-connections
LOW, IDLE = (2, 7), (3, 0)
EXPECTED = {"default": LOW, "idle": IDLE}
BLOCK = 4096
RUNS = 9

failed = False


def check(name, lines):
    global failed
    kind = name.split("-")[-1]
    reads, requests, extents = [], [], []
    for words in lines:
        if words[0] == "READ":
            reads.append((int(words[2], 16), int(words[3], 16), int(words[1]) <= OWN))
        elif words[0] == "RQ":
            requests.append(tuple(map(int, words[1:])))
        elif words[0] == "EXTENT":
            first, last, at = (int(w.strip(".:")) for w in words[1:4])
            extents.append((at * BLOCK, (last - first + 1) * BLOCK, first * BLOCK))
    on_file = "-file-" in name
    found = collections.Counter()
    for at, count, cls, level in requests:
        if on_file:
            at = next((at - start + to for start, n, to in extents if start <= at < start + n), None)
            if at is None:  # of the file system
                continue
        own = {own for start, n, own in reads if start < at + count and at < start + n}
        if len(own) != 1:
            print(f"{name}: the request of {count} bytes at {at} belongs to {len(own)} kinds of reads")
            failed = True
            continue
        found["prefetch" if own.pop() and kind != "none" else "client", (cls, level)] += 1
    print(f"{name}:", ", ".join(f"{n} of {who} class {p[0]} level {p[1]}"
                                for (who, p), n in sorted(found.items())))
    prefetched = {p for who, p in found if who == "prefetch"}
    demanded = {p for who, p in found if who == "client"}
    if kind in EXPECTED:
        right = prefetched == {EXPECTED[kind]}
    elif kind == "normal":
        right = prefetched == demanded
    else:
        right = not prefetched
    # The priority that is set when none is; 0 is for the scheduler to say.
    right = right and len(demanded) == 1 and demanded <= {(0, 0), (2, 4)}
    for who, least in (("client", 20), ("prefetch", 0 if kind == "none" else 20)):
        right = right and sum(n for (w, _), n in found.items() if w == who) >= least
    if not right:
        print(f"{name}: WRONG")
        failed = True


runs = {}
with open(sys.argv[1], encoding="utf-8", errors="replace") as console:
    current = None
    for line in console:
        words = line.split()
        if not words:
            continue
        if words[0] == "RUN":
            current = runs.setdefault(words[1], [])
            if not any(w[0] == "[" and words[1].startswith(w.strip("[]") + "-") for w in words[2:]):
                print("another scheduler:", line.strip())
                failed = True
        elif words[0] == "END":
            current = None
        elif current is not None:
            current.append(words)
for name, lines in runs.items():
    check(name, lines)
if len(runs) != RUNS:
    print(f"{len(runs)} runs, not {RUNS}")
    failed = True
sys.exit(failed)
