#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py CONSOLE TRACE - compares what the guest said that it did (guest.h) with what
the server recorded (quickmine-trace(5)).  Says what differs, and exits 1."""
import collections
import sys


class Context:
    """What is known of a class: of the guest, or of the server."""

    def __init__(self, kind=None, parent=None):
        self.kind, self.parent = kind, parent
        self.requests = []  # (type, offset, length), in order
        self.cover = []
        self.merged = []
        self.ended = False
        self.again = False
        self.begun = self.open = 0  # how often; some of the server's may have ended


def guest(path):
    said = collections.OrderedDict({"-": Context()})
    with open(path, errors="replace") as lines:
        for line in lines:
            at = line.find("@")
            word = line[at + 1:].split() if at >= 0 else []
            if not word:
                continue
            if word[0] == "begin":
                assert word[1] not in said, f"the guest uses class {word[1]} twice"
                said[word[1]] = Context(word[2], word[3])
            elif word[0] == "again":
                said[word[1]].again = True
            elif word[0] == "end":
                said[word[1]].ended = True
            elif word[0] in ("read", "write"):
                said[word[1]].requests.append(
                    (word[0][0].upper(), int(word[2]), int(word[3])))
            elif word[0] == "cover":
                said[word[1]].cover.append((int(word[2]), int(word[2]) + int(word[3])))
            elif word[0] == "merged":
                said[word[1]].merged.append((int(word[2]), int(word[2]) + int(word[3])))
    return said


def server(path):
    """Contexts by class; what is wrong already; none: reads outside of all contexts."""
    seen, wrong, number, plain = {"-": Context()}, [], {}, set()
    with open(path) as lines:
        for line in lines:
            word = line.split()
            if word[0] == "B":
                klass = word[4]
                if word[3] == "connection" and klass == "plain":
                    plain.add(word[2])
                    number[word[2]] = seen["-"]
                    continue
                parent = [k for k, c in seen.items() if c is number.get(word[5])]
                context = Context(word[3], parent[0] if parent else "-")
                context = number[word[2]] = seen.setdefault(klass, context)
                context.begun += 1
                context.open += 1
                context.ended = False
            elif word[0] == "E":
                if word[2] not in plain:
                    number[word[2]].open -= 1
                    number[word[2]].ended = number[word[2]].open == 0
            elif word[0] in "RW":
                context = seen["-"] if word[2] == "0" else number[word[2]]
                if context.ended:
                    wrong.append(f"after the end: {line.strip()}")
                context.requests.append((word[0], int(word[3]), int(word[4])))
    return seen, wrong


def union(ranges):
    out = []
    for start, stop in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(stop, out[-1][1]))
        else:
            out.append((start, stop))
    return out


def compare(klass, said, seen):
    """Sentences that say what is wrong with one class."""
    if not said.requests and not said.cover:
        return []  # one that read nothing need not be told
    if seen is None:
        return [f"{klass}: the server has not heard of it"]
    wrong = []
    if (said.kind, said.parent) != (seen.kind, seen.parent):
        wrong.append(f"{klass}: is a {seen.kind} in {seen.parent}, "
                     f"not a {said.kind} in {said.parent}")
    if seen.begun > 1 and not said.again:
        wrong.append(f"{klass} begins {seen.begun} times")
    if said.ended != seen.ended:
        wrong.append(f"{klass}: has {'' if seen.ended else 'not '}ended")
    if said.cover:
        got = union((o, o + n) for t, o, n in seen.requests if t == "R")
        if got != union(said.cover):
            wrong.append(f"{klass}: reads {got}, not {union(said.cover)}")
    elif seen.requests != said.requests:
        for i, (a, b) in enumerate(zip(said.requests + [None], seen.requests + [None])):
            if a != b:
                wrong.append(f"{klass}: request {i} is {b}, not {a}, of "
                             f"{len(seen.requests)}, not {len(said.requests)}")
                break
    return wrong


def merged(klass, said, seen):
    return [f"{klass}: nothing was merged, so this test shows nothing"
            for start, stop in said.merged
            if not any(start <= o < stop and n > 4096 for _, o, n in seen.requests)]


def main():
    said = guest(sys.argv[1])
    seen, wrong = server(sys.argv[2])
    for klass, context in said.items():
        if klass != "-":
            wrong += compare(klass, context, seen.get(klass))
        if klass in seen:
            wrong += merged(klass, context, seen[klass])
    wrong += [f"{k}: the guest knows of no such class" for k in seen if k not in said]

    again = [k for k, c in said.items() if c.again]
    if again and not any(k in seen and seen[k].begun > 1 for k in again):
        wrong.append("nothing was begun again, so this test shows nothing")

    # What is of no context: it is there, and what contexts read is not among it, but for
    # reads of the same place that the guest said.
    none = collections.Counter(seen["-"].requests)
    for request in said["-"].requests:
        none[request] -= 1
        if none[request] < 0:
            wrong.append(f"-: {request} is not there")
    reads = union((o, o + n) for t, o, n in seen["-"].requests if t == "R")
    for start, stop in said["-"].cover:
        if not any(a <= start and stop <= b for a, b in reads):
            wrong.append(f"-: {start} to {stop} is not there")
    for klass, context in said.items():
        own = {r for r in context.requests} if klass != "-" else set()
        for request in own:
            if none[request] > 0:
                wrong.append(f"{klass}: {request} was also read for nobody")
    if wrong:
        print("\n".join(wrong[:40]), file=sys.stderr)
        sys.exit(1)
    contexts = [c for k, c in seen.items() if k != "-"]
    print(f"{len(contexts)} contexts with {sum(len(c.requests) for c in contexts)} "
          f"requests, {len(seen['-'].requests)} of none: as the guest said")


main()
