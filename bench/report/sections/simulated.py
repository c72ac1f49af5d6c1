# SPDX-License-Identifier: BSD-3-Clause
"""simulated - the simulations that several sections share."""

from report.jobs import POLICIES


def sizes_of(workload, trace):
    return workload.sizes(trace.recording)


def option(sizes):
    return ",".join(str(size) for size in sizes)


def outcome(workload, trace, name):
    """A policy at the three cache sizes: a Run or None for each."""
    policy = POLICIES[name]
    sizes = sizes_of(workload, trace)
    options = ["--policy", policy.policy, "--cache-size", option(sizes)]
    if not policy.default:
        options += ["--level", workload.level if policy.contexts else "none"]
    if policy.paper:
        options += ["--preset", "paper"]
    run = trace.sim(policy.title, options, trained=policy.trained)
    return [run.find(cache_size=size) if run else None for size in sizes]


def share(run, what):
    """Of the blocks read, as a plain number."""
    reads = run.get("reads")
    return run.get(what) / reads if reads else 0
