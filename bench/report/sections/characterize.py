# SPDX-License-Identifier: BSD-3-Clause
"""characterize - §2.1's table and figure 2: what the server sees of many clients."""

from report import charts, paper
from report.book import Number, computed
from report.model import Chart, Section, Table
from report.recordings import CONCURRENCY, WORKLOADS
from report.sections import MISSING

LEVEL = "transaction"  # whose interference the paper counts


def section(context):
    result = Section("characterization", "What the server sees (§2.1, figure 2)")
    infos = {}
    for workload in WORKLOADS:
        for clients in CONCURRENCY:
            recording = context.recording(f"{workload.name}-{clients}")
            if recording:
                info = context.book.ask(context.jobs.info(recording, LEVEL))
                if info:
                    infos[workload, clients] = (recording, info)
    if not infos:
        return result.text(MISSING)
    result.text(
        "Interference: the number of requests of other contexts between two requests of the "
        f"same {LEVEL} (or, where there is none, the statement). A run is a stretch of "
        "physically adjacent blocks read one after the other: as the server gets the "
        "reads, and by thread, that is, on the de-tangled trace.")
    result.add(interference(infos), runs_table(infos), lengths_table(infos))
    return result.text(*explain(infos), kind="why")


def interference(infos):
    series = []
    for workload in WORKLOADS:
        points = [(clients, info.get("interference.mean"))
                  for (w, clients), (_, info) in infos.items() if w is workload]
        series.append((workload.title, charts.WORKLOAD[workload.name], "o-", sorted(points)))
        said = [(e["clients"], e["value"]) for e in paper.DATA["interference"]
                if e["workload"] == workload.name]
        series.append((f"{workload.title}, paper", charts.WORKLOAD[workload.name], "D--",
                       sorted(said)))
    return Chart(
        charts.lines("interference", "Interference by number of clients", series, "clients",
                     "requests of others between two", xticks=CONCURRENCY),
        "Interference by number of clients. Filled: measured; hollow: the two points that "
        "the paper's text gives.")


def runs_table(infos):
    rows = []
    for (workload, clients), (_, info) in infos.items():
        rows.append([
            workload.title, Number(clients, "count"),
            info.number("interference.mean", "decimal"),
            paper.number("interference", "decimal", workload=workload.name, clients=clients),
            info.number("sequential_runs.interleaved.average", "decimal"),
            info.number("sequential_runs.interleaved.longest", "count"),
            paper.number("runs", "decimal", "average", workload=workload.name,
                         clients=clients),
            paper.number("runs", "count", "longest", workload=workload.name,
                         clients=clients),
            info.number("sequential_runs.thread.average", "decimal"),
            info.number("sequential_runs.thread.longest", "count"),
            paper.number("runs", "decimal", "average", workload=workload.name,
                         clients="thread") if clients == 1 else None,
        ])
    return Table(
        "characterization", "Interference and sequential runs, in blocks",
        ["workload", "clients", "interference", "paper", "average run", "longest",
         "paper: average", "paper: longest", "by thread: average", "longest",
         "paper: average, one thread"], rows)


def lengths_table(infos):
    rows = []
    for workload in WORKLOADS:
        recording, info = infos.get((workload, 10), (None, None))
        if not info:
            continue
        for kind in ("query", "transaction", "thread", "connection"):
            contexts = info.number(f"kinds.{kind}.contexts", "count")
            if contexts is None or not contexts.value:
                continue
            rows.append([
                workload.title, kind, contexts,
                info.number(f"kinds.{kind}.blocks_read.mean", "fixed"),
                info.number(f"kinds.{kind}.blocks_read.p50", "count"),
                info.number(f"kinds.{kind}.blocks_read.p99", "count"),
                info.number(f"kinds.{kind}.blocks_read.max", "count"),
                computed("percent", lambda n, c: n / c, info.number(
                    f"kinds.{kind}.without_requests", "count"), contexts),
                computed("percent", lambda n, c: n / c, info.number(
                    f"kinds.{kind}.with_1_to_10_blocks_read", "count"), contexts),
                paper.number("context_length", "count", workload=workload.name)
                if kind == "transaction" else None,
                paper.number("context_length", "percent", "short", workload=workload.name)
                if kind == "transaction" else None,
            ])
    return Table(
        "context-lengths", "Blocks that a context reads, with 10 clients",
        ["workload", "context", "contexts", "mean", "median", "p99", "most", "without requests",
         "with 1 to 10", "paper: mean", "paper: 1 to 10"], rows)


def explain(infos):
    for workload in WORKLOADS:
        some = sorted((clients, info) for (w, clients), (_, info) in infos.items()
                      if w is workload)
        if len(some) < 2:
            continue
        (low, first), (high, last) = some[0], some[-1]
        said = paper.find("interference", workload=workload.name, clients=high)
        one, other = (i.get("interference.mean") for i in (first, last))
        text = (f"{workload.title}: from {low} to {high} clients, interference goes from "
                f"{one:.2f} to {other:.2f}")
        if said:
            text += f" (the paper: {said['value']} at {high})"
        text += (f", and the average run from "
                 f"{first.get('sequential_runs.interleaved.average'):.2f} to "
                 f"{last.get('sequential_runs.interleaved.average'):.2f} blocks.")
        if said and other < said["value"]:
            text += (f" With {high} connections that are always busy there would be up to "
                     f"{high - 1} others between two requests of one that has to wait for "
                     "the disk as long as they do; what waits for a lock or computes makes "
                     "none.")
        yield text
