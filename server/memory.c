/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - cache-size while the server serves: its division between blocks and rules,
 * which the miner's thread lets follow what they earn, and changes of it, which the
 * control socket's thread makes.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/server.h"
#include "server/values.h"

/* How long a change waits for reads in flight that keep memory. */
#define TRIES  100
#define TRY_NS 20000000

/* What depends on the number of blocks.  The miner's thread must not look at parameters
 * that may change meanwhile. */
void qms_memory_bound(struct qms_server *s)
{
    const struct qms_config *c = &s->config;
    uint64_t blocks = qm_cache_capacity(s->cache), most = c->prefetch_most;

    if (blocks != c->blocks) /* that the cache was made for */
        most = (uint64_t)((double)most * (double)blocks / (double)c->blocks);
    atomic_store_explicit(&s->batch, qm_params_batch(blocks, most),
                          memory_order_relaxed);
    if (s->prefetch)
        qms_prefetch_bound(s->prefetch, most);
}

void qms_memory_start(struct qms_server *s)
{
    const struct qms_config *c = &s->config;

    qm_memory_init(&s->memory, &(struct qm_memory_config){
                                   .cache = s->cache,
                                   .prefetcher = s->engine.prefetcher,
                                   .admission = s->engine.admission,
                                   .bound = s->engine.bound,
                                   .block_size = (uint32_t)c->block_size,
                                   .total = c->cache_blocks == 0 ? c->cache_size : 0,
                                   .rules = c->rules_bytes,
                                   .trades = c->rules_bytes > 0 &&
                                             qm_params_trades(&c->params, c->policy),
                               });
    qms_memory_bound(s);
    s->sized = true;
}

void qms_memory_tick(void *opaque)
{
    struct qms_server *s = opaque;

    qm_memory_tick(&s->memory);
    qms_memory_bound(s);
}

static int check(uint64_t bytes, char *why, size_t len)
{
    const char *whose;
    uint64_t most = qms_value_most_memory(&whose);

    if (bytes > most) {
        snprintf(why, len,
                 "cache-size must not exceed %s, %" PRIu64 " bytes; it is %" PRIu64,
                 whose, most, bytes);
        return EINVAL;
    }
    return 0;
}

static int resize(struct qms_server *s, uint64_t bytes)
{
    const struct timespec wait = {.tv_nsec = TRY_NS};
    int error = qm_memory_resize(&s->memory, bytes);

    for (int i = 0; error == EAGAIN && i < TRIES; i++) {
        nanosleep(&wait, NULL);
        error = qm_memory_resize(&s->memory, bytes);
    }
    qms_memory_bound(s);
    return error == EAGAIN ? 0 : error; /* the rest follows when the reads have ended */
}

int qms_server_set_cache_size(struct qms_server *s, uint64_t bytes, char *why,
                              size_t len)
{
    int error = check(bytes, why, len);

    if (error != 0)
        return error;
    error = resize(s, bytes);
    if (error == EINVAL) {
        snprintf(why, len,
                 "cache-size must have room for %s in each of the parts that the cache "
                 "was started with, their metadata, and the rules; %" PRIu64
                 " bytes have not",
                 s->prefetch ? "two blocks" : "a block", bytes);
        return error;
    }
    if (error != 0) {
        snprintf(why, len, "cache-size stays %" PRIu64 " bytes: %s",
                 s->config.cache_size, strerror(error));
        return error;
    }
    s->config.cache_size = bytes;
    malloc_trim(0); /* what is small, free() keeps */
    return 0;
}
