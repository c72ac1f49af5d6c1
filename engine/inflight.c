/* SPDX-License-Identifier: BSD-3-Clause */
/* inflight.c - see inflight.h. */
#include "engine/inflight.h"

#include <math.h>

#define POWER 1.5

#define FADE   0.02 /* of what is known of a step, a read: some fifty count */
#define ENOUGH 8.0  /* reads before a step counts */
#define PERIOD 16   /* reads between two decisions */

/* Prefetches that may wait for each that may be in flight; at least, if that number is
 * configured; at most. */
#define QUEUE_EACH  8
#define QUEUE_LEAST 128
#define QUEUE_MOST  QM_INFLIGHT_QUEUE_MOST

/* Steps up to 7 are one each; from there on there are four an octave. */
#define ONES 7

static unsigned step_of(unsigned n)
{
    unsigned octave, step;

    if (n <= ONES)
        return n > 0 ? n - 1 : 0;
    octave = 31 - (unsigned)__builtin_clz(n);
    step = ONES + (octave - 3) * 4 + (n >> (octave - 2) & 3);
    return step < QM_INFLIGHT_STEPS ? step : QM_INFLIGHT_STEPS - 1;
}

/* The least number of reads in that step. */
static unsigned reads_of(unsigned step)
{
    unsigned octave;

    if (step < ONES)
        return step + 1;
    octave = (step - ONES) / 4 + 3;
    return (4 + (step - ONES) % 4) << (octave - 2);
}

void qm_inflight_init(struct qm_inflight *f, unsigned given)
{
    *f = (struct qm_inflight){.given = given};
    atomic_init(&f->aim, QM_INFLIGHT_FIRST);
    pthread_mutex_init(&f->lock, NULL);
}

void qm_inflight_destroy(struct qm_inflight *f)
{
    pthread_mutex_destroy(&f->lock);
}

void qm_inflight_waits(struct qm_inflight *f)
{
    if (!atomic_load_explicit(&f->waited, memory_order_relaxed))
        atomic_store_explicit(&f->waited, true, memory_order_relaxed);
}

/* The lock is held. */
static void decide(struct qm_inflight *f)
{
    const unsigned aim = atomic_load_explicit(&f->aim, memory_order_relaxed);
    unsigned best = 0, last = 0, next;
    double most = 0, slowness = 1, power;

    for (unsigned i = 0; i < QM_INFLIGHT_STEPS; i++) {
        if (f->steps[i].count < ENOUGH)
            continue;
        /* More reads do not make one faster: where it looks so, that is chance. */
        if (f->steps[i].slowness > slowness)
            slowness = f->steps[i].slowness;
        power = reads_of(i) / pow(slowness, POWER);
        last = i;
        if (power < most)
            continue;
        most = power;
        best = i;
    }
    next = reads_of(best + 1 < QM_INFLIGHT_STEPS ? best + 1 : best);
    if (best == last) { /* perhaps more are better still */
        if (!atomic_load_explicit(&f->waited, memory_order_relaxed))
            next = aim;
        else if (next < aim)
            next =
                step_of(aim) + 1 < QM_INFLIGHT_STEPS ? reads_of(step_of(aim) + 1) : aim;
    }
    atomic_store_explicit(&f->aim, next, memory_order_relaxed);
    atomic_store_explicit(&f->waited, false, memory_order_relaxed);
}

void qm_inflight_ended(struct qm_inflight *f, unsigned others, double slowness)
{
    unsigned step = step_of(others + 1);

    if (slowness <= 0)
        return;
    pthread_mutex_lock(&f->lock);
    f->steps[step].count += 1;
    f->steps[step].slowness +=
        (slowness - f->steps[step].slowness) *
        (f->steps[step].count < 1 / FADE ? 1 / f->steps[step].count : FADE);
    if (++f->reads % PERIOD == 0)
        decide(f);
    pthread_mutex_unlock(&f->lock);
}

unsigned qm_inflight_queue(const struct qm_inflight *f, unsigned demands)
{
    unsigned aim = atomic_load_explicit(&f->aim, memory_order_relaxed), queue;

    if (f->given > 0)
        queue =
            QUEUE_EACH * f->given > QUEUE_LEAST ? QUEUE_EACH * f->given : QUEUE_LEAST;
    else
        queue = 2 * aim > demands ? QUEUE_EACH * (2 * aim - demands) / 2 : 0;
    return queue < QUEUE_MOST ? queue : QUEUE_MOST;
}
