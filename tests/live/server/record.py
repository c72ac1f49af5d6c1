# SPDX-License-Identifier: BSD-3-Clause
"""record.py SOCKET: a session of which the recording is known in advance."""
import sys

import client
from client import QUERY, THREAD, TRANSACTION, Tagged

path = sys.argv[1]
a = Tagged(path)
s = a.first
a.begin(s, 0, 0xABC, THREAD, b"worker one")
a.pread(16384, 0, s)
a.begin(s + 1, s, 2, TRANSACTION, b"buy")
a.begin(s + 2, s + 1, 3, QUERY)
a.pread(100, 5, s + 2)
a.pread(40000, 16384, s + 2)
a.end(s + 2)
a.pwrite(b"x" * 512, 4096, s + 1)
a.begin(s + 1, s, 4, TRANSACTION)  # ends the first one
a.pread(4096, 4096, s + 1)
a.pread(4096, 8192)  # no context
a.pread(4096, 8192, s + 9)  # nothing open there
try:
    a.pread(4096, 1 << 40, s)  # beyond the end: not carried out, not recorded
except Exception:
    pass
b = client.connect(path)
b.pread(10, 20)
b.zero(16384, 32768)
b.trim(16384, 65536)
b.cache(16384, 65536)
b.shutdown()
client.wait_for(lambda: a.stats()["connections"] == 1)
stats = a.stats()
assert stats["contexts_begun"] == 5 and stats["contexts_open"] == 2
a.close()  # ends what is open
client.passed("recorded")
