/* SPDX-License-Identifier: BSD-3-Clause */
/* reuse.h - admits blocks to a full tier by how often such blocks are read again.
 *
 * A frequency is an estimate.  Where all blocks are read about equally often, its
 * differences are chance, and to admit by it writes much and gains nothing.  Where
 * blocks that were read recently are read again, even a block of low frequency deserves
 * a write.  So reuse is measured.
 *
 * *Samples.*  A sample of the blocks that are offered, whether or not they are
 * admitted, and of those that are evicted, is watched until the tier was asked for
 * HORIZON_CAPACITIES times as many blocks as it holds.  A block's *reuse* is how often
 * it was read meanwhile: by demands that memory did not answer, and by prefetches that
 * were used; READS_MOST times at most.  A block that is watched is not sampled again.
 * A read of a block that is not watched takes no lock.
 *
 * *Kinds.*  Offered blocks are classed by how far their frequency is above the mean
 * frequency of evicted blocks.  The mean reuse of each kind, and of evicted blocks, is
 * learned; the last OF_LATE samples count most.
 *
 * *Decision.*  A kind is admitted if its mean reuse is above that of evicted blocks by
 * WRITE_COST_READS, the reads that a write to the tier must save.  The frequency alone
 * decides before enough is known, and for one of EXPLORE blocks, others in each
 * horizon: a tier that admits nothing would never learn that its blocks are not
 * read any more.
 */
#ifndef QM_TIER_REUSE_H
#define QM_TIER_REUSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct qm_tier;

#define REUSE_SAMPLES 4096 /* samples at a time */
#define REUSE_KINDS   9    /* of offered blocks */

struct reuse_sample {
    _Atomic uint64_t block; /* plus one; 0: none */
    uint64_t since;         /* of the clock */
    uint8_t kind, reads;    /* kind REUSE_KINDS: it was evicted */
};

struct reuse {
    _Atomic uint64_t clock;   /* reads */
    _Atomic uint64_t one_in;  /* blocks of which one is in the sample */
    _Atomic uint64_t horizon; /* reads */
    pthread_mutex_t lock; /* a leaf; of what follows, but means are read without it */
    struct reuse_sample samples[REUSE_SAMPLES];
    _Atomic double mean[REUSE_KINDS + 1]; /* reuse, by kind */
    _Atomic uint64_t learned[REUSE_KINDS + 1];
};

/* The tier is of another size, or opened.  With log.lock, or alone. */
void reuse_size(struct qm_tier *t);
/* A block was read, or a prefetch of it used. */
void reuse_read(struct qm_tier *t, uint64_t block);
/* A block of this frequency is offered to a full tier, or has left it.  leaving: the
 * mean frequency of those that leave, in 16ths. */
void reuse_offered(struct qm_tier *t, uint64_t block, unsigned frequency,
                   unsigned leaving);
void reuse_left(struct qm_tier *t, uint64_t block);
/* Whether a block that is offered is to be admitted.  otherwise: the answer by its
 * frequency alone. */
bool reuse_admit(struct qm_tier *t, uint64_t block, unsigned frequency,
                 unsigned leaving, bool otherwise);

#endif
