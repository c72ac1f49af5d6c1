/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.h - the decision path: what is made of each block that is read.
 *
 * The server and the simulator both go through it, so that what the simulator counts is
 * what the server does.  It decides; its caller has the cache asked, finds the context,
 * carries prefetches out, and has the threads and the clock:
 *
 *   qm_cache_demand()    the caller's: how is the block found?
 *   qm_engine_found()    what that says of earlier prefetches
 *   qm_engine_missed()   what a miss says of those that were not made
 *   qm_engine_ignores()  whether there is anything else to do
 *   qm_engine_extend()   what its context's sequence has learned, and wants prefetched
 *   qm_engine_issue()    of these, what is to be prefetched now
 *   qm_engine_forget()   blocks were trimmed
 *   qm_engine_tell()     where files lie
 *   qm_engine_refused()  blocks that were wanted are not prefetched
 *   qm_engine_wasted()   a prefetched block has left the cache unused
 *
 * A class is a number of the caller's that says on whose behalf a read is made; 0: no
 * class.
 *
 * Threads: any function may be called by any number of threads at a time, but for
 * qm_engine_extend() on one stream, which the caller serializes.  A hit that is
 * ignored takes no lock here and writes nothing.
 */
#ifndef QM_ENGINE_H
#define QM_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/admission.h"
#include "engine/bound.h"
#include "engine/latency.h"
#include "engine/load.h"
#include "engine/params.h"
#include "engine/rate.h"
#include "mining/core/prefetcher.h"
#include "mining/core/throttle.h"

/* Bytes of the device. */
struct qm_bytes {
    uint64_t offset, length;
};

enum { QM_ENGINE_EXTENTS_MAX = 64 }; /* of one call of qm_engine_tell() */

/* Filled in by the caller before the first call.  After that nothing in it changes but
 * by a caller that keeps all other threads out of qm_engine_extend(), _used(),
 * _missed(), _wasted(), _forget(), _tell() and _refused() meanwhile; qm_engine_issue()
 * may be given a copy, since it does not use the prefetcher if there is `refused`. */
struct qm_engine {
    struct qm_prefetcher *prefetcher;
    struct qm_cache *cache;
    struct qm_throttle *throttle;   /* NULL: every class may prefetch as it likes */
    struct qm_admission *admission; /* NULL: probability does not matter */
    struct qm_device_load *load;    /* NULL: how busy the device is does not matter */
    struct qm_rate *rate;           /* NULL: reads ahead have no budget */
    struct qm_bound *bound;         /* NULL: whether prefetching pays does not matter */
    struct qm_latency *latency;     /* how long reads take; NULL: not known */
    /* Whether a second tier has a block, as far as is known at the moment.  May be
     * called with the prefetcher's locks held.  NULL: there is none. */
    bool (*in_tier)(void *opaque, uint64_t block);
    /* Where the prefetcher may be replaced while qm_engine_issue() runs on a copy: is
     * told of runs that are not issued, or not all of it, and of the number of the
     * copy; it calls qm_engine_refused(), from where the prefetcher stays, if that has
     * still this number.  May be called with no lock of the prefetcher's only.  NULL:
     * qm_engine_issue() calls it. */
    void (*refused)(void *opaque, uint64_t number, uint64_t block, uint32_t count);
    uint64_t number;        /* of the prefetcher: how many there were before it */
    void *opaque;           /* of in_tier and refused */
    uint32_t block_size;    /* bytes; of the prefetcher's configuration, 0: not known */
    uint64_t device_blocks; /* what lies beyond is not prefetched */
    bool prefetches;        /* false: the caller carries no prefetches out */
    bool on_prefetch_hit;   /* as in struct qm_params */
    bool oblivious;         /* level none: classes are not told apart */
    bool blind;             /* the cache does not know what LRU would have read */
    bool bounded; /* `bound` holds: the cache has a shadow for this prefetcher */
    /* The prefetcher need not be told of these. */
    _Atomic bool ignores_hits, ignores_early_hits;
};

/* Sets what the parameters say. */
void qm_engine_init(struct qm_engine *e, const struct qm_params *params);

/* Takes a prefetcher that was made with this configuration. */
void qm_engine_set_prefetcher(struct qm_engine *e, struct qm_prefetcher *prefetcher,
                              const struct qm_mining_config *mining);

/* Makes a prefetcher, which may look into e's cache while it is asked for candidates,
 * so e must stay where it is.  Returns what ops->create() does. */
int qm_engine_create_prefetcher(struct qm_engine *e,
                                const struct qm_prefetcher_ops *ops,
                                const struct qm_mining_config *mining,
                                struct qm_prefetcher **prefetcher, char *err,
                                size_t len);

/* The same; and takes it. */
int qm_engine_make_prefetcher(struct qm_engine *e, const struct qm_prefetcher_ops *ops,
                              const struct qm_mining_config *mining, char *err,
                              size_t len);

