#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads lines "TABLE PATH [CLASS...]" and prints "TABLE START END [CLASS...]" for each extent
of the file on its device, in bytes (the ioctl FIEMAP)."""
import fcntl
import os
import struct
import sys

FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 1
LAST, UNKNOWN = 1, 2 | 4 | 8 | 0x100 | 0x200  # delayed, encoded, inline, ...
COUNT = 64

for line in sys.stdin:
    table, path, *classes = line.split()
    fd = os.open(path, os.O_RDONLY)
    at, last = 0, False
    while not last:
        head = struct.pack("=QQIIII", at, 2 ** 63 - at, FIEMAP_FLAG_SYNC, 0, COUNT, 0)
        answer = bytearray(head + bytes(56 * COUNT))
        fcntl.ioctl(fd, FS_IOC_FIEMAP, answer)
        n = struct.unpack_from("=QQIIII", answer)[3]
        last = n == 0
        for i in range(n):
            logical, physical, length, _, _, flags = struct.unpack_from(
                "=QQQQQI", answer, 32 + 56 * i)
            if flags & UNKNOWN:
                sys.exit(f"{path}: an extent without a place")
            print(table, physical, physical + length, *classes)
            at, last = logical + length, bool(flags & LAST)
    os.close(fd)
