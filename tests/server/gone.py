"""gone.py SOCKET: a client that dies with requests in flight; started again and again."""
import os
import sys

import nbd
from client import QUERY, Tagged

a = Tagged(sys.argv[1])
a.begin(a.first, kind=QUERY)
for i in range(100):
    a.h.aio_pread(nbd.Buffer(16384), a.first << 48 | i * 16384 * 7)
    a.h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(16384)), i * 16384 * 3)
for i in range(20):
    a.h.poll(1)
os.kill(os.getpid(), 9)
