/* SPDX-License-Identifier: BSD-3-Clause */
/* admission.c - a line through reads' times, and what follows from it (admission.h). */
#include "engine/admission.h"

#define FADE   0.002 /* of what is known, a read: some hundred reads count */
#define ENOUGH 32.0  /* reads before anything is said */
#define MOST   0.95f /* so that there are always some prefetches to learn from */

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
    a->sizes[size].others += part * by_others;
    a->sizes[size].ns += part * by_ns;
    /* Welford's: once with the mean before, once with that after. */
    a->spread = (1 - FADE) * a->spread + by_others * (others - a->sizes[size].others);
    a->covariance = (1 - FADE) * a->covariance + by_others * (ns - a->sizes[size].ns);
    a->weight = (1 - FADE) * a->weight + 1;
}

/* The lock is held. */
static void judge(struct qm_admission *a)
{
    double slope = a->spread > 0 ? a->covariance / a->spread : 0;
    float threshold = slope > 0 && a->gap > 0 ? (float)(FLAT * slope / a->gap) : 0;

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
