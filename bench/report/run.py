# SPDX-License-Identifier: BSD-3-Clause
"""run - carries out units of work, one after the other."""

import json
import os
import signal
import subprocess
import sys
import time

from report.unit import Unit


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class Runner:
    def __init__(self, store):
        self.store = store
        self.began = time.monotonic()

    def say(self, text):
        seconds = int(time.monotonic() - self.began)
        print(f"{seconds // 60:4d}:{seconds % 60:02d}  {text}", file=sys.stderr, flush=True)

    def run(self, unit: Unit):
        """Returns None, or what went wrong."""
        output = self.store.tmp / f"{unit.key}{unit.suffix or ''}"
        errors = self.store.tmp / "stderr"
        argv = self.store.argv(unit, output)
        load = os.getloadavg()[0]
        start = time.time()
        with open(errors, "wb") as stderr:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
            try:
                stdout, _ = process.communicate()
            except BaseException:
                process.send_signal(signal.SIGTERM)
                process.wait()
                raise
        if process.returncode != 0:
            said = errors.read_text(encoding="utf-8", errors="replace")
            output.unlink(missing_ok=True)
            return last_line(said)
        try:
            result = json.loads(stdout) if stdout.strip() else None
        except ValueError:
            return f"not a JSON document: {stdout[:60]!r}"
        if unit.suffix is not None:
            try:
                os.replace(output, self.store.output(unit))
            except FileNotFoundError:
                return "it made no file"
        self.store.save(unit, {
            "key": unit.key,
            "label": unit.label,
            "command": self.store.argv(
                unit, self.store.output(unit) if unit.suffix is not None else None),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)),
            "seconds": round(time.time() - start, 3),
            "load_before": round(load, 2),
            "result": result,
        })
        return None
