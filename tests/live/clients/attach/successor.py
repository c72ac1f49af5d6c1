# SPDX-License-Identifier: BSD-3-Clause
"""successor.py MODE WHERE FILE: clients for successor-lib.sh; WHERE is an NBD URI, or a file."""
import mmap
import os
import sys
import threading
import time

import nbd

PAGE = 4096
SECOND = 65536
PATIENCE = 120


def wait_for(holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


class Device:
    def __init__(self, uri):
        self.h = nbd.NBD()
        self.h.connect_uri(uri)

    def write(self, letter, offset):
        self.h.pwrite(letter * PAGE, offset)

    def flush(self):
        self.h.flush()


class File:
    def __init__(self, path):
        if os.environ.get("LD_PRELOAD", "").find("preload") == -1 and not os.path.getsize(path):
            raise OSError("it is not mounted yet")
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)

    def write(self, letter, offset):
        page = mmap.mmap(-1, PAGE)
        page[:] = letter * PAGE
        assert os.pwritev(self.fd, [page], offset) == PAGE

    def flush(self):
        os.fsync(self.fd)


def connect(where):
    return File(where) if where[0] == "/" else Device(where)


def may_fail(f, *args):
    try:
        f(*args)
    except (nbd.Error, OSError) as e:
        print(e, flush=True)


def old(where, go):
    """Two writes at the same time; neither is answered, or both fail."""
    first = connect(where)
    second = first if where[0] == "/" else connect(where)
    threads = [threading.Thread(target=may_fail, args=(first.write, b"S", 0))]
    threads[0].start()
    wait_for(lambda: os.path.exists(go))
    threads.append(threading.Thread(target=may_fail, args=(second.write, b"O", SECOND)))
    threads[1].start()
    for thread in threads:
        thread.join()


def new(where, done):
    device = None
    until = time.monotonic() + PATIENCE
    while not device:
        try:
            device = connect(where)
        except (nbd.Error, OSError):
            assert time.monotonic() < until, "nobody serves"
            time.sleep(0.05)
    device.write(b"N", SECOND)
    device.flush()
    with open(done, "w"):
        pass


def others(uri, done):
    """Reads on another connection, until there is the file; or many of them."""
    h = nbd.NBD()
    h.connect_uri(uri)
    until = time.monotonic() + 3
    while not os.path.exists(done) and time.monotonic() < until:
        h.pread(512, 0)
        time.sleep(0.001)


def check(uri):
    h = nbd.NBD()
    h.connect_uri(uri)
    for _ in range(300):
        assert h.pread(4, SECOND) == b"NNNN", h.pread(4, SECOND)
        time.sleep(0.001)


globals()[sys.argv[1]](*sys.argv[2:])
