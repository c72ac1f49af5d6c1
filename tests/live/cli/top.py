# SPDX-License-Identifier: BSD-3-Clause
"""top.py QUICKMINE FOLDER: quickmine top on terminals of several kinds."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

QUICKMINE, FOLDER = sys.argv[1:]
WAIT = 60
NAMES = [f"select_{n:02}_" + "x" * 100 + f"_\u00e9nd{n:02}" for n in range(40)]


class Server:
    """Gives made-up statistics on a socket; may be away, from now on or after its next answer,
    and may hang."""

    def __init__(self, name):
        self.path = f"{FOLDER}/{name}"
        self.started = time.monotonic()
        self.hangs = False
        self.leaves = False
        self.fields = {}
        self.script = []  # fields of the next answers
        self.asked = 0
        self.listener = None
        self.start()

    def document(self):
        if self.script:
            self.fields = self.script.pop(0)
        up = int((time.monotonic() - self.started) * 1e6) + 1
        classes = [{"class": f"{n:016x}", "kind": "transaction", "name": name,
                    "contexts": 12345678, "reads": 9 ** 15 - n, "hits": 9 ** 14,
                    "prefetch_hits": 9, "misses": 9 ** 13, "issued": 9 ** 12, "used": 9 ** 11,
                    "wasted": 5, "latency_us": 123456.789, "state": "reduced",
                    "set": "0" * 16} for n, name in enumerate(NAMES)]
        return json.dumps({
            "version": "0.1.0", "uptime_us": up, "policy": "ppm", "level": "transaction",
            "prefetching": True, "reads": 9 ** 15, "read_bytes": 9 ** 18, "writes": 9 ** 12,
            "hits": 9 ** 14, "prefetch_hits": 9 ** 10, "misses": 9 ** 13, "prefetches": 9 ** 12,
            "used": 9 ** 11, "wasted": 5, "device_reads": 9 ** 13, "connections": 1234,
            "contexts_open": 32767, "latency_us": {"mean": 123456.7, "p99": 12345678.9},
            "classes": classes, **self.fields}).encode()

    def start(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            try:
                c = listener.accept()[0]
            except OSError:
                return
            self.asked += 1
            while self.hangs:
                time.sleep(0.01)
            if self.leaves:
                self.stop()
            try:
                c.sendall(self.document())
            except OSError:
                pass
            c.close()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)


class Terminal:
    """quickmine top on a terminal of its own."""

    def __init__(self, *args, rows=24, columns=80, **env):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(1, termios.TIOCSWINSZ,
                            struct.pack("HHHH", rows, columns, 0, 0))
                os.execvpe(QUICKMINE, [QUICKMINE, "top", *args], {**os.environ, **env})
            finally:
                os._exit(99)

    def pump(self, seconds=0.05):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 1 << 16)
            except OSError:
                return False
        return True

    def frame(self):
        """The last screen that was drawn whole: its lines, without commands."""
        parts = self.seen.split(b"\033[H")
        for part in reversed(parts[1:]):
            # The last line ends in a command that clears the rest of it, and no line end.
            if re.search(rb"\033\[K(\033\[2J)?$", part):
                text = re.sub(rb"\033\[[?0-9;]*[a-zA-Z]", b"", part).decode()
                return text.split("\r\n")
        return []

    def until(self, condition, what):
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            alive = self.pump()
            if condition():
                return
            assert alive, f"{what}: ended: {self.seen[-2000:]}"
        raise AssertionError(f"{what}: never: {self.frame()} {self.seen[-500:]}")

    def until_line(self, pattern, what):
        self.until(lambda: any(re.search(pattern, line) for line in self.frame()), what)

    def type(self, keys):
        os.write(self.fd, keys)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def mode(self):
        return termios.tcgetattr(self.fd)[3]

    def end(self):
        """Its exit status."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            self.pump(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.pump(0.01) and select.select([self.fd], [], [], 0)[0]:
                    pass
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("does not end")


def fits(terminal, rows, columns):
    """Nothing is wider or higher than the screen, whatever the numbers."""
    lines = terminal.frame()
    assert len(lines) == rows, (len(lines), rows, lines)
    for line in lines:
        assert len(line) <= columns, (len(line), line)
    assert len(lines[-1]) < columns, lines[-1]


