#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A slow model of what QuickMine's traces, rules and paper preset mean.

It exists to be compared with the program, so it shares nothing with it, not even the
language, and takes every sentence of the definition literally: rules by three nested
loops, caches as lists of block numbers.  When the two differ, one of them is wrong.

  rule      for a sequence s and lookahead G: every i < j < k with j-i < G and k-i < G,
            s[i] != s[j] and s[k] not in {s[i], s[j]}, adds 1 to s[i]&s[j] -> s[k]
  sequence  the blocks that one context read, in order; immediate repeats count once
  level     a read belongs to its context and to all that it is nested in, and counts for
            the innermost of these that is of the level's kind; where there is none, for
            the context itself.  "none": all reads, of no context too, are one sequence
  perfect   prefetches the next distinct blocks of the sequence, other than the current
            one, among its next 1024 accesses
  belady    evicts the block whose next read is farthest away; before that those that are
            never read again, of these the one whose last read is longest ago

Invariants: a cache list holds a block once, least recent first; no block is in both
lists; a sequence never holds the same block twice in a row.
"""

import argparse
import gzip
import json
import sys

KINDS = ("connection", "thread", "transaction", "query")
LEVELS = ("innermost", "query", "transaction", "thread", "connection", "none")

# A sequence that has grown by that many blocks since it was last mined is mined in
# passing.
SEGMENT = 4096


class TraceError(Exception):
    pass


def parse_trace(text):
    """(block size, events); an event is a tuple whose first item is its letter."""
    lines = text.split("\n")
    head = lines[0].split(" ")
    if head[:2] != ["#quickmine-trace", "1"] or not head[2].startswith("block="):
        raise TraceError("line 1: not a trace")
    block_size = int(head[2][len("block="):])
    events = []
    for number, line in enumerate(lines[1:], 2):
        if line == "":
            continue
        f = line.split()
        if f[0] == "B" and len(f) == 6 and f[3] in KINDS:
            events.append(("B", int(f[2]), f[3], f[4], int(f[5])))
        elif f[0] in ("R", "W") and len(f) == 5 and int(f[4]) > 0:
            events.append((f[0], int(f[2]), int(f[3]), int(f[4])))
        elif f[0] == "E" and len(f) == 3:
            events.append(("E", int(f[2])))
        else:
            raise TraceError("line %d: cannot be read: %s" % (number, line))
    return block_size, events


def load_trace(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="ascii") as f:
        return parse_trace(f.read())


def blocks_of(offset, length, block_size):
    """The blocks that a request touches, ascending."""
    return range(offset // block_size, (offset + length - 1) // block_size + 1)


class Rules:
    """Supports, by prefix and then by suffix.

    With max_prefix, the prefix goes first whose last use (it was created, strengthened
    or matched) is longest ago.  With max_suffix, the suffix of least support goes first,
    of equals the higher block, but a new one is safe during the next `grace` updates of
    its prefix, unless all are.  0: without bounds.
    """

    def __init__(self, gap, max_prefix=0, max_suffix=0, grace=0):
        self.gap = gap
        self.max_prefix, self.max_suffix = max_prefix, max_suffix
        self.grace = grace if max_suffix > 0 else 0
        self.prefixes = {}  # the least recently used first

    def mine(self, s, first=0):
        """Adds the rules of s whose last block is at position first or later."""
        for i in range(len(s)):
            for j in range(i + 1, len(s)):
                if not j - i < self.gap:
                    break
                for k in range(j + 1, len(s)):
                    if not k - i < self.gap:
                        break
                    if k < first:
                        continue
                    if s[i] != s[j] and s[k] not in (s[i], s[j]):
                        self.add(s[i], s[j], s[k])

    def use(self, prefix):
        """Its suffixes; it is the most recently used prefix now."""
        suffixes = self.prefixes.pop(prefix, None)
        if suffixes is None:
            if 0 < self.max_prefix <= len(self.prefixes):
                oldest = next(iter(self.prefixes))
                del self.prefixes[oldest]
            suffixes = {}
        self.prefixes[prefix] = suffixes
        return suffixes

    def add(self, a, b, c):
        suffixes = self.use((a, b))
        is_new = c not in suffixes
        if is_new and 0 < self.max_suffix <= len(suffixes):
            unsafe = [d for d in suffixes if suffixes[d]["grace"] == 0]
            victim = min(unsafe or suffixes, key=lambda d: (suffixes[d]["support"], -d))
            del suffixes[victim]
        for d in suffixes if self.grace > 0 else ():
            suffixes[d]["grace"] = max(0, suffixes[d]["grace"] - 1)
        if is_new:
            suffixes[c] = {"support": 1, "grace": self.grace}
        else:
            suffixes[c]["support"] += 1

    def candidates(self, a, b, most):
        """The suffixes of a & b of highest support; of equals, the lower blocks."""
        if (a, b) not in self.prefixes:
            return []
        suffixes = self.use((a, b))
        ordered = sorted(suffixes, key=lambda c: (-suffixes[c]["support"], c))
        return ordered[:most]

    def count(self):
        return sum(len(suffixes) for suffixes in self.prefixes.values())

    def listed(self):
        return sorted(
            (a, b, c, suffix["support"])
            for (a, b), suffixes in self.prefixes.items()
            for c, suffix in suffixes.items()
        )


class Sequence:
    """What one context has read, and how much of it has been mined."""

    def __init__(self):
        self.blocks = []
        self.mined = 0

    def append(self, block):
        if not self.blocks or self.blocks[-1] != block:
            self.blocks.append(block)

    def mine(self, rules):
        # To find the rules that end in a block, the gap-1 blocks before it suffice:
        # that many are carried over from what has been mined.
        carried = max(0, self.mined - (rules.gap - 1))
        rules.mine(self.blocks[carried:], self.mined - carried)
        self.mined = len(self.blocks)

    def mine_in_passing(self, rules):
        if len(self.blocks) - self.mined >= SEGMENT:
            self.mine(rules)


class Context:
    def __init__(self, kind, parent, order):
        self.kind = kind
        self.parent = parent
        self.order = order
        self.sequence = Sequence()


class Contexts:
    """The open contexts of a trace, and whose sequence a read extends."""

    def __init__(self, level, rules):
        self.level = level
        self.rules = rules
        self.open = {}
        self.begun = 0
        self.seen = set()
        self.everything = Sequence()

    def begin(self, number, kind, parent):
        if number <= 0 or number in self.seen:
            raise TraceError("context %d begins twice" % number)
        if parent != 0 and parent not in self.open:
            raise TraceError("parent %d is not open" % parent)
        self.seen.add(number)
        self.begun += 1
        self.open[number] = Context(kind, self.open.get(parent), self.begun)

    def check(self, number):
        if number != 0 and number not in self.open:
            raise TraceError("context %d is not open" % number)

    def sequence_of(self, number):
        """Where a read of context number counts, or None."""
        self.check(number)
        if self.level == "none":
            return self.everything
        if number == 0:
            return None
        c = self.open[number]
        while c is not None:
            if c.kind == self.level:
                return c.sequence
            c = c.parent
        return self.open[number].sequence

    def end(self, number):
        """Ends the context after all that is nested in it, the one begun last first."""
        if number not in self.open:
            raise TraceError("context %d is not open" % number)
        ending = self.open[number]
        nested = [n for n, c in self.open.items() if c.parent is ending]
        for n in sorted(nested, key=lambda n: -self.open[n].order):
            self.end(n)
        self.open.pop(number).sequence.mine(self.rules)


def mine(trace, rules, level="innermost", paper=False, block_size=None):
    """Fills rules from a trace.  With level none its end is the sequence's end."""
    trace_block_size, events = trace
    bs = block_size or trace_block_size
    contexts = Contexts(level, rules)
    for e in events:
        if e[0] == "B":
            contexts.begin(e[1], e[2], e[4])
        elif e[0] == "E":
            contexts.end(e[1])
        elif e[0] == "W":
            contexts.check(e[1])
        else:
            sequence = contexts.sequence_of(e[1])
            for block in blocks_of(e[2], e[3], bs):
                if sequence is not None:
                    sequence.append(block)
                    if not paper:
                        sequence.mine_in_passing(rules)
    if level == "none":
        contexts.everything.mine(rules)


