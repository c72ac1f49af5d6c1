#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""contexts.py TRACE CLASSES PAGES - prints the contexts of a trace in which something was
read, and those around them, as a tree in the order in which they began.

CLASSES has lines of class and name; what is not there gets a number.  After each context in which something was read stands
"all" if that was a table of PAGES pages of 8 KiB, give or take a twentieth, else "part"."""
import sys


def main():
    trace, classes, pages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(classes, encoding="utf-8") as lines:
        names = dict(line.rstrip("\n").split(" ", 1) for line in lines)
    contexts, read, order = {}, {}, []
    with open(trace, encoding="utf-8") as lines:
        for line in lines:
            event, *rest = line.split()
            if event == "B":
                _, ctx, kind, klass, parent = rest
                contexts[ctx] = kind, klass, parent
                order.append(ctx)
            elif event == "R":
                read[rest[1]] = read.get(rest[1], 0) + int(rest[3]) // 8192

    def above(ctx):
        path = []
        while ctx in contexts:
            path.append(ctx)
            ctx = contexts[ctx][2]
        return path

    wanted = {ctx for reader in read for ctx in above(reader)}
    unknown = 1
    if "0" in read:
        print("none")
    for ctx in order:
        if ctx in wanted:
            kind, klass, _ = contexts[ctx]
            name = "" if kind == "connection" else names.get(klass, klass)
            if name == klass and len(klass) == 16:
                names[klass] = name = f"?{unknown}"
                unknown += 1
            how = "" if ctx not in read else \
                " all" if abs(read[ctx] - pages) * 20 <= pages else " part"
            print("  " * (len(above(ctx)) - 1) + f"{kind} {name}".rstrip() + how)


main()
