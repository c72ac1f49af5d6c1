# SPDX-License-Identifier: BSD-3-Clause
"""check - whether a page holds what was run.

Usage: check.py DOM DIR PAPER

DOM is the page as a browser wrote it out, DIR the comparison's directory, PAPER the
paper's figures.  Each cell that says where its figure comes from is looked up there, and
what it shows is read as people read it; some that are computed are computed again.
"""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

SECTIONS = ["summary", "reading", "kinds", "load", "characterization", "tpcw", "rubis", "tpcc",
            "prefetches", "rules", "shift", "memory", "ablation", "beyond"]
CHARTS = {"kinds": 1, "load": 6, "characterization": 1, "tpcw": 6, "rubis": 6, "tpcc": 6,
          "prefetches": 6, "rules": 3, "shift": 1, "memory": 0, "ablation": 0, "beyond": 12}
SCALE = {"percent": 100, "us": 0.001, "mib": 1 / (1 << 20)}


def fail(text):
    sys.exit(f"check: {text}")


class Page(HTMLParser):
    """Sections with their charts and tables; every attribute and style for outer
    references."""

    def __init__(self):
        super().__init__()
        self.section, self.table, self.cell = None, None, None
        self.charts, self.bars, self.tables = {}, {}, {}
        self.references, self.styles, self.ids, self.in_style = [], [], [], False
        self.tags = set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.add(tag)
        for name, value in attrs.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
                self.references.append(value)
            if name == "style":
                self.styles.append(value)
            if name == "id":
                self.ids.append(value)
        self.in_style = tag == "style"
        if tag == "section":
            self.section = attrs["id"]
            self.charts[self.section], self.bars[self.section] = 0, 0
        elif tag == "svg":
            self.charts[self.section] += 1
        elif tag == "path" and self.section:
            self.bars[self.section] += 1
        elif tag == "table":
            self.table = self.tables.setdefault(attrs["id"].removeprefix("table-"), [])
        elif tag == "tr":
            self.table.append([])
        elif tag in ("td", "th"):
            self.cell = {"text": "", **attrs}
            self.table[-1].append(self.cell)

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None
        if tag == "style":
            self.in_style = False

    def handle_data(self, data):
        if self.in_style:
            self.styles.append(data)
        if self.cell is not None:
            self.cell["text"] += data


def look_up(directory, paper, source):
    name, path = source.split("#")
    if name == "paper":
        value = paper
    elif name.startswith("recordings/"):
        value = json.loads((directory / f"{name}.json").read_text())
    else:
        value = json.loads((directory / "runs" / f"{name}.json").read_text())["result"]
    for step in path.split("."):
        value = value[int(step) if isinstance(value, list) else step]
    return value


def shown(cell):
    """What a reader takes the cell for, and how exactly it is said."""
    number = re.match(r"-?[\d,]+(?:\.(\d+))?", cell["text"].strip())
    if not number:
        fail(f"no number: {cell}")
    return float(number[0].replace(",", "")), 10 ** -len(number[1] or "")


def check_cells(page, directory, paper):
    looked_up = 0
    for name, rows in page.tables.items():
        for row in rows:
            for cell in row:
                if "data-value" not in cell:
                    continue
                value = float(cell["data-value"])
                number, precision = shown(cell)
                scale = SCALE.get(cell["data-unit"], 1)
                if abs(number - value * scale) > 0.51 * precision:
                    fail(f"{name} shows {cell['text']} for {value}")
                if "data-from" in cell:
                    there = look_up(directory, paper, cell["data-from"])
                    if there != value:
                        fail(f"{name}: {value}, but {cell['data-from']} has {there}")
                    looked_up += 1
    if looked_up < 500:
        fail(f"only {looked_up} figures say where they come from")
    return looked_up


def column(rows, title):
    titles = [cell["text"] for cell in rows[0]]
    if title not in titles:
        fail(f"no column {title} in {titles}")
    return titles.index(title)


POLICIES = {"LRU": ("none", "paper"), "SEQ": ("seq", "paper"), "RUN": ("run", "paper"),
            "AMP": ("amp", "paper"), "Mithril": ("mithril", "paper"),
            "C-Miner*": ("cminer", "paper"), "QuickMine, paper": ("quickmine", "paper"),
            "QuickMine, associations": ("ppm", None), "QuickMine, defaults": ("auto", None),
            "perfect knowledge": ("perfect", "paper")}
PARTS = {"tpcw": (80, 40, 20), "rubis": (80, 40, 20), "tpcc": (120, 60, 30)}


def check_run(directory, workload, index, policy, cell):
    """The row's figures are of a simulation of its policy at its cache size."""
    key, path = cell["data-from"].split("#")
    run = json.loads((directory / "runs" / f"{key}.json").read_text())
    result = run["result"][int(path.split(".")[0])]
    about = json.loads((directory / "recordings" / f"{workload}-10.json").read_text())
    size = about["database_bytes"] // PARTS[workload][index] // 16384 * 16384
    if (result["policy"], result["preset"]) != POLICIES[policy] or result["cache_size"] != size:
        fail(f"{workload}, {policy}, cache {index}: {result}")


