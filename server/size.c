/* SPDX-License-Identifier: BSD-3-Clause */
/* size.c - the device becomes larger while the server runs.
 *
 * nbdkit asks the plugin for its size once a connection, so a connection keeps the size
 * that it found.  The first that finds a larger one tells the server, in this order:
 *
 *   1. The server's size is the new one.  Connections of before do not load the block
 *      that the device ended in any more (io.c), of which they can read only a part.
 *   2. The prefetcher's connections are closed and opened anew.  nbdkit takes no
 *      request beyond the size that it was told, and ends the process instead.
 *   3. What is cached of the block that the device ended in is dropped: the rest of it
 *      is zeros there.  Loads of it that began before are not kept.
 *   4. Blocks beyond the old end may be prefetched.
 *
 * So nobody loads a part of a block as if it were the whole after 3, or asks for more
 * than its connection has.
 */
#include <inttypes.h>

#include "server/server.h"

static void grow(struct qms_server *s, uint64_t before, uint64_t size)
{
    const uint64_t block_size = s->config.block_size;

    atomic_store(&s->size, size);
    if (s->backing)
        qms_backing_renew(s->backing);
    if (s->prefetch)
        qms_prefetch_grow(s->prefetch, size);
    qms_forget_between(s, before, size);
    qms_rwlock_write(&s->contexts.lock);
    s->engine.device_blocks = (size - 1) / block_size + 1;
    qms_rwlock_write_unlock(&s->contexts.lock);
}

bool qms_size_found(struct qms_server *s, uint64_t size)
{
    uint64_t before;

    pthread_mutex_lock(&s->size_lock);
    before = atomic_load(&s->size);
    if (size > before)
        grow(s, before, size);
    atomic_store(&s->size_found, size);
    pthread_mutex_unlock(&s->size_lock);
    if (size > before)
        qms_log(QMS_WARNING,
                "the device has grown from %" PRIu64 " to %" PRIu64
                " bytes: connections from now on have it all; those of before keep the "
                "size that they know%s",
                before, size,
                atomic_load(&s->tiers.told)
                    ? "; the tier has room for the first part only, until it is "
                      "detached and attached"
                    : "");
    else if (size < before)
        qms_log(QMS_WARNING,
                "the device has %" PRIu64 " bytes now, and had %" PRIu64
                ": nothing is cached for this connection",
                size, before);
    if (size < before)
        qms_forget_between(s, size, before);
    return size >= before;
}
