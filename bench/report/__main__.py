# SPDX-License-Identifier: BSD-3-Clause
"""The part of bench/compare that works when everything is built: records what is missing,
runs what has to be run, and writes the report.  Its arguments come from bench/compare,
which has checked them."""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from report import charts, page
from report.book import Book
from report.host import describe
from report.jobs import Jobs
from report.model import Chart, Table
from report.recordings import WORKLOADS, Unreadable, read, wanted
from report.run import Runner
from report.sections import Context
from report.sections import (
    ablation, beyond, characterize, kinds, load, memory, performance, prefetches, reading, rules,
    shift, summary)
from report.store import Busy, Store

TITLE = "QuickMine, compared"

# How long the recordings are: minutes of the main ones, and of the one that shifts.
MINUTES, SHIFT_MINUTES = {True: "4", False: "20"}, {True: "6", False: "30"}


def makers():
    """The sections in their order: name and what makes it."""
    yield "summary", summary.section
    yield "reading", reading.section
    yield "kinds", kinds.section
    yield "load", load.section
    yield "characterization", characterize.section
    for workload in WORKLOADS:
        yield workload.name, lambda context, w=workload: performance.section(context, w)
    yield "prefetches", prefetches.section
    yield "rules", rules.section
    yield "shift", shift.section
    yield "memory", memory.section
    yield "ablation", ablation.section
    yield "beyond", beyond.section


# Those that only show what others run come last when it is asked what to run.
LATE = ("reading", "summary")


def arguments():
    parser = argparse.ArgumentParser(prog="bench/compare")
    for name in ("--source", "--build"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--command", default="bench/compare")
    parser.add_argument("directory", type=Path)
    return parser.parse_args()


def fail(text):
    sys.exit(f"bench/compare: {text}")


def record(args, store, runner):
    """Makes the recordings that are missing; returns how many cannot be had."""
    missing = [(name, arguments) for name, arguments in wanted(
        MINUTES[args.quick], SHIFT_MINUTES[args.quick]) if read(store, name) is None]
    if not missing:
        return 0
    if args.no_record or args.no_run:
        runner.say(f"there is no recording of {', '.join(name for name, _ in missing)}")
        return len(missing)
    databases = store.path / "databases"
    databases.mkdir(exist_ok=True)
    failed = 0
    for number, (name, options) in enumerate(missing, 1):
        runner.say(f"recording {number} of {len(missing)}: {name}")
        command = [args.source / "bench" / "record", *options, "--databases", databases,
                   "-o", store.recording(name)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            code = process.wait()
        except BaseException:
            # It takes its servers down in their order.
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        if code != 0:
            runner.say(f"{name} could not be recorded")
            failed += 1
    return failed


def work(book, runner, context, only):
    """Runs what the sections want until they want nothing more."""
    done = 0
    while True:
        for name, make in sorted(makers(), key=lambda m: m[0] in LATE):
            if name in only:
                make(context)
        if not book.wanted:
            return done
        units, book.wanted = book.wanted, {}
        for number, unit in enumerate(units.values(), 1):
            broken = next((b for b in unit.inputs() if b.key in book.failed), None)
            if broken:
                book.failed[unit.key] = (unit, f"needs: {broken.label}")
                continue
            runner.say(f"{number} of {len(units)}: {unit.label}")
            trouble = runner.run(unit)
            if trouble:
                runner.say(f"failed: {trouble}")
                book.failed[unit.key] = (unit, trouble)
            done += 1


def write(store, sections):
    store.write("report.html", page.html(TITLE, sections))
    tables = [block for section in sections for block in section.blocks
              if isinstance(block, Table)]
    for table in tables:
        store.write(f"tsv/{table.name}.tsv", page.tsv(table))
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Chart) and section.name == "kinds":
                store.write("kinds.svg", charts.standalone(block.draw()))
    short = [t for t in tables if t.name in ("summary", "miss-rates", "kinds", "load")]
    store.write("report.md", page.markdown(short))


def main():
    args = arguments()
    names = [name for name, _ in makers()]
    only = args.only.split(",") if args.only else names
    try:
        store = Store(args.directory)
    except Busy:
        fail(f"another comparison works in {args.directory}")
    except OSError as error:
        fail(f"{args.directory} cannot be used: {error.strerror}")
    runner = Runner(store)
    book = Book(store)
    jobs = Jobs(args.build, args.quick)
    context = Context(store, book, jobs, describe(args.source, args.build, args.command))
    failed = record(args, store, runner)
    done = 0
    if not args.no_run:
        done = work(book, runner, context, [*only, "reading"])
    runner.say("writing the report")
    write(store, [make(context) for _, make in makers()])
    what = "nothing was left to run" if done == 0 else f"{done} units run"
    runner.say(f"{what}; the report is {store.path / 'report.html'}")
    if failed or book.failed:
        fail(f"incomplete: {failed} recordings and {len(book.failed)} units are missing; "
             "the report says which")


def ended(number, _):
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, ended)
signal.signal(signal.SIGHUP, ended)
try:
    main()
except Unreadable as error:
    fail(error)
except KeyboardInterrupt:
    sys.exit(130)
