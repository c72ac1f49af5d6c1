/* SPDX-License-Identifier: BSD-3-Clause */
/* budget.c - how large a cache becomes, its configuration checked.
 *
 * A shard for n blocks makes at most n + reserve buffers and n + extra headers.  The
 * reserve is for buffers that readers may still copy after their blocks left (limbo),
 * and for buffers that are being filled or that replace another; without it each
 * eviction would wait for a grace period.  The extra headers are for fills whose blocks
 * were evicted meanwhile.  A thread that finds none free waits for a grace period; if
 * that frees none, it does not cache: memory is bounded, caching is not guaranteed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cache/evict-all.h"
#include "cache/internal.h"

/* Below that, a shard's share of the working set varies too much by chance. */
#define MIN_SHARD_MAIN     512
#define MIN_SHARD_PREFETCH 32

/* Allocated by liburcu for a table beside its buckets, by a policy beside its share per
 * block, and lost around a large allocation to alignment and the allocator's header. */
#define TABLE_BYTES  2048
#define POLICY_BYTES 256
#define MALLOC_SMALL 64
#define MALLOC_LARGE 8192

/* A shard's bytes come in slabs: small ones while it is small itself, so that one in
 * use does not hold much more than it needs; else of a huge page. */
#define SLAB_BYTES (UINT64_C(1) << 20)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t power_of_two(uint64_t at_least)
{
    uint64_t n = 1;

    while (n < at_least)
        n <<= 1;
    return n;
}

unsigned qm_budget_shards(uint64_t blocks, uint64_t prefetch_blocks, unsigned wanted)
{
    unsigned n = wanted;

    while (n > 1 && ((blocks - prefetch_blocks) / n < MIN_SHARD_MAIN ||
                     (prefetch_blocks > 0 && prefetch_blocks / n < MIN_SHARD_PREFETCH)))
        n /= 2;
    return n;
}

/* One shard means the exact order of accesses, also if several threads take turns: they
 * share a ring. */
unsigned qm_budget_stripes(unsigned wanted_shards)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);

    if (wanted_shards == 1 || cpus < 1)
        return 1;
    return power_of_two(min_u64(cpus, QM_MAX_STRIPES));
}

size_t qm_budget_shard_bytes(uint64_t blocks, unsigned stripes, size_t policy_bytes,
                             size_t beside)
{
    return sizeof(struct qm_shard) + stripes * sizeof(struct qm_ring) + MALLOC_SMALL +
           TABLE_BYTES + QM_MIN_BUCKETS * sizeof(struct cds_lfht_node) +
           (size_t)2 * POLICY_BYTES + policy_bytes + beside;
}

size_t qm_budget_beside(uint64_t blocks, uint64_t all, bool adapts, bool shadow)
{
    return (adapts ? qm_balance_bytes(blocks) : 0) +
           (shadow ? qm_shadow_bytes(blocks, all) : 0);
}

size_t qm_budget_block_slab(uint64_t count)
{
    return sizeof(struct qm_block_slab) + count * sizeof(struct qm_block) +
           MALLOC_SMALL;
}

size_t qm_budget_buf_slab(uint64_t count, uint32_t block_size)
{
    return sizeof(struct qm_buf_slab) + count * sizeof(struct qm_buf) + MALLOC_SMALL +
           count * block_size + MALLOC_LARGE;
}

/* Buffers for blocks that nobody has any more, but readers may still see. */
static uint64_t reserve_of(uint64_t blocks)
{
    return 4 + min_u64(blocks / 32, 124);
}

uint64_t qm_limits_batch(uint64_t blocks)
{
    return reserve_of(blocks) / 2;
}

