# SPDX-License-Identifier: BSD-3-Clause
"""follow.py - compares what the follower says with which rows really changed.

Usage: follow.py WATCH SOCKET [IMAGE[+compress][+metadata][+checksum][+kinds],...]

The tables are read before and after each step; each row that was added, removed or is another
must have been told, by its key or with its table, before the step's GTID was.
"""
import subprocess
import sys
import threading
import time

WATCH, SOCKETS = sys.argv[1], sys.argv[2:3]
DEADLINE = 60


def fail(text):
    print(f"FAILED: {text}", file=sys.stderr)
    sys.exit(1)


def sql(text, socket=None, force=False):
    """Rows of all results, as lists of strings.  With force, also of those after an error."""
    done = subprocess.run(
        ["mariadb", "--no-defaults", "-S", socket or SOCKETS[0], "-u", "root", "-BN",
         *(["--force"] if force else [])], input="SET time_zone='+00:00';" + text,
        capture_output=True, text=True, errors="backslashreplace")
    if done.returncode and not force:
        fail(f"{text}: {done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines()]


class Follower:
    def __init__(self, *options):
        self.lines, self.turn = [], threading.Condition()
        self.process = subprocess.Popen([WATCH, *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.turn:
                self.lines.append(line.rstrip(b"\n"))
                self.turn.notify_all()
        with self.turn:
            self.lines.append(b"ended")
            self.turn.notify_all()

    def wait_line(self, start, since=0):
        """The index after the first line from since on that begins so."""
        end = time.monotonic() + DEADLINE
        with self.turn:
            at = since
            while True:
                for at in range(at, len(self.lines)):
                    if self.lines[at].startswith(start):
                        return at + 1
                    if self.lines[at] == b"ended":
                        fail(f"the follower ended: {self.lines[-20:]}")
                at = len(self.lines)
                if not self.turn.wait(end - time.monotonic()):
                    fail(f"no line {start}: {self.lines[-20:]}")

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def reach(self, gtid):
        since = len(self.lines)
        if gtid:
            self.say(f"wait {gtid} {DEADLINE * 1000}")
            self.wait_line(b"reached", since)

    def since(self, at):
        """rows and tables that were told since then; None among them: everything."""
        rows, tables = set(), set()
        for line in self.lines[at:]:
            word = line.split(b" ", 2)
            if word[0] == b"row":
                name, key = word[2].split(b":", 1)
                rows.add((name.decode(), key))
            elif word[0] == b"all":
                tables.add(word[2].decode())
            elif word[0] == b"gap":
                tables.add("*.*")
        return rows, tables

    def stop(self):
        self.process.stdin.close()
        self.wait_line(b"stopped")
        if self.process.wait(DEADLINE):
            fail(f"the follower ended with {self.process.returncode}")


def position(socket=None):
    return sql("SELECT @@gtid_binlog_pos", socket)[0][0]


TABLES = {}  # name: expressions that give the bytes of each key column in hex


def escape(column):
    return b"".join(b"%%%02X" % c if c <= 32 or c in b":%\x7f" else bytes([c]) for c in column)


def read_tables(socket=None):
    """By one client, since starting one takes longer than reading; some may not be there."""
    there, name = {}, ""
    for row in sql("".join(
            f"SELECT '=', '{name}'; SELECT CONCAT_WS('/',{','.join(columns)}), t.* FROM {name} t;"
            for name, columns in TABLES.items()), socket, force=True):
        if row[0] == "=":
            name = row[1]
            continue
        key = b":".join(escape(bytes.fromhex(part)) for part in row[0].split("/"))
        there[name, key] = "\t".join(row[1:])
    return there


def is_told(name, key, rows, tables):
    return (name, key) in rows or bool(
        {"*.*", name, name.split(".")[0] + ".*"} & tables)


def compare(what, before, after, rows, tables):
    changed = [one for one in before.keys() | after.keys()
               if before.get(one) != after.get(one)]
    for name, key in changed:
        if not is_told(name, key, rows, tables):
            fail(f"{what}: {name}:{key} was not told; told: {rows} {tables}")
    return changed


def step(follower, what, text, rows_only=False, changes=True, socket=None):
    """rows_only: not a whole table may be told, and no row that has not changed (but "more":
    it may)."""
    follower.reach(position(socket))
    before, at = read_tables(socket), len(follower.lines)
    sql(text, socket)
    after = read_tables(socket)
    follower.reach(position(socket))
    rows, tables = follower.since(at)
    changed = compare(what, before, after, rows, tables)
    if changes and not changed:
        fail(f"{what}: nothing has changed")
    if rows_only and (tables or (rows - set(changed) and rows_only != "more")):
        fail(f"{what}: told more than changed: {rows - set(changed)} {tables}")
    return rows, tables


def text(column):
    return f"HEX(CAST({column} AS CHAR CHARACTER SET utf8mb4))"


KEY_TYPES = [
    # type, a statement's values, how the key's bytes are read
    ("TINYINT", ["-128", "0", "127"], text),
    ("TINYINT UNSIGNED", ["0", "255"], text),
    ("SMALLINT", ["-32768", "32767"], text),
    ("SMALLINT UNSIGNED", ["65535"], text),
    ("MEDIUMINT", ["-8388608", "8388607"], text),
    ("MEDIUMINT UNSIGNED", ["16777215"], text),
    ("INT", ["-2147483648", "2147483647"], text),
    ("INT UNSIGNED", ["4294967295"], text),
    ("BIGINT", ["-9223372036854775808", "9223372036854775807"], text),
    ("BIGINT UNSIGNED", ["18446744073709551615"], text),
    ("INT(6) ZEROFILL", ["42"], lambda c: f"HEX(CAST({c}+0 AS CHAR))"),
    ("DECIMAL(10,3)", ["-1.5", "0", "0.007", "1234567.891"], text),
    ("DECIMAL(65,30)", ["-12345678901234567890123456789012345.123456789012345678901234567891",
                        "0.000000000000000000000000000001"], text),
    ("DECIMAL(9,0)", ["-999999999", "7"], text),
    ("DECIMAL(5,5)", ["0.12345", "-0.5"], text),
    ("CHAR(10) CHARACTER SET utf8mb4", ["'a b'", "'x:y%'", "'ä€'", "''"], text),
    ("CHAR(200) CHARACTER SET utf8mb4", ["'long'", "'ü'"], text),
    ("CHAR(7) CHARACTER SET latin1", ["'ä€z'"], text),
    ("VARCHAR(20) CHARACTER SET utf8mb4", ["'A'", "'b  c'", "'日本'"], text),
    ("VARCHAR(300) CHARACTER SET latin1", ["'a'", "REPEAT('ö', 300)"], text),
    ("VARCHAR(20) CHARACTER SET ascii", ["'a'"], text),
    ("BINARY(6)", ["'ab'", "0x00ff00", "'abcdef'"], lambda c: f"HEX({c})"),
    ("VARBINARY(10)", ["''", "0x0102", "0x610000"], lambda c: f"HEX({c})"),
    ("DATE", ["'2024-02-29'", "'0000-00-00'", "'9999-12-31'"], text),
    ("TIME", ["'-838:59:59'", "'00:00:00'", "'12:34:56'"], text),
    ("TIME(3)", ["'-00:00:00.001'", "'-12:00:00.500'", "'838:59:59.999'"], text),
    ("TIME(6)", ["'-01:02:03.000004'", "'01:02:03.999999'"], text),
    ("DATETIME", ["'1000-01-01 00:00:00'", "'2024-12-31 23:59:59'"], text),
    ("DATETIME(1)", ["'2024-12-31 23:59:59.7'"], text),
    ("DATETIME(5)", ["'2024-12-31 23:59:59.00012'"], text),
    ("TIMESTAMP", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"], text),
    ("TIMESTAMP(2)", ["'2024-06-01 12:00:00.25'"], text),
    ("TIMESTAMP(6)", ["'2024-06-01 12:00:00.000001'"], text),
    ("YEAR", ["1901", "2155", "0"], text),
    ("ENUM('a','it''s','ä') CHARACTER SET latin1", ["'a'", "'it''s'", "'ä'"], text),
    (r"ENUM('a\\b','c\nd','\'','\\')", [r"'a\\b'", r"'c\nd'", r"'\''", r"'\\'"], text),
    (r"SET('x\\','y')", [r"'x\\,y'", r"'x\\'"], text),
    ("SET('x','y','z')", ["''", "'x,z'", "'x,y,z'"], text),
    ("BIT(3)", ["b'101'"], lambda c: f"LPAD(HEX({c}+0),2,'0')"),
    ("BIT(33)", ["b'100000000000000000000000000000001'"],
     lambda c: f"LPAD(HEX({c}+0),10,'0')"),
    ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'",
              "'00000000-0000-0000-0000-000000000000'",
              "'0190163d-8694-739b-aea5-966c26f8ad91'",
              "'ffffffff-ffff-4fff-8fff-ffffffffffff'",
              "'00000000-0000-7000-0000-000000000001'"], text),
    ("INET4", ["'0.0.0.0'", "'192.168.1.255'"], text),
    ("INET6", ["'::'", "'::1'", "'2001:db8::1:0:0:1'", "'::ffff:1.2.3.4'", "'1::'",
               "'::1.2.3.4'", "'1:2:3:4:5:6:7:8'", "'0:1:2:3:4:5:6:7'", "'1:2:3:4:5:6:7::'",
               "'fe80::ffff:0:0'"], text),
]


def key_types(follower):
    names = []
    for i, (kind, values, expression) in enumerate(KEY_TYPES):
        name = f"kinds.k{i}"
        sql(f"SET sql_mode=''; CREATE OR REPLACE TABLE {name} (filler VARCHAR(30), k {kind},"
            " n DECIMAL(7,2), PRIMARY KEY (k), big TEXT, f DOUBLE, d DATETIME(3))")
        TABLES[name] = [expression("k")]
        names.append(name)
    sql(" ".join(f"DELETE FROM {name};" for name in names))
    follower.reach(position())
    for name, (kind, values, _) in zip(names, KEY_TYPES):
        # The first change after the definition makes the follower ask what the table is.
        sql(f"SET sql_mode=''; INSERT INTO {name} (k) VALUES ({values[0]}); DELETE FROM {name}")
        only = "more" if kind == "UUID" else True # a UUID is told in two readings
        rows = ",".join(f"('a', {value})" for value in values)
        step(follower, f"INSERT of {kind}",
             f"SET sql_mode='NO_ZERO_IN_DATE'; INSERT INTO {name} (filler, k) VALUES {rows}",
             rows_only=only)
        step(follower, f"UPDATE of {kind}",
             f"UPDATE {name} SET filler='b', n=-1.25, big=REPEAT('x', 300)", rows_only=only)
        step(follower, f"DELETE of {kind}", f"DELETE FROM {name}", rows_only=only)
    for name in names:
        sql(f"DROP TABLE {name}")
        del TABLES[name]


def statements(follower, image):
    TABLES.update({"s.t": [text("id")], "s.two": [text("a"), text("b")],
                   "s.plain": [text("id")], "s.mixed": [text("id")]})
    sql("""CREATE OR REPLACE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(40), n INT);
        CREATE OR REPLACE TABLE s.two (v INT, b VARCHAR(20), a INT, PRIMARY KEY (a, b));
        CREATE OR REPLACE TABLE s.plain (id INT, v INT);
        CREATE OR REPLACE TABLE s.mixed (id FLOAT PRIMARY KEY, v INT);
        INSERT INTO s.t VALUES (100, 'x', 1), (101, 'y', 2); INSERT INTO s.two VALUES (1, 'q', 1)""")
    follower.reach(position())
    sql("INSERT INTO s.t VALUES (102, 'x', 1); INSERT INTO s.two VALUES (1, 'q', 2)")

    def exact(what, text):
        step(follower, f"{image}: {what}", text, rows_only=True)

    def safe(what, text, **more):
        return step(follower, f"{image}: {what}", text, **more)

    exact("INSERT", "INSERT INTO s.t VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, NULL)")
    exact("UPDATE", "UPDATE s.t SET v='c' WHERE id=1")
    exact("UPDATE of the key", "UPDATE s.t SET id=7 WHERE id=1")
    exact("UPDATE of many", "UPDATE s.t SET n=n+1 WHERE n IS NOT NULL")
    exact("REPLACE", "REPLACE INTO s.t VALUES (2, 'r', 9)")
    exact("INSERT ... ON DUPLICATE KEY", "INSERT INTO s.t VALUES (2, 'r', 9), (8, '', 0) "
          "ON DUPLICATE KEY UPDATE n=n+1")
    exact("DELETE", "DELETE FROM s.t WHERE id IN (2, 3)")
    exact("a composite key", "INSERT INTO s.two VALUES (1, 'x:y', 5), (1, '', 6)")
    exact("UPDATE of half a key", "UPDATE s.two SET b='z' WHERE a=5")
    exact("two tables at once", "UPDATE s.t, s.two SET s.t.v='both', s.two.v=77 "
          "WHERE s.t.id=7 AND s.two.a=5")
    exact("a transaction", "BEGIN; INSERT INTO s.t VALUES (20,'',0); UPDATE s.t SET v='k' "
          "WHERE id=20; DELETE FROM s.two WHERE a=6; COMMIT")
    rows, tables = step(follower, "a rollback", "BEGIN; UPDATE s.t SET v='gone'; ROLLBACK",
                        changes=False)
    exact("a savepoint", "BEGIN; INSERT INTO s.t VALUES (21,'',0); SAVEPOINT p; "
          "DELETE FROM s.t WHERE id < 20; ROLLBACK TO p; COMMIT")
    exact("INSERT ... SELECT", "INSERT INTO s.t SELECT id+1000, v, n FROM s.t")
    safe("a table without a key", "INSERT INTO s.plain VALUES (1, 1), (2, 2)")
    safe("UPDATE without a key", "UPDATE s.plain SET v=3 WHERE id=2")
    safe("a key that has no sure text", "INSERT INTO s.mixed VALUES (1.1, 1)")
    safe("TRUNCATE", "TRUNCATE s.two")
    safe("TRUNCATE with names quoted", "USE s; TRUNCATE TABLE `t`")
    sql("INSERT INTO s.t VALUES (1,'a',1),(2,'b',2); INSERT INTO s.two VALUES (1,'b',2)")
    safe("ALTER", "ALTER TABLE s.t ADD COLUMN first INT DEFAULT 5 FIRST")
    safe("UPDATE after it", "UPDATE s.t SET v='later' WHERE id=1")
    follower.reach(position())
    exact("UPDATE later", "UPDATE s.t SET v='again' WHERE id=1")
    safe("ALTER of the key", "ALTER TABLE s.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, first); "
         "UPDATE s.t SET v='new'")
    safe("RENAME", "RENAME TABLE s.t TO s.u, s.two TO s.t, s.u TO s.two")
    safe("RENAME back", "RENAME TABLE s.t TO s.u, s.two TO s.t, s.u TO s.two")
    safe("ALTER ... RENAME", "USE s; ALTER TABLE t RENAME TO elsewhere")
    safe("and back", "ALTER TABLE s.elsewhere RENAME s.t")
    safe("DROP and CREATE", "DROP TABLE s.two, s.plain; CREATE TABLE s.two (a INT, b INT, "
         "v INT, PRIMARY KEY (a, b)); INSERT INTO s.two VALUES (3, 4, 5)")
    safe("CREATE ... SELECT", "CREATE TABLE s.plain SELECT id, n v FROM s.t")
    safe("a comment before", "/* who: me */ TRUNCATE /* all */ TABLE s . plain -- end")
    safe("an executable comment", "INSERT INTO s.t VALUES (5,50,'',0); /*!50000 TRUNCATE s.t */")
    safe("statements", "SET SESSION binlog_format='STATEMENT'; INSERT INTO s.t VALUES (5,51,'',0)")
    safe("a statement that ANALYZE carries out", "SET SESSION binlog_format='STATEMENT'; "
         "ANALYZE FORMAT=JSON UPDATE s.t SET v='analyzed'")
    step(follower, f"{image}: ANALYZE of a table", "ANALYZE TABLE s.t", rows_only=True, changes=False)
    sql("CREATE OR REPLACE TABLE s.log (id INT AUTO_INCREMENT PRIMARY KEY, v INT); "
        "CREATE TRIGGER s.told AFTER INSERT ON s.t FOR EACH ROW INSERT INTO s.log VALUES (0, 1)")
    TABLES["s.log"] = [text("id")]
    safe("a trigger", "INSERT INTO s.t VALUES (5,52,'',0)")
    safe("a trigger by statement",
         "SET SESSION binlog_format='STATEMENT'; INSERT INTO s.t VALUES (5,53,'',0)")
    safe("DROP DATABASE", "DROP DATABASE s; CREATE DATABASE s")
    for name in list(TABLES):
        del TABLES[name]


def xa(follower):
    """What is prepared is not seen yet, so it is told with its commit."""
    sql("CREATE OR REPLACE TABLE s.x (id INT PRIMARY KEY, v INT); INSERT INTO s.x VALUES (1, 1)")
    TABLES["s.x"] = [text("id")]
    follower.reach(position())
    before = read_tables()
    sql("XA START 'a'; UPDATE s.x SET v=2; XA END 'a'; XA PREPARE 'a'")
    follower.reach(position())
    at = len(follower.lines)
    sql("XA COMMIT 'a'")
    follower.reach(position())
    if not compare("XA COMMIT", before, read_tables(), *follower.since(at)):
        fail("XA: nothing has changed")
    del TABLES["s.x"]


def cascades(follower):
    sql("""CREATE OR REPLACE TABLE s.parent (id INT PRIMARY KEY, v INT, other INT UNIQUE);
        CREATE OR REPLACE TABLE s.child (id INT PRIMARY KEY, p INT,
            FOREIGN KEY (p) REFERENCES s.parent (id) ON DELETE CASCADE ON UPDATE CASCADE);
        CREATE OR REPLACE TABLE s.grandchild (id INT PRIMARY KEY, c INT,
            FOREIGN KEY (c) REFERENCES s.child (id) ON DELETE SET NULL);
        CREATE OR REPLACE TABLE s.by_other (id INT PRIMARY KEY, o INT,
            FOREIGN KEY (o) REFERENCES s.parent (other) ON UPDATE SET NULL);
        INSERT INTO s.parent VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3);
        INSERT INTO s.child VALUES (10, 1), (20, 2), (30, 3);
        INSERT INTO s.grandchild VALUES (100, 10), (200, 20), (300, 30);
        INSERT INTO s.by_other VALUES (5, 1), (6, 3)""")
    for name in ("s.parent", "s.child", "s.grandchild", "s.by_other"):
        TABLES[name] = [text("id")]
    follower.reach(position())
    sql("UPDATE s.parent SET v=100 WHERE id=1; UPDATE s.child SET p=p; INSERT INTO s.child "
        "VALUES (99, 3); INSERT INTO s.grandchild VALUES (999, 99)")
    step(follower, "an update that does not cascade", "UPDATE s.parent SET v=5 WHERE id=1",
         rows_only=True)
    step(follower, "ON UPDATE CASCADE", "UPDATE s.parent SET id=11 WHERE id=1")
    step(follower, "ON UPDATE SET NULL", "UPDATE s.parent SET other=33 WHERE id=3")
    step(follower, "ON DELETE CASCADE and SET NULL", "DELETE FROM s.parent WHERE id=2")
    step(follower, "REPLACE of a parent", "REPLACE INTO s.parent VALUES (3, 1, 34)")
    # A foreign key that comes later.
    sql("CREATE OR REPLACE TABLE s.late (id INT PRIMARY KEY, p INT)")
    TABLES["s.late"] = [text("id")]
    sql("INSERT INTO s.late VALUES (1, 11); INSERT INTO s.parent VALUES (12, 1, 12); "
        "DELETE FROM s.by_other")
    sql("ALTER TABLE s.late ADD FOREIGN KEY (p) REFERENCES s.parent (id) ON DELETE CASCADE")
    step(follower, "a new foreign key", "DELETE FROM s.parent WHERE id=11")
    sql("DROP TABLE s.late, s.by_other, s.grandchild, s.child, s.parent")
    TABLES.clear()


def main():
    follower = Follower("-q", SOCKETS[0])
    follower.wait_line(b"following yes")
    sql("CREATE DATABASE s; CREATE DATABASE kinds")
    images = sys.argv[3].split(",") if len(sys.argv) > 3 else ["FULL"]
    for setting in images:
        # e.g. MINIMAL+compress+FULL: image, compression, row metadata
        image, *more = setting.split("+")
        compress = "ON" if "compress" in more else "OFF"
        metadata = "FULL" if "metadata" in more else "NO_LOG"
        checksum = "CRC32" if "checksum" in more else "NONE"
        sql(f"SET GLOBAL binlog_row_image='{image}', log_bin_compress={compress}, "
            f"log_bin_compress_min_len=10, binlog_row_metadata='{metadata}', "
            f"binlog_checksum={checksum}")
        statements(follower, setting)
        cascades(follower)
        xa(follower)
        if setting == images[0] or "kinds" in more:
            key_types(follower)
        print(f"{setting}: as it is", file=sys.stderr)
    follower.stop()


main()
