/* SPDX-License-Identifier: BSD-3-Clause */
/* bare.c - see bare.h. */
#include <errno.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/reading.h"
#include "bare.h"
#include "cache/internal.h"

#define BLOCK BARE_BLOCK

static bool touches(uint64_t offset, uint32_t count, uint64_t block)
{
    return offset < (block + 1) * BLOCK && block * BLOCK < offset + count;
}

/* Waits in the trap that is set for the call there, if there is one; the lock is held.
 * Returns the error that the call is to get. */
static int stop(struct bare *b, const struct bare_call *call, bool after)
{
    for (unsigned i = 0; i < sizeof b->traps / sizeof b->traps[0]; i++) {
        struct bare_trap *t = &b->traps[i];

        if (t->state != BARE_SET || t->op != call->op || t->after != after ||
            !touches(call->offset, call->count, t->block))
            continue;
        t->state = BARE_SPRUNG;
        pthread_cond_broadcast(&b->changed);
        while (t->stops && t->state != BARE_OPEN)
            pthread_cond_wait(&b->changed, &b->lock);
        t->state = BARE_NONE;
        return t->error;
    }
    return 0;
}

/* What the disk does. */
static int carry_out(struct bare *b, enum bare_op op, void *to, const void *from,
                     uint32_t count, uint64_t offset)
{
    const struct bare_call call = {op, offset, count};
    int error, later;

    if (count == 0 || offset + count > BARE_SIZE) /* nbdkit would */
        abort();
    pthread_mutex_lock(&b->lock);
    b->calls[b->call_count++ % 256] = call;
    pthread_cond_broadcast(&b->changed);
    error = stop(b, &call, false);
    if (to)
        memcpy(to, b->disk + offset, count);
    else if (from)
        memcpy(b->disk + offset, from, count);
    else
        memset(b->disk + offset, 0, count);
    later = stop(b, &call, true);
    error = error ? error : later;
    if (to && error)
        memset(to, 0xee, count); /* nobody may look at it */
    pthread_mutex_unlock(&b->lock);
    return error;
}

static struct bare *bare_of(nbdkit_next *next)
{
    return caa_container_of(next, struct bare, next);
}

static int result(int error, int *err)
{
    *err = error != BARE_UNSAID ? error : errno ? errno : EIO;
    return error ? -1 : 0;
}

static int below_pread(nbdkit_next *next, void *buf, uint32_t count, uint64_t offset,
                       uint32_t flags, int *err)
{
    return result(carry_out(bare_of(next), BARE_READ, buf, NULL, count, offset), err);
}

static int below_pwrite(nbdkit_next *next, const void *buf, uint32_t count,
                        uint64_t offset, uint32_t flags, int *err)
{
    return result(carry_out(bare_of(next), BARE_WRITE, NULL, buf, count, offset), err);
}

static int below_zero(nbdkit_next *next, uint32_t count, uint64_t offset,
                      uint32_t flags, int *err)
{
    return result(carry_out(bare_of(next), BARE_ZERO, NULL, NULL, count, offset), err);
}

static int below_trim(nbdkit_next *next, uint32_t count, uint64_t offset,
                      uint32_t flags, int *err)
{
    return result(carry_out(bare_of(next), BARE_TRIM, NULL, NULL, count, offset), err);
}

static int read_for_prefetch(void *opaque, unsigned worker, void *buf, uint32_t count,
                             uint64_t offset)
{
    return carry_out(opaque, BARE_PREFETCH, buf, NULL, count, offset);
}

static void start_prefetching(struct qms_server *s, struct bare *b)
{
    const struct qms_prefetch_config config = {
        .cache = s->cache,
        .stats = s->stats,
        .size = s->size,
        .block_size = BLOCK,
        .max_bytes = s->max_bytes,
        .threads = 1,
        .queue = 32,
        .read = read_for_prefetch,
        .opaque = b,
    };

    s->prefetch = qms_prefetch_start(&config);
    assert_non_null(s->prefetch);
}

struct bare *bare_new(uint64_t blocks, uint64_t prefetch_blocks)
{
    const struct qm_cache_config cache = {.block_size = BLOCK,
                                          .blocks = blocks,
                                          .prefetch_blocks = prefetch_blocks,
                                          .shards = 1,
                                          .eviction = "lru",
                                          .data = true};
    struct bare *b = aligned_alloc(_Alignof(struct bare), sizeof *b);
    struct qms_server *s = &b->s;

