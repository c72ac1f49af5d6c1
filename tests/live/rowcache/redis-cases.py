# SPDX-License-Identifier: BSD-3-Clause
"""redis-cases.py REDIS ROWCACHE [SEED] - the same bytes to both: the same answers, byte for byte.

Cases are in the spirit of Redis's own unit/protocol, type/string, type/incr, unit/expire and unit/keyspace, and of
hiredis's test program, as far as there are these commands; and there are sequences of commands drawn by SEED.  Not
compared is what is meant to differ: keys of no bytes are refused here, commands of more than 1,048,576 words, too, a
header that is none before its line has an end, and SCAN of a negative cursor."""
import random
import socket
import sys

REDIS, ROWCACHE = sys.argv[1:3]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
END = b"*2\r\n$4\r\nECHO\r\n$12\r\nthat-is-all.\r\n"
ENDED = b"$12\r\nthat-is-all.\r\n"


def pack(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def ask(path, data, pieces, end=END):
    """The answers, to the last one; a ! at the end if the connection was closed."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.settimeout(60)
        answer = b""
        try:
            s.sendall(pack("SELECT", 1))
            for i in range(0, len(data), pieces):
                s.sendall(data[i:i + pieces])
            s.sendall(end)
            while not answer.endswith(ENDED):
                more = s.recv(65536)
                if not more:
                    return answer + b"!"
                answer += more
        except (BrokenPipeError, ConnectionResetError):
            return answer + s.recv(65536) + b"!" if not answer else answer + b"!"
        return answer


different = []


def same(name, data, pieces=1 << 30, end=END):
    redis, ours = (ask(path, data, pieces, end) for path in (REDIS, ROWCACHE))
    if redis != ours:
        at = next((i for i, (a, b) in enumerate(zip(redis, ours)) if a != b), min(len(redis), len(ours)))
        print(f"{name}: {data[:200]}\n  Redis: ...{redis[max(0, at - 40):at + 160]}\n"
              f"  here:  ...{ours[max(0, at - 40):at + 160]}", file=sys.stderr)
        different.append(name)


PROTOCOL = [
    b"\r\n", b"\r\n\r\n\r\n", b"*0\r\n", b"*-10\r\n", b"*-1\r\n", b"*3000000000\r\n", b"*blabla\r\n", b"*\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$-10\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n",
    b"*1\r\nfoo\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", b"PING\n", b"  PING   hello  \r\n", b"PING x y z\r\n",
    b'set """test-key""" test-value\r\n', b'SET "key" "a\\x41\\n\\t\\"b"\r\nGET key\r\n', b"SET key 'it\\'s'\r\nGET key\r\n",
    b"SET 'a b' c\r\nGET 'a b'\r\n", b'ECHO "\r\n', b"ECHO 'x'y\r\n", b"ECHO \"\"\r\n", b"nix\r\n", b"nix a b c\r\n",
    b"*2\r\n$3\r\nnix\r\n$3\r\na\r\n\r\n", b"GET\r\n", b"GET a b\r\n", b"SET a\r\n", b"DEL\r\n", b"ECHO a b\r\n", b"SELECT x\r\n",
    b"SELECT -1\r\n", b"SELECT 99999999999999999999\r\n", b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n$5\r\na\0\r\nb\r\n", pack("ECHO", "x" * 100000), pack("PING", "a\r\nb"), 
    b"HELLO 2 nix\r\n", b"HELLO 4\r\n", b"HELLO x\r\n", b"AUTH a\r\n", b"AUTH a b c\r\n", b"GET " + b"k" * 60000 + b"\r\n",
]
# Without an end of a line: what comes behind would be taken for a part of it.
ENDLESS = [head + payload * 70000 for payload in (b"\0", b"A", b"*", b"$") for head in (b"", b"*1\r\n$")]

STRINGS = [
    [("SET", "x", "foobar"), ("GET", "x"), ("STRLEN", "x"), ("TYPE", "x"), ("EXISTS", "x", "x", "nix")],
    [("SET", "x", ""), ("GET", "x"), ("STRLEN", "x"), ("EXISTS", "x")],
    [("SET", "big", "abcd" * 250000), ("GET", "big"), ("STRLEN", "big")],
    [("SETNX", "novar", "foobared"), ("GET", "novar"), ("SETNX", "novar", "blabla"), ("GET", "novar")],
    [("SET", "x", 10), ("EXPIRE", "x", 10000), ("SETNX", "x", 20), ("GET", "x")],
    [("SET", "foo", 1, "NX"), ("SET", "foo", 2, "NX"), ("GET", "foo"), ("SET", "foo", 3, "XX"), ("GET", "foo"),
     ("SET", "none", 1, "XX"), ("GET", "none")],
    [("SET", "foo", "bar"), ("SET", "foo", "bar2", "GET"), ("SET", "foo", 3, "NX", "GET"), ("GET", "foo"),
     ("SET", "none", 1, "XX", "GET"), ("SET", "none", 1, "NX", "GET"), ("GET", "none")],
    [("SET", "foo", "bar", "EX", 1000), ("SET", "foo", "baz", "KEEPTTL"), ("PERSIST", "foo"), ("PERSIST", "foo")],
    [("SET", "foo", "bar", *more) for more in (
        ("EX",), ("EX", "a"), ("EX", 0), ("EX", -1), ("PX", 0), ("NX", "XX"), ("EX", 1, "PX", 1), ("KEEPTTL", "EX", 1),
        ("EX", "99999999999999999999"), ("EX", 9223372036854775807), ("nix",), ("NX", "nix"), ("EXAT", 0), ("PXAT", -5))],
    [("SETEX", "x", 10, "v"), ("SETEX", "x", 0, "v"), ("SETEX", "x", -10, "v"), ("SETEX", "x", "a", "v"), ("PSETEX", "x", 0, "v"),
     ("SETEX", "x", 9223372036854775807, "v")],
    [("MSET", "x", 10, "y", "foo bar", "z", "x\0y"), ("MGET", "x", "y", "z", "nix"), ("MSET", "x"), ("MSET", "x", 1, "y"),
     ("MSET", "x", 1, "x", 2), ("GET", "x")],
    [("GETSET", "foo", "xyz"), ("GETSET", "foo", "bar"), ("GETDEL", "foo"), ("GETDEL", "foo"), ("EXISTS", "foo")],
    [("APPEND", "foo", "bar"), ("APPEND", "foo", 100), ("GET", "foo"), ("APPEND", "foo", ""), ("STRLEN", "foo"), ("STRLEN", "nix")],
    [("DEL", "nix"), ("SET", "x", 1), ("SET", "y", 1), ("DEL", "x", "y", "x", "nix"), ("UNLINK", "x"), ("DBSIZE",)],
    [("TYPE", "nix"), ("TTL", "nix"), ("PTTL", "nix"), ("PERSIST", "nix"), ("EXPIRE", "nix", 10)],
]
INCR = [
    [("INCR", "novar"), ("INCR", "novar"), ("INCRBY", "novar", 100), ("DECR", "novar"), ("DECRBY", "novar", 101), ("GET", "novar")],
    [("SET", "n", 17179869184), ("INCR", "n"), ("INCRBY", "n", 17179869184)],
    *[[("SET", "n", value), ("INCR", "n"), ("GET", "n")] for value in (
        "    11", "11    ", " 11", "1.5", "", "0x10", "+1", "-0", "007", "abc", "9223372036854775807", "-9223372036854775808",
        "9223372036854775808", "-9223372036854775809", "1\0", "1 2")],
    [("SET", "n", -9223372036854775808), ("DECR", "n"), ("INCR", "n")],
    [("INCRBY", "n", "x"), ("INCRBY", "n", ""), ("INCRBY", "n", 9223372036854775808), ("DECRBY", "n", -9223372036854775808),
     ("INCR", "n", 1)],
    [("SET", "n", 20), ("EXPIRE", "n", 10000), ("INCR", "n"), ("PERSIST", "n")],
]
EXPIRE = [
    [("SET", "x", "foobar"), ("EXPIRE", "x", 5000), ("PERSIST", "x"), ("TTL", "x"), ("EXPIRE", "x", -1), ("EXISTS", "x")],
    [("SET", "x", 1), ("EXPIRE", "x", 0), ("GET", "x")],
    [("SET", "x", 1), ("PEXPIRE", "x", 0), ("GET", "x"), ("SET", "x", 1), ("EXPIREAT", "x", 1), ("GET", "x"),
     ("SET", "x", 1), ("PEXPIREAT", "x", 1), ("GET", "x")],
    [("SET", "x", 1), ("EXPIRE", "x", 5000), ("SET", "x", 2), ("TTL", "x")],
    [("SET", "x", 1), ("EXPIRE", "x", "a"), ("EXPIRE", "x", ""), ("EXPIRE", "x", 9223372036854775807),
     ("EXPIRE", "x", -9223372036854775808), ("PEXPIRE", "x", 9223372036854770000), ("EXPIRE", "x"), ("EXPIRE", "x", 1.5)],
    [("SCAN", "a"), ("SCAN", 0, "COUNT"), ("SCAN", 0, "COUNT", 0), ("SCAN", 0, "COUNT", "x"), ("SCAN", 0, "nix", 1),
     ("SCAN",), ("SCAN", 0)],
]


def draw(random):
    """A command; expiry is far away, so that no answer depends on the time."""
    key = lambda: random.choice(("k1", "k2", "k3", "k\0", "k 5"))
    value = random.choice(("1", "-5", "x", "", "9223372036854775806", "a\r\nb", "0" * random.randrange(300)))
    return random.choice((
        lambda: ("SET", key(), value, *random.choice(((), ("NX",), ("XX",), ("EX", 90000), ("GET",), ("KEEPTTL",), ("PX", "x")))),
        lambda: ("GET", key()), lambda: ("DEL", key(), key()), lambda: ("EXISTS", key(), key(), key()),
        lambda: ("INCR", key()), lambda: ("DECRBY", key(), value), lambda: ("INCRBY", key(), random.randrange(-9, 9)),
        lambda: ("APPEND", key(), value), lambda: ("STRLEN", key()), lambda: ("GETSET", key(), value),
        lambda: ("GETDEL", key()), lambda: ("SETNX", key(), value), lambda: ("SETEX", key(), random.choice((90000, 0, "y")), value),
        lambda: ("MSET", key(), value, key(), value), lambda: ("MGET", key(), key()), lambda: ("PERSIST", key()),
        lambda: ("EXPIRE", key(), random.choice((90000, -1, 0))), lambda: ("TYPE", key()), lambda: ("DBSIZE",),
        lambda: ("FLUSHDB",) if random.randrange(20) == 0 else ("ECHO", value)))()


for data in PROTOCOL:
    same("protocol", data)
    if len(data) < 200:
        same("protocol, in pieces", data, 3)
for data in ENDLESS:
    same("protocol, without an end", data, end=b"")
for cases in (STRINGS, INCR, EXPIRE):
    for case in cases:
        same("FLUSHDB", pack("FLUSHDB"))
        same("case", b"".join(pack(*command) for command in case))
        for command in case: # each answer by itself, to name the one that differs
            same(str(command)[:200], pack(*command))
same("FLUSHDB", pack("FLUSHDB"))
for sequence in range(200):
    generator = random.Random(SEED * 1000 + sequence)
    same(f"seed {SEED}, sequence {sequence}", b"".join(pack(*draw(generator)) for _ in range(100)))
if different:
    sys.exit(f"{len(different)} answers differ")
