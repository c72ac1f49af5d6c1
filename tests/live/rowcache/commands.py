# SPDX-License-Identifier: BSD-3-Clause
"""commands.py SOCKET DATABASE-SOCKET - what qm-rowcache answers, by redis-py and by raw bytes."""
import decimal
import json
import socket
import subprocess
import sys
import threading

import redis

from resp import wait_for

PATH, DATABASE = sys.argv[1:3]
AUTH = b"*2\r\n$4\r\nAUTH\r\n$6\r\ngeheim\r\n"


def connect(db=0, **more):
    return redis.Redis(unix_socket_path=PATH, password="geheim", db=db, decode_responses=True, **more)


def sql(text):
    return subprocess.run(["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BNe", text],
                          check=True, capture_output=True, text=True).stdout.strip()


def fails(text, function, *args):
    try:
        answer = function(*args)
    except redis.exceptions.RedisError as error:
        assert text in str(error), (text, str(error))
        return
    raise AssertionError((text, answer))


def raw(data, untrusted=False):
    """What the server answers to bytes, until it closes the connection."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(PATH)
        s.sendall(data if untrusted else AUTH + data)
        answer = b""
        while True:
            more = s.recv(65536)
            if not more:
                return answer
            answer += more


def rows(r):
    assert json.loads(r.get("shop.item:42")) == {"id": 42, "name": "name42"}
    assert r.get("item_42") == r.get("item:42") == r.get("shop.item:42")
    assert r.get("shop.item:99999") is None and r.get("shop.item:4x") is None
    assert [v is None for v in r.mget("item:1", "item:99999", "item:2")] == [False, True, False]
    assert r.exists("item:1", "item:99999", "item:1") == 2
    assert r.hgetall("item:42") == {"id": "42", "name": "name42"}
    assert r.hget("item:42", "name") == "name42" and r.hget("item:42", "nix") is None
    assert r.hmget("item:42", "name", "nix", "id") == ["name42", None, "42"]
    types = r.hgetall("types:18446744073709551615")
    names = [*reversed(types), "nix", "", "D", "ids", *types]
    assert r.hmget("types:18446744073709551615", names) == [types.get(name) for name in names]
    assert r.hkeys("item:42") == ["id", "name"] and r.hvals("item:42") == ["42", "name42"]
    assert r.hlen("item:42") == 2 and r.hexists("item:42", "id") and not r.hexists("item:42", "x")
    r.delete("item:43")
    for _ in range(2):  # from the database, and from the cache
        assert r.strlen("item:43") == len(r.get("item:43")) and r.strlen("item:99999") == 0
        assert r.object("ENCODING", "item:43") == "hashtable"
    assert r.ttl("item:42") == -1 and r.ttl("item:99999") == -2
    assert r.type("item:42") == "hash" and r.type("item:99999") == "none"
    fails("there is no table 'shop.nix'", r.get, "shop.nix:1")
    fails("table 'shop.nokey' has no primary key", r.get, "shop.nokey:1")
    fails("has 1 columns, not 2", r.get, "item:1:2")
    fails("only reads them", r.set, "item:1", "x")
    assert r.get("pair:1:x%3Ay%20%25z") == '{"a":1,"b":"x:y %z","v":7}'
    assert r.get("flags:1:%01:%00A") == '{"a":1,"f":1,"b":65,"v":7}' and r.get("flags:1:%00:A") is None
    assert r.get("flags:1:%00:%00%00") == '{"a":1,"f":0,"b":0,"v":8}' and r.get("flags:1:%01:123456789") is None
    assert r.get("reals:1e100:-7.50") == r.get("reals:1.0E+100:-7.5") == '{"f":1e100,"d":-7.50}'
    assert r.get("reals:2.5e-20:1000") and r.get("reals:-3:.5") == r.get("reals:-3.:0.50") == '{"f":-3,"d":0.50}'
    for key in ("1e:-7.5", "1e100:1e3", "1e1000:0", "1e999:0", "e1:0", "2.5e-20:1e3", "-:0", ".:0", "1.2.3:0", "1-1:0", "1e1e1:0"):
        assert r.get(f"reals:{key}") is None, key
    # Characters that the column cannot have.
    assert r.mget("old:ä", "old:😀", b"old:\xff", "pair:1:😀") == ['{"k":"ä","v":1}', None, None, None]
    assert r.get("shop.pair.byv:8") == '{"a":1,"b":"Upper","v":8}'
    fails("no unique key 'nix'", r.get, "shop.pair.nix:8")


def types(r):
    key = "shop.types:18446744073709551615"
    row = json.loads(r.get(key), parse_float=decimal.Decimal)
    assert row["id"] == 18446744073709551615
    assert row["d"] == decimal.Decimal("123456789012345678901234567890.0123456789"), row
    assert row["z"] == 42 and row["f"] == decimal.Decimal("1.5e100") and row["bits"] == 5
    assert row["b"] == "AP8K" and row["t"] == 'Grüße "q" \\ \n 😀' and row["e"] == "b"
    assert row["day"] == "2026-02-03" and row["at"] == "2026-02-03 04:05:06.789"
    assert row["ts"] is None and row["n"] is None and json.loads(row["j"]) == {"k": [1]}
    assert r.hget(key, "t") == row["t"] and r.hget(key, "n") is None


def info(r, name):
    return r.info()[name]


def queries(r):
    """SELECTs that clients waited for: without read-ahead's, which come when they like."""
    fields = r.info()
    return fields["database_queries"] - fields["readahead_queries"]