    memset(b, 0, sizeof *b);
    for (unsigned i = 0; i < BARE_SIZE; i++)
        b->disk[i] = 1 + i / BLOCK + i % 7;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    fake_init(&b->fake);
    s->config.block_size = BLOCK;
    s->config.blocks = blocks;
    s->config.prefetch_blocks = s->config.prefetch_most = prefetch_blocks;
    s->batch = qm_params_batch(blocks, prefetch_blocks);
    s->size = BARE_SIZE;
    s->max_bytes = 16 * BLOCK;
    s->engine.prefetcher = &b->fake.base;
    s->engine.device_blocks = BARE_BLOCKS;
    s->engine.prefetches = prefetch_blocks > 0;
    s->engine.refused = qms_reading_refused;
    s->engine.opaque = s;
    qm_device_load_init(&s->load);
    qms_order_init(&s->order);
    s->stats = qms_stats_new();
    s->classes = qms_classes_new();
    assert_int_equal(qm_cache_new(&cache, &s->cache), 0);
    s->engine.cache = s->cache;
    if (prefetch_blocks > 0)
        start_prefetching(s, b);
    s->contexts.engine = &s->engine;
    s->contexts.mining = true;
    s->contexts.classes = s->classes;
    s->contexts.stats = s->stats;
    s->contexts.held_max = 1 << 20;
    s->hints = qms_hints_new(qms_reading_alone, s);
    assert_non_null(s->hints);
    assert_int_equal(qms_contexts_init(&s->contexts), 0);
    qms_slot_init(&b->slot, QMS_CLIENT_NONE);
    assert_int_equal(
        qms_context_begin(&s->contexts, &b->slot, NULL, QM_CONNECTION,
                          qms_class_find(s->classes, QM_CONNECTION, 0, "", 0)),
        0);
    b->connection.cached = true;
    b->connection.size = BARE_SIZE;
    b->next.pread = below_pread;
    b->next.pwrite = below_pwrite;
    b->next.zero = below_zero;
    b->next.trim = below_trim;
    return b;
}

