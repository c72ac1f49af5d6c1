#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""live - replays a trace against servers that differ in their policy only.

Usage: live.py --quickmine FILE --filter FILE --device-filter FILE --size BYTES
               --clients N [--writes] --device PARAMETER... --warm TRACE
               --segment TRACE... --server NAME PARAMETER...

Starts nbdkit once for each --server: our filter with the given parameters, over the
device model with those of --device, over nbdkit's null plugin of SIZE bytes (what is
read does not matter here, only when it comes).  Each server gets the requests of WARM
while its device is fast.  Then the devices get their service times, and the servers get
the first segment, one server after the other, then the second, and so on, the order
being turned around each time: what disturbs the machine for a while disturbs all of
them.

Prints a JSON object: for each server its name, what the replay of WARM said, what that of
each segment did, and what the device model counted.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_SECONDS = 20


class Trouble(Exception):
    """What ends the measurement, as a sentence."""


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("quickmine", "filter", "device-filter", "size", "clients", "warm"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--writes", action="store_true")
    parser.add_argument("--device", nargs="*", default=[])
    parser.add_argument("--segment", nargs="+", required=True)
    parser.add_argument("--server", nargs="+", action="append", required=True)
    return parser.parse_args()


class Server:
    def __init__(self, args, directory, number, spec):
        self.args, (self.name, *parameters) = args, spec
        self.socket = directory / f"{number}.sock"
        self.slow = directory / f"{number}.slow"
        self.log = directory / f"{number}.log"
        self.statistics = directory / f"{number}.json"
        # jemalloc, as the manual recommends.
        environment = os.environ | {"LD_PRELOAD": "libjemalloc.so.2"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["nbdkit", "-f", "--exit-with-parent", "-U", self.socket,
                 "--filter", args.filter, "--filter", args.device_filter,
                 "null", f"size={args.size}", *args.device, f"device-file={self.slow}",
                 f"device-stats={self.statistics}", *parameters],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                env=environment)

    def said(self):
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def wait(self):
        until = time.monotonic() + START_SECONDS
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise Trouble(f"{self.name}: nbdkit does not start: {self.said()}")
            time.sleep(0.02)

    def replay(self, trace):
        replay = subprocess.run(
            [self.args.quickmine, "replay", trace, "--json", "--clients", self.args.clients,
             "--uri", f"nbd+unix:///?socket={self.socket}",
             *(["--writes"] if self.args.writes else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, check=False)
        if replay.returncode:
            raise Trouble(f"{self.name}: {replay.stderr.strip() or 'the replay failed'}")
        return json.loads(replay.stdout)

    def stop(self):
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(args, directory, stack):
    servers = []
    for number, spec in enumerate(args.server):
        servers.append(Server(args, directory, number, spec))
        stack.callback(servers[-1].stop)
    for server in servers:
        server.wait()
    results = {server: {"name": server.name, "warm": server.replay(args.warm),
                        "segments": []} for server in servers}
    for server in servers:
        server.slow.touch()
    for index, segment in enumerate(args.segment):
        for server in servers if index % 2 == 0 else reversed(servers):
            results[server]["segments"].append(server.replay(segment))
    for server in servers:
        server.stop()
        results[server]["device"] = json.loads(server.statistics.read_text("utf-8"))
    return {"servers": list(results.values()), "load": os.getloadavg()[0]}


def main():
    args = arguments()

    def ended(number, _):
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ended)
    try:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="quickmine."))
            result = measure(args, Path(directory), stack)
    except Trouble as trouble:
        sys.exit(f"live: {trouble}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
