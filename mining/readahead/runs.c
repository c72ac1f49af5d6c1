/* SPDX-License-Identifier: BSD-3-Clause */
/* runs.c - see runs.h. */
#include "mining/readahead/runs.h"

#include <string.h>

static bool all_cached(uint64_t from, uint64_t to,
                       bool (*cached)(void *opaque, uint64_t block), void *opaque)
{
    while (from < to && cached && cached(opaque, from))
        from++;
    return from == to;
}

/* The place of the run that goes on at block, or QM_RUNS. */
static unsigned find(const struct qm_runs *runs, uint64_t block,
                     bool (*cached)(void *opaque, uint64_t block), void *opaque)
{
    for (unsigned i = 0; i < QM_RUNS; i++)
        if (runs->places[i].own.reads > 0 && runs->places[i].next == block)
            return i;
    for (unsigned i = 0; i < QM_RUNS; i++) {
        const uint64_t next = runs->places[i].next;

        if (runs->places[i].own.reads > 0 && next < block &&
            block - next <= QM_RUNS_GAP && all_cached(next, block, cached, opaque))
            return i;
    }
    return QM_RUNS;
}

static uint32_t add(uint32_t a, uint64_t b)
{
    return b > UINT32_MAX - a ? UINT32_MAX : a + (uint32_t)b;
}

/* Which place goes: of those that no second read has gone on from, the oldest. */
static unsigned oldest(const struct qm_runs *runs)
{
    for (unsigned i = QM_RUNS; i-- > 0;)
        if (runs->places[i].own.reads < 2)
            return i;
    return QM_RUNS - 1;
}

struct qm_own qm_runs_read(struct qm_runs *runs, uint64_t block, uint32_t count,
                           bool (*cached)(void *opaque, uint64_t block), void *opaque)
{
    unsigned i = find(runs, block, cached, opaque);
    struct qm_own own = {1, count};

    if (i < QM_RUNS) {
        own.reads = add(runs->places[i].own.reads, 1);
        own.blocks =
            add(runs->places[i].own.blocks, block - runs->places[i].next + count);
    } else {
        i = oldest(runs);
    }
    memmove(&runs->places[1], &runs->places[0], i * sizeof runs->places[0]);
    runs->places[0].next = block + count;
    runs->places[0].own = own;
    return own;
}
