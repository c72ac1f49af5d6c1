# SPDX-License-Identifier: BSD-3-Clause
"""ablation - what each idea is worth: the defaults without it.

An idea is an option that takes it away.  One that is worth nothing anywhere does not belong
in the code.
"""

from report.book import computed
from report.jobs import DEFAULT
from report.model import Section, Table
from report.sections import MISSING
from report.sections.performance import cache_cells
from report.sections.simulated import option, outcome, sizes_of

# What it is, and the options that take it away.
IDEAS = (
    ("asking on prefetch hits, too", ("--prefetch-on", "miss")),
    ("throttling by benefit", ("--throttle", "off")),
    ("passing over hits", ("--ablate", "misses")),
    ("rules of two blocks", ("--ablate", "two")),
    ("learned probabilities", ("--ablate", "confidence")),
    ("learning from what was not prefetched", ("--ablate", "watch")),
    ("a threshold that adapts", ("--ablate", "threshold")),
    ("an accuracy that follows the device's reads", ("--ablate", "accuracy")),
    ("looking further than a step", ("--ablate", "lookahead")),
    ("when blocks were read last", ("--ablate", "ages")),
    ("going on behind the statement before", ("--ablate", "statements")),
    ("a share of prefetches that adapts", ("--prefetch-share", "4")),
    ("eviction", ("--eviction", "lru")),
)


def section(context):
    result = Section("ablation", "What each idea is worth")
    rows = [row for workload, trace in context.workloads()
            for row in rows_of(workload, trace)]
    if not rows:
        return result.text(MISSING)
    return result.text(
        "The defaults, and the defaults without one idea each. More misses or more reads of "
        "the device without it than with it is what the idea is worth.").add(Table(
            "ablation", "Simulated: misses and device reads, of blocks read, of the defaults "
            "and without one idea each",
            ["workload", "cache", "the paper's", "without", "option", "misses",
             "misses more than the defaults", "device reads", "more than the defaults",
             "accuracy"], rows))


def without(workload, trace, idea, options):
    """A Run or None for each cache size."""
    sizes = sizes_of(workload, trace)
    run = trace.sim(f"QuickMine without {idea}", [
        "--policy", DEFAULT, "--cache-size", option(sizes), *options])
    return [run.find(cache_size=size) if run else None for size in sizes]


def rows_of(workload, trace):
    defaults = outcome(workload, trace, "defaults")
    variants = [("nothing", (), defaults)]
    variants += [(idea, options, without(workload, trace, idea, options))
                 for idea, options in IDEAS]
    for index, base in enumerate(defaults):
        for idea, options, runs in variants:
            run = runs[index]
            if not run or not base:
                continue
            yield [
                workload.title, *cache_cells(workload, trace, index), idea,
                " ".join(options), run.number("miss_ratio", "percent"),
                None if run is base else more("misses", run, base), device(run),
                None if run is base else more("device_reads", run, base),
                run.number("accuracy", "percent")]


def device(run):
    return computed("percent", lambda d, r: d / r, run.number("device_reads", "count"),
                    run.number("reads", "count"))


def more(what, run, base):
    return computed("percent", lambda a, b: a / b - 1, run.number(what, "count"),
                    base.number(what, "count"))