def on_a_screen(server):
    env = {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    t = Terminal(server.path, **env)
    before = t.mode()
    t.until_line("1-16 of 40", "the first screen")
    fits(t, 24, 80)
    frame = t.frame()
    assert frame[7].startswith("trans "), frame
    assert "select_00_" in frame[7] and "reduced" in frame[7], frame
    assert not t.mode() & termios.ICANON and not t.mode() & termios.ECHO

    t.type(b"j\033[B")
    t.until_line("^3-18 of 40", "down")
    t.type(b"\033[6~")
    t.until_line("^17-32 of 40", "page down")
    t.type(b" " * 20)
    t.until_line("^40-40 of 40", "no further than the last")
    t.type(b"g")
    t.until_line("^1-16 of 40", "the beginning")
    # Names can be seen whole: on lines of their own, and by scrolling.
    t.type(b"w")
    t.until_line("_\u00e9nd00$", "whole names")
    fits(t, 24, 80)
    joined = "".join(line.strip() for line in t.frame()[7:])
    assert NAMES[0] in joined, joined
    t.type(b"w" + b"\033[C" * 7)
    t.until(lambda: t.frame()[7].endswith(" nd00"), "the end of a name")
    fits(t, 24, 80)

    t.resize(40, 200)
    t.until(lambda: len(t.frame()) == 40, "a larger screen")
    fits(t, 40, 200)
    t.type(b"g")
    t.until(lambda: t.frame()[7].endswith(NAMES[0]), "all of a name")
    for rows, columns in ((10, 50), (3, 20), (1, 5), (24, 80)):
        t.resize(rows, columns)
        t.until(lambda: len(t.frame()) == rows, f"{columns}x{rows}")
        fits(t, rows, columns)

    # Away, and back.
    server.stop()
    t.until_line("^away, trying again: ", "a server that is away")
    fits(t, 24, 80)
    assert t.frame()[7].startswith("trans "), "what was known is gone"
    server.start()
    t.until_line("^1-16 of 40", "a server that is back")
    # One that hangs: keys work meanwhile.
    server.hangs = True
    asked = server.asked
    t.until(lambda: server.asked > asked, "a question")
    t.pump(0)
    t.type(b"j")
    t.until_line("^2-17 of 40", "a key while the server hangs")
    server.hangs = False

    # Stopped by ^Z: the terminal is as it was, and goes on.
    t.type(b"\032")
    t.until(lambda: os.waitid(os.P_PID, t.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT),
            "stopped")
    assert t.mode() == before, "a stopped one keeps the terminal"
    seen = len(t.seen)
    os.kill(t.pid, signal.SIGCONT)
    t.until(lambda: b"\033[?1049h" in t.seen[seen:], "goes on")
    assert t.seen[:seen].rstrip().endswith(b"\033[?1049l")
    t.type(b"q")
    assert t.end() == 0
    assert t.seen.endswith(b"\033[?25h\033[?1049l"), t.seen[-100:]

    for by in (signal.SIGINT, signal.SIGTERM):
        t = Terminal(server.path, **env)
        t.until_line("of 40", "a screen")
        os.kill(t.pid, by)
        assert t.end() == 0
        assert t.seen.endswith(b"\033[?25h\033[?1049l")


def in_other_locales(server):
    t = Terminal(server.path, TERM="xterm", LC_ALL="C", columns=200)
    t.until_line(r"_\?nd00$", "a locale without such characters")
    fits(t, 24, 200)
    t.type(b"q")
    assert t.end() == 0


def on_a_dumb_terminal(server):
    for env in ({"TERM": "dumb"}, {"TERM": ""}):
        t = Terminal(server.path, **env)
        t.until(lambda: t.seen.count(b"reads/s") >= 4, "two updates")
        assert b"\033" not in t.seen, t.seen
        t.type(b"q")
        assert t.end() == 0


def at_the_start():
    """An error is there to be read when the program has ended."""
    t = Terminal(f"{FOLDER}/nothing", TERM="xterm")
    assert t.end() == 1
    assert b"No such file" in t.seen and b"\033" not in t.seen, t.seen


def in_a_pipe(server):
    p = subprocess.Popen([QUICKMINE, "top", server.path], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env={**os.environ,
                                                                 "LC_ALL": "C.UTF-8"})
    lines = []
    while sum("prefetches/s" in line for line in lines) < 2:
        lines.append(p.stdout.readline())
        assert lines[-1], lines
    assert not any("\033" in line for line in lines)
    assert any(line.endswith(NAMES[39] + "\n") for line in lines), lines
    server.stop()
    assert "away, trying again" in p.stderr.readline()
    server.start()
    assert "the server is back" in p.stderr.readline()
    while "prefetches/s" not in p.stdout.readline():
        pass
    # A reader that has had enough ends it.
    p.stdout.close()
    assert p.wait(WAIT) == -signal.SIGPIPE
    p.stderr.close()

    # With --count it ends, also if the server never comes back.
    server.leaves = True
    p = subprocess.Popen([QUICKMINE, "top", "-n", "3", "--json", server.path], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert json.loads(p.stdout.readline())["policy"] == "ppm"
    out, err = p.communicate(timeout=WAIT)
    assert p.returncode == 1 and err.count("\n") == 1, (p.returncode, out, err)
    assert "away, trying again" in err


def where_nothing_is_prefetched(server):
    for policy, why in (("none", "policy none does not prefetch"), ("seq", "prefetching=off")):
        server.fields = {"policy": policy, "prefetching": False}
        p = subprocess.run([QUICKMINE, "top", "-n", "1", server.path], text=True,
                           stdout=subprocess.PIPE, timeout=WAIT)
        assert f"\nprefetches/s none: {why}\n" in p.stdout, p.stdout
    server.fields = {}


def after_a_restart(server):
    """One that was started anew counts from 0: no rate of what it never did."""
    server.started -= 1000
    p = subprocess.Popen([QUICKMINE, "top", "--json", server.path], text=True,
                         stdout=subprocess.PIPE)
    assert json.loads(p.stdout.readline())["uptime_us"] > 1e9
    p.terminate()
    assert p.wait(WAIT) == 0
    p.stdout.close()
    # Also where it has run for longer, when it is asked again, than it had before.
    server.script = [{"uptime_us": 200000, "reads": 500}, {"uptime_us": 600000, "reads": 600}]
    p = subprocess.run([QUICKMINE, "top", "-n", "2", server.path], text=True,
                       stdout=subprocess.PIPE, timeout=WAIT)
    rates = re.findall(r"^reads/s +([0-9.]+)", p.stdout, re.M)
    assert rates == ["2500", "1000"], rates
    server.fields = {}


server = Server("top.stats")
on_a_screen(server)
in_other_locales(server)
on_a_dumb_terminal(server)
at_the_start()
where_nothing_is_prefetched(server)
after_a_restart(server)
in_a_pipe(server)
print("ok: top")