def kept(r):
    """A row is kept, and dropped when it changes; absence, too."""
    r.flushdb()
    for key, statement in (("item:7", "UPDATE shop.item SET name = 'new' WHERE id = 7"),
                           ("item:3000", "INSERT INTO shop.item VALUES (3000, 'new')"),
                           ("pair:1:Upper", "UPDATE shop.pair SET v = 9 WHERE b = 'Upper'")):
        def is_kept():
            before = queries(r)
            r.get(key)
            return queries(r) == before
        wait_for(is_kept)
        old = r.get(key)
        sql(statement)
        wait_for(lambda: r.get(key) != old)
    # Another way to write the key is answered, and not kept.
    assert r.get("item:007") == r.get("item:7")
    before = queries(r)
    r.get("item:007")
    r.get("pair:1:UPPER")
    r.get("pair:1:UPPER")
    assert queries(r) == before + 3
    # What was written is seen at once by a connection that says so.
    for i in range(50):
        gtid = sql(f"UPDATE shop.item SET name = 'v{i}' WHERE id = 8; SELECT @@last_gtid")
        assert r.execute_command("WAITGTID", gtid) == "OK"
        assert json.loads(r.get("item:8"))["name"] == f"v{i}"
    fails("a GTID is", r.execute_command, "WAITGTID", "nix")
    assert r.delete("item:8") in (0, 1)


def single_flight(r):
    """Many ask for a key while the database is held up: one SELECT."""
    r.flushdb()
    before = queries(r)
    lock = subprocess.Popen(["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-n", "-BN"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lock.stdin.write("LOCK TABLES shop.item WRITE; SELECT 'locked';\n")
    lock.stdin.flush()
    assert lock.stdout.readline() == "locked\n"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(connect().get("item:77"))) for _ in range(40)]
    for thread in threads:
        thread.start()
    wait_for(lambda: info(r, "shared_reads") >= 39)
    lock.stdin.close()
    lock.wait()
    for thread in threads:
        thread.join()
    assert len(answers) == 40 and set(answers) == {'{"id":77,"name":"name77"}'}
    assert queries(r) == before + 1


def plain():
    r = connect(db=1)
    assert r.set("a", "1", ex=100) and r.get("a") == "1" and 0 < r.ttl("a") <= 100
    assert r.set("a", "2", nx=True) is None and r.set("b", "2", xx=True) is None
    assert r.set("a", "3", xx=True, get=True) == "1" and r.ttl("a") == -1
    assert r.incr("a") == 4 and r.decrby("a", 10) == -6 and r.incrby("n", 5) == 5
    r.set("text", "x")
    fails("not an integer", r.incr, "text")
    r.set("big", str(2**63 - 1))
    fails("would overflow", r.incr, "big")
    assert r.expire("text", 50) and r.ttl("text") > 0 and r.persist("text") and r.ttl("text") == -1
    assert not r.expire("nix", 5) and not r.persist("nix")
    assert r.append("text", "yz") == 3 and r.getset("text", "w") == "xyz" and r.getdel("text") == "w"
    fails("syntax error", r.execute_command, "SET", "a", "b", "NIX")
    fails("invalid expire time", r.execute_command, "SET", "a", "b", "EX", "0")
    fails("WRONGTYPE", r.hgetall, "a")
    r.set("short", "x", px=1)
    wait_for(lambda: r.get("short") is None)
    names = {f"key{i}" for i in range(1000)}
    for name in names:
        r.set(name, "v")
    assert set(r.scan_iter(match="key*")) == names
    assert sum(1 for _ in r.scan_iter(match="key*", count=7)) == 1000
    assert r.delete(*names, "nix") == 1000
    r.set("binary", b"\x00\r\n")
    assert r.get("binary") == "\x00\r\n" and r.strlen("binary") == 3
    assert r.flushdb() and r.dbsize() == 0


