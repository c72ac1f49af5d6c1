# SPDX-License-Identifier: BSD-3-Clause
"""restarts.py URI END PROGRESS: several writes at a time, each a version of a page, over a connection
that breaks.  What has no answer is sent again over the next connection, before anything newer of that
page.  What was answered is read back after each break, and all of it at the end, when there is END."""
import os
import random
import struct
import sys
import time

import nbd

PAGE, PAGES, DEPTH, PATIENCE = 4096, 64, 6, 120
uri, end, progress = sys.argv[1:]
versions = [0] * PAGES  # that were answered
under_way = {}          # page: version
state = {"next": 0, "answered": 0, "breaks": 0, "read": 0}


def content(page, version):
    return struct.pack("<QQ", page, version) * (PAGE // 16)


def connect():
    until = time.monotonic() + PATIENCE
    while True:
        h = nbd.NBD()
        try:
            h.connect_uri(uri)
            return h
        except nbd.Error:
            assert time.monotonic() < until, "nobody serves"
            time.sleep(0.02)


def send(h, page, version):
    under_way[page] = version

    def done(error):
        if error.value == 0 and under_way.get(page) == version:
            del under_way[page]
            versions[page] = version
            state["answered"] += 1
        return 1
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(content(page, version))), page * PAGE,
                 completion=done)


def check(h):
    for page, version in enumerate(versions):
        if page not in under_way and version:
            got = struct.unpack("<QQ", h.pread(16, page * PAGE))
            assert got == (page, version), f"page {page}: {got[1]}, not {version}"
            state["read"] += 1


def serve_one(h):
    for page, version in list(under_way.items()):
        send(h, page, version)
    while under_way:
        h.poll(-1)
    h.flush()
    check(h)
    while not os.path.exists(end):
        while len(under_way) < DEPTH:
            page = random.randrange(PAGES)
            if page not in under_way:
                state["next"] += 1
                send(h, page, state["next"])
        h.poll(-1)
        if state["answered"] % 20 == 0:
            h.flush()
        with open(progress + ".new", "w") as f:
            f.write(str(state["answered"]))
        os.rename(progress + ".new", progress)
    while under_way:
        h.poll(-1)
    h.flush()
    check(h)


while True:
    try:
        serve_one(connect())
        break
    except nbd.Error:
        state["breaks"] += 1
print(f"{state['answered']} writes answered, {state['breaks']} breaks, {state['read']} pages read back")
