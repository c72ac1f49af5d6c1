/* SPDX-License-Identifier: BSD-3-Clause */
/* resize.c - cache-size while the server serves.
 *
 * Blocks and their metadata get what the new size leaves beside the memory for rules,
 * which stays as it was when the server started.  Only the control socket's thread
 * calls these.
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

/* Of cache-size, the rules' part. */
static uint64_t rules_part(const struct qms_server *s)
{
    return s->config.cache_size - s->config.block_bytes;
}

static int check(const struct qms_server *s, uint64_t bytes, char *why, size_t len)
{
    const char *whose;
    uint64_t most = qms_value_most_memory(&whose);

    if (s->config.cache_blocks != 0) {
        snprintf(why, len,
                 "cache-size cannot be changed: the server was started with "
                 "cache-blocks");
        return ENOTSUP;
    }
    if (bytes > most) {
        snprintf(why, len,
                 "cache-size must not exceed %s, %" PRIu64 " bytes; it is %" PRIu64,
                 whose, most, bytes);
        return EINVAL;
    }
    return 0;
}

static int resize(struct qms_server *s, uint64_t blocks)
{
    const struct timespec wait = {.tv_nsec = TRY_NS};
    int error = qm_cache_resize(s->cache, blocks);

    for (int i = 0; error == EAGAIN && i < TRIES; i++) {
        nanosleep(&wait, NULL);
        error = qm_cache_resize(s->cache, blocks);
    }
    return error == EAGAIN ? 0 : error; /* the rest follows when the reads have ended */
}

int qms_server_set_cache_size(struct qms_server *s, uint64_t bytes, char *why,
                              size_t len)
{
    int error = check(s, bytes, why, len);
    uint64_t blocks = 0;

    if (error != 0)
        return error;
    if (bytes > rules_part(s))
        blocks = qm_cache_resize_within(s->cache, bytes - rules_part(s));
    error = blocks > 0 ? resize(s, blocks) : EINVAL;
    if (error == EINVAL) {
        snprintf(why, len,
                 "cache-size must have room for %s in each of the parts that the cache "
                 "was started with, their metadata, and %" PRIu64
                 " bytes for rules; %" PRIu64 " bytes have not",
                 s->prefetch ? "two blocks" : "a block", rules_part(s), bytes);
        return error;
    }
    if (error != 0) {
        snprintf(why, len, "cache-size stays %" PRIu64 " bytes: %s",
                 s->config.cache_size, strerror(error));
        return error;
    }
    s->config.block_bytes = bytes - rules_part(s); /* before the size: it is of it */
    s->config.cache_size = bytes;
    malloc_trim(0); /* what is small, free() keeps */
    return 0;
}