def connection(r):
    # Refused as a whole or one by one: what stands between is carried out by itself.
    for command in ("MULTI", "UNWATCH"):
        fails("transactions are not supported", r.execute_command, command)
    fails("transactions are not supported", r.execute_command, "WATCH", "item:1")
    for command in ("EXEC", "DISCARD"):
        fails(f"{command} without MULTI", r.execute_command, command)
    for db in (0, 1):
        answer = raw(b"SELECT %d\r\nMULTI\r\nEXISTS item:1\r\nEXEC\r\nQUIT\r\n" % db)
        assert answer.startswith(b"+OK\r\n+OK\r\n-ERR transactions are not supported"), answer
        assert answer.endswith(b"\r\n:%d\r\n-ERR EXEC without MULTI: transactions are not supported\r\n+OK\r\n" % (1 - db)), answer
    with r.pipeline(transaction=True) as pipe:
        fails("transactions are not supported", pipe.get("item:1").execute)
    fails("unknown command 'NIX'", r.execute_command, "NIX")
    fails("wrong number of arguments for 'get'", r.execute_command, "GET")
    fails("DB index is out of range", r.execute_command, "SELECT", "2")
    assert r.client_setname("me") and r.client_getname() == "me" and r.client_id() > 0
    assert r.config_get("max-lag") == {"max-lag": "1000"} and r.config_set("max-lag", 900)
    fails("must be between", r.config_set, "max-lag", 1)
    assert b"\r\n*10\r\n$3\r\nget\r\n:2\r\n" in raw(b"COMMAND INFO get\r\nQUIT\r\n")
    assert b"NOAUTH" in raw(b"GET x\r\nQUIT\r\n*1\r\n$4\r\nQUIT\r\n", untrusted=True)
    assert b"WRONGPASS" in raw(b"AUTH nix\r\nQUIT\r\n", untrusted=True)
    hello = raw(b"HELLO 3\r\nHGETALL item:1\r\nGET item:99999\r\nQUIT\r\n")
    assert hello.startswith(b"+OK\r\n%7\r\n") and hello.endswith(
        b"%2\r\n$2\r\nid\r\n$1\r\n1\r\n$4\r\nname\r\n$5\r\nname1\r\n_\r\n+OK\r\n"), hello
    assert b"-NOPROTO" in raw(b"HELLO 4\r\nQUIT\r\n")
    week(r)
    # A pipeline is answered in its order, though some of it waits.
    r.flushdb()
    answer = raw(b"".join(b"GET item:%d\r\nECHO %d\r\n" % (i, i) for i in range(100, 130)) + b"QUIT\r\n")
    expected = b"+OK\r\n"
    for i in range(100, 130):
        row = b'{"id":%d,"name":"name%d"}' % (i, i)
        expected += b"$%d\r\n%s\r\n$3\r\n%d\r\n" % (len(row), row, i)
    assert answer == expected + b"+OK\r\n", answer


