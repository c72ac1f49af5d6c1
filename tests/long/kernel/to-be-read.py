#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""to-be-read.py FILE <EXTENTS - prints the numbers of the blocks of 4 KiB that FILE has on
a disk, whose dump_extents (debugfs) is EXTENTS; a "+" at those that a scan of all rows has
to read.  Of InnoDB's files (.ibd) these are the leaf pages from 128 KiB on, as what lies
before may be read ahead when the table is opened; of other files all."""
import re
import struct
import sys

BLOCK, PAGE = 4096, 16384
BEGINNING = 128 * 1024
TYPE, LEVEL = 24, 64  # where a page says what it is, and how high in the tree
INDEX, LEAF = 17855, 0


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()

    def wanted(at):
        if not sys.argv[1].endswith(".ibd"):
            return True
        page = data[at // PAGE * PAGE:][:PAGE]
        return at >= BEGINNING and struct.unpack_from("!H", page, TYPE)[0] == INDEX and \
            struct.unpack_from("!H", page, LEVEL)[0] == LEAF

    blocks = []
    for line in sys.stdin:
        # Level, entries, logical blocks, physical blocks, length.
        found = re.match(r" *(\d+)/ *(\d+) +\d+/ *\d+ +(\d+) - +(\d+) +(\d+) - +\d+ ", line)
        if found and found[1] == found[2]:
            first, last, physical = (int(n) for n in found.groups()[2:])
            blocks += [f"{physical + i - first}{'+' if wanted(i * BLOCK) else ''}"
                       for i in range(first, last + 1)]
    if not blocks:
        sys.exit(f"{sys.argv[1]}: it has no blocks")
    print(" ".join(blocks))


main()
