# SPDX-License-Identifier: BSD-3-Clause
"""errors.py SOCKET TRIGGER: reads fail while the file TRIGGER is there."""
import os
import sys

import client
from client import Tagged, refused

path, trigger = sys.argv[1:]
plain = client.connect(path)
a = Tagged(path)
a.begin(a.first)
plain.pwrite(b"A" * 65536, 0)
assert plain.pread(16384, 0) == b"A" * 16384  # cached from now on

open(trigger, "w").close()
refused("EIO", plain.pread, 16384, 16384)
refused("EIO", a.pread, 16384, 16384, a.first)
refused("EIO", plain.pread, 1, 40000)
refused("EIO", plain.cache, 16384, 16384)
# A read of which a part is cached fails as a whole, and the cached part stays.
refused("EIO", plain.pread, 65536, 0)
assert plain.pread(16384, 0) == b"A" * 16384
failed = a.stats()
assert failed["device_blocks"] == 1, failed

# Errors are not cached.
os.unlink(trigger)
assert plain.pread(65536, 0) == b"A" * 65536
assert a.pread(100, 20000, a.first) == b"A" * 100
s = a.stats()
assert s["device_blocks"] == 4 and s["failed"] == 0, s

# A write that fails below is neither acknowledged nor cached.
open(trigger + ".write", "w").close()
refused("EIO", plain.pwrite, b"B" * 16384, 0)
refused("EIO", a.pwrite, b"B" * 10, 16384, a.first)
os.unlink(trigger + ".write")
assert plain.pread(32768, 0) == b"A" * 32768
plain.pwrite(b"C" * 16384, 0)
assert a.pread(16384, 0) == b"C" * 16384
client.passed("errors")

# Prefetches that fail are counted and nobody else's business.
places = [b * 16384 for b in (10, 3, 25, 31, 7, 40, 22, 55)]


def tour(context):
    a.begin(a.first, klass=context)
    for offset in places:
        a.pread(16384, offset, a.first)
    a.end(a.first)


def forget():
    """Reads so much else that nothing of the tour is cached."""
    for offset in range(64 * 16384, a.size, 16384):
        a.pread(16384, offset)


tour(1)
client.wait_for(lambda: a.stats()["sequences"] > 0)
forget()
a.begin(a.first)
a.pread(16384, places[0], a.first)
open(trigger + ".prefetch", "w").close()
a.pread(16384, places[1], a.first)  # cached?  its own read succeeds in any case
client.wait_for(lambda: a.stats()["failed"] > 0)
os.unlink(trigger + ".prefetch")
for offset in places[2:]:
    assert len(a.pread(16384, offset, a.first)) == 16384
client.passed(f"{a.stats()['failed']} prefetches failed")
