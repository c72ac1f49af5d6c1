#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check-database.py CONSOLE TRACE BLOCKS CLASSES - compares the statements that a database
in the guest logged with what the server of its disk recorded (quickmine-trace(5)).  Says
what differs, and exits 1.

  CONSOLE  has lines "@statement CONNECTION TEXT", in order within a connection
  BLOCKS   of a table (or index): its name, and the device's blocks of 4 KiB of its file;
           a scan of the table has to read those with a "+"
  CLASSES  of a table: its name, and the class of the query that reads it, or ? if only
           its being another one than all others' is known

A table tCN is read by one statement, that of client C which names it: those blocks have to
have been read, in the context of one connection, of one transaction, and of a query of its
class; and by nobody else.  (Other blocks may have been read in other contexts of the
connection.)  What is tC7 is read by parallel workers as well, which are connections of their
own with the same classes.

The table acc and its index (a table whose name begins with acc) are read by queries of
classes acc1, acc2, ..., in the connections of clients 1, 2, ...: by at least one, and by as
many at most as there were statements that name it."""
import collections
import re
import sys

BLOCK = 4096


class Context:
    def __init__(self, number, kind, klass, parent):
        self.number, self.kind, self.klass, self.parent = number, kind, klass, parent
        self.ended = False

    def __repr__(self):
        return f"{self.kind} {self.number}"

    def around(self, kind):
        """Itself or the innermost around it that is of the kind."""
        context = self
        while context and context.kind != kind:
            context = context.parent
        return context


class Statement:
    def __init__(self, connection, transaction, table):
        self.connection, self.transaction, self.table = connection, transaction, table


def logged(path):
    """The statements that read a table; how many of each acc, and whose these are."""
    statements, acc, client = [], collections.Counter(), {}
    transaction, explicit = collections.Counter(), {}
    with open(path, errors="replace") as lines:
        for line in lines:
            found = re.match(r"@statement (\S+) +(.*)", line.strip())
            if not found:
                continue
            connection, text = found.groups()
            word = text.split()[0].upper().rstrip(";")
            if word in ("BEGIN", "START"):
                explicit[connection] = True
                transaction[connection] += 1
                continue
            if word in ("COMMIT", "ROLLBACK"):
                explicit[connection] = False
                continue
            table = re.search(r"\b(?:[a-z]+_)?(t\d\d|acc)\b", text)
            if word not in ("SELECT", "EXECUTE", "CALL", "UPDATE") or not table:
                continue
            if not explicit.get(connection):
                transaction[connection] += 1
            if table[1] == "acc":
                column = re.search(r"\bc(\d)\b", text)
                acc["acc" + column[1]] += 1
                client["acc" + column[1]] = connection
            else:
                statements.append(Statement(
                    connection, (connection, transaction[connection]), table[1]))
    return statements, acc, client


def recorded(path):
    """Contexts, and reads as (context or None, offset, length); what is wrong already."""
    contexts, reads, wrong = {}, [], []
    with open(path) as lines:
        for line in lines:
            word = line.split()
            if word[0] == "B":
                contexts[word[2]] = Context(word[2], word[3], word[4],
                                            contexts.get(word[5]))
                if word[3] == "connection" and word[4] == "plain":
                    contexts[word[2]] = None
            elif word[0] == "E" and contexts[word[2]]:
                contexts[word[2]].ended = True
            elif word[0] in ("R", "W"):
                context = contexts.get(word[2])
                if context and context.ended:
                    wrong.append(f"after the end: {line.strip()}")
                if word[0] == "R":
                    reads.append((context, int(word[3]), int(word[4])))
    wrong += [f"a {c.kind} of class {c.klass} has not ended"
              for c in contexts.values() if c and not c.ended]
    return contexts, reads, wrong


def one_to_one(what, pairs):
    """Sentences about pairs that are no bijection."""
    wrong, there, back = [], {}, {}
    for a, b in pairs:
        if there.setdefault(a, b) is not b and there[a] != b:
            wrong.append(f"{what}: {a} is both {there[a]} and {b}")
        if back.setdefault(b, a) != a:
            wrong.append(f"{what}: {back[b]} and {a} are both {b}")
    return wrong


def main():
    console, trace, blocks_file, classes_file = sys.argv[1:]
    statements, acc, client = logged(console)
    _, reads, wrong = recorded(trace)
    owner, scanned = {}, {}
    with open(blocks_file) as lines:
        for line in lines:
            table, *blocks = line.split()
            scanned[table] = {int(block[:-1]) for block in blocks if block[-1] == "+"}
            owner.update((int(block.rstrip("+")), table) for block in blocks)
    with open(classes_file) as lines:
        expected = dict(line.split() for line in lines)

    # Who has read what, and whether requests keep to one file.
    readers = collections.defaultdict(lambda: collections.defaultdict(set))
    for context, offset, length in reads:
        blocks = range(offset // BLOCK, (offset + length + BLOCK - 1) // BLOCK)
        tables = {owner.get(block) for block in blocks}
        if len(tables) > 1:
            wrong.append(f"a request of {length} bytes at {offset} is of {tables}")
        for block in blocks:
            if block in owner:
                readers[owner[block]][context].add(block)

    connections, transactions, classes, count = [], [], [], collections.Counter()
    for statement in statements:
        table = statement.table
        got = readers.pop(table, {})
        covered = set().union(*got.values()) if got else set()
        missing = scanned[table] - covered
        if missing or not scanned[table]:
            wrong.append(f"{table}: {len(missing)} of {len(scanned[table])} blocks were "
                         "not read")
        if not got or None in got:
            wrong.append(f"{table}: {len(got.get(None, ()))} blocks were read for nobody")
            continue
        # To prepare it is another statement, and reads what opening the table needs.
        for context in [c for c, blocks in got.items() if not blocks & scanned[table]]:
            del got[context]
            connections.append((statement.connection, context.around("connection")))
        for context in got:
            if context.kind != "query" or not context.around("transaction") or \
                    not context.around("connection"):
                wrong.append(f"{table}: read in a {context.kind}")
            classes.append((table, context.klass))
            if expected[table] not in ("?", context.klass):
                wrong.append(f"{table}: the class is {context.klass}, "
                             f"not {expected[table]}")
        if table.endswith("7"):
            count["workers"] += len(got)
            continue
        if len(got) > 1:
            wrong.append(f"{table}: {len(got)} contexts read it")
        context = next(iter(got))
        transactions.append((statement.transaction, context.around("transaction")))
        connections.append((statement.connection, context.around("connection")))
        count["queries"] += 1
    # Of the look-ups, which are many, it is known by whom they are.
    lookups = collections.defaultdict(set)
    for table in [t for t in readers if t.startswith("acc")]:
        for context in readers.pop(table):
            lookups[context and context.around("connection")].add(context)
    of_client = dict(connections)
    for name, times in acc.items():
        got = lookups.pop(of_client.get(client[name]), set())
        if not 1 <= len(got) <= times:
            wrong.append(f"{name}: {len(got)} contexts of {times} statements read")
        for context in got:
            if context.kind != "query" or expected[name] not in ("?", context.klass):
                wrong.append(f"{name}: read in a {context.kind} of class {context.klass}")
            classes.append((name, context.klass))
        count["lookups"] += len(got)
    wrong += [f"acc: {len(got)} contexts of {connection or 'nobody'} read it"
              for connection, got in lookups.items()]
    wrong += one_to_one("class", classes)
    wrong += one_to_one("transaction", transactions)
    wrong += one_to_one("connection", connections)
    wrong += [f"{table}: read, but by no statement" for table in readers]
    if not statements or not acc:
        wrong.append("the guest logged no statements")

    if wrong:
        print("\n".join(wrong[:40]), file=sys.stderr)
        sys.exit(1)
    print(f"{count['queries']} statements that read a table, in "
          f"{len(set(t for t, _ in transactions))} transactions of "
          f"{len(set(c for c, _ in connections))} connections, {count['workers']} "
          f"parallel workers, and {count['lookups']} look-ups (others found all in "
          "memory): each in its own contexts")


main()
