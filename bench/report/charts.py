# SPDX-License-Identifier: BSD-3-Clause
"""charts - drawings as inline SVG.

matplotlib draws; what comes out is then made part of a page: its text is text, black and
white are the page's own colours (so that it can be read on light and on dark), and its
ids are the chart's.  Colours are of Okabe and Ito's set, which can be told apart with any
colour vision; a policy has the same one everywhere, and each mark has its figure beside
it.
"""

import functools
import io
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

# Placeholders, which theme() gives to the page.
INK, PAPER, GRID, SOFT = "#010101", "#fefefe", "#dddddc", "#666665"
BLUE, RUST, GREEN = "#0072b2", "#a03000", "#008a66"  # lighter on dark
THEME = {INK: "var(--ink)", PAPER: "var(--paper)", GRID: "var(--grid)", SOFT: "var(--soft)",
         BLUE: "var(--blue)", RUST: "var(--rust)", GREEN: "var(--green)"}

POLICY = {
    "none": "#8a8a8a",
    "seq": "#56b4e9",
    "run": BLUE,
    "amp": GREEN,
    "mithril": "#cc79a7",
    "cminer": "#e69f00",
    "cminer+": "#b0a000",
    "quickmine": "#d55e00",
    "ppm": "#f0a878",
    "defaults": RUST,
    "perfect": SOFT,
}
HIT, PREFETCH_HIT, MISS = "#4a5568", "#7fb2e5", PAPER
WORKLOAD = {"tpcw": BLUE, "rubis": "#d55e00", "tpcc": GREEN}

matplotlib.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "quickmine",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": SOFT,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
})


