/* SPDX-License-Identifier: BSD-3-Clause */
/* test-tier.c - simulations with a second tier. */
#include <stdio.h>

#include "testing.h"

enum { BLOCK = 4096, VOLUME = 4096, CACHE = 100 }; /* the latter in blocks */

static struct qm_sim_config simulation(const char *admit, uint64_t tier)
{
    struct qm_sim_config config;

    qm_sim_defaults(&config);
    config.params.policy = "none";
    config.params.eviction = "lru";
    config.block_size = BLOCK;
    config.cache_blocks = CACHE;
    config.tier = (struct qm_sim_tier_config){
        .size = tier * BLOCK, .admit = admit, .volume = VOLUME * BLOCK};
    return config;
}

/* One request for each of n blocks. */
static void requests(struct qm_sim *sim, char type, uint64_t block, uint64_t n)
{
    for (; n > 0; block++, n--) {
        event(sim, (struct qm_event){
                       .type = type, .offset = block * BLOCK, .length = BLOCK});
    }
}

static struct qm_sim_result finish(struct qm_sim *sim)
{
    struct qm_sim_result r;

    assert_int_equal(qm_sim_finish(sim), 0);
    qm_sim_result(sim, &r);
    qm_sim_free(sim);
    return r;
}

/* Rounds of 400 blocks, four times the cache: all are missed. */
static struct qm_sim_result rounds(const char *admit, uint64_t tier, char between)
{
    struct qm_sim_config config = simulation(admit, tier);
    struct qm_sim *sim = new_sim(&config);

    for (int i = 0; i < 3; i++) {
        requests(sim, QM_TRACE_READ, 0, 400);
        if (between)
            requests(sim, between, 0, 400);
    }
    return finish(sim);
}

/* What memory evicted is found, what it still has or is about to hand over is not. */
TEST(test_found_again)
{
    static const char *const words[] = {NULL, "auto", "all", "lru"};

    for (unsigned i = 0; i < 4; i++) {
        struct qm_sim_result r = rounds(words[i], 1024, 0);

        assert_int_equal(r.misses, 1200);
        assert_int_equal(r.tier.lookups, 1200); /* of what memory has, none */
        assert_true(r.tier.hits > 700 && r.tier.hits <= 800);
        assert_true(r.tier.inserted >= 300 && r.tier.inserted <= 400);
        assert_true(r.tier.bytes_written >= r.tier.inserted * BLOCK);
        assert_int_equal(r.tier.refused + r.tier.invalidated, 0);
        assert_int_equal(r.tier.blocks, r.tier.inserted);
    }
}

/* As bcache: what is read enters, but of a sequential run only the first 4 MiB. */
TEST(test_cut_off)
{
    const uint64_t part = (UINT64_C(4) << 20) / BLOCK, all = 2 * part;
    struct qm_sim_config config = simulation("bcache", 8192);
    struct qm_sim *sim;
    struct qm_sim_result r;

    for (int scattered = 0; scattered < 2; scattered++) {
        sim = new_sim(&config);
        for (int round = 0; round < 2; round++)
            for (uint64_t i = 0; i < all; i++)
                requests(sim, QM_TRACE_READ, scattered ? i * 17 % all : i, 1);
        r = finish(sim);
        assert_int_equal(r.tier.lookups, r.misses);
        assert_int_equal(r.tier.inserted, scattered ? all : part);
        assert_int_equal(r.tier.hits, scattered ? r.misses - all : part);
    }
}

TEST(test_nothing_admitted)
{
    struct qm_sim_result r = rounds("none", 1024, 0);

    assert_int_equal(r.tier.lookups, 1200);
    assert_int_equal(r.tier.hits + r.tier.inserted, 0);
    assert_true(r.tier.refused > 1000);
}

/* A write drops the tier's copy, and memory's remains; but the tier takes the new data
 * of what was read, as the server's does. */
TEST(test_writes)
{
    static const char *const words[] = {"auto", "lru"};

    for (unsigned i = 0; i < 2; i++) {
        struct qm_sim_result r = rounds(words[i], 1024, QM_TRACE_WRITE);

        assert_int_equal(r.writes, 1200);
        assert_int_equal(r.misses, 1200);
        assert_true(r.tier.invalidated >= 600);
        if (i == 0)
            assert_true(r.tier.hits > 700 && r.tier.inserted > 900);
        else /* of what was evicted in the same round */
            assert_true(r.tier.hits < 300);
    }
}

/* A tier changes nothing of what memory does. */
TEST(test_memory_is_the_same)
{
    struct qm_sim_config config = simulation("auto", 1024);
    struct qm_sim_result with, without;
    struct qm_sim *sim = new_sim(&config);
    uint64_t x = 1;

    config.tier.size = 0;
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 20000; n++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            requests(sim, x >> 60 ? QM_TRACE_READ : QM_TRACE_WRITE,
                     (x >> 33) % 1000 * ((x >> 50) % 1000) / 1000, 1);
        }
        if (i == 0) {
            with = finish(sim);
            sim = new_sim(&config);
            x = 1;
        }
    }
    without = finish(sim);
    assert_int_equal(with.hits, without.hits);
    assert_int_equal(with.misses, without.misses);
    assert_true(with.tier.hits > 1000);
    assert_int_equal(without.tier.lookups, 0);
}

