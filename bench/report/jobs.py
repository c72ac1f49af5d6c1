# SPDX-License-Identifier: BSD-3-Clause
"""jobs - the units of work that the report is made of."""

import os
from dataclasses import dataclass
from pathlib import Path

from report.unit import File, Output, Prefixed, Unit

HERE = Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"

# What the filter does without further parameters.
DEFAULT = "auto"


# A policy of the report: a name, what it is called, and how the simulator and the filter
# are told.  Those without contexts get the reads in the order of their arrival.
@dataclass(frozen=True)
class Policy:
    name: str
    title: str
    policy: str
    paper: bool = True  # --preset paper
    contexts: bool = False  # mines by the workload's level
    trained: bool = False
    live: bool = True
    default: bool = False  # as a user gets it: nothing is set but sizes


POLICIES = {p.name: p for p in (
    Policy("none", "LRU", "none"),
    Policy("seq", "SEQ", "seq"),
    Policy("run", "RUN", "run"),
    Policy("amp", "AMP", "amp"),
    Policy("mithril", "Mithril", "mithril"),
    Policy("cminer", "C-Miner*", "cminer", trained=True),
    Policy("quickmine", "QuickMine, paper", "quickmine", contexts=True),
    Policy("ppm", "QuickMine, associations", "ppm", paper=False, contexts=True),
    Policy("defaults", "QuickMine, defaults", DEFAULT, paper=False, contexts=True,
           default=True),
    Policy("perfect", "perfect knowledge", "perfect", contexts=True, live=False),
)}


class Jobs:
    """Makes units.  build: the build directory; quick: shorter and fewer."""

    def __init__(self, build, quick):
        self.quick = quick
        self.quickmine = File(build / "bin" / "quickmine")
        self.filter = File(build / "lib" / "nbdkit-quickmine-filter.so")
        self.device_filter = File(build / "lib" / "nbdkit-device-filter.so")
        self.cores = os.cpu_count() or 1

    def info(self, recording, level):
        return Unit(f"{recording.name}: what the trace is like, level {level}",
                    (self.quickmine, "trace", "info", "--json", "--level", level,
                     File(recording.path)))

    def cut(self, recording, skip, count):
        return Unit(f"{recording.name}: requests {skip:,} to {skip + count:,}",
                    (self.quickmine, "trace", "cut", File(recording.path),
                     "-o", Output(".trace.zst"), "--skip", str(skip), "--count", str(count)))

    def evidence(self, recording, level, warmup, reads):
        return Unit(f"{recording.name}: what could be predicted, level {level}",
                    (PYTHON, File(HERE / "evidence.py"), File(recording.path), level,
                     str(warmup), str(reads)))

    def train(self, name, trace, level):
        """trace: a unit that makes one."""
        return Unit(f"{name}: C-Miner*'s rules, level {level}",
                    (self.quickmine, "mine", "--cminer", trace, "-o", Output(".rules"),
                     "--level", level, "--json"))

    def sim(self, name, trace, label, options, trained=None):
        """trace: a unit that makes one; options: further arguments."""
        more = ("--trained", trained) if trained else ()
        return Unit(f"{name}: {label}, simulated",
                    (self.quickmine, "sim", trace, "--json", "--jobs", str(self.cores),
                     *options, *more))

    def regret(self, recording, evictions, reads):
        """Every policy with each of the evictions, and the default, at equal memory."""
        return Unit(f"{recording.name}: every policy, at equal memory",
                    (PYTHON, File(HERE.parent / "regret"), "--json", "--policy", DEFAULT,
                     "--quickmine", self.quickmine, "--evictions", evictions,
                     "--reads", str(reads), "--jobs", str(self.cores), "--one",
                     File(recording.path)))

    def live(self, name, label, size, clients, device, warm, segments, servers):
        """servers: (name, parameters) each."""
        argv = [PYTHON, File(HERE / "live.py"), "--quickmine", self.quickmine,
                "--filter", self.filter, "--device-filter", self.device_filter,
                "--size", str(size), "--clients", str(clients), "--writes",
                "--device", *device, "--warm", warm, "--segment", *segments]
        for server, parameters in servers:
            argv += ["--server", server, *parameters]
        return Unit(f"{name}: {label}, live", tuple(argv))

    @staticmethod
    def parameter(name, unit):
        return Prefixed(f"{name}=", unit)
