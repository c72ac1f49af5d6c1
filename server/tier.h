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
 *   change       writing.c: see struct writing there
 *   after start  blocks that are unverified are read from the layer below, and io.c and
 *                prefetch.c give what they have read to qms_tier_seen()
 *   server's end what memory holds is handed over, too
 *
 * A tier can be attached and detached while connections are served (struct qms_tiers).
 * A thread uses it between qms_tiers_enter() and qms_tiers_leave(), for as long as it
 * needs the same tier: a change from before it begins until after it has ended, a read
 * from before it reads the layer below until the tier has seen the data.
 *
 * attach  1. Changes that begin are told to it.  2. Those that were begun before end.
 *         3. It is looked into and fed.  It thereby sees every change of the blocks
 *         that it is given, and data that was read during a change that it did not see
 *         is never compared.  Its old contents are compared in any case, since this
 *         server has written without it.
 * detach  1. It is not looked into or fed any more.  2. The state of the volume that it
 *         has recorded is erased, durably, since it does not see later changes.
 *         3. Changes are no longer told to it; those that were end.  4. It is closed.
 *
 * A ticket is the tier's own and the number of its attachment, so that a block that
 * left memory before is not given to a tier that came after.
 */
#ifndef QMS_TIER_H
#define QMS_TIER_H

#include "server/quiesce.h"
#include "tier/tier.h"

struct qms_server;
struct qms_config;
struct qm_cache_config;

struct qms_tiers {
    struct qms_quiesce grace;
    _Atomic(struct qm_tier *) told;   /* of changes and flushes; NULL: none */
    _Atomic(struct qm_tier *) served; /* looked into and fed: that one, or NULL */
    _Atomic uint64_t number;          /* of the attachment; 0: there was none yet */
    _Atomic bool told_all; /* no change is in flight, or not on the volume's disk, that
                              it was not told of */
};

/* The tier to be looked into, NULL: none; it stays until the token is left. */
static inline struct qm_tier *qms_tiers_enter(struct qms_tiers *tiers, unsigned *token)
{
    *token = qms_quiesce_enter(&tiers->grace);
    return atomic_load(&tiers->served);
}

/* The tier to be told of a change or a flush. */
static inline struct qm_tier *qms_tiers_tell(struct qms_tiers *tiers, unsigned *token)
{
    *token = qms_quiesce_enter(&tiers->grace);
    return atomic_load(&tiers->told);
}

static inline void qms_tiers_leave(struct qms_tiers *tiers, unsigned token)
{
    qms_quiesce_leave(&tiers->grace, token);
}

/* Before nbdkit forks: whether there can be such a tier, as far as that can be told
 * without changing anything.  Returns 0, or -1 after nbdkit_error(). */
int qms_tier_try(const struct qms_config *config);

/* Threads that it will start. */
unsigned qms_tier_threads(const struct qms_config *config);

/* Opens the tier that is configured, if any, for the device, whose size is known.
 * Returns 0, or -1 after nbdkit_error(). */
int qms_tier_open(struct qms_server *s);

/* While it serves: opens the tier that next names, of which there is none now; or
 * closes the one that there is; or gives it another size.  One call at a time.  Return
 * 0, or -1 and a sentence in why. */
int qms_tier_attach(struct qms_server *s, const struct qms_config *next, char *why,
                    size_t len);
int qms_tier_detach(struct qms_server *s, char *why, size_t len);
int qms_tier_resize(struct qms_server *s, uint64_t size, char *why, size_t len);

/* Tells the engine what lies in the tier, whichever is attached. */
void qms_tier_place(struct qms_server *s);

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
