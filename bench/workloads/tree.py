# SPDX-License-Identifier: BSD-3-Clause
"""tree.py DIRECTORY WORK grep|diff [MB]: what grep or diff read of a tree of files.

Copies the directory's files, at most MB megabytes (100), into an ext4 file system in a
file in WORK, for diff twice, and prints their blocks of 4 KiB as a quickmine trace of one
context: for grep file after file as they lie on the device, for diff a file and its copy
in turn, by name.  What the file system reads for itself is left out.  Needs no root.
"""
import os
import shutil
import subprocess
import sys

source, work, pattern = sys.argv[1:4]
left = int(sys.argv[4] if len(sys.argv) > 4 else 100) << 20
trees = ["a"] if pattern == "grep" else ["a", "b"]
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
