# SPDX-License-Identifier: BSD-3-Clause
"""hostile.py SOCKET SIZE - what no honest client sends.  Each is answered with an error, or
ends its own connection; the bytes of the device stay what they were."""
import socket
import struct
import sys
import threading
import time

PATH, SIZE = sys.argv[1], int(sys.argv[2])
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)
EPERM, EIO, EINVAL, ENOSPC = 1, 5, 22, 28


class Gone(Exception):
    pass


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(PATH)
    return s


def take(s, n):
    data = b""
    while len(data) < n:
        try:
            more = s.recv(n - len(data))
        except ConnectionResetError:
            more = b""
        if not more:
            raise Gone
        data += more
    return data


def shake(s):
    take(s, 18)
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
    size, flags = struct.unpack(">QH", take(s, 10))
    assert size == SIZE, size
    return s


def request(s, command, offset, length, flags=0, data=b"", magic=0x25609513, cookie=7):
    s.sendall(struct.pack(">IHHQQI", magic, flags, command, cookie, offset, length) + data)


def answer(s, data=0):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert (magic, cookie) == (0x67446698, 7), (hex(magic), cookie)
    if error == 0 and data:
        take(s, data)
    return error


def ends(what, s):
    try:
        while take(s, 1):
            pass
    except Gone:
        return
    raise AssertionError(f"{what}: the connection goes on")


def drip():
    """A handshake a byte at a time, which is ended all the same."""
    s = connect()
    take(s, 18)
    until = time.monotonic() + 60
    try:
        s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, 4096))
        while time.monotonic() < until:
            s.sendall(b"x")
            time.sleep(.1)
    except OSError:
        dripped.append(True)


dripped = []
dripper = threading.Thread(target=drip, daemon=True)
dripper.start()

s = shake(connect())
for what, args, error in [
        ("read past the end", (READ, SIZE - 1, 2), EINVAL),
        ("read far beyond", (READ, 2**64 - 1, 1), EINVAL),
        ("offset and length that overflow", (READ, 2**64 - 4096, 8192), EINVAL),
        ("sign bit", (READ, 2**63, 512), EINVAL),
        ("read of nothing", (READ, 0, 0), EINVAL),
        ("read too long", (READ, 0, (32 << 20) + 1), EINVAL),
        ("read of 4 GiB", (READ, 0, 2**32 - 1), EINVAL),
        ("write past the end", (WRITE, SIZE - 1, 2, 0, b"xx"), ENOSPC),
        ("write that overflows", (WRITE, 2**64 - 1, 2, 0, b"xx"), ENOSPC),
        ("trim past the end", (TRIM, SIZE - 1, 2**32 - 1), ENOSPC),
        ("zeroes past the end", (ZEROES, 1, SIZE), ENOSPC),
        ("unknown command", (STATUS, 0, 512), EINVAL),
        ("unknown command", (999, 0, 512), EINVAL),
        ("cache, which was not offered", (CACHE, 0, 512), EINVAL),
        ("unknown flag", (READ, 0, 512, 0x8000), EINVAL),
        ("fast zero, which was not offered", (ZEROES, 0, 512, 16), EINVAL),
        ("write with an unknown flag", (WRITE, 0, 2, 0x8000, b"xx"), EINVAL),
        ("flush with a flag and a range", (FLUSH, 5, 5, 1), 0),
        ("unaligned read", (READ, 511, 1025), 0)]:
    request(s, *args)
    got = answer(s, args[2] if args[0] == READ else 0)
    assert got == error, f"{what}: {got}"

# What cannot be answered.
for what, args in [("no magic", (READ, 0, 512, 0, b"", 0xdeadbeef)),
                   ("write of 4 GiB", (WRITE, 0, 2**32 - 1)),
                   ("write too long", (WRITE, 0, (32 << 20) + 1))]:
    s = shake(connect())
    request(s, *args)
    ends(what, s)
s = shake(connect())
request(s, DISC, 0, 0)
ends("disconnect", s)

# Half a request, half a write's data, and then nothing.
s = shake(connect())
s.sendall(b"\x25\x60\x95\x13\0\0")
s.close()
s = shake(connect())
request(s, WRITE, 0, 512, 0, b"x" * 100)
s.close()
# Replies that nobody reads, of a client that asks for as much as it can, and leaves; others
# go on meanwhile.
greedy = shake(connect())
greedy.setblocking(False)
try:
    while True:
        request(greedy, READ, 0, 65536)
except BlockingIOError:
    pass
s = shake(connect())
request(s, READ, 0, 512)
assert answer(s, 512) == 0
greedy.close()

# Handshakes.
for what, data in [("flags", struct.pack(">I", 0xffffffff)),
                   ("an option without magic", struct.pack(">I", 3) + b"x" * 16),
                   ("a long option", struct.pack(">I", 3) + b"IHAVEOPT" +
                    struct.pack(">II", 7, 2**32 - 1)),
                   ("options without end", struct.pack(">I", 3) + 100 * (
                       b"IHAVEOPT" + struct.pack(">II", 3, 0)))]:
    s = connect()
    try:
        s.sendall(data)
    except BrokenPipeError:
        pass
    ends(what, s)
s = connect()
take(s, 18)
s.sendall(struct.pack(">I", 3))
for option, data in [(7, b""), (5, b""), (8, b""), (99, b"x" * 4096), (3, b"x")]:
    s.sendall(b"IHAVEOPT" + struct.pack(">II", option, len(data)) + data)
    magic, asked, kind, length = struct.unpack(">QIII", take(s, 20))
    assert (magic, asked, length) == (0x3e889045565a9, option, 0), (hex(magic), asked)
    assert kind & 0x80000000, f"option {option} is accepted: {kind}"
s.close()

# More clients than there is room for: they are turned away, and the others go on.
crowd = []
for i in range(100):
    try:
        c = connect()
        crowd.append(c)
    except OSError:
        break
for c in crowd:
    c.close()
for attempt in range(1200):
    try:
        s = shake(connect())
        break
    except (Gone, OSError):
        time.sleep(.05)
request(s, READ, 0, 512)
assert answer(s, 512) == 0

dripper.join()
assert dripped, "a handshake a byte at a time goes on"
print("ok")
