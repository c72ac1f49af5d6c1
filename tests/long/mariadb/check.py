#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py [--split] LOG TRACE IMAGE INDEXES - compares what MariaDB's general log
says that statements and transactions there were with the contexts that the server
recorded.  See workload.py for what statements are called.

LOG       the general log
TRACE     what the server recorded (quickmine-trace(5)), with names as classes
IMAGE     the disk
INDEXES   lines of an index's id and the table that it is of

Each statement of the log must be there once, within its connection and its transaction,
and each transaction once, with its first statement's class.  All pages of a statement's
table must have been read in it; but to prepare it, and to open the table for a
statement that calls it, some have to be read, too, as well as to roll its transaction
back; and the server's threads do their work.  --split: a connection or transaction may
be there in parts (a thread pool).  Says what differs, and exits 1.
"""
import collections
import re
import struct
import sys

PAGE = 16384
NUMBER = re.compile(r"(?<![A-Za-z0-9])([nqs]\d+)(?![A-Za-z0-9])")
BACKGROUND = {"purge", "page cleaner", "recovery", "rollback after recovery",
              "table statistics", "buffer pool load"}


def log(path):
    """Of each statement, in order: its name, its connection, and its transaction; and the
    names of those that were prepared."""
    sessions, statements, prepared = {}, [], set()
    serial = iter(range(1, 1000000))
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = re.match(r"(?:\d{6}\s+\d+:\d\d:\d\d)?\t+\s*(\d+) (\w+)\t?(.*)", line)
            if not found:
                continue
            session, command, text = found.groups()
            state = sessions.setdefault(
                session, {"multi": False, "auto": True, "transaction": None, "last": None})
            if command == "Prepare":
                prepared.update(NUMBER.findall(text))
            if command not in ("Query", "Execute"):
                continue
            words = text.lower()
            if re.match(r"(prepare|execute|deallocate)\b", words):
                continue
            if re.match(r"(begin|start transaction|xa start)\b", words):
                state.update(multi=True, transaction=None)
            elif re.match(r"(commit|rollback$|xa commit|xa rollback)\b", words):
                state.update(multi=False, transaction=None)
            elif words.startswith("set autocommit"):
                state.update(auto=words.endswith("1"), multi=False, transaction=None)
            name = NUMBER.search(text)
            if not name or words.startswith("call"):
                continue
            name = name[1]
            if name[0] == "s":
                transaction = state["last"]
            elif state["multi"] or not state["auto"]:
                transaction = state["transaction"] = state["transaction"] or next(serial)
            else:
                transaction = next(serial)
            state["last"] = transaction
            statements.append((name, session, transaction))
    return statements, prepared


class Context:
    def __init__(self, kind, klass, parent):
        self.kind, self.klass, self.parent = kind, klass, parent
        self.reads = []
        self.tables = set()  # whose pages may be read in it
        self.opens = set()  # and, to open them, of these
        self.tables_within = set()  # and by what has no number in it

    def outside(self, kind):
        context = self.parent
        while context and context.kind != kind:
            context = context.parent
        return context


def trace(path):
    contexts, order = {}, []
    none = Context("none", "", None)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            word = line.split()
            if word[0] == "B":
                contexts[word[2]] = Context(word[3], word[4], contexts.get(word[5]))
                order.append(contexts[word[2]])
            elif word[0] == "R":
                contexts.get(word[2], none).reads.append((int(word[3]), int(word[4])))
    return order + [none]


def index_of(image, page):
    """The id of the index that a page is of, or None.  Not of copies in the doublewrite
    buffer, which have another number than where they are."""
    image.seek(page * PAGE)
    head = image.read(PAGE)
    if len(head) < PAGE or struct.unpack_from(">I", head, 4)[0] != page:
        return None
    if struct.unpack_from(">H", head, 24)[0] != 17855:
        return None
    return struct.unpack_from(">Q", head, 66)[0]


def main():
    split = sys.argv[1] == "--split"
    paths = sys.argv[2:] if split else sys.argv[1:]
    said, prepared = log(paths[0])
    seen = trace(paths[1])
    with open(paths[3], encoding="ascii") as file:
        table_of = dict(line.split() for line in file)
    wrong = []

    # The contexts of each statement, by the name in its class's name.
    of_name = collections.defaultdict(list)
    for context in seen:
        found = NUMBER.search(context.klass)
        if context.kind == "query" and found:
            of_name[found[1]].append(context)

    # A statement is there once, within what the log says.
    transaction_of, connection_of, begins = {}, {}, {}
    for name, session, transaction in said:
        contexts = of_name.pop(name, [])
        if name[0] == "n":
            begins.setdefault(transaction, name)
            for context in contexts:
                context.opens.add("t" + name[1:])
            continue
        if len(contexts) != 1:
            wrong.append(f"{name} is there {len(contexts)} times")
            continue
        context = contexts[0]
        its = context.outside("transaction"), context.outside("connection")
        if None in its:
            wrong.append(f"{name} is in no transaction or connection")
            continue
        first = NUMBER.search(its[0].klass)
        if not first or first[1] != begins.setdefault(transaction, name):
            wrong.append(f"{name}: its transaction is of class '{its[0].klass}'")
        if not split:
            for it, number, known in ((its[0], transaction, transaction_of),
                                      (its[1], session, connection_of)):
                if known.setdefault(number, it) is not it:
                    wrong.append(f"{name}: its {it.kind} is there twice")
        if name[0] == "s":
            if context.parent.kind != "query":
                wrong.append(f"{name} is in no statement")
            context.parent.opens.add("t" + name[1:])
        context.tables.add("t" + name[1:])
        its[0].tables_within.add("t" + name[1:])
        if name in prepared:
            its[0].tables.add("t" + name[1:])
            its[1].tables.add("t" + name[1:])
    for name in of_name:
        wrong.append(f"{name} is not in the log")
    for known in transaction_of, connection_of:
        if len(set(known.values())) != len(known):
            wrong.append("several have one context")

    # What was read where.  Reading ahead may read pages of tables that nobody wants.
    wanted = {"t" + name[1:] for name, _, _ in said}
    counts = collections.Counter()
    with open(paths[2], "rb") as image:
        for context in seen:
            name = context.klass.replace("_", " ")
            allowed = context.tables | context.opens
            if name.startswith("PREPARE "):
                allowed |= {"t" + n[1:] for n in prepared}
            if context.kind == "transaction":
                allowed |= context.tables_within
            if split and (context.kind in ("transaction", "connection") or
                          context.kind == "query" and not NUMBER.search(name)):
                allowed = wanted
            elif context.kind == "query" and not NUMBER.search(name):
                outside = context.outside("transaction")
                allowed |= outside.tables_within if outside else set()
            for offset, length in context.reads:
                for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1):
                    table = table_of.get(str(index_of(image, page)))
                    if table and context.tables >= {table} and context.kind == "query":
                        counts["its"] += 1
                        counts[table] += 1
                    elif table not in wanted or table in allowed or (
                            context.kind == "thread" and name in BACKGROUND):
                        counts["other"] += 1
                    else:
                        wrong.append(
                            f"a page of {table} was read in {context.kind} '{name}'")
    for name, _, _ in said:
        if name[0] != "n" and not counts["t" + name[1:]]:
            wrong.append(f"{name} has read nothing")

    for line in wrong[:40]:
        print(line)
    transactions = len({t for _, _, t in said})
    print(f"{len(said)} statements, {transactions} transactions, "
          f"{len({s for _, s, _ in said})} connections; {counts['its']} pages read in "
          f"their statements, {counts['other']} others; {len(wrong)} wrong")
    sys.exit(bool(wrong) or not said)


main()
