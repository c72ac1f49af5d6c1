/* shadow.h - how often a plain LRU cache of the same size would have missed, about.
 *
 * A directory of the block numbers that such a cache would hold.  It need not be whole:
 * of a large cache it is kept for a sample of the blocks, chosen by their hash, and for
 * a cache that is smaller by as much (Waldspurger et al., "Efficient MRC Construction
 * with SHARDS", FAST'15).  What it costs is a hash a demand, and a look-up for those of
 * the sample.
 *
 * Always called with the shard's mutex held.
 */
#ifndef QM_CACHE_SHADOW_H
#define QM_CACHE_SHADOW_H

#include <stddef.h>
#include <stdint.h>

struct qm_ghosts;

struct qm_shadow {
    struct qm_ghosts *ghosts; /* what the LRU cache holds; NULL: there is no shadow */
    uint64_t room;            /* how many it has room for */
    uint64_t below;           /* a block is in the sample if its hash is */
    uint64_t missed;          /* demands of the sample's blocks */
};

/* Of a shard of so many blocks, of all of a cache.  Returns 0 or ENOMEM. */
int qm_shadow_init(struct qm_shadow *s, uint64_t blocks, uint64_t all);
void qm_shadow_destroy(struct qm_shadow *s); /* also if init failed */

/* The most that it takes beside itself. */
size_t qm_shadow_bytes(uint64_t blocks, uint64_t all);

/* Somebody wanted block.  Nothing if there is no shadow. */
void qm_shadow_demand(struct qm_shadow *s, uint64_t block);

/* How many demands, of all, would have missed. */
uint64_t qm_shadow_misses(const struct qm_shadow *s);

#endif
