# SPDX-License-Identifier: BSD-3-Clause
"""why - where we differ from the paper, and what in the workload makes the difference.

Sentences are chosen by figures and made of them; none claims what was not measured.
"""

from report import paper
from report.units import write

DEGREE = 4  # candidates of a prefetch in the paper's preset


def percent(value):
    return write(value, "percent")


def reduction(runs, name, index):
    run, lru = runs[name][index], runs["none"][index]
    if not run or not lru or not lru.get("misses"):
        return None
    return 1 - run.get("misses") / lru.get("misses")


def against_paper(workload, runs):
    for index in range(3):
        ours = reduction(runs, "quickmine", index)
        said = paper.find("miss_reduction", workload=workload.name, size=index,
                          policy="quickmine")
        if ours is None or said is None:
            continue
        size = paper.find("setup", workload=workload.name)["sizes"][index]
        verdict = "at least what" if ours >= said["value"] else "less than"
        fewer = (f"{percent(ours)} fewer misses than LRU" if ours >= 0
                 else f"{percent(-ours)} more misses than LRU")
        defaults = reduction(runs, "defaults", index)
        yield (f"The cache that stands for the paper's {size}: with the paper's algorithm, "
               f"QuickMine has {fewer}, {verdict} the paper reports "
               f"({percent(said['value'])}); LRU misses "
               f"{percent(runs['none'][index].get('miss_ratio'))} of blocks"
               + base_miss(workload, index) + "."
               + (f" With its defaults: {percent(defaults)} fewer."
                  if defaults is not None and defaults >= 0 else
                  f" With its defaults: {percent(-defaults)} more."
                  if defaults is not None else ""))


def base_miss(workload, index):
    said = paper.find("baseline_miss", workload=workload.name, size=index)
    return f" (the paper: {percent(said['value'])})" if said else ""


def repeats(evidence):
    """How much there is to learn, and whether without contexts as well."""
    blocks, inside = evidence.get("blocks"), evidence.get("pairs_in_context")
    arrival = evidence.get("pairs_in_arrival")
    if not blocks or not inside or not arrival:
        return None
    known = evidence.get("known_in_context") / inside
    mixed = evidence.get("known_in_arrival") / arrival
    text = (f"What can be learned: of the blocks read in the measured half, "
            f"{percent(evidence.get('new_blocks') / blocks)} had not been read before, so "
            f"that no history foresees them. Within contexts, {percent(known)} of "
            f"successions (a block, and the next) had been seen before; in the order in "
            f"which the server gets the reads, {percent(mixed)}.")
    if known > mixed:
        text += f" That is {known / mixed:.1f} times as many with contexts." if mixed else ""
    else:
        text += " Contexts make no succession more frequent here."
    return text


def room(workload, trace, runs):
    run = runs["quickmine"][0]
    if not run:
        return None
    blocks, clients = run.get("prefetch_blocks"), trace.recording.clients
    need = clients * DEGREE
    paper_blocks = int(512 * 64 * 0.04)
    setup = paper.find("setup", workload=workload.name)
    return (f"Room: the prefetch cache of the smallest cache has {blocks:,} blocks for "
            f"{clients} clients with up to {DEGREE} candidates a miss each, "
            f"{blocks / need:.1f} times what they can have in flight; in the paper's, "
            f"{paper_blocks:,} blocks for {setup['clients']} clients, it was "
            f"{paper_blocks / (setup['clients'] * DEGREE):.1f} times. "
            + accuracy_of(run))


def accuracy_of(run):
    accuracy = run.get("accuracy")
    if accuracy is None:
        return "Nothing was prefetched."
    return (f"Of {run.get('prefetches'):,} blocks prefetched, {percent(accuracy)} were used "
            f"and {percent(run.get('wasted') / run.get('prefetches'))} went unused.")


def writes(workload, evidence):
    requests = evidence.get("reads") + evidence.get("writes")
    if not requests:
        return None
    setup = paper.find("setup", workload=workload.name)
    return (f"Writes: {percent(evidence.get('writes') / requests)} of the requests that "
            f"reach the storage server write (in the paper {percent(setup['writes'])} of "
            "the workload's interactions do, which is another measure: the database "
            "gathers its writes).")


def lengths(workload, trace):
    kind = trace.info.get(f"kinds.{workload.level}")
    if not kind or not kind["contexts"]:
        return None
    blocks = kind["blocks_read"]
    text = (f"Contexts: a {workload.level} reads {blocks['mean']:.1f} blocks on average, "
            f"{blocks['p50']:,} in the median, {blocks['p99']:,} at the 99th percentile; "
            f"{percent(kind['without_requests'] / kind['contexts'])} make no request")
    said = paper.find("context_length", workload=workload.name)
    whole = trace.info.get("kinds.transaction")
    if said and whole and whole["contexts"]:
        text += (f". A transaction reads {whole['blocks_read']['mean']:.1f} (the paper's: "
                 f"{said['value']:,})")
    return text + "."


def bound(runs):
    best, lru = runs["perfect"][0], runs["none"][0]
    ours = runs["quickmine"][0]
    if not best or not lru or not ours:
        return None
    possible = lru.get("misses") - best.get("misses")
    if possible <= 0:
        return ("The bound: with perfect knowledge of each context's next reads, the same "
                "cache would not miss less than LRU.")
    return (f"The bound: with perfect knowledge of each context's next reads, the same "
            f"cache with the same triggers would miss {percent(best.get('miss_ratio'))} of "
            f"blocks; of what that saves against LRU, QuickMine with the paper's algorithm "
            f"saves {percent((lru.get('misses') - ours.get('misses')) / possible)}.")


def differences(workload, trace, runs, evidence):
    """Paragraphs, without those for which figures are missing."""
    paragraphs = list(against_paper(workload, runs))
    if evidence:
        paragraphs += [repeats(evidence), writes(workload, evidence)]
    paragraphs += [room(workload, trace, runs), lengths(workload, trace), bound(runs)]
    return [p for p in paragraphs if p]
