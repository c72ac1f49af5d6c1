# SPDX-License-Identifier: BSD-3-Clause
"""aio.py - asynchronous requests as libaio makes them; a submission does not wait for its end."""
import ctypes
import os
import struct

SETUP, SUBMIT, GETEVENTS = 206, 209, 208  # x86-64
if os.uname().machine == "aarch64":
    SETUP, SUBMIT, GETEVENTS = 0, 2, 4
READ, WRITE = 0, 1
libc = ctypes.CDLL(None, use_errno=True)


class Context:
    def __init__(self):
        self.id = ctypes.c_ulong(0)
        self.kept = []  # what the kernel has pointers to
        assert libc.syscall(SETUP, 8, ctypes.byref(self.id)) == 0

    def submit(self, fd, what, page, offset):
        """page is an mmap.mmap(); it is read or written until wait() has returned."""
        where = ctypes.addressof(ctypes.c_char.from_buffer(page))
        iocb = ctypes.create_string_buffer(struct.pack(
            "<QIiHhIQQqQII", 7, 0, 0, what, 0, fd, where, len(page), offset, 0, 0, 0))
        iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
        self.kept += [page, iocb]
        assert libc.syscall(SUBMIT, self.id, 1, iocbs) == 1

    def wait(self):
        """What one of the requests ended with: bytes, or a negative errno."""
        event = ctypes.create_string_buffer(32)
        assert libc.syscall(GETEVENTS, self.id, 1, 1, event, None) == 1
        return struct.unpack("<QQqq", event.raw)[2]