/* The class that a class counts as. */
static inline uint32_t qm_engine_class(const struct qm_engine *e, uint32_t klass)
{
    return e->oblivious ? 0 : klass;
}

/* Blocks of a stream that were candidates are not prefetched now. */
void qm_engine_refused(const struct qm_engine *e, uint64_t block, uint32_t count);

/* A block that was prefetched for issuer is demanded by a context of class klass. */
void qm_engine_used(const struct qm_engine *e, uint64_t block, uint32_t issuer,
                    uint32_t klass, bool late);

/* A context of class klass has missed a block: what that says of candidates that were
 * not read.  Only while qm_bound_is_watching() need it be called. */
void qm_engine_missed(const struct qm_engine *e, uint64_t block, uint32_t klass);

/* How prefetchers call what a demand found. */
static inline enum qm_access qm_engine_access(const struct qm_lookup *found)
{
    if (found->outcome == QM_HIT)
        return found->early ? QM_ACCESS_EARLY_HIT : QM_ACCESS_HIT;
    return found->outcome == QM_MISS ? QM_ACCESS_MISS : QM_ACCESS_PREFETCH_HIT;
}

/* A context of class klass has demanded a block.  Returns how prefetchers call what was
 * found. */
static inline enum qm_access qm_engine_found(const struct qm_engine *e, uint64_t block,
                                             uint32_t klass,
                                             const struct qm_lookup *found)
{
    if (found->outcome == QM_PREFETCH_HIT)
        qm_engine_used(e, block, found->issuer, klass, found->todo != QM_DONE);
    return qm_engine_access(found);
}

/* Whether there is nothing else to do about such an access. */
static inline bool qm_engine_ignores(const struct qm_engine *e, enum qm_access access)
{
    return (access == QM_ACCESS_HIT &&
            atomic_load_explicit(&e->ignores_hits, memory_order_relaxed)) ||
           (access == QM_ACCESS_EARLY_HIT &&
            atomic_load_explicit(&e->ignores_early_hits, memory_order_relaxed));
}

/* The access extends a stream, on behalf of class klass.  blocks: those of its request
 * from this one on, itself included.  If that makes something to learn from, it is
 * handed to learn() before candidates are asked for.  Fills in the candidates, if any
 * are wanted, and returns how many.  They have no more blocks than the class may
 * prefetch now, and none of those that the request is about to read itself, unless the
 * prefetcher is QM_BLOCK_BY_BLOCK. */
unsigned qm_engine_extend(const struct qm_engine *e, struct qm_stream *stream,
                          uint32_t klass, uint64_t block, uint32_t blocks,
                          enum qm_access access,
                          void (*learn)(void *opaque, struct qm_work *work),
                          void *opaque,
                          struct qm_candidate candidates[QM_CANDIDATES_MAX]);

/* Prefetches count adjacent blocks, none of which was cached when they were looked for;
 * returns how many it did prefetch. */
typedef unsigned qm_issue_fn(void *opaque, uint64_t block, uint32_t count);

/* What qm_engine_issue() is to be told of the time: 0 while the load is low and there
 * is no budget, when it need not be known. */
static inline bool qm_engine_needs_time(const struct qm_engine *e)
{
    return (e->load && !qm_device_load_is_low(e->load)) ||
           (e->rate && qm_rate_is_on(e->rate));
}

/* Blocks of candidates that were not prefetched. */
struct qm_kept_back {
    unsigned throttled; /* since the device was busy, or that has not paid of late; */
    unsigned watched;   /* since it is not known yet whether that pays */
};

/* Has n candidates of class klass prefetched.  What is cached, or lies beyond the end
 * of the device, is left out; issue() is called for each run of adjacent blocks that
 * remains of a candidate, if the device's load and the budget admit it, as one read. It
 * returns how many of the blocks it did prefetch; if it did any, the promise of the
 * budget is its to keep (rate.h).  now: see load.h.  Returns how many blocks were
 * kept back. */
struct qm_kept_back qm_engine_issue(const struct qm_engine *e, uint32_t klass,
                                    uint64_t now, const struct qm_candidate *candidates,
                                    unsigned n, qm_issue_fn *issue, void *opaque);

/* Count blocks from block on, which lie within the device, were trimmed: what was
 * learned of them leads to nothing any more.  Not for blocks that were zeroed: zeros
 * are contents that are read again. */
void qm_engine_forget(const struct qm_engine *e, uint64_t block, uint64_t count);

/* Passes a file's n extents to the prefetcher: offsets and lengths in bytes, in the
 * order of the file.  Parts beyond the device's `size` bytes are left out. */
void qm_engine_tell(const struct qm_engine *e, uint32_t block_size, uint64_t size,
                    const struct qm_bytes *extents, unsigned n);

/* A block that was prefetched for issuer has left unused.  May be called by the cache's
 * wasted(). */
void qm_engine_wasted(const struct qm_engine *e, uint64_t block, uint32_t issuer);

#endif
