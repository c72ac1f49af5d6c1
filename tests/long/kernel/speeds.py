#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""speeds.py FILE - of lines KERNEL PAIR CASE NANOSECONDS, several for each run of a case, of
which the least counts, as whatever else the guest does adds to it: the medians of the runs,
and the ratio in each pair of them."""
import collections
import statistics
import sys

times = collections.defaultdict(lambda: collections.defaultdict(list))
with open(sys.argv[1]) as lines:
    for line in lines:
        kernel, pair, case, time = line.split()
        times[case][kernel, int(pair)].append(int(time))
print(f"{'ns a read':28}{'stock':>10}{'patched':>10}{'ratio':>9}   of pairs")
for case, runs in times.items():
    least = {run: min(t) for run, t in runs.items()}
    middle = {k: statistics.median(t for (kernel, _), t in least.items() if kernel == k)
              for k in {kernel for kernel, _ in least}}
    ratios = sorted(least["contexts", p] / least["stock", p]
                    for k, p in least if k == "stock" and ("contexts", p) in least)
    print(f"{case:28}", end="")
    print(f"{middle['stock']:10.0f}" if "stock" in middle else f"{'-':>10}", end="")
    print(f"{middle['contexts']:10.0f}", end="")
    if ratios:
        print(f"{statistics.median(ratios):9.4f}   {ratios[0]:.4f} to {ratios[-1]:.4f}",
              end="")
    print()
