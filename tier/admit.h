/* SPDX-License-Identifier: BSD-3-Clause */
/* admit.h - which blocks are worth a write to the tier.
 *
 * *Sketch.*  A count-min sketch as in TinyLFU (Einziger, Friedman & Manes, ACM
 * Transactions on Storage 13(4), 2017): 4 rows of 4-bit counters, at least one counter
 * a row for each block of the tier, halved after 10 accesses a block.  It counts
 * demands that memory did not answer, and qm_tier_touch(): prefetches that were used,
 * without which what is always prefetched in time would count as never read.  Counters
 * are atomic words; lost increments are harmless.
 *
 * *Threshold.*  While the tier has free segments, all blocks that are no scan's are
 * admitted.  Then those that were read at least twice, if blocks of such a frequency
 * are worth more than those that are evicted (reuse.h); until that is known, those
 * that were read more often by a quarter of an access: the others make room for it, as
 * TinyLFU's victim does.  Those that stay in their segment do not count: they are the
 * hottest, and with them next to nothing would be admitted.  The mean frequency is
 * halved with the sketch, so that a new working set gets in. At least three times when
 * less than half of the write budget is left.
 *
 * *Budget.*  A token bucket of bytes: write_rate a day, at most an hour's share saved
 * up. All that is written to the file is paid from it; metadata may
 * overdraw it, which inserts then wait for.
 *
 * *Updates.*  The new data of a block that was written to is worth a write to the tier
 * if the block is read before it is written to again.  A database that keeps a block in
 * its own pool writes it many times and reads none of it; one that has evicted the
 * block reads it.  So 2-bit counters count a block's writes since it was last read: of
 * the first UNREAD of them the data is inserted, by QM_TIER_UPDATE_AUTO, and then the
 * block is dropped and must be read, and evicted from memory, to enter again.  Blocks
 * share counters by their hash, two counters for each block of the tier.
 *
 * *Bloom filter.*  Asked before the index, if wanted: m = -n ln f / (ln 2)^2 bits and
 * k = m/n ln 2 functions for n blocks and a false-positive rate f.  A block that leaves
 * stays in it, so it is stale when as many blocks were added since it was built as it
 * has room for, and then built anew from the index.
 */
#ifndef QM_TIER_ADMIT_H
#define QM_TIER_ADMIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct qm_tier;
struct qm_tier_insert;

struct qm_tier_sketch {
    _Atomic uint64_t *words; /* 16 counters each; the rows follow each other */
    uint64_t row;            /* words in a row */
    _Atomic uint64_t accesses;
    uint64_t sample;
};

struct qm_tier_bloom {
    _Atomic uint64_t *words; /* NULL: none */
    uint64_t bits;           /* m */
    unsigned functions;      /* k */
    uint64_t room;           /* n */
    _Atomic uint64_t added;
};

struct qm_tier_admission {
    struct qm_tier_sketch sketch;
    struct qm_tier_bloom bloom;
    _Atomic uint64_t *unread; /* 32 counters each: writes since the last read */
    uint64_t unread_words;
    _Atomic uint32_t leaving; /* frequency of blocks that are evicted, mean, in 16ths */
    pthread_mutex_t lock;     /* of what follows */
    int64_t tokens;           /* bytes; may be negative */
    int64_t burst;
    uint64_t refilled; /* when, ns */
};

/* m and k for n blocks and rate f. */
void qm_tier_bloom_size(uint64_t n, double f, uint64_t *bits, unsigned *functions);

int admit_new(struct qm_tier *t);
void admit_free(struct qm_tier *t);
void admit_count(struct qm_tier *t, uint64_t block);
/* A write of all of a block that the tier holds: whether its new data is to be
 * inserted.
 */
bool admit_update(struct qm_tier *t, uint64_t block);
unsigned admit_frequency(struct qm_tier *t, uint64_t block);
/* A block is offered that the tier does not hold; admit_decide() follows. */
void admit_offered(struct qm_tier *t, const struct qm_tier_insert *insert);
/* 0, EPERM or EDQUOT; scan: EPERM too, *was_scan says so. */
int admit_decide(struct qm_tier *t, uint64_t block, uint32_t frequency, bool scan,
                 bool *was_scan);
/* A segment was evicted: n live blocks, of which the frequencies add up to sum. */
void admit_learn(struct qm_tier *t, uint32_t sum, uint32_t n);
/* Bytes that were written. */
void admit_pay(struct qm_tier *t, uint64_t bytes);

void admit_bloom_add(struct qm_tier *t, uint64_t block);
bool admit_bloom_may_have(struct qm_tier *t, uint64_t block);
/* Builds it anew if it is stale. */
void admit_bloom_refresh(struct qm_tier *t);

#endif
