# SPDX-License-Identifier: BSD-3-Clause
"""model - what a report consists of; page.py shows it."""

from dataclasses import dataclass, field


@dataclass
class Table:
    """rows: of strings, Numbers (book.py) or None.  name: of its TSV."""

    name: str
    caption: str
    columns: list
    rows: list


@dataclass
class Chart:
    """draw: makes the SVG (charts.py)."""

    draw: object
    caption: str


@dataclass
class Text:
    """Paragraphs; of a kind that is shown: '', or 'why' for where and why we differ."""

    paragraphs: list
    kind: str = ""


@dataclass
class Charts:
    """Some that stand beside each other where there is room."""

    charts: list


@dataclass
class Section:
    name: str
    title: str
    blocks: list = field(default_factory=list)

    def add(self, *blocks):
        self.blocks += blocks
        return self

    def text(self, *paragraphs, kind=""):
        paragraphs = [p for p in paragraphs if p]
        if paragraphs:
            self.add(Text(paragraphs, kind))
        return self
