/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c - a program that embeds the cache and the mining library: it reads the same
 * path of blocks over and over from a device that it makes up, with a cache that is too
 * small for it, and prefetches what policy ppm proposes.
 *
 * Exits 0 if all data was right, and prefetching took most misses away.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "mining/core/prefetcher.h"

enum { BLOCK = 4096, PATH = 400, ROUNDS = 20 };

static struct qm_cache *cache;

/* The device: each byte of a block is made of the block's number. */
static void device_read(uint64_t block, unsigned char *data)
{
    memset(data, (int)(block * 31 % 251), BLOCK);
}

/* Reads a block through the cache.  Returns how the demand ended, or -1. */
static int read_block(uint64_t block)
{
    unsigned char data[BLOCK], right[BLOCK];
    struct qm_lookup found;
    if (qm_cache_demand(cache, block, data, 0, BLOCK, &found))
        return -1;
    if (found.todo == QM_FETCH) {
        device_read(block, data);
        qm_cache_fill(cache, found.fill, data);
    } else if (found.todo != QM_DONE) {
        return -1; /* there are no other threads, whose fill it could be */
    }
    device_read(block, right);
    return memcmp(data, right, BLOCK) ? -1 : (int)found.outcome;
}

static void prefetch(const struct qm_candidate *candidate)
{
    unsigned char data[BLOCK];
    for (uint32_t i = 0; i < candidate->count; i++) {
        struct qm_fill *fill;
        if (qm_cache_prefetch(cache, candidate->block + i, 1, &fill))
            continue;
        device_read(candidate->block + i, data);
        qm_cache_fill(cache, fill, data);
    }
}

int main(void)
{
    char err[200];
    struct qm_cache_config config = {.block_size = BLOCK,
                                     .blocks = 128,
                                     .prefetch_blocks = 32,
                                     .shards = 1,
                                     .eviction = "lru",
                                     .data = true};
    if (qm_cache_check(&config, err, sizeof err) || qm_cache_new(&config, &cache)) {
        fprintf(stderr, "no cache: %s\n", err);
        return 1;
    }
    struct qm_mining_config mining;
    qm_mining_defaults(&mining);
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find("ppm");
    struct qm_prefetcher *p;
    if (!ops || ops->create(&mining, &p, err, sizeof err)) {
        fprintf(stderr, "no prefetcher: %s\n", ops ? err : "not found");
        return 1;
    }

    unsigned ended[3] = {0}; /* in the last round, by outcome */
    for (int round = 0; round < ROUNDS; round++) {
        memset(ended, 0, sizeof ended);
        struct qm_stream *stream = ops->begin(p, 1);
        struct qm_work *work;
        for (uint64_t i = 0; i < PATH; i++) {
            uint64_t block = i * 7919 % 100003; /* no two are adjacent */
            int outcome = read_block(block);
            if (outcome < 0) {
                fprintf(stderr, "block %llu is wrong\n", (unsigned long long)block);
                return 1;
            }
            ended[outcome]++;
            ops->access(p, stream, block,
                        outcome == QM_HIT            ? QM_ACCESS_HIT
                        : outcome == QM_PREFETCH_HIT ? QM_ACCESS_PREFETCH_HIT
                                                     : QM_ACCESS_MISS,
                        &work);
            if (work && ops->learn(p, work))
                return 1;
            struct qm_candidate candidates[4];
            unsigned n = ops->candidates(p, stream, candidates, 4);
            for (unsigned c = 0; c < n; c++)
                prefetch(&candidates[c]);
        }
        ops->end(p, stream, &work);
        if (work && ops->learn(p, work))
            return 1;
    }
    printf("the last of %d rounds: %u hits, %u prefetch hits, %u misses\n", ROUNDS,
           ended[QM_HIT], ended[QM_PREFETCH_HIT], ended[QM_MISS]);
    ops->destroy(p);
    qm_cache_free(cache);
    return ended[QM_PREFETCH_HIT] > PATH / 2 ? 0 : 1;
}
