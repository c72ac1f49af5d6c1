# SPDX-License-Identifier: BSD-3-Clause
"""fresh.py - what the daemon's clients may rely on, with a real MariaDB.

Usage: fresh.py DAEMON-SOCKET DATABASE-SOCKET FLAG PHASE
FLAG: while that file is there, the daemon does not get the binary log.
PHASE: steady; restarted-database and restarted-daemon, after such a restart.
"""
import json
import os
import subprocess
import sys
import threading
import time

import resp

DAEMON, DATABASE, FLAG, PHASE = sys.argv[1:]
DEADLINE, MAX_LAG = 60, 0.5


def fail(text):
    print(f"FAILED: {text}", file=sys.stderr)
    if os.path.exists(FLAG):
        os.unlink(FLAG)
    sys.exit(1)


def sql(text):
    done = subprocess.run(["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BN", "-e",
                           text], capture_output=True, text=True)
    if done.returncode:
        fail(f"{text}: {done.stderr}")
    return done.stdout.strip()


class Client(resp.Client):
    def __init__(self):
        super().__init__(DAEMON)

    def row(self, key):
        """The row, or None; tries again while the database is away."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                text = self("GET", key)
                return json.loads(text) if text is not None else None
            except resp.Error as error:
                if time.monotonic() > end:
                    fail(f"GET {key}: {error}")
                time.sleep(0.05)

    def number(self, name):
        for line in self("INFO").splitlines():
            if line.startswith(name + ":"):
                return float(line.split(":")[1])
        fail(f"INFO has no {name}")

    def kept(self, key):
        """Reads until the answer comes from what is kept."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            before = self.number("keyspace_hits") + self.number("absent_hits")
            row = self.row(key)
            if self.number("keyspace_hits") + self.number("absent_hits") > before:
                return row
        fail(f"{key} is never kept")


def position():
    return sql("SELECT @@gtid_binlog_pos")


