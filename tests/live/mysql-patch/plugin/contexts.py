#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""contexts.py - prints the contexts of a trace as a tree, for the plugin's tests.

Usage: contexts.py TRACE CLASSES WORD

CLASSES has lines of class and name.  Printed are the contexts in which something was read
and whose name has WORD in it, with those that they are nested in, in the order in which
they began; and at the end, how many blocks were read in such a context and how many in no
context but that of a connection or transaction.
"""

import sys


def main():
    trace, classes, word = sys.argv[1:]
    with open(classes, encoding="utf-8") as file:
        names = dict(line.rstrip("\n").split(" ", 1) for line in file)
    contexts = {}
    order = []
    reads = {}
    with open(trace, encoding="utf-8") as file:
        for line in file:
            event, *rest = line.split()
            if event == "B":
                _, ctx, kind, klass, parent = rest
                contexts[ctx] = kind, names.get(klass, klass), parent
                order.append(ctx)
            elif event == "R":
                reads[rest[1]] = reads.get(rest[1], 0) + int(rest[3]) // 16384

    def above(ctx):
        path = []
        while ctx in contexts:
            path.append(ctx)
            ctx = contexts[ctx][2]
        return path

    wanted = set()
    for ctx in order:
        if ctx in reads and word in contexts[ctx][1]:
            wanted.update(above(ctx))
    outer = 0
    for ctx in order:
        kind, name, _ = contexts[ctx]
        if kind in ("connection", "transaction"):
            outer += reads.get(ctx, 0)
        if ctx in wanted:
            print("  " * (len(above(ctx)) - 1) + f"{kind} {name}")
    print("inner", sum(reads.get(ctx, 0) for ctx in wanted), "outer", outer, file=sys.stderr)


main()
