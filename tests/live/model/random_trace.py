#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random small traces, all of it decided by a seed.

They are made to reach corners, not to look like a workload: contexts of every kind
nested in any order, parents that end before their children, contexts that never end,
reads and writes of no context, requests that begin and end anywhere, blocks whose
numbers differ in length.  But some contexts follow scripts that others have followed
before, from a small set of blocks, so that rules match, caches churn and prefetched
blocks are used as well as wasted.
"""

import random
import sys

KINDS = ("connection", "thread", "transaction", "query")

# Where ranges of blocks begin: numbers whose order as text or as little-endian bytes is
# not their order as numbers, and some beyond 32 bits.
ORIGINS = (0, 0, 5, 95, 250, 9990, 65530, (1 << 24) - 3, (1 << 32) - 4, (1 << 35) + 1)


class Generator:
    def __init__(self, seed):
        self.r = r = random.Random(seed)
        self.block_size = r.choice((4096, 4096, 16384, 65536))
        self.us = 0
        self.next_context = r.choice((1, 1, 7, 1 << 20, (1 << 32) - 3, 1 << 40))
        self.lines = ["#quickmine-trace 1 block=%d" % self.block_size]
        # A large one has room for a prefetch cache of several blocks.
        self.large = r.random() < 0.25
        blocks, scripts = ((3, 20), (1, 5)) if not self.large else ((30, 70), (6, 12))
        self.pool = []
        for _ in range(r.randint(1, 3)):
            origin = r.choice(ORIGINS)
            self.pool += range(origin, origin + r.randint(*blocks))
        self.scripts = [self.script() for _ in range(r.randint(*scripts))]
        self.open = {}  # number: [parent, script, position]

    def script(self):
        r = self.r
        blocks = [r.choice(self.pool) for _ in range(r.randint(3, 20 if self.large else 12))]
        if r.random() < 0.3:  # there and back again: equal blocks within a window
            blocks += blocks[-2::-1]
        return blocks

    def event(self, text):
        self.us += self.r.choice((0, 0, 1, 17, 4000))
        letter, rest = text[0], text[1:]
        self.lines.append("%s %d%s" % (letter, self.us, rest))

    def begin(self):
        r = self.r
        parent = 0
        if self.open and r.random() < 0.7:
            parent = r.choice(list(self.open))
        if r.random() < 0.6 and parent == 0:
            kind = r.choice(KINDS[:2])
        else:
            kind = r.choice(KINDS)
        number = self.next_context
        self.next_context += r.choice((1, 1, 1, 2, 100))
        klass = r.choice(("new-order", "c", "00ff", "SELECT_?", "w=1"))
        self.event("B %d %s %s %d" % (number, kind, klass, parent))
        self.open[number] = [parent, r.choice(self.scripts), 0]
        return number

    def end(self, number):
        self.event("E %d" % number)
        gone = {number}
        grew = True
        while grew:
            nested = {n for n, c in self.open.items() if c[0] in gone and n not in gone}
            gone |= nested
            grew = bool(nested)
        for n in gone:
            del self.open[n]

    def request(self, letter, number, block, wide):
        r, bs = self.r, self.block_size
        shape = r.random()
        if wide:
            offset, length = block * bs, bs * r.randint(2, 6)
            if r.random() < 0.5:
                offset += r.randrange(bs)
                length -= r.randrange(bs)
        elif shape < 0.6:
            offset, length = block * bs, bs
        elif shape < 0.8:  # within the block
            begin = r.randrange(bs)
            offset, length = block * bs + begin, r.randint(1, bs - begin)
        elif shape < 0.9:  # its last byte
            offset, length = block * bs + bs - 1, 1
        else:  # over its end, by a byte or by more
            begin = r.randrange(bs)
            offset, length = block * bs + begin, bs - begin + r.choice((1, bs - 1, bs))
        self.event("%s %d %d %d" % (letter, number, offset, length))

    def follow(self, number):
        """The next read of the context's script; at its end, it often ends."""
        context = self.open[number]
        if context[2] < len(context[1]):
            self.request("R", number, context[1][context[2]], False)
            context[2] += 1
        elif self.r.random() < 0.7:
            self.end(number)
        else:
            context[2] = 0

    def run(self, events):
        r = self.r
        concurrency = r.randint(1, 6)
        for _ in range(events):
            some = r.choice(list(self.open)) if self.open else 0
            x = r.random()
            if len(self.open) < concurrency and x < 0.5 or not self.open:
                self.begin()
            elif x < 0.78:
                self.follow(some)
            elif x < 0.84:
                self.request("R", some, r.choice(self.pool), False)
            elif x < 0.88:
                self.request("R", r.choice((some, some, 0)), r.choice(self.pool), True)
            elif x < 0.91:
                self.request("R", 0, r.choice(self.pool), False)
            elif x < 0.94:
                self.request("W", r.choice((some, 0)), r.choice(self.pool), r.random() < 0.2)
            elif x < 0.97 and len(self.open) < 2 * concurrency:
                self.begin()
            elif x < 0.99:
                self.end(some)
        while self.open and r.random() < 0.8:
            self.end(r.choice(list(self.open)))
        return "\n".join(self.lines) + "\n"


def generate(seed, events=None):
    """The text of a trace; about that many events, by default some tens or hundreds."""
    g = Generator(seed)
    return g.run(events or g.r.choice((20, 60, 150, 300)) * (3 if g.large else 1))


if __name__ == "__main__":
    sys.stdout.write(generate(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None))
