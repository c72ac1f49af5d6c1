#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py TRACE TABLES [--before "READS BYTES" --after "READS BYTES"]

How many of a device's reads are in the right query's context.  TRACE is what the server
recorded, between reads of one sector that are marks 0 and 1; TABLES, from extents.py, has
for each table's extents the classes that may read there (none: those whose names have the
table's).  Before and after are the device's own counts, so that a read that the server has
not recorded is missed.  Fails if a read is in a wrong query, or less than 99.9 % are in the
right one, by bytes."""
import argparse
import bisect
import collections
import re
import sys

MARKS = 16001  # as do-lib's note()
p = argparse.ArgumentParser()
p.add_argument("trace")
p.add_argument("tables")
p.add_argument("--before")
p.add_argument("--after")
p.add_argument("--all", action="store_true", help="the whole record")
p.add_argument("--least", type=float, default=99.9, help="percent")
args = p.parse_args()

extents, classes = [], collections.defaultdict(set)
for line in open(args.tables):
    table, start, end, *more = line.split()
    extents.append((int(start), int(end), table))
    classes[table].update(more)
extents.sort()
starts = [e[0] for e in extents]


def table_of(offset, length):
    i = bisect.bisect(starts, offset) - 1
    if i >= 0 and offset < extents[i][1]:
        return extents[i][2]
    i += 1  # a read that merges two files' ends counts for the first
    return extents[i][2] if i < len(extents) and extents[i][0] < offset + length else None


def is_right(table, name):
    if classes[table]:
        return name in classes[table]
    return set(re.findall(r"(?<![a-z])[tr]\d+(?!\d)", name)) == {table}


contexts, part = {}, None
told, untold = collections.defaultdict(list), []  # by place: when a query read it, or nobody
count, examples = collections.Counter(), collections.defaultdict(collections.Counter)
size_of = collections.Counter()
total = 0
shapes = collections.Counter()
for line in open(args.trace, errors="replace"):
    f = line.split()
    if f[0] == "B":
        contexts[f[2]] = f[3], f[4], f[5]
    elif f[0] == "E":
        contexts.pop(f[2], None)
    if f[0] != "R":
        continue
    offset, length = int(f[3]), int(f[4])
    if length == 512 and offset // 512 - MARKS in (0, 1):
        part = offset // 512 - MARKS
        continue
    if part != 0 and not args.all:
        continue
    total += length
    seen = contexts.get(f[2], ("none", "none", None))
    shapes[(length, offset % 4096, seen[0], seen[1][:16] if seen[0] != "query" else "")] += 1
    table = table_of(offset, length)
    kind, name, _ = contexts.get(f[2], ("none", "none", None))
    if table is None:
        verdict = "elsewhere"
    elif kind != "query":
        verdict = "none"
    else:
        verdict = "right" if is_right(table, name) else "wrong"
    if verdict == "none":
        untold.append((offset // 4096, int(f[1])))
    elif kind == "query":
        for at in range(offset // 4096, (offset + length - 1) // 4096 + 1):
            told[at].append(int(f[1]))
    count[verdict] += 1
    size_of[verdict] += length
    examples[verdict][(table, kind, name)] += 1

known = count["right"] + count["wrong"] + count["none"]
# By bytes: a read that no hint came for is recorded block by block.
percent = 100 * size_of["right"] / max(1, sum(size_of[v] for v in ("right", "wrong", "none")))
print(f"CHECK {known} reads of tables: {count['right']} right ({percent:.3f} % of bytes), "
      f"{count['wrong']} wrong, {count['none']} in no query; {count['elsewhere']} of other files")
for verdict in "wrong", "none":
    for (table, kind, name), n in examples[verdict].most_common(8):
        print(f"CHECK   {verdict}: {n} of {table} in {kind} {name}")
# One that is recorded as nobody's has waited for its hint for as long as the server waits.
lags = [min((u - us for u in told[at]), key=abs) for at, us in untold if told[at]]
if lags:
    print(f"CHECK   of those in no query, {len(lags)} places were read in one, too: the nearest "
          + ", ".join(f"{n} x {s} s" for s, n in
                      sorted(collections.Counter(round(x / 1e6, 1) for x in lags).items())[:12]))
bad = count["wrong"] > 0 or percent < args.least or known < 1000
if args.before and args.after:
    # The second mark's own sector is in `after`.
    (reads, size), (reads_after, size_after) = (map(int, x.split()) for x in
                                                (args.before, args.after))
    size = size_after - size - 512
    print(f"CHECK the device read {reads_after - reads - 1} times, {size} bytes; the server "
          f"recorded {total}")
    if total < size or total > size * 1.001:
        for (length, place, kind, name), n in shapes.most_common(16):
            print(f"CHECK   {n} of {length} bytes at {place} of a block, in {kind} {name}")
    if total < size or total > size * 1.002:
        bad = True
sys.exit(bad)
