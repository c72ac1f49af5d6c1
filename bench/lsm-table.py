#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lsm-table - medians of lsm-bench's lines; with --pages, as the tables of bench/results/lsm.md; with
--chart FILE, two runs as curves."""
import collections
import json
import statistics
import sys


FIXED = "off", "stock", "erase", "flush", "selective", "all"  # adaptive chooses among what these do


def table(runs):
    cells = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in sorted(runs, key=lambda run: run["seed"]):
        cell = (run["workload"], run["zipf"], run["scans"], run["cache"] / 1024)
        cells[cell][run["mode"]].append(run)
    for cell, modes in cells.items():
        print("%s, Zipf %.1f, %d %% scans, cache %g MiB" %
              (cell[0], cell[1], 100 * cell[2], cell[3]))
        print("  %-12s %7s %8s %8s %8s %8s %7s %6s" %
              ("mode", "hits %", "misses", "busy", "mean us", "busy us", "worst %", "below"))
        rows = {mode: {key: statistics.median(run[key] for run in list_)
                       for key in ("hit", "misses_per_1000", "busy_misses_per_1000", "mean_us",
                                   "busy_mean_us", "worst_200ms")}
                for mode, list_ in modes.items()}
        best = max((row["hit"] for mode, row in rows.items() if mode in FIXED), default=0)
        for mode, row in rows.items():
            print("  %-12s %7.2f %8.1f %8.1f %8.1f %8.1f %7.2f %6.2f" %
                  (mode, 100 * row["hit"], row["misses_per_1000"], row["busy_misses_per_1000"],
                   row["mean_us"], row["busy_mean_us"], 100 * row["worst_200ms"],
                   100 * (best - row["hit"])))


def label(cell):
    workload, zipf, scans, _ = cell
    if workload == "synthetic":
        return "Zipf %.1f" % zipf + (", %d %% scans" % round(100 * scans) if scans else "")
    return workload


def pages(runs):
    """Rows of the page's tables."""
    cells = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        cell = (run["workload"], run["zipf"], run["scans"], run["cache"] / 1024)
        cells[cell][run["mode"]].append(run)
    order = sorted(cells, key=lambda c: ("synthetic hot commerce messaging day".split().index(c[0]),
                                         c[2], c[1], c[3]))

    def median(cell, mode, key):
        return statistics.median(run[key] for run in cells[cell][mode])
    modes = "stock", "flush", "selective", "all", "incremental", "oracle", "adaptive"
    print("| workload | cache | " + " | ".join(modes) + " | below the best | seeds |")
    print("|---|---:|" + "---:|" * (len(modes) + 2))
    for cell in order:
        rates = [100 * median(cell, mode, "hit") for mode in modes]
        best = max(rates[:4])
        print("| %s | %g MiB | %s | %.2f | %d |" %
              (label(cell), cell[3], " | ".join("%.2f" % rate for rate in rates), best - rates[-1],
               min(len(cells[cell][mode]) for mode in modes)))
    print()
    print("| workload | cache | stock | incremental | adaptive | of stock's | of incremental's | "
          "latency: stock | incremental | adaptive | p95: stock | adaptive | worst 200 ms: stock | "
          "adaptive |")
    print("|---|---:|" + "---:|" * 12)
    for cell in order:
        busy = [median(cell, mode, "busy_misses_per_1000")
                for mode in ("stock", "incremental", "adaptive")]
        times = [median(cell, mode, "busy_mean_us") for mode in ("stock", "incremental", "adaptive")]
        print("| %s | %g MiB | %s | %.2f | %.2f | %s | %.0f us | %.0f us | %.1f %% | %.1f %% |" %
              (label(cell), cell[3], " | ".join("%.1f" % n for n in busy), busy[2] / busy[0],
               busy[2] / busy[1], " | ".join("%.1f us" % n for n in times),
               median(cell, "stock", "busy_p95_us"), median(cell, "adaptive", "busy_p95_us"),
               100 * median(cell, "stock", "worst_200ms"),
               100 * median(cell, "adaptive", "worst_200ms")))


def chart(runs, path):
    """Hit rates of 200 ms as an SVG, and a line of text for each run."""
    width, height, left, top = 760, 300, 50, 30
    colours = ["#e15759", "#4e79a7"]
    longest = max(len(run["series"]) for run in runs)
    low = min(min(run["series"]) for run in runs)
    low = max(0, int(low * 20) / 20 - .05)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" '
           'font-family="sans-serif" font-size="13"><!-- made by bench/lsm -->' %
           (width, height + 60),
           "<title>Hit rate of the block cache through flushes and compactions</title>"]
    for step in range(5):
        value = low + (1 - low) * step / 4
        y = top + height - height * step / 4
        out.append('<path d="M%d %.1fH%d" stroke="currentColor" stroke-opacity=".2"/>'
                   '<text x="8" y="%.1f" fill="currentColor">%.0f %%</text>' %
                   (left, y, width, y + 4, 100 * value))
    for run, colour in zip(runs, colours):
        points = " ".join("%.1f,%.1f" % (
            left + (width - left) * i / max(1, longest - 1),
            top + height * (1 - (value - low) / (1 - low)))
            for i, value in enumerate(run["series"]))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>' %
                   (points, colour))
        bars = "".join(" ▁▂▃▄▅▆▇█"[min(8, max(0, int(9 * (v - low) / (1 - low))))]
                       for v in run["series"][:100])
        print("%-9s hits %5.2f %%, misses in 1,000 reads during compactions %6.1f, "
              "worst 200 ms %5.2f %%" % (run["mode"], 100 * run["hit"],
                                         run["busy_misses_per_1000"],
                                         100 * run["worst_200ms"]))
        print("          " + bars)
    for i, (run, colour) in enumerate(zip(runs, colours)):
        out.append('<text x="%d" y="%d" fill="%s">%s: hit rate of 200 ms</text>' %
                   (left + 250 * i, height + 52, colour, run["mode"]))
    out.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")
    print("chart:", path)


def main():
    runs = [json.loads(line) for line in sys.stdin]
    if sys.argv[1:] == ["--pages"]:
        pages(runs)
    elif sys.argv[1:2] == ["--chart"]:
        chart(runs, sys.argv[2])
    else:
        table(runs)


main()
