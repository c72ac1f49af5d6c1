/* SPDX-License-Identifier: BSD-3-Clause */
/* trimmed.c - see trimmed.h. */
#include "mining/core/trimmed.h"

#include <string.h>

void qm_trimmed_init(struct qm_trimmed *f)
{
    atomic_init(&f->count, 0);
    pthread_rwlock_init(&f->lock, NULL);
}

void qm_trimmed_destroy(struct qm_trimmed *f)
{
    pthread_rwlock_destroy(&f->lock);
}

static unsigned count_of(const struct qm_trimmed *f)
{
    return atomic_load_explicit(&f->count, memory_order_relaxed);
}

static void set_count(struct qm_trimmed *f, unsigned n)
{
    atomic_store_explicit(&f->count, n, memory_order_relaxed);
}

/* The first range that ends after block. */
static unsigned find(const struct qm_trimmed *f, uint64_t block)
{
    unsigned low = 0, high = count_of(f);

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (f->ranges[middle].to > block)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool has(const struct qm_trimmed *f, uint64_t block)
{
    unsigned i = find(f, block);

    return i < count_of(f) && f->ranges[i].from <= block;
}

/* Puts with, of n ranges, in the place of those from i to i + gone - 1. */
static void replace(struct qm_trimmed *f, unsigned i, unsigned gone,
                    const struct qm_trimmed_range *with, unsigned n)
{
    unsigned count = count_of(f);

    memmove(&f->ranges[i + n], &f->ranges[i + gone],
            (count - i - gone) * sizeof f->ranges[0]);
    if (n > 0)
        memcpy(&f->ranges[i], with, n * sizeof with[0]);
    set_count(f, count - gone + n);
}

/* The list may be one longer than it should. */
static void drop_shortest(struct qm_trimmed *f)
{
    unsigned shortest = 0, count = count_of(f);

    if (count <= QM_TRIMMED_MAX)
        return;
    for (unsigned i = 1; i < count; i++)
        if (f->ranges[i].to - f->ranges[i].from <
            f->ranges[shortest].to - f->ranges[shortest].from)
            shortest = i;
    replace(f, shortest, 1, NULL, 0);
}

void qm_trimmed_add(struct qm_trimmed *f, uint64_t block, uint64_t count)
{
    struct qm_trimmed_range new = {block, block + count};
    unsigned first, last;

    if (count == 0 || block >= QM_BLOCKS_MAX)
        return;
    if (count > QM_BLOCKS_MAX - block)
        new.to = QM_BLOCKS_MAX;
    pthread_rwlock_wrlock(&f->lock);
    /* All that it touches become one with it. */
    first = last = find(f, new.from > 0 ? new.from - 1 : 0);
    for (; last < count_of(f) && f->ranges[last].from <= new.to; last++) {
        if (f->ranges[last].from < new.from)
            new.from = f->ranges[last].from;
        if (f->ranges[last].to > new.to)
            new.to = f->ranges[last].to;
    }
    replace(f, first, last - first, &new, 1);
    drop_shortest(f);
    pthread_rwlock_unlock(&f->lock);
}

bool qm_trimmed_search(struct qm_trimmed *f, uint64_t block)
{
    bool found;

    if (pthread_rwlock_tryrdlock(&f->lock) != 0)
        return false;
    found = has(f, block);
    pthread_rwlock_unlock(&f->lock);
    return found;
}

void qm_trimmed_remove(struct qm_trimmed *f, uint64_t block)
{
    struct qm_trimmed_range rest[2];
    unsigned n = 0, i;

    if (!qm_trimmed_search(f, block) || pthread_rwlock_trywrlock(&f->lock) != 0)
        return;
    if (has(f, block)) {
        i = find(f, block);
        if (f->ranges[i].from < block)
            rest[n++] = (struct qm_trimmed_range){f->ranges[i].from, block};
        if (f->ranges[i].to > block + 1)
            rest[n++] = (struct qm_trimmed_range){block + 1, f->ranges[i].to};
        replace(f, i, 1, rest, n);
        drop_shortest(f);
    }
    pthread_rwlock_unlock(&f->lock);
}

unsigned qm_trimmed_filter(struct qm_trimmed *f, struct qm_candidate *candidates,
                           unsigned n)
{
    unsigned kept = 0;

    if (qm_trimmed_none(f))
        return n;
    for (unsigned i = 0; i < n; i++)
        if (!qm_trimmed_has(f, candidates[i].block))
            candidates[kept++] = candidates[i];
    return kept;
}
