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
    writer = subprocess.Popen([*CLIENT, "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    writer.stdin.write("BEGIN; UPDATE shop.item SET v = 2 WHERE id = 1; SELECT 'changed';\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "changed\n"
    assert row(client, "item:1")["v"] == 1
    kept(client, "item:2")
    kept(client, "item:1")
    writer.stdin.write("ROLLBACK;\n")
    writer.stdin.close()
    writer.wait()
    assert row(client, "item:1")["v"] == 1


for test in (uncommitted,):
    test()
    print(test.__name__, file=sys.stderr)