def week(r):
    """What clients of Redis send in their first week."""
    fails("transactions are not supported", r.execute_command, "WATCH", "x")
    fails("An LFU maxmemory policy is not selected", r.execute_command, "OBJECT", "FREQ", "item:1")
    fails("INFO store has that of all", r.execute_command, "MEMORY", "USAGE", "item:1")
    assert r.object("ENCODING", "item:1") == "hashtable" and r.object("ENCODING", "item:99999") is None
    p = connect(db=1)
    p.set("encoded", "x")
    assert p.object("ENCODING", "encoded") == "raw" and p.object("ENCODING", "nix") is None
    p.delete("encoded")
    # Also of a reply that waits for the database.
    r.flushdb()
    assert raw(b"CLIENT REPLY SKIP\r\nGET item:1\r\nECHO a\r\nCLIENT REPLY OFF\r\nGET item:2\r\nGET\r\n"
               b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nECHO b\r\nQUIT\r\n") == \
        b"+OK\r\n$1\r\na\r\n+OK\r\n$1\r\nb\r\n+OK\r\n"
    fails("syntax error", r.execute_command, "CLIENT", "REPLY", "NIX")
    other = connect()
    number = other.client_id()
    assert r.execute_command("CLIENT", "KILL", "ID", number) == 1
    assert str(number) not in [client["id"] for client in r.client_list()]
    assert r.execute_command("CLIENT", "KILL", "ID", number) == 0
    assert r.execute_command("CLIENT", "KILL", "ID", r.client_id()) == 0
    fails("No such client", r.execute_command, "CLIENT", "KILL", "127.0.0.1:1")
    fails("syntax error", r.execute_command, "CLIENT", "KILL", "ID", 1, "NIX")
    fails("should be greater than 0", r.execute_command, "CLIENT", "KILL", "ID", 0)
    assert raw(b"CLIENT KILL ADDR " + PATH[:70].encode() + b":0 SKIPME no\r\nECHO a\r\n").startswith(b"+OK\r\n:")


def hostile(r):
    # A name of a command and a NUL, and more: not that command, and nothing is read behind it.
    assert b"-ERR unknown command" in raw(b"*1\r\n$500000\r\nget\0" + b"x" * 499996 + b"\r\n"
                                         b"*1\r\n$4\r\nQUIT\r\n")
    assert raw(b"*1\r\n$2000000\r\n").endswith(b"-ERR Protocol error: invalid bulk length\r\n")
    assert raw(b"*1\r\n$-1\r\n").endswith(b"-ERR Protocol error: invalid bulk length\r\n")
    assert raw(b"*1\r\n$99999999999999999999\r\n").endswith(b"invalid bulk length\r\n")
    assert raw(b"*2000000\r\n").endswith(b"-ERR Protocol error: invalid multibulk length\r\n")
    assert raw(b"*1\r\n!1\r\n").endswith(b"-ERR Protocol error: expected '$', got '!'\r\n")
    assert raw(b"*11\r\n", untrusted=True) == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    assert raw(b"*1\r\n$20000\r\n", untrusted=True) == b"-ERR Protocol error: unauthenticated bulk length\r\n"
    assert raw(b"x" * 70000).endswith(b"-ERR Protocol error: too big inline request\r\n")
    assert raw(b'GET "a\r\n').endswith(b"-ERR Protocol error: unbalanced quotes in request\r\n")
    # One byte at a time, and clients that never go on: others are served.
    slow = []
    for _ in range(200):
        s = socket.socket(socket.AF_UNIX)
        s.connect(PATH)
        s.sendall(AUTH + b"*2\r\n$3\r\nGET\r\n$900000\r\nx")
        slow.append(s)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(PATH)
        for byte in AUTH + b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n":
            s.sendall(bytes([byte]))
        answer = b""
        while not answer.endswith(b"hi\r\n"):
            answer += s.recv(100)
    assert r.ping() and info(r, "client_buffers_bytes") < 200 * 40000
    # One that does not read what it asks for is not read from either.
    s = socket.socket(socket.AF_UNIX)
    s.connect(PATH)
    s.setblocking(False)
    s.send(AUTH)
    try:
        for _ in range(100000):
            s.send(b"COMMAND DOCS\r\n" * 100)
    except BlockingIOError:
        pass
    assert r.ping()
    for s in slow + [s]:
        s.close()


def http(r):
    """What a web page can have a browser send: nothing of it is carried out, nor answered."""
    p = connect(db=1)
    p.set("http", "kept")
    before = info(r, "http_requests")
    body = b"\r\nSELECT 1\r\nDEL http\r\nECHO answered\r\n"
    for request, untrusted in ((b"POST / HTTP/1.1\r\nContent-Length: 40\r\n", False),
                               (b"post / HTTP/1.1\r\n", True),
                               (b"GET /x HTTP/1.1\r\nhOst: 127.0.0.1:6380\r\n", False),
                               (b"Host: a\r\n", True), (b"*1\r\n$4\r\nPOST\r\n", False)):
        answer = b""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(PATH)
            s.sendall(b"" if untrusted else AUTH)
            assert untrusted or s.recv(100) == b"+OK\r\n"
            s.sendall(request + body)
            try:
                answer = s.recv(1000)
            except ConnectionResetError:
                pass
        assert answer == b"", (request, answer)
    assert info(r, "http_requests") == before + 5 and p.get("http") == "kept"
    # As anything but the first word, they are words as others.
    assert raw(b"ECHO POST\r\nECHO Host:\r\nHosts: x\r\nQUIT\r\n").startswith(
        b"+OK\r\n$4\r\nPOST\r\n$5\r\nHost:\r\n-ERR unknown command 'Hosts:'")
    p.delete("http")


def main():
    r = connect()
    for test in (rows, types, kept, single_flight, connection, hostile, http):
        test(r)
        print(test.__name__, file=sys.stderr)
    plain()


main()
