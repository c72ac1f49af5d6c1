/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.h - the second tier of the server: a file or partition below the cache's memory
 * (tier/tier.h), as the parameters tier=... want it.
 *
 * Where its parts are in the life of a block:
 *
 *   miss         io.c and prefetch.c look into the tier, then at the layer below; the
 *                reader's own fill is in flight meanwhile, so the rules for fills hold
 *   eviction     the cache asks for a ticket while it holds the block's lock, and hands
 *                the bytes over when no reader has them any more (leaving(), evicted())
 *   change       io.c: see struct writing there
 *   after start  blocks that are unverified are read from the layer below, and io.c and
 *                prefetch.c give what they have read to qms_tier_seen()
 *   server's end what memory holds is handed over, too
 *
 * s->tier is NULL without a tier, and constant while connections are served.
 */
#ifndef QMS_TIER_H
#define QMS_TIER_H

#include "tier/tier.h"

struct qms_server;
struct qms_config;
struct qm_cache_config;

/* Before nbdkit forks: whether there can be such a tier, as far as that can be told
 * without changing anything.  Returns 0, or -1 after nbdkit_error(). */
int qms_tier_try(const struct qms_config *config);

/* Threads that it will start. */
unsigned qms_tier_threads(const struct qms_config *config);

/* Opens the tier that is configured, if any, for the device, whose size is known.
 * Returns 0, or -1 after nbdkit_error(). */
int qms_tier_open(struct qms_server *s);

/* Has a cache hand over what it evicts. */
void qms_tier_below(struct qms_server *s, struct qm_cache_config *cache);

/* n blocks were read from the layer below; see qm_tier_verify(). */
static inline void qms_tier_seen(struct qm_tier *tier, uint64_t block, const void *data,
                                 uint64_t n)
{
    if (tier && qm_tier_unverified(tier) > 0)
        qm_tier_verify(tier, block, data, n);
}

/* No request or prefetch is in flight.  Hands over what the cache (NULL: there is none)
 * holds, and closes the tier. */
void qms_tier_close(struct qms_server *s);

#endif