class Lru:
    """Block numbers, the least recent first."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.blocks = []

    def __contains__(self, block):
        return block in self.blocks

    def touch(self, block):
        self.blocks.remove(block)
        self.blocks.append(block)

    def insert(self, block):
        """The block that had to go, or None."""
        assert block not in self.blocks
        self.blocks.append(block)
        if len(self.blocks) > self.capacity:
            return self.blocks.pop(0)
        return None


class Belady(Lru):
    """The same, but it knows all reads, and is told when it is."""

    def __init__(self, capacity, reads):
        super().__init__(capacity)
        self.reads = reads
        self.now = 0

    def insert(self, block):
        assert block not in self.blocks
        victim = None
        if len(self.blocks) == self.capacity:
            ahead = self.reads[self.now + 1:]
            never = [b for b in self.blocks if b not in ahead]
            # The list is in the order of their last reads.
            victim = never[0] if never else max(self.blocks, key=ahead.index)
            self.blocks.remove(victim)
        self.blocks.append(block)
        return victim


class Known:
    """All reads of a trace: their blocks, and the sequence that each extends, or None."""

    def __init__(self, events, bs, level):
        contexts = Contexts(level, Rules(2))
        self.blocks = []
        self.sequences = []
        for e in events:
            if e[0] == "B":
                contexts.begin(e[1], e[2], e[4])
            elif e[0] == "E":
                contexts.end(e[1])
            elif e[0] == "R":
                for block in blocks_of(e[2], e[3], bs):
                    self.blocks.append(block)
                    self.sequences.append(contexts.sequence_of(e[1]))

    def ahead(self, now, degree):
        """What the sequence of that read will read."""
        own = self.sequences[now]
        later = [self.blocks[t] for t in range(now + 1, len(self.blocks))
                 if self.sequences[t] is own]
        found = []
        for block in later[:1024]:
            if block != self.blocks[now] and block not in found:
                found.append(block)
        return found[:degree]


def sim(trace, policy, cache_bytes, rules, level="innermost", block_size=None, degree=4,
        eviction="lru"):
    """One run of the paper preset, as a dictionary of counts."""
    trace_block_size, events = trace
    bs = block_size or trace_block_size
    total = cache_bytes // bs
    prefetching = policy != "none"
    share = max(1, total * 4 // 100) if prefetching else 0
    known = None
    if policy == "perfect" or eviction == "belady":
        known = Known(events, bs, level)
    main, prefetched = Lru(total - share), Lru(share)
    if eviction == "belady":
        main = Belady(total - share, known.blocks)
    contexts = Contexts(level, rules)
    n = dict.fromkeys(
        ("requests", "reads", "hits", "prefetch_hits", "misses", "prefetches", "used", "wasted"),
        0,
    )

    for e in events:
        if e[0] == "B":
            contexts.begin(e[1], e[2], e[4])
            continue
        if e[0] == "E":
            contexts.end(e[1])
            continue
        if e[0] == "W":
            contexts.check(e[1])
            continue

        n["requests"] += 1
        sequence = contexts.sequence_of(e[1])
        for block in blocks_of(e[2], e[3], bs):
            now = main.now = n["reads"]
            n["reads"] += 1
            missed = False
            if block in main:
                n["hits"] += 1
                main.touch(block)
            elif block in prefetched:
                n["prefetch_hits"] += 1
                n["used"] += 1
                prefetched.blocks.remove(block)
                main.insert(block)
            else:
                n["misses"] += 1
                missed = True
                main.insert(block)

            if sequence is None or not prefetching:
                continue
            sequence.append(block)
            # All of the trace is one sequence at this level, which never ends: only
            # what is mined in passing is ever learned.
            if level == "none":
                sequence.mine_in_passing(rules)
            if not missed:
                continue
            if policy == "perfect":
                candidates = known.ahead(now, degree)
            elif len(sequence.blocks) >= 2:
                candidates = rules.candidates(*sequence.blocks[-2:], degree)
            else:
                candidates = []
            for c in candidates:
                if c in main or c in prefetched:
                    continue
                n["prefetches"] += 1
                if prefetched.insert(c) is not None:
                    n["wasted"] += 1

    n["policy"] = policy
    n["eviction"] = eviction
    n["cache_blocks"] = total
    n["rules"] = rules.count() if policy == "quickmine" else 0
    n["miss_ratio"] = n["misses"] / n["reads"] if n["reads"] else 0.0
    n["accuracy"] = n["used"] / n["prefetches"] if n["prefetches"] else 0.0
    return n


def parse_size(text):
    for i, unit in enumerate("kmgt"):
        if text.lower().endswith(unit):
            return int(text[:-1]) << 10 * (i + 1)
    return int(text)


def arguments(argv):
    parser = argparse.ArgumentParser(description="a slow model of quickmine mine and sim")
    sub = parser.add_subparsers(dest="command", required=True)
    for name in ("mine", "sim"):
        p = sub.add_parser(name)
        p.add_argument("file")
        p.add_argument("--gap", type=int, default=5)
        p.add_argument("--max-prefix", type=int, default=0)
        p.add_argument("--max-suffix", type=int, default=0)
        p.add_argument("--grace", type=int, default=0)
        p.add_argument("--level", choices=LEVELS, default="innermost")
        p.add_argument("--block-size", type=parse_size)
        p.add_argument("--preset", choices=("paper",), required=name == "sim")
        if name == "sim":
            p.add_argument("--policy", default="none,quickmine")
            p.add_argument("--eviction", default="lru")
            p.add_argument("--cache-size", required=True)
            p.add_argument("--degree", type=int, default=4)
            p.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def run(argv):
    """What the command would say: mine's lines as a text, sim's runs as a list."""
    a = arguments(argv)
    trace = load_trace(a.file)

    def rules():
        return Rules(a.gap, a.max_prefix, a.max_suffix, a.grace)

    if a.command == "mine":
        mined = rules()
        mine(trace, mined, a.level, a.preset == "paper", a.block_size)
        return "".join("%d\t%d\t%d\t%d\n" % rule for rule in mined.listed())
    return [
        sim(trace, policy, parse_size(size), rules(), a.level, a.block_size, a.degree,
            eviction)
        for size in a.cache_size.split(",")
        for policy in a.policy.split(",")
        for eviction in a.eviction.split(",")
    ]


if __name__ == "__main__":
    result = run(sys.argv[1:])
    if not isinstance(result, str):
        result = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(result)
