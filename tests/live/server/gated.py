# SPDX-License-Identifier: BSD-3-Clause
"""gated.py - an nbdkit plugin: a disk in memory whose changes wait at gates.

A change at an offset for which there is a file OFFSET in the directory $GATES waits until
that is removed.  The file `calls` there has a line for the begin and the end of each.
"""
import os
import threading
import time

import nbdkit

API_VERSION = 2
SIZE = 1 << 20
gates = os.environ["GATES"]
models = {"parallel": nbdkit.THREAD_MODEL_PARALLEL,
          "requests": nbdkit.THREAD_MODEL_SERIALIZE_REQUESTS,
          "all": nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS}
disk = bytearray(SIZE)
lock = threading.Lock()


def thread_model():
    return models[os.environ["MODEL"]]


def open(readonly):
    return 1


def get_size(h):
    return SIZE


def can_multi_conn(h):
    return True


def can_zero(h):
    return True


def can_trim(h):
    return True


def call(line):
    fd = os.open(gates + "/calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def change(what, offset, data):
    call(f"begin {what} {offset}\n")
    while os.path.exists(f"{gates}/{offset}"):
        time.sleep(0.01)
    with lock:
        disk[offset:offset + len(data)] = data
    call(f"end {what} {offset}\n")


def pread(h, buf, offset, flags):
    with lock:
        buf[:] = disk[offset:offset + len(buf)]


def pwrite(h, buf, offset, flags):
    change("write", offset, bytes(buf))


def zero(h, count, offset, flags):
    change("zero", offset, bytes(count))


def trim(h, count, offset, flags):
    change("trim", offset, bytes(count))


def flush(h, flags):
    call("flush\n")
