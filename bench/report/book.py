# SPDX-License-Identifier: BSD-3-Clause
"""book - what has been asked for, and what is known.

The sections of the report ask the book for the results of units.  What is not known yet
is noted as wanted, and None; when the wanted units have been run, the sections are asked
again, and may want more, until nothing is wanted.  So there is one place that says what is
run and what is shown.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A figure and where it comes from: a run's key and the path in its document, or None
    for one that is computed from others.  unit says how it is shown: page.py."""

    value: float
    unit: str
    source: str | None = None

    def __bool__(self):
        return True


class Words(str):
    """What stands in a figure's place, such as "< 500 k"."""


class Run:
    """The result of a unit; or of one of the runs in it (part: its index)."""

    def __init__(self, unit, document, part=None):
        self.unit, self.document, self.part = unit, document, part

    @property
    def result(self):
        result = self.document["result"]
        return result if self.part is None else result[self.part]

    def get(self, path):
        """The value at a dotted path, None if it is not there."""
        value = self.result
        for step in path.split("."):
            try:
                value = value[int(step) if isinstance(value, list) else step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return value

    def number(self, path, unit):
        value = self.get(path)
        if value is None:
            return None
        prefix = "" if self.part is None else f"{self.part}."
        return Number(value, unit, f"{self.unit.key}#{prefix}{path}")

    def find(self, **fields):
        """In an array of runs, the one with these fields; None matches anything."""
        for index, item in enumerate(self.document["result"]):
            if all(item.get(key) == value for key, value in fields.items() if value is not None):
                return Run(self.unit, self.document, index)
        return None


def computed(unit, function, *numbers):
    """function of the numbers' values; None if one is missing, or it divides by 0."""
    if any(n is None for n in numbers):
        return None
    try:
        return Number(function(*(n.value for n in numbers)), unit)
    except ZeroDivisionError:
        return None


class Book:
    def __init__(self, store):
        self.store = store
        self.known = {}  # key: Run
        self.failed = {}  # key: (Unit, what it said)
        self.wanted = {}  # key: Unit, in the order in which they can be run

    def ask(self, unit):
        """The unit's Run; None if it is not known (yet), and then it is wanted."""
        run = self.known.get(unit.key)
        if run:
            return run
        if unit.key in self.failed or unit.key in self.wanted:
            return None
        document = self.store.load(unit)
        if document is not None:
            self.known[unit.key] = Run(unit, document)
            return self.known[unit.key]
        for before in unit.inputs():
            self.ask(before)
            if before.key in self.failed:
                self.failed[unit.key] = (unit, f"needs: {before.label}")
                return None
        self.wanted[unit.key] = unit
        return None