/* What was counted before the warm-up ended is not counted. */
TEST(test_warmup)
{
    struct qm_sim_config config = simulation("all", 1024);
    struct qm_sim *sim;
    struct qm_sim_result r;

    config.warmup = 400;
    sim = new_sim(&config);
    requests(sim, QM_TRACE_READ, 0, 400);
    requests(sim, QM_TRACE_READ, 0, 200);
    r = finish(sim);
    assert_int_equal(r.tier.lookups, 200);
    assert_true(r.tier.hits >= 190);
    assert_true(r.tier.inserted <= 200);
}

static unsigned closed;

static bool own_read(void *opaque, uint64_t block, bool ahead)
{
    struct qm_sim_tier_counts *n = opaque;

    (void)ahead;
    n->lookups++;
    n->hits += block % 2;
    return block % 2;
}

static void own_evicted(void *opaque, uint64_t block)
{
    struct qm_sim_tier_counts *n = opaque;

    (void)block;
    n->inserted++;
}

static void own_changed(void *opaque, uint64_t block)
{
    struct qm_sim_tier_counts *n = opaque;

    (void)block;
    n->invalidated++;
}

static void own_counts(void *opaque, struct qm_sim_tier_counts *counts)
{
    *counts = *(struct qm_sim_tier_counts *)opaque;
}

/* Another cache in its place is told of everything. */
TEST(test_own)
{
    static const struct qm_sim_tier_ops ops = {.read = own_read,
                                               .evicted = own_evicted,
                                               .changed = own_changed,
                                               .counts = own_counts};
    struct qm_sim_config config = simulation(NULL, 1024);
    struct qm_sim_tier_counts n = {0};
    struct qm_sim *sim;
    struct qm_sim_result r;

    config.tier.own = &ops;
    config.tier.opaque = &n;
    sim = new_sim(&config);
    requests(sim, QM_TRACE_READ, 0, 400);
    requests(sim, QM_TRACE_WRITE, 390, 20);
    r = finish(sim);
    assert_int_equal(r.tier.lookups, 400);
    assert_int_equal(r.tier.hits, 200);
    assert_int_equal(r.tier.invalidated, 20);
    assert_true(r.tier.inserted >= 200 && r.tier.inserted <= 300);
}

static void *own_open(const struct qm_sim_tier_config *config, uint64_t block_size,
                      char *err, size_t len)
{
    if (config->size / block_size < 1024) {
        snprintf(err, len, "that is too small for me");
        return NULL;
    }
    assert_string_equal(config->admit, "word");
    return calloc(1, sizeof(struct qm_sim_tier_counts));
}

static void own_close(void *opaque)
{
    closed++;
    free(opaque);
}

/* One that is made for each simulation, and ends with it. */
TEST(test_own_open)
{
    static const struct qm_sim_tier_ops ops = {.open = own_open,
                                               .close = own_close,
                                               .read = own_read,
                                               .evicted = own_evicted,
                                               .changed = own_changed,
                                               .counts = own_counts};
    struct qm_sim_config config = simulation("word", 1024);
    struct qm_sim *sims[2];
    struct qm_sim_result r;
    char err[400];

    config.tier.own = &ops;
    closed = 0;
    sims[0] = new_sim(&config);
    sims[1] = new_sim(&config);
    requests(sims[0], QM_TRACE_READ, 0, 400);
    requests(sims[1], QM_TRACE_READ, 0, 100);
    r = finish(sims[0]);
    assert_int_equal(r.tier.lookups, 400);
    r = finish(sims[1]);
    assert_int_equal(r.tier.lookups, 100);
    assert_int_equal(closed, 2);
    config.tier.size /= 2;
    assert_null(qm_sim_new(&config, err, sizeof err));
    assert_non_null(strstr(err, "that is too small for me"));
    assert_int_equal(closed, 2);
}

TEST(test_too_small)
{
    struct qm_sim_config config = simulation("auto", 4);
    char err[400];

    assert_null(qm_sim_new(&config, err, sizeof err));
    assert_non_null(strstr(err, "a tier of 16384 bytes"));
}

/* ---- in virtual time: the backend takes a millisecond, one read after the other, the
 * tier a tenth of it, four at a time */

static const struct qm_device_config ssd = {
    .stations = 4, .read = {1e5, 0}, .write = {1e3, 0}, .scale = 1};

