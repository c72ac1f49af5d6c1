# SPDX-License-Identifier: BSD-3-Clause
"""recordings - which traces a comparison needs, and what is known about each.

The paper's ratio of database : storage cache : buffer pool is kept (40 GB : 0.5, 1, 2 GB :
1 GB; DBT-2's is 60 GB), with a database of 1 to 2 GB.  Clients are fewer, too: the
prefetch cache, 4 % of the storage cache, must have room for what the clients prefetch.
"""

import json
from dataclasses import dataclass

BLOCK = 16384


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    level: str  # whose reads are mined together in the paper (§6.1)
    parts: tuple  # the database's size as multiples of the storage cache's
    figure: int
    instances: int
    scale: str  # of an instance
    pool: str  # '': a fortieth of the data, bench/record's default

    def sizes(self, recording):
        """Of the storage cache, in bytes, whole blocks."""
        return [recording.about["database_bytes"] // part // BLOCK * BLOCK
                for part in self.parts]


WORKLOADS = (
    Workload("tpcw", "TPC-W", "query", (80, 40, 20), 5, 10, "2", ""),
    Workload("rubis", "RUBiS", "query", (80, 40, 20), 6, 10, "0.058", ""),
    Workload("tpcc", "DBT-2", "transaction", (120, 60, 30), 7, 1, "12", "20M"),
)



@dataclass(frozen=True)
class Kind:
    """A workload that the paper does not have."""

    name: str  # of bench/record
    title: str
    arguments: tuple


# A database of some hundred MB each, and a pool that lets most of the reads through.
KINDS = (
    Kind("oltp_read_write", "sysbench oltp_read_write", ("--scale", "4", "--clients", "8")),
    Kind("oltp_read_only", "sysbench oltp_read_only", ("--scale", "4", "--clients", "8")),
    Kind("dump", "OLTP, a dump and full scans", ("--scale", "3", "--clients", "6")),
    Kind("alter", "OLTP and ALTER TABLE", ("--scale", "2", "--clients", "2")),
    Kind("star", "scans and joins, as in TPC-H", ("--scale", "3", "--clients", "4")),
    Kind("pgbench_select", "pgbench, select-only", ("--scale", "20", "--clients", "10")),
    Kind("pgbench_tpcb", "pgbench, TPC-B", ("--scale", "20", "--clients", "10")),
    Kind("files", "files, without contexts", ("--scale", "0.6", "--clients", "4")),
)
KINDS_POOL = "12M"

CLIENTS = 10
CONCURRENCY = (1, 10, 25, 50, 100)  # of figure 2
SHORT_MINUTES = "1"
KINDS_MINUTES = "2"


@dataclass(frozen=True)
class Recording:
    """clients: how many; shift: seconds between changes of what is popular, 0: never."""

    workload: str
    clients: int
    minutes: str
    shift: int
    path: object
    about: dict

    @property
    def name(self):
        return self.path.name.removesuffix(".trace.zst")


def wanted(minutes, shift_minutes):
    """All of them, as (name, arguments of bench/record); the main ones first."""
    by_name = {w.name: w for w in WORKLOADS}

    def one(workload, clients, length, shift=0):
        w = by_name[workload]
        name = f"{workload}-shift" if shift else f"{workload}-{clients}"
        arguments = [
            workload, "--clients", str(clients), "--instances", str(w.instances),
            "--scale", w.scale, "--minutes", length]
        if w.pool:
            arguments += ["--pool", w.pool]
        if shift:
            # Skewed, or little would be popular enough to move.
            arguments += ["--shift", str(shift), "--skew", "3"]
        return name, arguments

    for w in WORKLOADS:
        yield one(w.name, CLIENTS, minutes)
    # For figure 9, whose C-Miner+ trains anew after a third and two thirds: what is popular
    # changes a little later each time, so that what it learns is worth something for a while.
    yield one("tpcw", CLIENTS, shift_minutes, shift=int(float(shift_minutes) * 60 / 4))
    for workload in ("tpcw", "rubis"):
        for clients in CONCURRENCY:
            if clients != CLIENTS:
                yield one(workload, clients, SHORT_MINUTES)
    for kind in KINDS:
        yield kind.name, [kind.name, *kind.arguments, "--pool", KINDS_POOL, "--minutes",
                          KINDS_MINUTES]


class Unreadable(Exception):
    """A recording's description is not what bench/record writes."""


def read(store, name):
    """The recording of that name; None if there is none."""
    path = store.recording(name)
    description = path.with_name(f"{name}.json")
    if not path.exists() or not description.exists():
        return None
    try:
        about = json.loads(description.read_text(encoding="utf-8"))
        return Recording(
            about["workload"], int(about["clients"]), about["seconds"] / 60,
            int(about["shift"]), path, about | {"database_bytes": int(about["database_bytes"])})
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{description} is not a recording's description: {error}") from error