void bare_free(struct bare *b)
{
    struct qms_server *s = &b->s;
    struct qm_cache_stats stats;

    if (s->prefetch)
        qms_prefetch_stop(s->prefetch);
    qms_context_end(&s->contexts, &b->slot);
    qms_slot_destroy(&b->slot);
    qms_contexts_destroy(&s->contexts);
    qms_hints_free(s->hints);
    qm_cache_get_stats(s->cache, &stats);
    assert_int_equal(stats.prefetches,
                     stats.used + stats.wasted + stats.prefetch_blocks);
    assert_null(s->cache->writes);
    qm_cache_free(s->cache);
    qms_classes_free(s->classes);
    qms_stats_free(s->stats);
    qm_device_load_destroy(&s->load);
    qms_order_destroy(&s->order);
    fake_check_and_destroy(&b->fake);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static struct bare_trap *set(struct bare *b, struct bare_trap trap)
{
    struct bare_trap *t = b->traps;

    pthread_mutex_lock(&b->lock);
    while (t->state != BARE_NONE)
        t++;
    trap.state = BARE_SET;
    *t = trap;
    pthread_mutex_unlock(&b->lock);
    return t;
}

struct bare_trap *bare_trap(struct bare *b, enum bare_op op, uint64_t block, bool after)
{
    return set(
        b, (struct bare_trap){.op = op, .block = block, .stops = true, .after = after});
}

struct bare_trap *bare_fail(struct bare *b, enum bare_op op, uint64_t block)
{
    return set(
        b, (struct bare_trap){.op = op, .block = block, .after = true, .error = EIO});
}

void bare_await(struct bare *b, struct bare_trap *trap)
{
    pthread_mutex_lock(&b->lock);
    while (trap->state != BARE_SPRUNG)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void bare_open(struct bare *b, struct bare_trap *trap)
{
    pthread_mutex_lock(&b->lock);
    trap->state = BARE_OPEN;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void *carry_out_job(void *opaque)
{
    struct bare_job *j = opaque;
    struct bare *b = j->bare;
    struct qms_server *s = &b->s;
    int r = -1;

    errno = ENOMEM; /* left from something else */

    switch (j->op) {
    case BARE_READ:
        r = qms_read(s, &b->connection, &b->next, &b->slot, j->data, j->count,
                     j->offset, &j->error);
        break;
    case BARE_PREFETCH: /* NBD_CMD_CACHE */
        r = qms_fill(s, &b->connection, &b->next, j->count, j->offset, &j->error);
        break;
    case BARE_WRITE:
        r = qms_write(s, &b->next, &b->slot, j->data, j->count, j->offset, 0,
                      &j->error);
        break;
    case BARE_ZERO:
        r = qms_zero(s, &b->next, &b->slot, j->count, j->offset, 0, &j->error);
        break;
    case BARE_TRIM:
        r = qms_trim(s, &b->next, j->count, j->offset, 0, &j->error);
        break;
    }
    if (r == 0)
        j->error = 0; /* whatever it is: nbdkit looks at it after failures only */
    else if (j->error == 0)
        j->error = EPROTO; /* a failure must say why */
    return NULL;
}

struct bare_job *bare_start(struct bare *b, enum bare_op op, uint64_t offset,
                            uint32_t count)
{
    static unsigned char made_up;
    struct bare_job *j = calloc(1, sizeof *j);

    *j = (struct bare_job){.bare = b, .op = op, .offset = offset, .count = count};
    j->data = malloc(count);
    memset(j->data, 0x80 | ++made_up, count);
    assert_int_equal(pthread_create(&j->thread, NULL, carry_out_job, j), 0);
    return j;
}

int bare_join(struct bare_job *j, const unsigned char *expected)
{
    int error;

    pthread_join(j->thread, NULL);
    error = j->error;
    if (error == 0 && expected)
        assert_memory_equal(j->data, expected, j->count);
    free(j->data);
    free(j);
    return error;
}

int bare_do(struct bare *b, enum bare_op op, uint64_t offset, uint32_t count)
{
    return bare_join(bare_start(b, op, offset, count), NULL);
}

void bare_check(struct bare *b, uint64_t offset, uint32_t count)
{
    assert_int_equal(
        bare_join(bare_start(b, BARE_READ, offset, count), b->disk + offset), 0);
}

static unsigned calls(struct bare *b, enum bare_op op, uint64_t block)
{
    unsigned n = 0;

    assert_true(b->call_count <= 256);
    for (unsigned i = 0; i < b->call_count; i++)
        n += b->calls[i].op == op &&
             touches(b->calls[i].offset, b->calls[i].count, block);
    return n;
}

unsigned bare_calls(struct bare *b, enum bare_op op, uint64_t block)
{
    unsigned n;

    pthread_mutex_lock(&b->lock);
    n = calls(b, op, block);
    pthread_mutex_unlock(&b->lock);
    return n;
}

static unsigned waiters_of(struct bare *b, uint64_t number)
{
    struct qm_shard *shard = &b->s.cache->shards[0];
    struct qm_block *block;
    unsigned n = 0;

    pthread_mutex_lock(&shard->lock);
    qm_rcu_read_lock();
    block = qm_shard_find(shard, qm_hash(number), number);
    if (block)
        n = block->waiting;
    qm_rcu_read_unlock();
    pthread_mutex_unlock(&shard->lock);
    return n;
}

void bare_await_waiter(struct bare *b, uint64_t block, unsigned waiters, unsigned calls)
{
    for (int i = 0;
         waiters_of(b, block) < waiters && bare_calls(b, BARE_READ, block) < calls;
         i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
}

static bool is_quiet(struct bare *b)
{
    struct qm_shard *shard = &b->s.cache->shards[0];
    bool quiet = true;

    pthread_mutex_lock(&shard->lock);
    for (struct qm_block_slab *slab = shard->block_slabs; slab; slab = slab->next)
        for (size_t i = 0; i < slab->count; i++)
            quiet = quiet && slab->blocks[i].refs == 0;
    pthread_mutex_unlock(&shard->lock);
    return quiet;
}

void bare_await_quiet(struct bare *b)
{
    for (int i = 0; !is_quiet(b); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
}
