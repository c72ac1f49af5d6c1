#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recordings - small traces in the place of recorded ones, with their descriptions.

Usage: recordings.py DIR

Writes DIR/NAME.trace.zst and DIR/NAME.json for all that bench/compare wants.  Threads run
transactions of queries that follow one of a few hundred paths through the blocks; some
reads are of anything, some requests write.  In the one that shifts, the paths are others
in each quarter.
"""

import json
import random
import subprocess
import sys

BLOCK = 16384
BLOCKS = 6000  # of the device; the "database" is as large
QUERIES = 900


def trace(seed, clients, queries, shift):
    r = random.Random(seed)
    paths = [[r.randrange(BLOCKS) for _ in range(r.randint(2, 14))] for _ in range(1200)]
    yield f"#quickmine-trace 1 block={BLOCK}"
    us, number = 0, clients
    for thread in range(1, clients + 1):
        yield f"B 0 {thread} thread {thread:016x} 0"
    running = {}
    begun = 0
    while begun < queries or running:
        us += r.randrange(200, 900)
        thread = r.randint(1, clients)
        if thread not in running:
            if begun >= queries:
                if running:
                    thread = r.choice(sorted(running))
            else:
                begun += 1
                part = begun * 4 // (queries + 1) if shift else 0
                path = min(int(r.paretovariate(0.6)) - 1, 299) + 300 * part
                number += 2
                yield f"B {us} {number - 1} transaction {path % 7:016x} {thread}"
                yield f"B {us} {number} query {path % 31:016x} {number - 1}"
                running[thread] = (number - 1, number, list(paths[path]))
                continue
        transaction, query, left = running[thread]
        if not left:
            del running[thread]
            yield f"E {us} {query}"
            yield f"W {us} {transaction} {BLOCK * r.randrange(BLOCKS)} {BLOCK}"
            yield f"E {us} {transaction}"
            continue
        block = left.pop(0) if r.random() > 0.04 else r.randrange(BLOCKS)
        yield f"R {us} {query} {BLOCK * block} {BLOCK * (2 if r.random() < 0.1 and block < BLOCKS - 2 else 1)}"
    for thread in range(1, clients + 1):
        yield f"E {us} {thread}"


def write(directory, name, workload, clients, queries, shift, seed):
    lines = list(trace(seed, clients, queries, shift))
    subprocess.run(["zstd", "-q", "-f", "-o", f"{directory}/{name}.trace.zst"],
                   input=("\n".join(lines) + "\n").encode(), check=True)
    seconds = int(lines[-1].split()[1]) / 1e6
    with open(f"{directory}/{name}.json", "w", encoding="utf-8") as file:
        json.dump({
            "workload": workload, "level": "query", "clients": clients, "instances": 10, "scale": 1.0,
            "seconds": seconds, "pool_bytes": BLOCKS * BLOCK // 40,
            "database_bytes": BLOCKS * BLOCK, "device_bytes": BLOCKS * BLOCK,
            "block_size": BLOCK, "interactions": queries,
            "interactions_per_second": queries / seconds, "seed": seed,
            "shift": int(seconds / 4) if shift else 0, "delay_ms": 1, "mariadb": "none",
            "nbdkit": "none", "commit": "none", "command": f"made up: {name}"}, file)


def main():
    directory = sys.argv[1]
    seed = 1
    for workload in ("tpcw", "rubis", "tpcc"):
        write(directory, f"{workload}-10", workload, 10, QUERIES, False, seed)
        seed += 1
    write(directory, "tpcw-shift", "tpcw", 10, QUERIES, True, seed)
    for workload in ("tpcw", "rubis"):
        for clients in (1, 25, 50, 100):
            seed += 1
            write(directory, f"{workload}-{clients}", workload, clients, 300, False, seed)
    for workload in ("oltp_read_write", "oltp_read_only", "dump", "alter", "star",
                     "pgbench_select", "pgbench_tpcb", "files"):
        seed += 1
        write(directory, workload, workload, 4, 300, False, seed)


main()
