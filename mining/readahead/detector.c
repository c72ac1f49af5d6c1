/* SPDX-License-Identifier: BSD-3-Clause */
/* detector.c - see detector.h. */
#include "mining/readahead/detector.h"

#include <stddef.h>
#include <stdlib.h>

#define REGION_BITS 3 /* blocks whose edges are in one set */
#define READS_MAX   1000

_Static_assert(QM_DETECTOR_BACK <= 1 << REGION_BITS, "the next set has the others");

void qm_detector_free(struct qm_detector *e)
{
    free(e->sets);
}

static struct qm_edge *set_of(struct qm_detector *e, uint64_t region)
{
    return e->sets[(region * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (e->n - 1)];
}

/* A run's edge between from and to, both included; they are at most a region apart. */
static struct qm_edge *find(struct qm_detector *e, int step, uint64_t from, uint64_t to)
{
    const uint64_t last = to >> REGION_BITS;

    for (uint64_t region = from >> REGION_BITS; region <= last; region++) {
        struct qm_edge *set = set_of(e, region);

        for (unsigned i = 0; i < QM_DETECTOR_WAYS; i++)
            if (set[i].reads > 0 && set[i].step == step && set[i].at >= from &&
                set[i].at <= to)
                return &set[i];
    }
    return NULL;
}

static void put(struct qm_detector *e, const struct qm_edge *edge)
{
    struct qm_edge *set = set_of(e, edge->at >> REGION_BITS), *oldest = &set[0];

    for (unsigned i = 0; i < QM_DETECTOR_WAYS; i++) {
        if (set[i].reads == 0) {
            oldest = &set[i];
            break;
        }
        if (e->now - set[i].stamp > e->now - oldest->stamp)
            oldest = &set[i];
    }
    *oldest = *edge;
}

static void leave(struct qm_detector *e, uint64_t at, int step, unsigned reads)
{
    put(e, &(struct qm_edge){
               .at = at,
               .stamp = e->now,
               .reads = (uint16_t)(reads < READS_MAX ? reads : READS_MAX),
               .step = (int8_t)step,
           });
}

bool qm_detector_resize(struct qm_detector *e, uint32_t n)
{
    struct qm_detector to = {.now = e->now, .n = n, .sets = calloc(n, sizeof *e->sets)};

    if (!to.sets)
        return false;
    for (uint32_t s = 0; s < e->n; s++)
        for (unsigned i = 0; i < QM_DETECTOR_WAYS; i++)
            if (e->sets[s][i].reads > 0)
                put(&to, &e->sets[s][i]);
    free(e->sets);
    *e = to;
    return true;
}

static uint64_t below(uint64_t block, uint64_t n)
{
    return block > n ? block - n : 0;
}

struct qm_run qm_detector_read(struct qm_detector *e, uint64_t block, uint32_t count)
{
    const uint64_t end = block + count;
    struct qm_edge *edge;
    struct qm_run run = {1, 1};

    e->now++;
    if ((edge = find(e, 1, below(block, QM_DETECTOR_NEAR), block))) {
        run.reads = edge->reads + 1u;
        edge->reads = 0;
        leave(e, end, 1, run.reads);
        return run;
    }
    if ((edge = find(e, -1, end, end + QM_DETECTOR_NEAR))) {
        run = (struct qm_run){edge->reads + 1u, -1};
        edge->reads = 0;
        leave(e, block, -1, run.reads);
        return run;
    }
    /* One that was overtaken by the next of its run. */
    edge = find(e, 1, block + 1, block + QM_DETECTOR_BACK);
    if (edge && edge->reads > 1)
        return run;
    leave(e, end, 1, 1);
    leave(e, block, -1, 1);
    return run;
}
