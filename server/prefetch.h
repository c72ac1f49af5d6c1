/* prefetch.h - the queue of prefetches, and the threads that carry them out.
 *
 * Issuing a prefetch makes its block enter the prefetch cache at once (so what is
 * evicted for it, and whether a demand finds it, does not depend on when it arrives),
 * and queues the read.  Demands go first: a reader whose block's prefetch is still
 * queued takes that read over (qms_prefetch_take()) and does not wait behind others.
 *
 * The queue is bounded, and shared by clients as engine/fair.h says: each has its turn,
 * a block at a time, and while several have prefetches queued, none can fill it.  A
 * candidate for which there is no room is dropped and counted, and so is a prefetch
 * that has to go for another client's; that one leaves the prefetch cache, too.
 *
 * A prefetch that fails is counted and otherwise silent: who waits for it tries by
 * himself.
 */
#ifndef QMS_PREFETCH_H
#define QMS_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "server/clients.h"
#include "engine/load.h"
#include "server/stats.h"

struct qms_prefetch;

struct qms_prefetch_config {
    struct qm_cache *cache;
    struct qms_stats *stats;
    struct qm_device_load *load; /* told how long reads take; NULL: none */
    uint64_t size;               /* of the device, in bytes */
    uint32_t block_size;
    uint32_t max_bytes; /* of one read of the layer below; at least a block */
    unsigned threads, queue;
    /* Reads count bytes at offset on behalf of worker 0 to threads - 1; each worker
     * calls it by one thread.  Returns 0 or an errno value; ENOTCONN if the device was
     * not asked. */
    int (*read)(void *opaque, unsigned worker, void *buf, uint32_t count,
                uint64_t offset);
    void *opaque;
};

/* Starts the threads.  NULL if memory or threads are out. */
struct qms_prefetch *qms_prefetch_start(const struct qms_prefetch_config *config);

/* Ends them; what is still queued is not read.  Nobody may be issuing any more. */
void qms_prefetch_stop(struct qms_prefetch *prefetch);

/* Issues a prefetch of block, which lies within the device, on behalf of a client, and
 * of an issuer for the cache to remember.  Returns 0; EEXIST (cached, or being loaded),
 * ENOBUFS (the queue is full), ENOSPC (no prefetch cache) or ENOMEM.  Any thread. */
int qms_prefetch_issue(struct qms_prefetch *prefetch, uint64_t block, unsigned client,
                       uint32_t issuer);

/* Takes the prefetch of block out of the queue that load, to which the caller has a
 * reference, is for.  If it was there, the caller has another reference to load, reads
 * the block in its place, and fills or fails that.  Any thread. */
bool qms_prefetch_take(struct qms_prefetch *prefetch, uint64_t block,
                       struct qm_fill *fill);

#endif
