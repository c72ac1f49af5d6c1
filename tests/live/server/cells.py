# SPDX-License-Identifier: BSD-3-Clause
"""cells.py SOCKET STOP [SEED]: a load that sees each wrong byte, until the file STOP exists.

Of each 64 cells of 4 KiB, each of four writers has sixteen of its own, and writes into each
its number and the next version.  Readers check that each cell has a version between the one
that was acknowledged before they read and the one that was begun before they had read.
"""
import os
import random
import struct
import sys
import threading
import time

import nbd

CELL = 4096


class Cells:
    def __init__(self, size, seed=1):
        self.n = size // CELL
        self.acknowledged = [0] * self.n
        self.begun = [0] * self.n
        self.wrong = []
        self.writes = self.reads = 0
        self.seed = seed
        self.most_writes = None # for each read; None: any number
        self.stop = lambda: False

    def _write(self, h, r, k):
        n = r.choice([1, 1, 2, 4, 16])
        at = r.randrange(self.n // 64) * 64 + 16 * k + r.randrange(0, 16 - n + 1)
        versions = []
        for i in range(at, at + n):
            self.begun[i] += 1
            versions.append(self.begun[i])
        data = b"".join(struct.pack("<QQ", i, v) * (CELL // 16)
                        for i, v in zip(range(at, at + n), versions))
        h.pwrite(data, at * CELL, nbd.CMD_FLAG_FUA if r.random() < .1 else 0)
        for i, v in zip(range(at, at + n), versions):
            self.acknowledged[i] = v
        if r.random() < .01:
            h.flush()
        self.writes += 1

    def check(self, h, at, n):
        """Reads n cells; returns the version of each."""
        least = self.acknowledged[at:at + n]
        data = h.pread(n * CELL, at * CELL)
        most = self.begun[at:at + n]
        seen = []
        for j in range(n):
            cell = data[j * CELL:(j + 1) * CELL]
            i, v = struct.unpack_from("<QQ", cell)
            if cell[:16] * (CELL // 16) != cell: # two versions: each of them must be right
                halves = [struct.unpack_from("<QQ", cell, o) for o in range(0, CELL, 16)]
            else:
                halves = [(i, v)]
            for i, v in halves:
                if not (least[j] <= v <= most[j] and (i == at + j or i == v == 0)):
                    self.wrong.append((at + j, i, v, least[j], most[j]))
                    print("WRONG: cell %d has cell %d's version %d, of %d to %d" %
                          self.wrong[-1], flush=True)
                    break
            seen.append(min(v for _, v in halves))
        self.reads += 1
        return seen

    def _thread(self, path, k, writes):
        r = random.Random(self.seed * 100 + k)
        h = nbd.NBD()
        h.connect_unix(path)
        at = 0
        while not self.stop() and not self.wrong:
            if writes:
                if self.most_writes and self.writes > self.most_writes * self.reads:
                    time.sleep(.001)
                else:
                    self._write(h, r, k)
                continue
            if at >= self.n or r.random() < .05:
                at = r.randrange(self.n)
            n = min(r.choice([1, 4, 4, 8, 32]), self.n - at)
            self.check(h, at, n)
            at += n

    def _guarded(self, ends, *args):
        try:
            self._thread(*args)
        except nbd.Error as e:
            if not ends:
                self.wrong.append(str(e))
                print("FAILED:", e, flush=True)

    def threads(self, path, ends=False):
        """Four writers and six readers, started.  ends: the server may end under them."""
        made = [threading.Thread(target=self._guarded, args=(ends, path, k, k < 4))
                for k in range(10)]
        for t in made:
            t.start()
        return made


def main(path, stop, seed=1):
    h = nbd.NBD()
    h.connect_unix(path)
    cells = Cells(h.get_size(), int(seed))
    cells.stop = lambda: os.path.exists(stop)
    # On a fast file system there would be three, which leave hardly anything in a tier.
    cells.most_writes = 1
    for t in cells.threads(path):
        t.join()
    print("%d writes, %d reads" % (cells.writes, cells.reads))
    if not cells.wrong: # and once more, when nothing is under way
        for at in range(0, cells.n, 64):
            cells.check(h, at, min(64, cells.n - at))
    sys.exit(1 if cells.wrong or not cells.writes or not cells.reads else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
