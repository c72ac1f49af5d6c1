# SPDX-License-Identifier: BSD-3-Clause
"""paper - what the paper reports, as data (paper.json)."""

import json
from pathlib import Path

from report.book import Number, Words

DATA = json.loads((Path(__file__).resolve().parent / "paper.json").read_text("utf-8"))


def find(what, **fields):
    """The entry with these fields, None if the paper does not say."""
    for entry in DATA[what]:
        if all(entry[key] == value for key, value in fields.items()):
            return entry
    return None


def number(what, unit, field="value", **fields):
    """Its value as a Number; what it says in words if that is all; or None."""
    entry = find(what, **fields)
    if entry is None:
        return None
    if entry[field] is None:
        return Words(entry["text"]) if "text" in entry else None
    return Number(entry[field], unit, f"paper#{what}.{DATA[what].index(entry)}.{field}")


def where(what, **fields):
    entry = find(what, **fields)
    return entry["where"] if entry else None