void qm_limits_get(struct qm_limits *limits, uint64_t blocks, uint32_t block_size,
                   bool data, unsigned stripes, size_t policy_bytes, size_t beside)
{
    uint64_t reserve = data ? reserve_of(blocks) : 512, slab;

    *limits = (struct qm_limits){
        .bufs = data ? blocks + reserve : 0,
        .blocks = blocks + reserve + min_u64(64 + blocks / 4, 1024),
        .buckets = max_u64(power_of_two(blocks), QM_MIN_BUCKETS),
        .batch = reserve / 2,
    };
    slab = limits->bufs * block_size < 4 * QM_HUGE_PAGE ? SLAB_BYTES : QM_HUGE_PAGE;
    limits->bufs_a_slab = max_u64(slab / block_size, 1);

    uint64_t block_slabs = (limits->blocks + QM_BLOCKS_A_SLAB - 1) / QM_BLOCKS_A_SLAB;
    uint64_t buf_slabs = (limits->bufs + limits->bufs_a_slab - 1) / limits->bufs_a_slab;

    limits->bytes = qm_budget_shard_bytes(blocks, stripes, policy_bytes, beside) +
                    (limits->buckets - QM_MIN_BUCKETS) * sizeof(struct cds_lfht_node) +
                    block_slabs * qm_budget_block_slab(0) +
                    limits->blocks * sizeof(struct qm_block) +
                    buf_slabs * qm_budget_buf_slab(0, block_size) +
                    limits->bufs * (sizeof(struct qm_buf) + block_size);
}

/* With the most shards, since each has a reserve of its own, and with the rounding to a
 * power of two at its worst. */
uint64_t qm_cache_footprint(uint64_t blocks, uint32_t block_size)
{
    uint64_t n = qm_budget_shards(blocks, 0, QM_MAX_SHARDS);
    uint64_t share = (blocks + n - 1) / n;
    unsigned stripes = qm_budget_stripes(QM_MAX_SHARDS);
    struct qm_limits l;

    qm_limits_get(&l, share, block_size, true, stripes, qm_evict_max_bytes(share),
                  qm_budget_beside(share, share * n, true, true));
    l.bytes -= l.buckets * sizeof(struct cds_lfht_node);
    l.bytes += max_u64(2 * share, QM_MIN_BUCKETS) * sizeof(struct cds_lfht_node);
    return sizeof(struct qm_cache) + MALLOC_SMALL + n * l.bytes;
}

uint64_t qm_cache_blocks_within(uint64_t bytes, uint32_t block_size)
{
    uint64_t low = 0, high;

    if (block_size < QM_MIN_BLOCK_SIZE || block_size > QM_MAX_BLOCK_SIZE)
        return 0;
    bytes = min_u64(bytes, INT64_MAX); /* so that no sum overflows */
    high = min_u64(bytes / block_size, QM_MAX_BLOCKS);
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;

        if (qm_cache_footprint(middle, block_size) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int wrong(char *err, size_t len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(char *err, size_t len, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err, len, format, args);
    va_end(args);
    return EINVAL;
}

int qm_cache_check(const struct qm_cache_config *c, char *err, size_t len)
{
    if (len > 0)
        err[0] = '\0';
    if (c->block_size < QM_MIN_BLOCK_SIZE || c->block_size > QM_MAX_BLOCK_SIZE ||
        (c->block_size & (c->block_size - 1)))
        return wrong(err, len,
                     "the block size must be a power of two from %u to %u bytes, not "
                     "%" PRIu32,
                     QM_MIN_BLOCK_SIZE, QM_MAX_BLOCK_SIZE, c->block_size);
    if (c->blocks < 1 || c->blocks > QM_MAX_BLOCKS)
        return wrong(err, len,
                     "the cache must have from 1 to %" PRIu64 " blocks, not %" PRIu64,
                     QM_MAX_BLOCKS, c->blocks);
    if (c->prefetch_blocks >= c->blocks)
        return wrong(err, len,
                     "the prefetch cache must leave the main cache at least one of "
                     "%" PRIu64 " blocks, so it can have from 0 to %" PRIu64
                     ", not %" PRIu64,
                     c->blocks, c->blocks - 1, c->prefetch_blocks);
    if (c->shards < 1 || c->shards > QM_MAX_SHARDS || (c->shards & (c->shards - 1)))
        return wrong(err, len,
                     "the number of shards must be a power of two from 1 to %u, not %u",
                     QM_MAX_SHARDS, c->shards);
    if (!c->own_eviction && (!c->eviction || !qm_evict_find(c->eviction)))
        return wrong(err, len, "the eviction policy must be one of %s, not \"%s\"",
                     qm_evict_names(), c->eviction ? c->eviction : "");
    return 0;
}
