/* SPDX-License-Identifier: BSD-3-Clause */
/* trimmed.h - blocks that were trimmed, and are not to be prefetched until they are
 * read again.
 *
 * For prefetchers whose rules cannot be found by the block that they lead to: the rules
 * stay, and grow old like others, but what they propose is looked for here.  A block is
 * forgotten until its next demand, which says that it has contents again.
 *
 * A sorted list of ranges, at most QM_TRIMMED_MAX.  Where one more is wanted, the
 * shortest goes, so its blocks may be prefetched in vain.  An empty list costs a reader
 * one load.
 *
 * Any function may be called by any number of threads at a time.  Who reads never
 * waits: while the list is being changed, no block is forgotten and none is revived.
 */
#ifndef QM_TRIMMED_H
#define QM_TRIMMED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

enum { QM_TRIMMED_MAX = 1024 };

struct qm_trimmed_range {
    uint64_t from, to; /* [from, to), never empty */
};

struct qm_trimmed {
    atomic_uint count;     /* of ranges; written with the lock held for writing */
    pthread_rwlock_t lock; /* protects the ranges */
    struct qm_trimmed_range ranges[QM_TRIMMED_MAX + 1]; /* sorted, none touches */
};

void qm_trimmed_init(struct qm_trimmed *f);
void qm_trimmed_destroy(struct qm_trimmed *f);

/* These blocks are forgotten.  Takes time for QM_TRIMMED_MAX ranges, however many
 * blocks there are. */
void qm_trimmed_add(struct qm_trimmed *f, uint64_t block, uint64_t count);

/* Whether nothing is forgotten, which is usual: for each read and each candidate, so it
 * costs no call. */
static inline bool qm_trimmed_none(const struct qm_trimmed *f)
{
    return atomic_load_explicit(&f->count, memory_order_relaxed) == 0;
}

/* The following two where something is forgotten. */
bool qm_trimmed_search(struct qm_trimmed *f, uint64_t block);
void qm_trimmed_remove(struct qm_trimmed *f, uint64_t block);

/* Whether block is forgotten. */
static inline bool qm_trimmed_has(struct qm_trimmed *f, uint64_t block)
{
    return !qm_trimmed_none(f) && qm_trimmed_search(f, block);
}

/* Block was read: it is not forgotten any more. */
static inline void qm_trimmed_revive(struct qm_trimmed *f, uint64_t block)
{
    if (!qm_trimmed_none(f))
        qm_trimmed_remove(f, block);
}

/* Takes what is forgotten out of n candidates of one block each; returns how many
 * remain, in their order. */
unsigned qm_trimmed_filter(struct qm_trimmed *f, struct qm_candidate *candidates,
                           unsigned n);

#endif
