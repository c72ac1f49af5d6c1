# SPDX-License-Identifier: BSD-3-Clause
"""submitter.py FILE read|write SUBMITTED: a thread submits an asynchronous request, as libaio does, and
ends; then there is the file SUBMITTED.  Prints what becomes of the request."""
import ctypes
import mmap
import os
import struct
import sys
import threading

SETUP, SUBMIT, GETEVENTS = 206, 209, 208  # x86-64
if os.uname().machine == "aarch64":
    SETUP, SUBMIT, GETEVENTS = 0, 2, 4
libc = ctypes.CDLL(None, use_errno=True)
SIZE, OFFSET = 16384, 1 << 20

path, what, submitted = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, SIZE)
page[:] = b"Z" * SIZE
where = ctypes.addressof(ctypes.c_char.from_buffer(page))
iocb = ctypes.create_string_buffer(struct.pack(
    "<QIiHhIQQqQII", 7, 0, 0, 1 if what == "write" else 0, 0, fd, where, SIZE, OFFSET, 0, 0, 0))
iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
context = ctypes.c_ulong(0)
assert libc.syscall(SETUP, 8, ctypes.byref(context)) == 0


def submit():
    assert libc.syscall(SUBMIT, context, 1, iocbs) == 1


thread = threading.Thread(target=submit)
thread.start()
thread.join()
with open(submitted, "w"):
    pass
event = ctypes.create_string_buffer(32)
assert libc.syscall(GETEVENTS, context, 1, 1, event, None) == 1
print(struct.unpack("<QQqq", event.raw)[2])
