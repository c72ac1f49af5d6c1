# SPDX-License-Identifier: BSD-3-Clause
"""page - the report as one HTML file, as Markdown, and its tables as TSV."""

from pathlib import Path

import jinja2

from report.book import Number, Words
from report.model import Chart, Charts, Table, Text
from report.units import write

HERE = Path(__file__).resolve().parent


def plain(cell):
    """A cell as it is shown."""
    match cell:
        case None:
            return "–"
        case Number(value, unit):
            return write(value, unit)
    return str(cell)


def raw(cell):
    """A cell as others read it: without rounding and units."""
    if cell is None:
        return ""
    if isinstance(cell, Number):
        return repr(cell.value)
    return str(cell).replace("\t", " ").replace("\n", " ")


def tsv(table):
    rows = [table.columns, *table.rows]
    return "".join("\t".join(raw(cell) for cell in row) + "\n" for row in rows)


def kind(block):
    return {Chart: "chart", Charts: "charts", Table: "table", Text: "text"}[type(block)]


def html(title, sections):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    environment.tests["figure"] = lambda cell: isinstance(cell, (Number, Words))
    environment.filters |= {"plain": plain, "raw": raw, "kind": kind}
    return environment.get_template("page.html").render(title=title, sections=sections)


def markdown_table(table):
    columns = [str(c) for c in table.columns]
    numeric = [any(isinstance(row[i], (Number, Words)) for row in table.rows)
               for i in range(len(columns))]
    lines = [columns, ["---:" if n else "---" for n in numeric]]
    lines += [[plain(cell).replace("|", "\\|") for cell in row] for row in table.rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def markdown(tables):
    return "\n".join(f"{table.caption}\n\n{markdown_table(table)}" for table in tables)