def svg(figure, name, title):
    """The figure as an element of a page; it is closed."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\s(?:xmlns(?::xlink)?|version)="[^"]*"', "", text)
    text = re.sub(r'<svg ', f'<svg role="img" aria-label="{title}" ', text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="([\d.]+)pt"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) width="([\d.]+)pt"',
                  lambda m: f'{m[1]} style="max-width:{float(m[2]) * 4 / 3:.0f}px"', text,
                  count=1)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'xlink:href="#', f'href="#{name}-', text)
    # In attributes and in style properties alike, so a property is what it must be.
    text = re.sub(r'\b(fill|stroke)="(#\w+)"', r'style="\1: \2"', text)
    for name_in_page, colour in THEME.items():
        text = text.replace(name_in_page, colour)
    return text


def standalone(element):
    """A chart of the page as a file, on white: what the page says of colours is said in it."""
    light = {"--ink": "#1b1f24", "--paper": "#ffffff", "--grid": "#d8dbdf", "--soft": "#636c76",
             "--blue": BLUE, "--rust": RUST, "--green": GREEN}
    for name, colour in light.items():
        element = element.replace(f"var({name})", colour)
    element = re.sub(r' style="max-width:[^"]*"', "", element, count=1)
    return element.replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" style="background:#ffffff" ', 1)


def drawing(function):
    """What makes a chart is called when it is shown, not when it is planned."""
    @functools.wraps(function)
    def later(*arguments, **options):
        return functools.partial(function, *arguments, **options)
    return later


def legend_above(figure, handles, labels):
    """In a line of its own above everything."""
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.3 / figure.get_figheight()))
    figure.legend(handles, labels, loc="upper left", ncol=4, handlelength=1.4,
                  columnspacing=1.2, borderaxespad=0.2)


def rows_figure(rows, width=4.4, extra=0.75):
    return plt.subplots(figsize=(width, 0.31 * rows + extra), layout="constrained")


def percent_axis(axes):
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f} %"))


@drawing
def outcomes(name, title, rows):
    """How reads ended.  rows: (label, hits, prefetch hits, misses, paper's misses or None),
    shares of 1, the first on top."""
    figure, axes = rows_figure(len(rows), extra=0.95)
    for y, (_, hits, prefetched, misses, paper) in enumerate(rows):
        left = 0
        for share, colour, hatch, edge in (
                (hits, HIT, None, HIT), (prefetched, PREFETCH_HIT, "////", HIT),
                (misses, MISS, None, HIT)):
            axes.barh(y, 100 * share, left=100 * left, height=0.68, color=colour,
                      hatch=hatch, edgecolor=edge, linewidth=0.6)
            left += share
        axes.text(101.5, y, f"{100 * misses:.1f} %", va="center", fontsize=8.5)
        if paper is not None:
            axes.plot([100 - 100 * paper] * 2, [y - 0.44, y + 0.44], color="#d55e00",
                      linewidth=2.4, solid_capstyle="butt")
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("of blocks read; the figures: misses")
    axes.tick_params(axis="y", length=0)
    percent_axis(axes)
    handles = [
        plt.Rectangle((0, 0), 1, 1, facecolor=HIT, edgecolor=HIT),
        plt.Rectangle((0, 0), 1, 1, facecolor=PREFETCH_HIT, edgecolor=HIT, hatch="////"),
        plt.Rectangle((0, 0), 1, 1, facecolor=MISS, edgecolor=HIT)]
    labels = ["hit", "prefetch hit", "miss"]
    if any(row[4] is not None for row in rows):
        handles.append(plt.Line2D([], [], color="#d55e00", linewidth=2.4))
        labels.append("paper: misses begin")
    legend_above(figure, handles, labels)
    return svg(figure, name, title)


@drawing
def bars(name, title, rows, axis, write, paper=""):
    """A bar a policy.  rows: (label, colour, value, (least, most) or None, the paper's
    value or None); axis: what is shown, with its unit; write: a value as text."""
    figure, axes = rows_figure(len(rows), extra=0.95 if paper else 0.7)
    most = max([max(row[2], row[3][1] if row[3] else 0, row[4] or 0) for row in rows] or [0])
    most = most or 1
    for y, (_, colour, value, spread, reported) in enumerate(rows):
        axes.barh(y, value, height=0.68, color=colour)
        end = value
        if spread:
            axes.errorbar((spread[0] + spread[1]) / 2, y, xerr=(spread[1] - spread[0]) / 2,
                          color=INK, linewidth=1.1, capsize=2.5)
            end = max(end, spread[1])
        if reported is not None:
            axes.plot([reported] * 2, [y - 0.44, y + 0.44], color=INK, linewidth=2.4,
                      solid_capstyle="butt")
            if reported < end * 1.25:
                end = max(end, reported)
        axes.text(end + 0.015 * most, y, write(value), va="center", fontsize=8.5)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.17)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    axes.set_xlabel(axis)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if paper and any(row[4] is not None for row in rows):
        legend_above(figure, [plt.Line2D([], [], color=INK, linewidth=2.4)], [paper])
    return svg(figure, name, title)


@drawing
def compared(name, title, rows, axis):
    """Some marks a row.  rows: (label, {mark: share of 1}), the marks alike in all."""
    figure, axes = rows_figure(len(rows), width=7.2, extra=0.95)
    looks = [("o", SOFT), ("D", BLUE), ("s", RUST)]
    marks = list(rows[0][1]) if rows else []
    for y, (_, values) in enumerate(rows):
        shares = [100 * v for v in values.values()]
        axes.plot([min(shares), max(shares)], [y, y], color=GRID, linewidth=2, zorder=1)
    handles = [axes.plot([100 * values[mark] for _, values in rows], range(len(rows)), shape,
                         color=colour, markersize=6, linestyle="none")[0]
               for mark, (shape, colour) in zip(marks, looks)]
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel(axis)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    percent_axis(axes)
    legend_above(figure, handles, marks)
    return svg(figure, name, title)


@drawing
def lines(name, title, series, xlabel, ylabel, xticks=None, marks=()):
    """series: (label, colour, style, [(x, y)]); each is named at its end.  marks: (x,
    text) of vertical lines."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    ends = []
    for label, colour, style, points in series:
        if not points:
            continue
        xs, ys = zip(*points)
        axes.plot(xs, ys, style, color=colour, linewidth=1.8, markersize=5,
                  markerfacecolor=PAPER if style.startswith("D") else colour)
        ends.append([ys[-1], xs[-1], label, colour])
    for x, text in marks:
        axes.axvline(x, color=SOFT, linewidth=0.9, linestyle=":")
        axes.annotate(text, (x, 1), xycoords=("data", "axes fraction"), xytext=(3, -3),
                      textcoords="offset points", va="top", fontsize=8, color=SOFT)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    if xticks:
        axes.set_xticks(xticks)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    axes.grid(axis="y")
    # Labels at the ends, moved apart.
    gap = axes.get_ylim()[1] * 0.065
    ends.sort()
    at = None
    for end in ends:
        at = end[0] if at is None else max(end[0], at + gap)
        axes.annotate(end[2], (end[1], at), xytext=(8, 0), textcoords="offset points",
                      va="center", fontsize=8.5, color=end[3], annotation_clip=False)
    return svg(figure, name, title)
