/* SPDX-License-Identifier: BSD-3-Clause */
/* engine-world.h - for tests of what the engine makes of how blocks are found: a real
 * cache, and a prefetcher whose inside the test can see. */
#ifndef QM_TESTS_ENGINE_WORLD_H
#define QM_TESTS_ENGINE_WORLD_H

#include "tests/harness.h"

#include "cache/internal.h"
#include "engine/engine.h"
#include "proof.h"

/* The prefetcher, and what it was told. */
static struct {
    struct qm_prefetcher base;
    struct qm_prefetcher_ops ops;
    unsigned accesses, asked, learned;
    struct qm_candidate wants[8];
    uint32_t request; /* blocks of it, as last told */
    unsigned want_n;
    enum qm_fate fate;
    uint32_t issuer, user;
    unsigned ends;
    struct qm_candidate forgotten;
    struct qm_candidate refused;
    unsigned refusals;
    bool makes_work; /* of each access */
    unsigned learned_when_asked;
} p;

static struct qm_cache *cache;
static struct qm_device_load load;
static struct qm_engine engine;

/* What was wanted last. */
static struct qm_candidate got[QM_CANDIDATES_MAX];

static void access_block(struct qm_prefetcher *prefetcher, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    p.accesses++;
    *work = p.makes_work ? (struct qm_work *)&p : NULL;
}

static unsigned candidates(struct qm_prefetcher *prefetcher, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    unsigned n = p.want_n < max ? p.want_n : max;

    p.asked++;
    p.learned_when_asked = p.learned;
    memcpy(out, p.wants, n * sizeof out[0]);
    return n;
}

static void ended(struct qm_prefetcher *prefetcher, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    p.ends++;
    p.issuer = issuer;
    p.user = user;
    p.fate = fate;
}

static void refused(struct qm_prefetcher *prefetcher, uint64_t block, uint32_t count)
{
    p.refused = (struct qm_candidate){.block = block, .count = count};
    p.refusals++;
}

static void learn(void *opaque, struct qm_work *work)
{
    assert_ptr_equal(opaque, &load);
    assert_ptr_equal(work, &p);
    p.learned++;
}

static int make(void **state)
{
    const struct qm_cache_config config = {.block_size = 4096,
                                           .blocks = 64,
                                           .prefetch_blocks = 16,
                                           .shards = 1,
                                           .eviction = "lru"};
    const struct qm_mining_config mining = {.ablate = 0};
    struct qm_params params;

    memset(&p, 0, sizeof p);
    p.ops = (struct qm_prefetcher_ops){.access = access_block,
                                       .candidates = candidates,
                                       .refused = refused,
                                       .ended = ended};
    p.base.ops = &p.ops;
    qm_device_load_init(&load);
    assert_int_equal(qm_cache_new(&config, &cache), 0);
    qm_params_defaults(&params);
    qm_engine_init(&engine, &params);
    qm_engine_set_prefetcher(&engine, &p.base, &mining);
    engine.cache = cache;
    engine.load = &load;
    return 0;
}

static int undo(void **state)
{
    qm_cache_free(cache);
    qm_device_load_destroy(&load);
    qm_throttle_free(engine.throttle);
    return 0;
}

static unsigned extend(enum qm_access access)
{
    return qm_engine_extend(&engine, NULL, 1, 5, 1, access, learn, &load, got);
}

#endif
