/* SPDX-License-Identifier: BSD-3-Clause */
/* rivals.h - whether blocks that would enter a full tier are worth more than those that
 * leave it for them.
 *
 * A frequency is a guess: where all blocks are read about equally often, its
 * differences are chance, and to admit by it writes much and gains nothing; where what
 * was read of late is read again, even a low one is worth a write.  So it is measured.
 *
 * *Samples.*  Of the blocks that are offered, whether they are admitted or not, and of
 * those that are evicted, a sample is watched for a while: until the tier was asked for
 * HORIZON times as many blocks as it holds.  Its *worth* is how often the block was
 * read meanwhile, of demands that memory did not answer and of prefetches that were
 * used; at most MOST times.  A block that is in the sample is not sampled again
 * meanwhile.  A read of a block that is not watched takes no lock.
 *
 * *Kinds.*  Offered blocks are told apart by how far their frequency is above that of
 * the blocks that leave.  Of each kind, and of those that leave, the mean worth is
 * learned, the last some hundred samples counting most.
 *
 * *Decision.*  A kind is admitted if its worth is above that of the blocks that leave
 * by COST, the reads that a write to the tier must save.  Before enough is known, and
 * of one in EXPLORE of all blocks, others from time to time, the frequency alone
 * decides: else a tier into which nothing enters would never learn that what it holds
 * is not read any more.
 */
#ifndef QM_TIER_RIVALS_H
#define QM_TIER_RIVALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct qm_tier;

#define RIVALS       4096 /* samples at a time */
#define RIVALS_KINDS 9    /* of offered blocks */

struct rival {
    _Atomic uint64_t block; /* plus one; 0: none */
    uint64_t since;         /* of the clock */
    uint8_t kind, reads;    /* kind RIVALS_KINDS: it was evicted */
};

struct rivals {
    _Atomic uint64_t clock;   /* reads */
    _Atomic uint64_t one_in;  /* blocks of which one is in the sample */
    _Atomic uint64_t horizon; /* reads */
    pthread_mutex_t lock; /* a leaf; of what follows, but anybody may read the means */
    struct rival samples[RIVALS];
    _Atomic double worth[RIVALS_KINDS + 1]; /* mean, by kind */
    _Atomic uint64_t learned[RIVALS_KINDS + 1];
};

/* The tier is of another size, or opened.  With log.lock, or alone. */
void rivals_size(struct qm_tier *t);
/* A block was read, or a prefetch of it used. */
void rivals_read(struct qm_tier *t, uint64_t block);
/* A block of this frequency is offered to a full tier, or has left it.  leaving: the
 * mean frequency of those that leave, in 16ths. */
void rivals_offered(struct qm_tier *t, uint64_t block, unsigned frequency,
                    unsigned leaving);
void rivals_left(struct qm_tier *t, uint64_t block);
/* Whether a block that is offered is to be admitted; otherwise: what its frequency
 * alone says. */
bool rivals_admit(struct qm_tier *t, uint64_t block, unsigned frequency,
                  unsigned leaving, bool otherwise);

#endif
