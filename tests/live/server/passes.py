# SPDX-License-Identifier: BSD-3-Clause
"""passes.py SOCKET BARE CALLS: the plain and the tagged view of a server pass on what they
are asked for, and promise what BARE does, a server without the filter.  CALLS is what
reached the layer below, by nbdkit's log filter.
"""
import re
import sys

import nbd
import client
from client import Tagged

path, bare_path, calls_path = sys.argv[1:]
FUA, NO_HOLE, FAST = nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FAST_ZERO
plain, bare, tagged = client.connect(path), client.connect(bare_path), Tagged(path)
tagged.begin(tagged.first)
calls = open(calls_path, encoding="utf-8")
for promise in ["can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero",
                "can_multi_conn", "can_df", "is_rotational", "is_read_only"]:
    assert getattr(plain, promise)() == getattr(bare, promise)(), promise
for promise in ["can_flush", "can_fua", "can_multi_conn"]:
    assert getattr(tagged.h, promise)() == getattr(bare, promise)(), promise
assert plain.can_fua() and plain.can_flush() and plain.can_trim() and plain.can_zero()


def passes(what, f, *args, **flags):
    """Asks for something; when the reply is there, exactly that has been carried out."""
    calls.read()
    f(*args)
    lines = re.findall(r" (\.\.\.)?(\w+) id=\d+ (.*)", calls.read())
    begun = [rest for done, name, rest in lines if name == what and not done]
    assert len(begun) == 1 and lines[-1] == ("...", what, "return=0"), (what, args, lines)
    for flag, value in flags.items():
        assert f"{flag}={value}" in begun[0].split(), (what, args, flag, begun)


tagged_offset = tagged.first << 48
for cached in [False, True]:
    if cached:
        plain.cache(2 << 20, 0)
    for h, at in [(plain, 0), (tagged.h, 0), (tagged.h, tagged_offset)]:
        passes("Write", h.pwrite, b"x" * 512, at, fua=0, offset="0x0", count="0x200")
        passes("Write", h.pwrite, b"x" * 20000, at + 5, FUA,
               fua=1, offset="0x5", count="0x4e20")
        passes("Flush", h.flush)
    passes("Zero", plain.zero, 70000, 100, offset="0x64", count="0x11170",
           trim=1, fua=0, fast=0)
    passes("Zero", plain.zero, 70000, 100, NO_HOLE | FUA, trim=0, fua=1, fast=0)
    passes("Zero", plain.zero, 70000, 100, FAST, trim=1, fua=0, fast=1)
    passes("Trim", plain.trim, 70000, 100, offset="0x64", count="0x11170", fua=0)
    passes("Trim", plain.trim, 70000, 100, FUA, fua=1)
client.passed("all passed on")
