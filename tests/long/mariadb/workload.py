#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""workload.py DIRECTORY - what clients do in tests/long/mariadb/run.

Each statement that reads pages has a number, and reads a table of its own, so that it can
be told from what was read which statement it was for: statement q17 reads table t17 and
has q17 in its text, at the front, as names of classes are cut.  Statements of functions
and triggers are called s17; one that finds its table in memory, n17.

Writes DIRECTORY/schema.sql, which makes the tables and programs, and DIRECTORY/NAME.commands
for each client, for tests/live/mysql-patch/plugin/client.c.
"""
import sys

ROWS = 1500  # of about 200 bytes: some twenty pages, a few reads each
BIG = 20000  # of tables that are read in full, by extents


class Workload:
    def __init__(self):
        self.tables = []
        self.programs = []
        self.clients = {}
        self.n = 0

    def table(self, rows=ROWS):
        self.n += 1
        self.tables.append((self.n, rows))
        return self.n

    def read(self, rows=ROWS, into="", letter="q"):
        """A statement that reads all of a table."""
        n = self.table(rows)
        return f"SELECT SUM(b) AS {letter}{n}{into} FROM t{n}"

    def lookup(self):
        n = self.table()
        return f"SELECT b AS q{n} FROM t{n} WHERE a IN (3, 700, 1400)"

    def update(self, last=900):
        n = self.table()
        return f"UPDATE t{n} AS q{n} SET b = b + 1 WHERE a <= {last}"

    def procedure(self, *body):
        name = f"p{len(self.programs)}"
        self.programs.append(
            f"CREATE PROCEDURE {name}() BEGIN {'; '.join(body)}; END")
        return name

    def function(self):
        name = f"f{len(self.programs)}"
        inner = self.read(into=" INTO n", letter="s")
        self.programs.append(f"CREATE FUNCTION {name}() RETURNS INT READS SQL DATA BEGIN "
                             f"DECLARE n INT; {inner}; RETURN n; END")
        return name

    def trigger(self, on):
        name = f"g{len(self.programs)}"
        n = self.table()
        self.programs.append(f"CREATE TRIGGER {name} AFTER UPDATE ON t{on} FOR EACH ROW "
                             f"UPDATE t{n} AS s{n} SET b = b + 1 WHERE a > NEW.a")

    def client(self, name):
        q, p = "q ", "p 10000 "
        do = self.clients[name] = []
        # each a transaction
        do += [q + self.read(), p + self.read() + " WHERE a < ?", q + self.lookup(),
               q + self.update(), q + self.read(BIG)]
        # begun and ended by words
        do += [q + "BEGIN", q + self.read(), q + self.update(), p + self.lookup(),
               q + "COMMIT", q + self.read()]
        do += [q + "START TRANSACTION", q + self.update(), q + "SAVEPOINT s",
               q + self.read(), q + "ROLLBACK TO s", q + self.read(), q + "ROLLBACK"]
        first = self.read() + " WHERE a = 1"
        do += [q + first, q + "BEGIN", q + first.replace("AS q", "AS n"), q + self.read(),
               q + self.update(), q + "COMMIT"]
        do += [q + "SET autocommit = 0", q + self.read(), q + self.lookup(), q + "COMMIT",
               q + self.update(), q + "ROLLBACK", q + self.read(),
               q + "SET autocommit = 1", q + self.read()]
        do += [q + f"XA START '{name}'", q + self.update(), q + self.read(),
               q + f"XA END '{name}'", q + f"XA PREPARE '{name}'",
               q + f"XA COMMIT '{name}'"]
        # prepared in SQL
        do += [q + f"PREPARE st FROM '{self.read()} WHERE a < ?'",
               q + "EXECUTE st USING 10000", q + "DEALLOCATE PREPARE st",
               q + f"EXECUTE IMMEDIATE '{self.read()}'"]
        # in programs
        do += [q + f"CALL {self.procedure(self.read(), self.update())}()"]
        do += [q + "BEGIN", q + self.read(),
               q + f"CALL {self.procedure(self.lookup(), self.read())}()", q + "COMMIT"]
        do += [q + "CALL " + self.procedure(
            "START TRANSACTION", self.read(), self.update(), "COMMIT",
            "START TRANSACTION", self.update(), self.read(), "ROLLBACK") + "()"]
        n = self.table()
        do += [q + f"SELECT SUM(b) + {self.function()}() AS q{n} FROM t{n}"]
        update = self.update(last=1)
        self.trigger(self.n)
        do += [q + "BEGIN", q + update, q + self.read(), q + "COMMIT"]
        # a transaction that nobody ends, and the connection does
        do += ["connect", q + self.read(), q + "BEGIN", q + self.update(), q + self.read()]

    def write(self, directory):
        with open(f"{directory}/schema.sql", "w", encoding="ascii") as file:
            for n, rows in self.tables:
                file.write(
                    f"CREATE TABLE t{n} (a INT PRIMARY KEY, b INT, c CHAR(180)) "
                    "CHARSET latin1 STATS_PERSISTENT=0;\n"
                    f"INSERT INTO t{n} SELECT seq, seq, 'c' FROM seq_1_to_{rows};\n")
            file.write("DELIMITER //\n")
            for program in self.programs:
                file.write(program + "//\n")
        for name, commands in self.clients.items():
            with open(f"{directory}/{name}.commands", "w", encoding="ascii") as file:
                file.writelines(line + "\n" for line in commands)


def main():
    workload = Workload()
    for name in ("one", "two", "three", "four"):
        workload.client(name)
    workload.write(sys.argv[1])


main()
