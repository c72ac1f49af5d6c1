/* balance.h - how a shard's blocks are divided between its main and its prefetch part.
 *
 * Always called with the shard's mutex held.
 */
#ifndef QM_CACHE_BALANCE_H
#define QM_CACHE_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/evict-ghosts.h"

/* Where a block is. */
enum qm_part {
    QM_PART_NONE, /* free, in limbo, or detached: not in the table */
    QM_PART_MAIN,
    QM_PART_PREFETCH,
};

struct qm_balance {
    uint64_t blocks;          /* of both parts */
    uint64_t prefetch;        /* the prefetch part's share of them */
    bool adapts;              /* the share changes; the following are for that */
    double exact;             /* the share, with what is not a whole block */
    struct qm_ghosts *ghosts; /* what the parts gave up */
};

/* What the parts hold. */
struct qm_held {
    uint64_t main, prefetch;
    uint64_t filling; /* of the prefetch part's, on their way still */
};

/* Prefetch blocks of all blocks at first, and for ever unless it adapts.  Returns 0 or
 * ENOMEM. */
int qm_balance_init(struct qm_balance *b, uint64_t blocks, uint64_t prefetch,
                    bool adapts);
void qm_balance_destroy(struct qm_balance *b); /* also if init failed */

/* The most that it takes beside itself. */
size_t qm_balance_bytes(uint64_t blocks);

/* A block that is in no part is about to enter part.  Returns whether that changed the
 * share. */
bool qm_balance_arrival(struct qm_balance *b, enum qm_part part, uint64_t block);

/* Which part gives up a block so that another can enter `part`; QM_PART_NONE: there is
 * room.  The one that it names is not empty. */
enum qm_part qm_balance_victim(const struct qm_balance *b, enum qm_part part,
                               const struct qm_held *held);

/* part gave up block. */
void qm_balance_evicted(struct qm_balance *b, enum qm_part part, uint64_t block);

#endif
