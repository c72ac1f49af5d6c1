# SPDX-License-Identifier: BSD-3-Clause
"""change-counts.py SOCKET CONTROL: another policy counts anew, also after a reset: what the one before had
counted then is not taken from it."""
import socket
import sys

import client

BLOCK = 16384
path, control = sys.argv[1:]


def change(key, value):
    s = socket.socket(socket.AF_UNIX)
    s.connect(control)
    s.sendall(f'{{"set": {{"{key}": "{value}"}}}}\n'.encode())
    assert b"error" not in s.recv(65536)


def look_up(times):
    """Each read is looked up: it was not read before, or has left the cache."""
    for n in range(times):
        c.begin(c.first, klass=78, kind=client.QUERY)
        for at in range(8):
            c.pread(BLOCK, (n * 37 + at * at * 13) % 4000 * BLOCK, c.first)
        c.end(c.first)
    return c.stats()["lookups"]


c = client.Tagged(path)
assert look_up(40) > 0
change("statistics", "reset")
assert c.stats()["lookups"] == 0
change("policy", "none")
change("policy", "mithril")
seen = 0
for _ in range(8):
    now = look_up(10)
    assert now > seen, (now, seen)
    seen = now
