# SPDX-License-Identifier: BSD-3-Clause
"""submitter.py MODE FILE WAY: asynchronous requests to FILE; prints what becomes of them.

read, write  a thread submits one and ends; then there is the file WAY
two          a write at 0, and one at 64 KiB when there is the file WAY
"""
import mmap
import os
import sys
import threading
import time

import aio

mode, path, way = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_DIRECT)
context = aio.Context()


def page(letter, size):
    memory = mmap.mmap(-1, size)
    memory[:] = letter * size
    return memory


if mode == "two":
    context.submit(fd, aio.WRITE, page(b"S", 4096), 0)
    until = time.monotonic() + 120
    while not os.path.exists(way):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)
    context.submit(fd, aio.WRITE, page(b"O", 4096), 65536)
    print(context.wait(), context.wait())
else:
    what = {"read": aio.READ, "write": aio.WRITE}[mode]
    thread = threading.Thread(target=context.submit,
                              args=(fd, what, page(b"Z", 16384), 1 << 20))
    thread.start()
    thread.join()
    with open(way, "w"):
        pass
    print(context.wait())
