# SPDX-License-Identifier: BSD-3-Clause
"""data.py SOCKET SEED [trim]: random requests against a model of the device's bytes, on
plain and tagged connections."""
import os
import random
import sys

import nbd
import client

path, seed = sys.argv[1], int(sys.argv[2])
write_max = int(os.environ.get("WRITE_MAX", 1 << 25))
rnd = random.Random(seed)
plain = [client.connect(path) for _ in range(2)]
tagged = client.Tagged(path)
size = plain[0].get_size()
assert tagged.size == size
model = bytearray(plain[0].pread(size, 0))
for slot in range(4):
    tagged.begin(tagged.first + slot)
tours = [[rnd.randrange(size) // 4096 * 4096 for _ in range(30)] for _ in range(4)]


def anywhere():
    """A range: aligned or not, short or long, often near the end."""
    count = rnd.choice([1, 2, 511, 4096, 4097, 16384, 16384, 40000, 65536, 700000])
    offset = rnd.randrange(size)
    if rnd.random() < 0.5:
        offset -= offset % 4096
    if rnd.random() < 0.1:
        offset = max(0, size - count)
    return offset, min(count, size - offset)


def read(offset, count):
    which = rnd.randrange(3)
    if which < 2:
        return plain[which].pread(count, offset)
    return tagged.pread(count, offset, rnd.choice([0, tagged.first + rnd.randrange(5)]))


def tour(places):
    """Reads what others have read in this order, so that it is prefetched."""
    slot = tagged.first + 5
    tagged.begin(slot, 0, 2, client.TRANSACTION, b"tour")
    for offset in places:
        count = min(4096, size - offset)
        assert tagged.pread(count, offset, slot) == model[offset:offset + count]
    tagged.end(slot)


for i in range(1500):
    offset, count = anywhere()
    what = rnd.random()
    if what >= 0.6:
        count = min(count, write_max)
    if i % 10 == 0:
        tour(rnd.choice(tours))
    elif what < 0.6:
        assert read(offset, count) == model[offset:offset + count], (i, offset, count)
    elif what < 0.75:
        data = rnd.randbytes(count)
        flags = nbd.CMD_FLAG_FUA if rnd.random() < 0.3 else 0
        if rnd.random() < 0.5:
            plain[rnd.randrange(2)].pwrite(data, offset, flags)
        else:
            tagged.pwrite(data, offset, tagged.first + rnd.randrange(4), flags)
        model[offset:offset + count] = data
    elif what < 0.85:
        flags = rnd.choice([0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA])
        plain[rnd.randrange(2)].zero(count, offset, flags)
        model[offset:offset + count] = bytes(count)
    elif what < 0.9 and len(sys.argv) > 3:
        # What trimmed bytes read as is the plugin's; here, zeros.
        plain[rnd.randrange(2)].trim(count, offset)
        model[offset:offset + count] = bytes(count)
    elif what < 0.95:
        rnd.choice(plain + [tagged.h]).cache(count, offset)
    else:
        rnd.choice(plain + [tagged.h]).flush()
for offset in range(0, size, 1 << 20):
    count = min(1 << 20, size - offset)
    assert read(offset, count) == model[offset:offset + count], offset

# Beyond the end: refused, and nothing else happens.
client.refused("EINVAL", tagged.pread, 1, size, 0)
client.refused("EINVAL", tagged.pread, 2, size - 1, tagged.first)
client.refused("EINVAL", tagged.pread, 4096, (1 << 48) - 1, tagged.first)
client.refused("ENOSPC", tagged.pwrite, b"xy", size - 1, 0)
client.refused("ENOSPC", tagged.pwrite, b"xy", (1 << 48) - 1, 1)
assert read(size - 1, 1) == model[size - 1:]
stats = tagged.stats()
assert stats["used"] + stats["wasted"] <= stats["prefetches"]
assert stats["reads"] > 800 and stats["writes"] > 200
client.passed(f"{size} bytes, {stats['hits']} hits, {stats['prefetch_hits']} prefetch hits, "
              f"{stats['misses']} misses")
