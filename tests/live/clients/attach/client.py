# SPDX-License-Identifier: BSD-3-Clause
"""client.py torture URI ROUNDS CONNECTIONS FILE [END] - random requests over several
connections, ROUNDS on each and, if END is given, until there is such a file.
   client.py check URI FILE - the device holds what FILE says.

Each connection has a part of the device of its own, and several requests in flight, which
do not overlap, so it is known what each byte is.  FILE takes down what the device holds at
the end; if the connections break, only what was answered for: what was in flight is marked,
and not checked.
"""
import os
import random
import sys
import threading

import nbd

DEPTH = 8
LONGEST = 200_000


class Part:
    """One connection's part of the device: what it holds, and which bytes are known."""

    def __init__(self, uri, number, count, rounds, end):
        self.nbd = nbd.NBD()
        self.nbd.connect_uri(uri)
        size = self.nbd.get_size() // count
        self.start, self.rounds, self.end = number * size, rounds, end
        self.random = random.Random(number)
        self.bytes = bytearray(self.nbd.pread(size, self.start))
        self.known = bytearray(b"\1" * size)
        self.error = self.broken = None
        self.trims = []
        self.wrong = []

    def free_range(self, busy):
        """A range that no request in flight touches, or None."""
        for _ in range(10):
            at = self.random.randrange(len(self.bytes))
            count = self.random.choice([1, 512, 4096, 16384, self.random.randrange(1, LONGEST)])
            if self.random.random() < .5:
                at &= ~4095
            count = min(count, len(self.bytes) - at)
            if all(at + count <= a or a + n <= at for a, n in busy):
                return at, count
        return None

    def start_one(self, at, count, done):
        h, where, kind = self.nbd, self.start + at, self.random.random()
        fua = nbd.CMD_FLAG_FUA if self.random.random() < .1 else 0
        if kind < .5:
            buf = nbd.Buffer(count)

            def seen(error):
                error = error.value
                if not error and buf.to_bytearray() != self.bytes[at:at + count]:
                    self.wrong.append((where, count))
                return done(error)
            h.aio_pread(buf, where, completion=seen)
            return
        new = bytes(count) if kind >= .85 else self.random.randbytes(count)
        self.known[at:at + count] = bytes(count)

        def changed(error):
            error = error.value
            if not error:
                self.bytes[at:at + count] = new
                self.known[at:at + count] = b"\1" * count
            return done(error)
        if kind < .85:
            h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(new)), where,
                         completion=changed, flags=fua)
        elif kind < .95:
            h.aio_zero(count, where, completion=changed, flags=fua)
        else:
            # What it reads as then is anything: it is zeroed before it is used again, by
            # finish_trims(), as no request can be made in here.
            def trimmed(error):
                if error.value:
                    return done(error.value)
                self.trims.append((count, where, changed))
                return 1
            h.aio_trim(count, where, completion=trimmed, flags=fua)

    def finish_trims(self):
        while self.trims:
            count, where, changed = self.trims.pop()
            self.nbd.aio_zero(count, where, completion=changed)

    def goes_on(self, left):
        return left > 0 or (self.end is not None and not os.path.exists(self.end))

    def run(self):
        busy, left = [], self.rounds
        try:
            while self.goes_on(left) or busy:
                while self.goes_on(left) and len(busy) < DEPTH:
                    place = self.free_range(busy)
                    if not place:
                        break
                    busy.append(place)

                    def done(error, place=place):
                        busy.remove(place)
                        self.error = self.error or error
                        return 1
                    self.start_one(*place, done)
                    left -= 1
                if left % 97 == 0:
                    self.nbd.flush()
                self.finish_trims()
                if busy:
                    self.nbd.poll(-1)
            self.nbd.flush()
        except nbd.Error as e:
            self.broken = e


def torture(uri, rounds, count, path, end=None):
    parts = [Part(uri, i, count, rounds, end) for i in range(count)]
    threads = [threading.Thread(target=part.run) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(path, "wb") as f:
        for part in parts:
            f.write(part.bytes)
    with open(path + ".known", "wb") as f:
        for part in parts:
            f.write(part.known)
    wrong = [w for part in parts for w in part.wrong]
    for part in parts:
        if part.broken or part.error:
            print("broken:", part.broken, part.error)
    assert not wrong, wrong[:5]
    return any(part.broken or part.error for part in parts)


def check(uri, path):
    h = nbd.NBD()
    h.connect_uri(uri)
    with open(path, "rb") as f, open(path + ".known", "rb") as g:
        want, known = f.read(), g.read()
    for at in range(0, len(want), 1 << 20):
        got = h.pread(min(1 << 20, len(want) - at), at)
        if got == want[at:at + len(got)]:
            continue
        for i, byte in enumerate(got):
            assert byte == want[at + i] or not known[at + i], f"wrong at {at + i}"
    print(f"{known.count(1)} of {len(known)} bytes are known and right")


if sys.argv[1] == "torture":
    sys.exit(3 if torture(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:7]) else 0)
check(sys.argv[2], sys.argv[3])