def check_computed(page, directory):
    """The reduction of misses, the shares, and that rows are of what they say."""
    for workload in ("tpcw", "rubis", "tpcc"):
        for index in range(3):
            rows = page.tables[f"{workload}-outcomes-{index}"]
            missed, fewer = column(rows, "blocks missed"), column(rows, "fewer than LRU")
            parts = [column(rows, t) for t in ("hits", "prefetch hits", "misses")]
            policies = [row[0]["text"] for row in rows[1:]]
            if policies != list(POLICIES):
                fail(f"{workload}: {policies}")
            lru = float(rows[1][missed]["data-value"])
            for row in rows[1:]:
                check_run(directory, workload, index, row[0]["text"], row[missed])
                if abs(sum(float(row[p]["data-value"]) for p in parts) - 1) > 1e-9:
                    fail(f"{workload}: the parts are not the whole")
                if row is not rows[1]:
                    want = 1 - float(row[missed]["data-value"]) / lru
                    if abs(float(row[fewer]["data-value"]) - want) > 1e-12:
                        fail(f"{workload}: {row[fewer]['text']} fewer, not {want}")
            live = page.tables[f"{workload}-latency-{index}"]
            if len(live) < (10 if index == 0 else 4):
                fail(f"{workload}: {len(live) - 1} policies live")


def run_of(directory, cell):
    """The command and the result that a cell's figure is from."""
    key, path = cell["data-from"].split("#")
    run = json.loads((directory / "runs" / f"{key}.json").read_text())
    return run["command"], run["result"][int(path.split(".")[0])]


def check_memory(page, directory):
    """The plain caches have as much as QuickMine takes in all, but for a part of a block."""
    rows = page.tables["equal-memory"]
    if len(rows) != 1 + 3 * 3 * 2:
        fail(f"equal-memory has {len(rows)} rows")
    total, misses = column(rows, "total memory"), column(rows, "misses")
    for row in rows[1:]:
        _, ours = run_of(directory, row[misses])
        there = float(row[total]["data-value"])
        if there != (ours["cache_blocks"] * ours["block_size"] + ours["metadata_bytes"]
                     + ours["rules_bytes"]):
            fail(f"equal-memory: {there} is not the sum for {ours}")
        for title, eviction in (("LRU's misses", "lru"), ("W-TinyLFU's misses", "wtinylfu")):
            _, plain = run_of(directory, row[column(rows, title)])
            if (plain["policy"], plain["eviction"]) != ("none", eviction) \
                    or not there - 16384 < plain["cache_size"] <= there \
                    or plain["total_bytes"] > there:
                fail(f"equal-memory: {there}, but {plain}")


def check_ablation(page, directory):
    """Each row is of a run without its idea, and that is what it is compared with."""
    rows = page.tables["ablation"]
    misses, option = column(rows, "misses"), column(rows, "option")
    more = column(rows, "misses more than the defaults")
    base = None
    for row in rows[1:]:
        command, run = run_of(directory, row[misses])
        options = row[option]["text"].split()
        if run["policy"] != "auto" or run["preset"] or any(
                word not in command for word in options):
            fail(f"ablation: {row[option]['text']} by {command}")
        if not options:
            base = run
        elif abs(float(row[more]["data-value"]) - (run["misses"] / base["misses"] - 1)) > 1e-9 \
                or run["cache_size"] != base["cache_size"]:
            fail(f"ablation: {row} against {base}")
    if len({row[option]["text"] for row in rows[1:]}) * 9 != len(rows) - 1:
        fail(f"ablation has {len(rows)} rows")


def check_files(page, directory):
    """The TSVs have the same figures, and the Markdown the same text."""
    for name, rows in page.tables.items():
        lines = (directory / "tsv" / f"{name}.tsv").read_text().splitlines()
        if len(lines) != len(rows):
            fail(f"{name}.tsv has {len(lines)} lines")
        for line, row in zip(lines, rows):
            for field, cell in zip(line.split("\t"), row):
                if "data-value" in cell and field != cell["data-value"]:
                    fail(f"{name}.tsv has {field} for {cell['data-value']}")
    text = (directory / "report.md").read_text()
    for row in page.tables["miss-rates"][1:]:
        line = "| " + " | ".join(cell["text"] for cell in row) + " |"
        if line not in text:
            fail(f"report.md lacks {line}")
    if len(page.tables["miss-rates"]) != 10:
        fail("not all workloads at all sizes")


def main():
    dom, directory, paper = sys.argv[1:]
    text = Path(dom).read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    if list(page.charts) != SECTIONS:
        fail(f"sections: {list(page.charts)}")
    for section, count in CHARTS.items():
        if page.charts[section] != count or page.bars[section] < 5 * count:
            fail(f"{section}: {page.charts[section]} charts, {page.bars[section]} paths")
    outer = [r for r in page.references if not r.startswith("#")]
    outer += re.findall(r"url\((?!#)[^)]*\)|@import", " ".join(page.styles))
    if outer or page.tags & {"script", "link", "img", "iframe", "object"}:
        fail(f"not self-contained: {outer[:5]} {page.tags}")
    if address := re.search(r".{0,60}https?:.{0,60}", text):
        fail(f"there is an address in the page: {address[0]}")
    targets = set(page.ids)
    if len(targets) != len(page.ids):
        fail("an id is there twice")
    lost = [r for r in page.references if r[1:] not in targets]
    lost += [r for r in re.findall(r"url\(#([^)]+)\)", text) if r not in targets]
    if lost:
        fail(f"nothing has the id of {lost[:5]}")
    looked_up = check_cells(page, Path(directory), json.loads(Path(paper).read_text()))
    check_computed(page, Path(directory))
    check_memory(page, Path(directory))
    check_ablation(page, Path(directory))
    check_files(page, Path(directory))
    for words in ("The cache that stands for", "What can be learned", "The bound", "Room:",
                  "The machine: replies came later"):
        if text.count(words) < 3:
            fail(f"nothing says: {words}")
    if "failed" in page.tables:
        fail("something could not be run")
    print(f"{looked_up} figures looked up, {sum(page.charts.values())} charts", file=sys.stderr)


main()