def until(what, condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            fail(f"never: {what}")
        time.sleep(0.01)


def expect(what, is_, wanted):
    if is_ != wanted:
        fail(f"{what}: {is_}, not {wanted}")


def changed(client, what, key, statements, wanted):
    """What is kept of key is not served any more to whoever knows the GTID."""
    client.kept(key)
    sql(statements)
    client("WAITGTID", position())
    client.kept("s.quiet:1") # from now on it is given what is kept, not what MariaDB has
    row = client.row(key)
    expect(what, row and row.get("v"), wanted)
    client.kept(key)


def steady():
    client = Client()
    sql("""DROP TABLE IF EXISTS s.child;
        CREATE OR REPLACE TABLE s.t (id INT PRIMARY KEY, v INT); INSERT INTO s.t VALUES (1, 1);
        CREATE OR REPLACE TABLE s.parent (id INT PRIMARY KEY);
        CREATE OR REPLACE TABLE s.child (id INT PRIMARY KEY, p INT, v INT,
            FOREIGN KEY (p) REFERENCES s.parent (id) ON DELETE CASCADE);
        CREATE OR REPLACE TABLE s.quiet (id INT PRIMARY KEY, v INT); INSERT INTO s.quiet
        VALUES (1, 1); INSERT INTO s.parent VALUES (1); INSERT INTO s.child VALUES (1, 1, 5)""")
    client("WAITGTID", position())
    for i in range(2, 30):
        changed(client, "UPDATE", "s.t:1", f"UPDATE s.t SET v={i}", i)
    changed(client, "DELETE", "s.t:1", "DELETE FROM s.t", None)
    changed(client, "INSERT of what was absent", "s.t:1", "INSERT INTO s.t VALUES (1, 7)", 7)
    changed(client, "rollback", "s.t:1", "BEGIN; UPDATE s.t SET v=8; ROLLBACK", 7)
    changed(client, "ALTER", "s.t:1", "ALTER TABLE s.t MODIFY v VARCHAR(9)", "7")
    changed(client, "TRUNCATE", "s.t:1", "TRUNCATE s.t", None)
    changed(client, "DROP and CREATE", "s.t:1", "DROP TABLE s.t; CREATE TABLE s.t "
            "(id INT PRIMARY KEY, v INT); INSERT INTO s.t VALUES (1, 1)", 1)
    changed(client, "a cascade", "s.child:1", "DELETE FROM s.parent", None)
    changed(client, "a statement", "s.t:1",
            "SET SESSION binlog_format='STATEMENT'; UPDATE s.t SET v=2", 2)
    changed(client, "MINIMAL", "s.t:1",
            "SET SESSION binlog_row_image='MINIMAL'; UPDATE s.t SET v=3", 3)

    # Whoever does not know the GTID gets it soon.
    client.kept("s.t:1")
    sql("UPDATE s.t SET v=4")
    until("an update is seen", lambda: Client().row("s.t:1")["v"] == 4)
    unlogged()
    monotonic()
    before_commit()
    lag()


def unlogged():
    """Rows that become others without a word in the log are read each time."""
    client = Client()
    sql("""CREATE OR REPLACE TABLE s.clock (id INT PRIMARY KEY,
            v VARCHAR(40) AS (CURRENT_TIMESTAMP(6)) VIRTUAL); INSERT INTO s.clock (id) VALUES (1);
        CREATE OR REPLACE TABLE s.steady (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL);
        INSERT INTO s.steady (id) VALUES (1);
        CREATE OR REPLACE TABLE s.day (id INT PRIMARY KEY, t TIME, v DATETIME AS (t) VIRTUAL);
        INSERT INTO s.day (id, t) VALUES (1, '10:00:00');
        CREATE OR REPLACE TABLE s.part (id INT PRIMARY KEY, v INT) ENGINE=MyISAM;
        CREATE OR REPLACE TABLE s.whole (id INT PRIMARY KEY, v INT) ENGINE=MERGE UNION=(s.part);
        INSERT INTO s.part VALUES (1, 1); CREATE OR REPLACE USER other@localhost""")
    client("WAITGTID", position())
    expect("a virtual column", client.kept("s.steady:1")["v"], 2)
    client.kept("s.part:1")
    for key, what, statements in (
            ("s.clock:1", "a virtual column with the time", "DO 0"),
            ("s.whole:1", "a row of another table", "UPDATE s.part SET v=2"),
            ("mysql.global_priv:localhost:other", "a right", "GRANT PROCESS ON *.* TO other@localhost")):
        before = client.row(key)
        for _ in range(3): # by then it would be kept
            client.kept("s.t:1")
            before = client.row(key)
        sql(statements)
        client("WAITGTID", position())
        client.kept("s.t:1") # from now on it is given what is kept
        if client.row(key) == before:
            fail(f"unlogged: {what}: {before} is kept")
    hits = client.number("keyspace_hits")
    for _ in range(3):
        client.row("s.day:1")
    expect("a time that becomes one of the day is read each time", client.number("keyspace_hits"), hits)


def monotonic():
    """Who has read what is not applied yet gets nothing older of another row."""
    sql("INSERT INTO s.t VALUES (2, 4); INSERT INTO s.t SELECT 1000 * seq, 4 FROM s.seq_3_to_300")
    client = Client()
    client("WAITGTID", position())
    client.kept("s.t:1"), client.kept("s.t:2")
    open(FLAG, "w").close()
    sql("UPDATE s.t SET v=5")
    reader = Client()
    for i in range(3, 301):
        hits = reader.number("keyspace_hits")
        value = reader.row(f"s.t:{1000 * i}")["v"]
        # One that was not kept is read from the database, and is new.
        if reader.number("keyspace_hits") == hits:
            expect("monotonic: the row that was not kept", value, 5)
            break
    else:
        fail("monotonic: all rows were read ahead")
    expect("monotonic", (reader.row("s.t:1")["v"], reader.row("s.t:2")["v"]), (5, 5))
    os.unlink(FLAG)
    client("WAITGTID", position())
    client.kept("s.t:1")


def before_commit():
    """The events come, and the engine has not committed: what is read then is not kept."""
    client = Client()
    client.kept("s.t:1")
    sql("SET GLOBAL rpl_semi_sync_master_enabled=ON, rpl_semi_sync_master_timeout=600000,"
        "rpl_semi_sync_master_wait_point=AFTER_SYNC")
    told = client.number("invalidations")
    writer = threading.Thread(target=sql, args=("UPDATE s.t SET v=6 WHERE id=1",))
    writer.start()
    until("the event is applied", lambda: client.number("invalidations") > told)
    for _ in range(50):
        expect("not committed yet", client.row("s.t:1")["v"], 5)
    sql("SET GLOBAL rpl_semi_sync_master_enabled=OFF")
    writer.join()
    expect("committed", Client().row("s.t:1")["v"], 6)


def lag():
    """Nothing older than max-lag is served, whatever holds up the log."""
    client = Client()
    client.kept("s.t:1")
    open(FLAG, "w").close()
    sql("UPDATE s.t SET v=7 WHERE id=1")
    committed = time.monotonic()
    while time.monotonic() < committed + MAX_LAG + 0.3:
        began = time.monotonic()
        value = Client().row("s.t:1")["v"]
        if value != 7 and began > committed + MAX_LAG:
            fail(f"max-lag: {value} after {began - committed} s")
    hits = client.number("keyspace_hits")
    expect("max-lag", Client().row("s.t:1")["v"], 7)
    expect("hits meanwhile", client.number("keyspace_hits"), hits)
    os.unlink(FLAG)
    client.kept("s.t:1")


def restarted():
    client = Client()
    wanted = int(sql("SELECT v FROM s.t WHERE id=1"))
    client("WAITGTID", position())
    expect(PHASE, client.row("s.t:1")["v"], wanted)
    expect(PHASE, client.kept("s.t:1")["v"], wanted)
    # A table that only the start has emptied.
    wanted_quiet = int(sql("SELECT v FROM s.quiet"))
    expect(PHASE, client.row("s.quiet:1")["v"], wanted_quiet)
    client.kept("s.quiet:1")
    changed(client, PHASE, "s.t:1", "UPDATE s.t SET v=v+1 WHERE id=1", wanted + 1)


steady() if PHASE == "steady" else restarted()
