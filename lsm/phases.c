/* SPDX-License-Identifier: BSD-3-Clause */
/* phases.c - see phases.h. */
#include "lsm/phases.h"

#include <math.h>

#define SAMPLE .2  /* weight of a new sample */
#define RISE   .01 /* of the share of misses, that counts as one */

static void learn(double *factor, double sample, bool first)
{
    *factor = first ? sample : *factor + SAMPLE * (sample - *factor);
}

void phases_compaction(struct phases *p, uint64_t blocks, uint64_t intervals)
{
    if (blocks == 0)
        return;
    learn(&p->alpha, (double)intervals / (double)blocks, !(p->alpha > 0));
    if (p->since == 0) {
        p->since = 1;
        p->peak = 0;
    }
}

/* The cache has recovered from a compaction: its time is a sample of T2. */
static void recovered(struct phases *p, uint64_t blocks)
{
    if (p->peak > p->usual + RISE && blocks > 0 && p->lookups > 0)
        learn(&p->beta, (double)(p->since - 1) * (double)blocks / p->lookups,
              !(p->beta > 0));
    p->since = 0;
}

void phases_interval(struct phases *p, uint64_t hits, uint64_t misses, uint64_t blocks,
                     bool compaction)
{
    double share;

    p->lookups = (double)(hits + misses);
    if (hits + misses == 0)
        return;
    share = (double)misses / p->lookups;
    if (p->since == 0) {
        if (!compaction) {
            p->usual = p->known ? p->usual + SAMPLE * (share - p->usual) : share;
            p->known = true;
        }
        return;
    }
    p->peak = fmax(p->peak, share);
    p->since++;
    if (!p->known)
        p->since = 0;
    else if (share <= p->usual + RISE + .1 * (p->peak - p->usual) ||
             p->since > PHASES_STEPS)
        recovered(p, blocks);
}

double phases_t1(const struct phases *p, uint64_t blocks)
{
    return fmin(p->alpha * (double)blocks, PHASES_STEPS);
}

uint32_t phases_t2(const struct phases *p, uint64_t blocks, double otherwise)
{
    double t2 =
        p->beta > 0 && blocks > 0 ? p->beta * p->lookups / (double)blocks : otherwise;

    return (uint32_t)fmin(fmax(ceil(t2), 1), PHASES_STEPS);
}
