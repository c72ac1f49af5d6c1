# SPDX-License-Identifier: BSD-3-Clause
"""gone.py SOCKET all|some SEED: a client that is killed in the middle of its contexts, with
requests in flight by two connections of its session: when all of them are with the server,
which answers none, or at any moment.  Says how many of its requests were not answered."""
import os
import random
import sys

import nbd
from client import (BEGIN, END, QUERY, THREAD, TRANSACTION, WINDOW, Tagged, record)

path, when, seed = sys.argv[1:]
rnd = random.Random(int(seed))
a = Tagged(path)
b = Tagged(path, a.session)
thread, transaction, query, other = range(a.first, a.first + 4)
a.begin(thread, kind=THREAD)
a.begin(transaction, thread, klass=2, kind=TRANSACTION)
b.begin(query, transaction, klass=3 + int(seed) % 5, kind=QUERY)
for i in range(64):
    # What is larger than a socket's buffer would wait for the server to read it.
    if i % 8 == 7:
        data = nbd.Buffer.from_bytearray(bytearray(16384))
        (a if i < 32 else b).h.aio_pwrite(data, query << 48 | rnd.randrange(200) * 16384)
    else:
        (a, b)[i % 2].h.aio_pread(nbd.Buffer(16384), query << 48 | i * 16384 * 3)
for op, slot in (BEGIN, other), (BEGIN, query), (END, transaction):
    message = record(op, a.session, slot, thread if op == BEGIN else 0, 9, QUERY)
    b.h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(message)), WINDOW)
if when == "all":
    for h in a.h, b.h:
        while h.aio_get_direction() & nbd.AIO_DIRECTION_WRITE:
            h.poll(-1)
    assert a.h.aio_in_flight() + b.h.aio_in_flight() == 67
else:
    for _ in range(rnd.randrange(60)):
        rnd.choice((a, b)).h.poll(0)
print(a.h.aio_in_flight() + b.h.aio_in_flight(), flush=True)
os.kill(os.getpid(), 9)