static struct qm_virtual_config one_client(void)
{
    return (struct qm_virtual_config){
        .device = {.stations = 1, .read = {1e6, 0}, .scale = 1},
        .size = VOLUME * BLOCK,
        .clients = 1,
        .threads = 1,
        .queue = 64,
    };
}

static void request(struct qm_sim *sim, char type, uint32_t slot, uint64_t block,
                    uint64_t n)
{
    struct qm_event e = {.type = type, .ctx = slot, .slot = slot};

    if (type == QM_TRACE_BEGIN) {
        e.kind = QM_TRANSACTION;
        e.klass = "t";
    } else {
        e.offset = block * BLOCK;
        e.length = n * BLOCK;
    }
    if (type == QM_TRACE_WRITE) { /* parts of up to two blocks: the tier drops them */
        e.offset++;
        e.length -= 2;
    }
    assert_int_equal(qm_sim_event(sim, &e), 0);
}

/* Blocks 0 to 399 are read, and what follows is measured; memory has the last 100. */
static struct qm_sim *timed(const struct qm_virtual_config *virtual, const char *policy)
{
    struct qm_sim_config config = simulation("all", 2048);

    config.params.policy = policy;
    config.timed = virtual;
    config.tier.device = &ssd;
    config.warmup = 100;
    return new_sim(&config);
}

/* What the tier holds of a request is read at once, then the rest by runs. */
TEST(test_time)
{
    struct qm_virtual_config virtual = one_client();
    struct qm_sim *sim = timed(&virtual, "none");
    struct qm_sim_result r;

    request(sim, QM_TRACE_BEGIN, 1, 0, 0);
    for (int i = 0; i < 4; i++) /* of 100 blocks, by 25 */
        for (int j = 0; j < 25; j++)
            request(sim, QM_TRACE_READ, 1, i * 100 + j * 4, 4);
    request(sim, QM_TRACE_READ, 1, 0, 1);    /* 100 us */
    request(sim, QM_TRACE_READ, 1, 4, 4);    /* 100 us, four at a time */
    request(sim, QM_TRACE_WRITE, 1, 22, 2);  /* no time, but in its turn */
    request(sim, QM_TRACE_READ, 1, 20, 4);   /* 100 us, and 1 ms for blocks 22 and 23 */
    request(sim, QM_TRACE_READ, 1, 1000, 1); /* 1 ms */
    assert_int_equal(qm_sim_finish(sim), 0);
    qm_sim_result(sim, &r);
    qm_sim_free(sim);
    assert_int_equal(r.requests, 4);
    assert_int_equal(r.misses, 10);
    assert_int_equal(r.tier.hits, 7);
    assert_int_equal(r.timed.demand_reads, 2);
    assert_int_equal(r.timed.demand_blocks, 3);
    assert_us(r.timed.mean, (100 + 100 + 1100 + 1000) / 4.0);
    assert_us(r.timed.most, 1100);
    assert_true(r.timed.tier_utilisation > 0 && r.timed.tier_utilisation < 1);
}

/* Prefetches, too, come from the tier, and only the rest from the backend. */
static struct qm_sim_result read_ahead(void)
{
    struct qm_virtual_config virtual = one_client();
    struct qm_sim *sim = timed(&virtual, "readahead");
    struct qm_sim_result r;

    request(sim, QM_TRACE_BEGIN, 1, 0, 0);
    for (int i = 0; i < 100; i++)
        request(sim, QM_TRACE_READ, 1, 1000 + i * 4, 4);
    for (int i = 0; i < 300; i++) {
        if (i % 10 == 5) /* far ahead of the reader */
            request(sim, QM_TRACE_WRITE, 1, 1000 + i + 120, 1);
        request(sim, QM_TRACE_READ, 1, 1000 + i, 1);
    }
    assert_int_equal(qm_sim_finish(sim), 0);
    qm_sim_result(sim, &r);
    qm_sim_free(sim);
    return r;
}

TEST(test_prefetches)
{
    struct qm_sim_result r = read_ahead(), again = read_ahead();

    assert_true(r.prefetch_hits > 100);
    assert_true(r.tier.hits > 150);
    assert_true(r.timed.prefetch_blocks > 0);
    assert_true(r.timed.prefetch_blocks + r.timed.demand_blocks + r.tier.hits <=
                r.misses + r.prefetches);
    assert_int_equal(memcmp(&r.timed, &again.timed, sizeof r.timed), 0);
}

/* A run that is given up has reads of the tier on their way. */
TEST(test_given_up)
{
    struct qm_virtual_config virtual = one_client();
    struct qm_sim *sim;

    virtual.clients = 8;
    sim = timed(&virtual, "readahead");
    for (uint32_t c = 1; c <= 8; c++)
        request(sim, QM_TRACE_BEGIN, c, 0, 0);
    for (int i = 0; i < 40000; i++)
        request(sim, QM_TRACE_READ, 1 + i % 8, i % 8 * 200 + i / 8 % 100, 4);
    qm_sim_free(sim);
}
