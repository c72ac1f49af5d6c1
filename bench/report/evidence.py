#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""evidence - what a trace says about how well it could be predicted at all.

Usage: evidence.py TRACE LEVEL WARMUP READS

Prints a JSON object about the read requests of TRACE from number WARMUP up to number
READS, of which a prefetcher that learns has seen all before:

    reads, writes        requests
    blocks               blocks read
    new_blocks           of these, read for the first time in the trace
    pairs_in_context     blocks read that have a predecessor in their context of LEVEL
    known_in_context     of these, those whose predecessor was followed by them before, in
                         some context
    pairs_in_arrival, known_in_arrival
                         the same for the order in which the server got them
    untagged             read requests of no context
    end                  where the last request of the whole trace ends, in bytes

An immediate repeat of a block is no pair, as in mining.
"""

import json
import subprocess
import sys


def lines_of(path):
    """Those of a trace that is compressed by zstd, or not at all."""
    with open(path, "rb") as file:
        compressed = file.read(4) == b"\x28\xb5\x2f\xfd"
    if not compressed:
        with open(path, encoding="ascii", errors="replace") as file:
            yield from file
        return
    with subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE, text=True,
                          encoding="ascii", errors="replace") as zstd:
        yield from zstd.stdout
    if zstd.returncode:
        sys.exit(f"evidence: {path} cannot be decompressed")


class Contexts:
    """The open ones, each with the one of LEVEL that its reads count for."""

    def __init__(self, level):
        self.level = level
        self.counts_for, self.children = {}, {}

    def begin(self, number, kind, parent):
        enclosing = self.counts_for.get(parent)
        if kind == self.level or enclosing is None or self.level == "innermost":
            enclosing = (number, kind == self.level)
        elif not enclosing[1]:
            enclosing = (number, False)  # none of the level: the innermost
        self.counts_for[number] = enclosing
        self.children.setdefault(parent, []).append(number)

    def end(self, number, ended):
        for child in self.children.pop(number, ()):
            self.end(child, ended)
        self.counts_for.pop(number, None)
        ended(number)

    def of(self, number):
        found = self.counts_for.get(number)
        return found[0] if found else None


class Order:
    """Pairs of blocks that came one after the other in one order of reads."""

    def __init__(self):
        self.known, self.pairs, self.found = set(), 0, 0

    def read(self, last, block, counts):
        if last is None or last == block:
            return
        pair = last << 40 | block
        if counts:
            self.pairs += 1
            self.found += pair in self.known
        self.known.add(pair)


def main():
    path, level, warmup, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    lines = lines_of(path)
    size = int(next(lines).split("block=")[1])
    contexts, inside, arrival = Contexts(level), Order(), Order()
    last_of, last, seen = {}, None, set()
    number = reads = writes = blocks = new_blocks = untagged = end = 0
    for line in lines:
        fields = line.split()
        what = fields[0]
        if what == "B":
            contexts.begin(int(fields[2]), fields[3], int(fields[5]))
            continue
        if what == "E":
            contexts.end(int(fields[2]), lambda c: last_of.pop(c, None))
            continue
        offset, length = int(fields[3]), int(fields[4])
        end = max(end, offset + length)
        if number >= limit:
            continue
        counts = number >= warmup
        if what == "W":
            writes += counts
            continue
        number += 1
        reads += counts
        owner = contexts.of(int(fields[2]))
        untagged += counts and owner is None
        for block in range(offset // size, (offset + max(length, 1) - 1) // size + 1):
            blocks += counts
            new_blocks += counts and block not in seen
            seen.add(block)
            arrival.read(last, block, counts)
            last = block
            if owner is not None:
                inside.read(last_of.get(owner), block, counts)
                last_of[owner] = block
    print(json.dumps({
        "reads": reads, "writes": writes, "blocks": blocks, "new_blocks": new_blocks,
        "pairs_in_context": inside.pairs, "known_in_context": inside.found,
        "pairs_in_arrival": arrival.pairs, "known_in_arrival": arrival.found,
        "untagged": untagged, "end": end,
    }))


if __name__ == "__main__":
    main()
