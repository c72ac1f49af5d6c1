# SPDX-License-Identifier: BSD-3-Clause
"""change.py SOCKET CONTROL: changes parameters while clients read, and begin and end contexts.

Whatever is changed, each reader gets the bytes that were written, nothing fails, and the
server says afterwards what was set.
"""
import itertools
import json
import random
import socket
import sys
import threading

import client

BLOCK = 16384
BLOCKS = 1024
POLICIES = ["auto", "none", "quickmine", "readahead", "ppm", "mithril", "seq", "amp"]
LEVELS = ["innermost", "none", "transaction", "query", "connection"]

path, control = sys.argv[1:]
stopping = threading.Event()
failures = []
rounds = [0] * 4


def ask(request):
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(json.dumps(request).encode() + b"\n")
    data = b""
    while part := s.recv(1 << 16):
        data += part
    return json.loads(data)


def change(**settings):
    answer = ask({"set": {k.replace("_", "-"): v for k, v in settings.items()}})
    assert "error" not in answer, answer
    return answer


def values():
    return ask({"get": []})["values"]


def contents(block):
    return bytes([block % 251]) * BLOCK


def loop(number, body):
    rng = random.Random(number)
    try:
        while not stopping.is_set():
            body(rng)
            rounds[number] += 1
    except Exception as e:  # a failure of any kind is the test's
        failures.append(f"client {number}: {e!r}")


def check(data, block):
    assert data == contents(block), f"block {block} has other bytes"


def start_tagged(number):
    c = client.Tagged(path)

    def body(rng):
        slot = c.first
        c.begin(slot, kind=client.CONNECTION)
        c.begin(slot + 1, parent=slot, kind=client.TRANSACTION)
        for n in range(3):
            c.begin(slot + 2, parent=slot + 1, klass=1 + n, kind=client.QUERY)
            at = rng.randrange(BLOCKS - 16)
            for block in [at, at + 7, at + 3, *range(at, at + 12)]:
                check(c.pread(BLOCK, block * BLOCK, slot + 2), block)
            c.end(slot + 2)
        if rng.random() < 0.5:
            c.end(slot + 1)  # else the connection's end does
        c.end(slot)

    return threading.Thread(target=loop, args=(number, body))


def start_plain(number):
    h = client.connect(path)

    def body(rng):
        block = rng.randrange(BLOCKS)
        for at in range(block, min(block + 20, BLOCKS)):
            check(h.pread(BLOCK, at * BLOCK), at)
        h.pwrite(contents(block), block * BLOCK)
        h.cache(BLOCK, rng.randrange(BLOCKS) * BLOCK)

    return threading.Thread(target=loop, args=(number, body))


writer = client.connect(path)
for b in range(BLOCKS):
    writer.pwrite(contents(b), b * BLOCK)
threads = [start_tagged(0), start_tagged(1), start_plain(2), start_plain(3)]
for t in threads:
    t.start()
client.wait_for(lambda: all(n > 2 for n in rounds) or failures)

idle = client.Tagged(path)  # its context stays open through all changes
idle.begin(idle.first, kind=client.CONNECTION)
idle.begin(idle.first + 1, parent=idle.first, kind=client.QUERY)

levels = itertools.cycle(LEVELS)
flags = itertools.cycle(["on", "off", "off"])
for n, policy in enumerate(POLICIES * 2):
    before = list(rounds)
    level = next(levels)
    change(policy=policy, level=level)
    change(throttle=next(flags), admission=next(flags), prefetching=next(flags),
           degree=str(1 + n % 8), prefetch_on=["miss", "prefetch-hit"][n % 2])
    change(level=next(levels))
    change(level=level)
    change(cache_size=["3M", "12M", "6M"][n % 3])
    now = values()
    assert (now["policy"], now["level"], now["degree"]) == (policy, level, str(1 + n % 8)), now
    stats = idle.stats()
    assert stats["policy"] == policy and stats["level"] == level, stats
    assert stats["throttle"] == (now["throttle"] == "on"), stats
    assert stats["prefetching"] == (now["prefetching"] == "on" and policy != "none"), stats
    check(idle.pread(BLOCK, n * BLOCK, idle.first + 1), n)
    client.wait_for(lambda: failures or all(a > b for a, b in zip(rounds, before)))
    assert not failures, failures
client.passed(f"{n + 1} policies under load")

# It prefetches when it is on, and only then.
change(policy="seq", prefetching="on", throttle="off", admission="off", level="innermost")
start = idle.stats()["prefetches"]
client.wait_for(lambda: failures or idle.stats()["prefetches"] > start + 100)
change(prefetching="off")
quiet = idle.stats()["prefetches"]
before = list(rounds)
client.wait_for(lambda: failures or all(a > b + 5 for a, b in zip(rounds, before)))
# What had been proposed before the change may still have come.
assert idle.stats()["prefetches"] <= quiet + 256, (quiet, idle.stats()["prefetches"])
last = idle.stats()["prefetches"]
before = list(rounds)
client.wait_for(lambda: failures or all(a > b + 5 for a, b in zip(rounds, before)))
assert idle.stats()["prefetches"] == last
client.passed("prefetching is off")

stopping.set()
for t in threads:
    t.join(60)
    assert not t.is_alive()
assert not failures, failures
