# SPDX-License-Identifier: BSD-3-Clause
"""tree.py DIRECTORY WORK grep|diff|build [MB]: what a program reads of a tree of files.

Copies the directory's files, at most MB megabytes (100), into an ext4 file system in a
file in WORK, for diff twice, and prints their blocks of 4 KiB as a quickmine trace of one
context: for grep file after file as they lie on the device, for diff a file and its copy
in turn, by name; for a build what a compiler reads of each file by name and of those that
it includes, as far as they are in the tree: each once, then it is in the page cache.
Neither what the file system reads for itself is there, nor what a build writes.  Needs
no root.
"""
import os
import re
import shutil
import subprocess
import sys

source, work, pattern = sys.argv[1:4]
left = int(sys.argv[4] if len(sys.argv) > 4 else 100) << 20
trees = ["a", "b"] if pattern == "diff" else ["a"]
names = []

for folder, folders, files in os.walk(source):
    folders.sort()
    for name in sorted(files):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path) or " " in path:
            continue
        size = os.path.getsize(path)
        if size == 0 or size > left:
            continue
        left -= size
        name = os.path.relpath(path, source)
        names.append(name)
        for tree in trees:
            to = os.path.join(work, "files", tree, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copyfile(path, to)
if not names:
    sys.exit(f"tree.py: {source} has no files")


def compiled():
    """The names in the order in which a compiler of all of them first opens them."""
    include = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*[<"]([^>"\n]+)[>"]', re.M)
    there, order, seen = set(names), [], set()
    for name in names:
        stack = [iter([name])]
        while stack:
            at = next(stack[-1], None)
            if at is None:
                stack.pop()
            elif at in there and at not in seen:
                seen.add(at)
                order.append(at)
                with open(os.path.join(source, at), "rb") as f:
                    found = [os.fsdecode(x) for x in include.findall(f.read())]
                folder = os.path.dirname(at)
                stack.append(iter([x for name in found for x in (
                    os.path.normpath(os.path.join(folder, name)), os.path.normpath(name))]))
    return order


if pattern == "build":
    names = compiled()

image = os.path.join(work, "image")
subprocess.run(
    ["/sbin/mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", os.path.join(work, "files"),
     image, "512M"],
    check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
paths = [f"/{tree}/{name}" for name in names for tree in trees]
said = subprocess.run(
    ["/sbin/debugfs", "-f", "-", image], check=True, text=True, stderr=subprocess.DEVNULL,
    input="".join(f"blocks {path}\n" for path in paths), stdout=subprocess.PIPE).stdout
# A line that repeats the command, and one with the blocks.
blocks = [[int(b) for b in line.split()] for line in said.splitlines()
          if not line.startswith("debugfs:")]
if len(blocks) != len(paths):
    sys.exit("tree.py: debugfs did not say where the files are")
if pattern == "grep":
    blocks.sort()
print("#quickmine-trace 1 block=4096")
print(f"B 0 1 connection {pattern} 0")
time = 0
for of in range(0, len(blocks), len(trees)):
    pair = blocks[of:of + len(trees)]
    for at in range(max(map(len, pair))):
        for part in pair:
            if at < len(part):
                time += 1
                print(f"R {time} 1 {part[at] * 4096} 4096")
shutil.rmtree(os.path.join(work, "files"))
os.remove(image)
