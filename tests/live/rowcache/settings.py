# SPDX-License-Identifier: BSD-3-Clause
"""settings.py SOCKET DATABASE-SOCKET - what the daemon answers when MariaDB's global settings are others."""
import json
import subprocess
import sys

import resp

PATH, DATABASE = sys.argv[1:3]
CLIENT = ["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BN", "--default-character-set=utf8mb4"]


def sql(text):
    return subprocess.run([*CLIENT, "-e", text], check=True, capture_output=True, text=True).stdout.strip()


def session(statements):
    """A session of its own, which has carried them out, and goes on until its input ends."""
    process = subprocess.Popen([*CLIENT, "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(f"{statements} SELECT 'done';\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    return process


def row(client, key):
    text = client("GET", key)
    return text and json.loads(text)


def kept(client, key):
    """Reads until the answer comes from what is kept."""
    def hit():
        before = client.numbers()["keyspace_hits"]
        client("GET", key)
        return client.numbers()["keyspace_hits"] != before
    resp.wait_for(hit)


def uncommitted():
    """What another has not committed is not read: it may be rolled back, which no log says."""
    client = resp.Client(PATH)
    writer = session("BEGIN; UPDATE shop.item SET v = 2 WHERE id = 1;")
    assert row(client, "item:1")["v"] == 1
    kept(client, "item:2")
    kept(client, "item:1")
    writer.stdin.write("ROLLBACK;\n")
    writer.stdin.close()
    writer.wait()
    assert row(client, "item:1")["v"] == 1


def after(client, statements):
    """The client sees what they have changed."""
    client("WAITGTID", sql(f"{statements}; SELECT @@gtid_binlog_pos"))
    kept(client, "item:2")  # from now on it is given what is kept


def names():
    """Keys, values and labels are UTF-8, whatever sessions have by init_connect."""
    client = resp.Client(PATH)
    assert row(client, "text:Grüße") == {"k": "Grüße", "v": "😀"}
    for k in "äö":
        kept(client, f"label:{k}")
        after(client, f"UPDATE shop.label SET v = 2 WHERE k = '{k}'")
        assert row(client, f"label:{k}")["v"] == 2


def not_cached():
    """MariaDB's query cache has no part in it."""
    assert row(resp.Client(PATH), "text:Grüße")
    for name in ("Qcache_inserts", "Qcache_hits"):
        assert sql(f"SHOW GLOBAL STATUS LIKE '{name}'") == f"{name}\t0"


def whole():
    """What is asked of tables is not cut off: each table that a foreign key changes is known."""
    client = resp.Client(PATH)
    for key, parent in (("a:1", 1), ("b:1", 2)):
        kept(client, key)
        after(client, f"DELETE FROM shop.parent WHERE id = {parent}")
        assert row(client, key) is None, key


def waiting():
    """The daemon's connections that wait for a table."""
    return sql("SELECT IFNULL(GROUP_CONCAT(id SEPARATOR ' '), '') FROM information_schema.processlist WHERE user = 'rc' AND state LIKE"
               " 'Waiting for table%'").split()


def locked():
    """While reads of a locked table wait, a connection is left for those of others."""
    lock = session("LOCK TABLES shop.item WRITE;")
    clients = [resp.Client(PATH) for _ in range(20)]
    for i, client in enumerate(clients):
        client.send("GET", f"item:{100 + i}")
    resp.wait_for(lambda: len(waiting()) == 7)  # of 8
    assert resp.Client(PATH)("GET", "a:99") is None
    assert len(waiting()) == 7
    lock.stdin.close()
    lock.wait()
    for client in clients:
        assert client.answer() is None


def interrupted():
    """A read that is killed can be repeated."""
    client = resp.Client(PATH)
    lock = session("LOCK TABLES shop.item WRITE;")
    client.send("GET", "item:3")
    resp.wait_for(waiting)
    sql(f"KILL QUERY {waiting()[0]}")
    try:
        answer = client.answer()
    except resp.Error as error:
        answer = str(error)
    assert answer and answer.startswith("TRYAGAIN"), answer
    lock.stdin.close()
    lock.wait()
    assert client("GET", "item:3") is None


for test in (uncommitted, names, not_cached, whole, locked, interrupted):
    test()
    print(test.__name__, file=sys.stderr)
