/* SPDX-License-Identifier: BSD-3-Clause */
/* admission.c - a line through reads' times, and what follows from it (admission.h). */
#include "engine/admission.h"

#include <math.h>

#define FADE   0.002 /* of what is known, a read: some hundred reads count */
#define ENOUGH 32.0  /* reads before anything is said */

/* A device that serves one read at a time, in the order of arrival, and is busy for a
 * part U of it, makes reads wait for U / (1 - U) times half a read's time, or more if
 * these times stray (Pollaczek and Khinchine).  That would be 0.5.  Less makes the
 * threshold higher: a prefetch that is used may come late, and then saves less than a
 * read's time.  Found by trying, in virtual time, from 0.15 to 0.58, where little
 * changes from 0.3 on. */
#define WAIT 0.4

#define ALONE_HALF  4.0   /* a read that found another weighs a 16th, and so on */
#define OTHERS_MOST 64.0  /* so that a weight is never 0 */
#define ALONE_MOST  128.0 /* reads that were alone count */

#define MOST 0.95f /* so that there are always some prefetches to learn from */

/* A line is too flat by this factor, since its points stray: in which order a device
 * serves, and which of its parts a read is for, are chance here.  From the device
 * model's disks, whose busy time is known. */
#define FLAT 1.6

void qm_admission_init(struct qm_admission *a)
{
    *a = (struct qm_admission){.gap = 0};
    atomic_init(&a->threshold, 0);
    pthread_mutex_init(&a->lock, NULL);
}

void qm_admission_destroy(struct qm_admission *a)
{
    pthread_mutex_destroy(&a->lock);
}

unsigned qm_admission_begin(struct qm_admission *a, bool ahead)
{
    int others = atomic_load_explicit(&a->demands, memory_order_relaxed) +
                 atomic_load_explicit(&a->ahead, memory_order_relaxed);

    atomic_fetch_add_explicit(ahead ? &a->ahead : &a->demands, 1, memory_order_relaxed);
    return others > 0 ? (unsigned)others : 0;
}

static unsigned size_of(unsigned blocks)
{
    unsigned size = blocks > 0 ? 31 - (unsigned)__builtin_clz(blocks) : 0;

    return size < QM_ADMISSION_SIZES ? size : QM_ADMISSION_SIZES - 1;
}

/* How long a read takes alone: the mean of all, where one that found others weighs the
 * less the more these were.  The lock is held. */
static void learn_alone(struct qm_admission *a, double others, double ns, unsigned size)
{
    double weight = exp2(-ALONE_HALF * (others < OTHERS_MOST ? others : OTHERS_MOST));

    a->sizes[size].alone_weight += weight;
    if (a->sizes[size].alone_weight > ALONE_MOST)
        a->sizes[size].alone_weight = ALONE_MOST;
    a->sizes[size].alone +=
        weight / a->sizes[size].alone_weight * (ns - a->sizes[size].alone);
}

/* The lock is held. */
static void learn(struct qm_admission *a, double others, double ns, unsigned size)
{
    double by_others, by_ns, part;

    for (unsigned i = 0; i < QM_ADMISSION_SIZES; i++)
        a->sizes[i].weight *= 1 - FADE;
    a->sizes[size].weight += 1;
    part = 1 / a->sizes[size].weight;
    by_others = others - a->sizes[size].others;
    by_ns = ns - a->sizes[size].ns;
    learn_alone(a, others, ns, size);
    a->sizes[size].others += part * by_others;
    a->sizes[size].ns += part * by_ns;
    /* Welford's: once with the mean before, once with that after. */
    a->spread = (1 - FADE) * a->spread + by_others * (others - a->sizes[size].others);
    a->covariance = (1 - FADE) * a->covariance + by_others * (ns - a->sizes[size].ns);
    a->weight = (1 - FADE) * a->weight + 1;
}

/* The part of the time that the device is busy, by how much longer than alone reads
 * take.  The lock is held. */
static double busy_by_waiting(const struct qm_admission *a)
{
    double waited = 0, weight = 0;

    for (unsigned i = 0; i < QM_ADMISSION_SIZES; i++)
        if (a->sizes[i].alone > 0) {
            waited += a->sizes[i].weight * (a->sizes[i].ns / a->sizes[i].alone - 1);
            weight += a->sizes[i].weight;
        }
    waited = waited > 0 ? waited / weight : 0;
    return waited / (waited + WAIT);
}

/* The lock is held. */
static void judge(struct qm_admission *a)
{
    double slope = a->spread > 0 ? a->covariance / a->spread : 0;
    double busy = slope > 0 && a->gap > 0 ? FLAT * slope / a->gap : 0;
    double waiting = busy_by_waiting(a);
    float threshold = (float)(busy > waiting ? busy : waiting);

    if (threshold > MOST)
        threshold = MOST;
    atomic_store_explicit(&a->threshold, threshold, memory_order_relaxed);
}

/* The lock is held. */
static void note_end(struct qm_admission *a, uint64_t now)
{
    double gap = now > a->last ? (double)(now - a->last) : 0;

    if (a->last > 0)
        a->gap += (gap - a->gap) * (a->gap > 0 ? FADE : 1);
    if (now > a->last)
        a->last = now;
}

void qm_admission_end(struct qm_admission *a, bool ahead, unsigned others, uint64_t now,
                      uint64_t ns, unsigned blocks)
{
    atomic_fetch_sub_explicit(ahead ? &a->ahead : &a->demands, 1, memory_order_relaxed);
    if (blocks == 0)
        return;
    pthread_mutex_lock(&a->lock);
    note_end(a, now);
    learn(a, others, (double)ns, size_of(blocks));
    if (a->weight >= ENOUGH)
        judge(a);
    pthread_mutex_unlock(&a->lock);
}
