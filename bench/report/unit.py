# SPDX-License-Identifier: BSD-3-Clause
"""unit - a piece of work: a command whose standard output is one JSON document.

A unit's key is a hash of all that its result depends on: the arguments, the content of
the programs and recordings among them, and the keys of the units whose output it reads.
So a result that is there need not be made again, and one made by another binary, or of
another recording, is never taken for it.
"""

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path


@functools.cache
def digest(path):
    """Of a file's content; what is not there is found out by who runs it."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class File:
    """An argument: a program, a script or a recording, known by its content."""

    path: Path

    def identity(self):
        return {"file": digest(self.path)}


@dataclass(frozen=True)
class Output:
    """An argument: where the unit's own output file goes.  What it ends in may say what
    it holds (.zst)."""

    suffix: str

    def identity(self):
        return {"output": self.suffix}


@dataclass(frozen=True)
class Prefixed:
    """An argument NAME=FILE."""

    prefix: str
    argument: object

    def identity(self):
        return [self.prefix, identity(self.argument)]


@dataclass(frozen=True)
class Unit:
    """label says to people what it does; argv's elements are strings or one of the above,
    or a Unit: the path of its output.  depends: further files that the result hangs on."""

    label: str
    argv: tuple
    depends: tuple = field(default=())

    def identity(self):
        return {"unit": self.key}

    @functools.cached_property
    def key(self):
        what = [identity(a) for a in self.argv] + [identity(d) for d in self.depends]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]

    @property
    def suffix(self):
        """Of its output file; None if it has none."""
        for argument in self.argv:
            if isinstance(argument, Output):
                return argument.suffix
        return None

    def inputs(self):
        """The units that must have been run before."""
        for argument in (*self.argv, *self.depends):
            if isinstance(argument, Prefixed):
                argument = argument.argument
            if isinstance(argument, Unit):
                yield argument


def identity(argument):
    return argument if isinstance(argument, str) else argument.identity()
