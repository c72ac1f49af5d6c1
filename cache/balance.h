/* SPDX-License-Identifier: BSD-3-Clause */
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
    uint64_t prefetch;        /* the prefetch part's share, in blocks */
    bool adapts;              /* the share changes; else the following are unused */
    double exact;             /* the share, with its fraction of a block */
    struct qm_ghosts *ghosts; /* blocks that the parts evicted */
    uint32_t arrivals;        /* blocks that entered the main part, and a part of its
                                 hits; wraps */
    uint32_t hits;            /* of the main part that do not count as arrivals yet */
    double usual;             /* arrivals for which nine in ten wait for their use */
    double used, missed; /* of late: prefetched blocks, and ghosts of the main part */
    double holds;        /* of late: blocks of the prefetch part */
    uint64_t main;       /* qm_balance_main() */
};

/* The numbers of blocks that the parts hold. */
struct qm_held {
    uint64_t main, prefetch;
    uint64_t filling; /* of prefetch: those whose fill is in flight */
};

/* prefetch: the prefetch part's initial share of blocks, which stays unless `adapts`.
 * Returns 0 or ENOMEM. */
int qm_balance_init(struct qm_balance *b, uint64_t blocks, uint64_t prefetch,
                    bool adapts);
void qm_balance_destroy(struct qm_balance *b); /* also if init failed */

/* Allocates ghosts for a cache of `blocks` blocks.  Returns 0, or ENOMEM and changes
 * nothing. */
int qm_balance_reserve(struct qm_balance *b, uint64_t blocks);

/* Sets the number of blocks of both parts together to `blocks`, at most what was
 * reserved.  If the share does not adapt, `prefetch` of them are for prefetching. */
void qm_balance_resize(struct qm_balance *b, uint64_t blocks, uint64_t prefetch);

/* Which part, never an empty one, has to evict a block, as there are more than may be;
 * QM_PART_NONE: there are not. */
enum qm_part qm_balance_excess(const struct qm_balance *b, const struct qm_held *held);

/* Upper bound of the memory that it allocates, in bytes. */
size_t qm_balance_bytes(uint64_t blocks);

/* Learns from a block that is about to enter `part` and is in none, and from what the
 * parts hold.  Returns whether the share or qm_balance_main() changed. */
bool qm_balance_arrival(struct qm_balance *b, enum qm_part part, uint64_t block,
                        const struct qm_held *held);

/* The blocks that the main part has for its own: all but those that the prefetch part
 * holds of late, which may be far fewer than its share; to a 64th of all. */
static inline uint64_t qm_balance_main(const struct qm_balance *b)
{
    return b->main;
}

/* Which part, never an empty one, evicts a block before another enters `part`;
 * QM_PART_NONE: a block is free.  reserved: blocks that the prefetch part has at least,
 * up to half, if the share adapts and the main part does not lose more by it. */
enum qm_part qm_balance_victim(const struct qm_balance *b, enum qm_part part,
                               const struct qm_held *held, uint64_t reserved);

/* A block enters the prefetch part: what is to be remembered of it until it leaves. */
static inline uint32_t qm_balance_came(const struct qm_balance *b)
{
    return b->arrivals;
}

/* Counts hits of the main part. */
void qm_balance_hits(struct qm_balance *b, uint32_t hits);

/* A block that came then is used. */
void qm_balance_used(struct qm_balance *b, uint32_t came);

/* Whether a block that came then has been there for so long that it will probably not
 * be used any more: it goes before any of the main part's. */
bool qm_balance_is_stale(const struct qm_balance *b, uint32_t came);

/* Remembers block, which `part` evicted. */
void qm_balance_evicted(struct qm_balance *b, enum qm_part part, uint64_t block);

#endif
