# SPDX-License-Identifier: BSD-3-Clause
"""store - the directory that a comparison lives in.

    recordings/   the traces, each with what it was recorded of (NAME.json)
    runs/         a JSON file a unit of work, named after its key
    derived/      files that units make: cut traces, trained rules
    tsv/, report.html, report.md

A file appears under its name when it is whole: what is interrupted leaves nothing but a
file in tmp/, which the next start removes.
"""

import fcntl
import json
import os
import shutil
from pathlib import Path

from report.unit import File, Output, Prefixed, Unit


class Busy(Exception):
    """Another comparison works in the directory."""


class Store:
    def __init__(self, directory):
        self.path = Path(directory)
        for name in ("recordings", "runs", "derived", "tsv"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path / ".lock", "w", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy() from error
        self.tmp = self.path / "tmp"
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir()

    def recording(self, name):
        return self.path / "recordings" / f"{name}.trace.zst"

    def output(self, unit):
        return self.path / "derived" / f"{unit.key}{unit.suffix}"

    def argv(self, unit, output):
        """The command line, for the unit's output file being as given."""

        def text(argument):
            match argument:
                case str():
                    return argument
                case File(path):
                    return str(path)
                case Output():
                    return str(output)
                case Prefixed(prefix, inner):
                    return prefix + text(inner)
                case Unit():
                    return str(self.output(argument))
            raise TypeError(argument)

        return [text(a) for a in unit.argv]

    def load(self, unit):
        """The run file's document, or None: it has to be run."""
        try:
            text = (self.path / "runs" / f"{unit.key}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        if unit.suffix is not None and not self.output(unit).exists():
            return None
        return json.loads(text)

    def save(self, unit, document):
        self.write(f"runs/{unit.key}.json", json.dumps(document, indent=1) + "\n")

    def write(self, name, text):
        """Writes a file as a whole or not at all."""
        temporary = self.tmp / "whole"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path / name)
