#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""files - programs on a file system, like those of a small virtual machine.

Usage: files.py fill DIR TREE_MB FILE_MB
       files.py run DIR CLIENTS SECONDS SEED

fill makes DIR/tree of what lies in /usr/share, /usr/lib and /usr/include, up to TREE_MB, and
DIR/file, of random bytes.

run starts CLIENTS processes, each of which does one of these after the other, for SECONDS:

    boot    reads the same few hundred files in the same order, as a start of programs does
    tar     a folder of the tree, into nothing
    grep    another one, for a text that is not there
    build   the C preprocessor over the headers of the tree, for some programs
    random  reads of 16 KiB, anywhere in DIR/file, some places far oftener than others

What one has read leaves the page cache when it ends: the file system's memory is small
beside its data, as it is in a virtual machine with many files.  Prints how often each was
done, and last the line that bench/record reads.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from multiprocessing import Process, Queue
from pathlib import Path

SOURCES = ("/usr/share", "/usr/lib", "/usr/include")
BOOT_FILES = 300
RANDOM_READS = 400
PAGE = 16384
FOLDERS = 24  # about as many make the tree


def files_below(folder):
    for directory, below, names in os.walk(folder):
        below.sort()
        for name in sorted(names):
            path = Path(directory) / name
            if path.is_file() and not path.is_symlink():
                yield path


def fill(folder, tree_mb, file_mb):
    (folder / "tree").mkdir()
    for source in SOURCES:
        left = tree_mb * (1 << 20) // len(SOURCES)
        for path in files_below(source):
            size = path.stat().st_size
            if size > left // 8:
                continue
            if size > left - (1 << 20):
                break
            left -= size
            to = folder / "tree" / path.relative_to("/usr")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    with open(folder / "file", "wb") as file:
        for _ in range(file_mb):
            file.write(os.urandom(1 << 20))


def forget(paths):
    """Drops the files' pages from the page cache, if they are clean."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Client:
    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.all = list(files_below(folder / "tree"))
        # The same for all clients, in the order in which "programs" want them.
        chosen = random.Random(1)
        self.boot_files = chosen.sample(self.all, min(BOOT_FILES, len(self.all)))
        self.headers = [p for p in self.all if p.suffix == ".h"]
        per_folder = max(1, len(self.all) // FOLDERS)
        self.parts = [self.all[i:i + per_folder] for i in range(0, len(self.all), per_folder)]

    def boot(self):
        for path in self.boot_files:
            path.read_bytes()
        return self.boot_files

    def tar(self):
        part = self.random.choice(self.parts)
        subprocess.run(["tar", "-cf", "-", "--null", "-T", "-"], check=False,
                       input=b"\0".join(os.fsencode(p) for p in part),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return part

    def grep(self):
        part = self.random.choice(self.parts)
        subprocess.run(["xargs", "-0", "grep", "-l", "no such text"], check=False,
                       input=b"\0".join(os.fsencode(p) for p in part),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return part

    def build(self):
        """Programs that include a few headers each, some of them nearly always."""
        include = self.folder / "tree" / "include"
        used = self.headers[:40] + self.random.sample(self.headers, min(40, len(self.headers)))
        for _ in range(6):
            some = self.random.sample(used, min(8, len(used)))
            text = "".join(f'#include "{path}"\n' for path in some)
            subprocess.run(["cpp", "-nostdinc", "-I", include, "-"], input=text.encode(),
                           check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.headers

    def anywhere(self):
        path = self.folder / "file"
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        pages = path.stat().st_size // PAGE
        for _ in range(RANDOM_READS):
            page = int(pages * self.random.random() ** 3) * 7919 % pages
            os.pread(descriptor, PAGE, page * PAGE)
        os.close(descriptor)
        return [path]


KINDS = {"boot": (Client.boot, 2), "tar": (Client.tar, 3), "grep": (Client.grep, 3),
         "build": (Client.build, 2), "random": (Client.anywhere, 5)}


def work(folder, seconds, seed, queue):
    try:
        client = Client(folder, seed)
        until = time.monotonic() + seconds
        names = [name for name, (_, weight) in KINDS.items() for _ in range(weight)]
        while time.monotonic() < until:
            name = client.random.choice(names)
            began = time.monotonic()
            forget(KINDS[name][0](client))
            queue.put((name, time.monotonic() - began))
    finally:
        queue.put(None)  # run() waits for one of each


def run(folder, clients, seconds, seed):
    queue, began = Queue(), time.monotonic()
    workers = [Process(target=work, args=(folder, seconds, seed * 1000 + i, queue))
               for i in range(clients)]
    for worker in workers:
        worker.start()
    done, left = {name: [] for name in KINDS}, clients
    while left:
        item = queue.get()
        if item is None:
            left -= 1
        else:
            done[item[0]].append(item[1])
    for worker in workers:
        worker.join()
    if any(worker.exitcode != 0 for worker in workers):
        sys.exit("files: a client failed, see above")
    took, times = time.monotonic() - began, sorted(t for all in done.values() for t in all)
    for name, all in done.items():
        print(f"interaction {name} {len(all)}")
    if not times:
        sys.exit("files: nothing was done")
    print(f"interactions {len(times)} seconds {took:.3f} "
          f"mean_ms {1000 * sum(times) / len(times):.3f} "
          f"p95_ms {1000 * times[len(times) * 95 // 100]:.3f} errors 0")


def main():
    match sys.argv[1:]:
        case ["fill", folder, tree_mb, file_mb]:
            fill(Path(folder), int(tree_mb), int(file_mb))
        case ["run", folder, clients, seconds, seed]:
            run(Path(folder), int(clients), int(seconds), int(seed))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
