/* SPDX-License-Identifier: BSD-3-Clause */
/* test-admit.c - what is worth a write: frequency, scans, the write budget; the Bloom
 * filter; the index' memory.  Without data, in virtual time, so all is repeatable. */
#include <math.h>

#include "testing.h"
#include "tier/admit.h"

#define BLOCK 16384u

static uint64_t clock_ns;

static uint64_t get_clock(void *opaque)
{
    return clock_ns;
}

static struct qm_tier_config config(uint64_t blocks, enum qm_tier_admit admit)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", UINT64_C(1) << 40, BLOCK, 1};
    c.data = false;
    c.size = blocks * BLOCK * 101 / 100 + (1 << 20);
    c.admit = admit;
    c.now = get_clock;
    return c;
}

static int put(struct qm_tier *t, uint64_t block, bool scan)
{
    struct qm_tier_insert insert = {
        .block = block,
        .ticket = qm_tier_ticket(t),
        .frequency = QM_TIER_FREQUENCY_UNKNOWN,
        .scan = scan,
    };

    return qm_tier_insert(t, &insert);
}

static bool get(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_read read = {.block = block};

    return qm_tier_read(t, &read, 1);
}

/* Zipf, by inversion of its integral. */
static uint64_t zipf(uint64_t *seed, double n, double s)
{
    double x = (double)(rnd(seed) >> 11) / 9007199254740992.;

    return (uint64_t)pow(x * (pow(n, 1 - s) - 1) + 1, 1 / (1 - s)) - 1;
}

/* Memory : tier : database as 1 : 10 : 40.  Memory is a FIFO of blocks, whose evictions
 * are inserted; a tenth of the reads are scans of the database. */
#define MEMORY 500u

struct outcome {
    uint64_t hits, inserted, memory_hits, scans;
};

static struct outcome run(const struct qm_tier_config *c, bool tell_scans, double s,
                          bool shifts)
{
    static uint64_t ring[MEMORY];
    static bool from_scan[MEMORY];
    static bool in_memory[40 * MEMORY];
    struct qm_tier *t = open_ok(c);
    uint64_t seed = 11, scan = 0;
    struct outcome o = {0};
    struct qm_tier_stats end;

    memset(ring, 0xff, sizeof ring);
    memset(in_memory, 0, sizeof in_memory);
    for (unsigned i = 0; i < 400000; i++) {
        bool scanning = i % 10 == 0;
        uint64_t prime = shifts && i >= 200000 ? 6007 : 7919; /* other blocks are hot */
        uint64_t block = scanning ? scan++ % (40 * MEMORY)
                                  : zipf(&seed, 40 * MEMORY, s) * prime % (40 * MEMORY);
        unsigned at = i % MEMORY;

        while (in_memory[block] && !scanning) { /* FIFO: a hit changes nothing */
            o.memory_hits++;
            block = zipf(&seed, 40 * MEMORY, s) * prime % (40 * MEMORY);
        }
        if (in_memory[block])
            continue;
        (void)get(t, block);
        if (ring[at] != UINT64_MAX) {
            in_memory[ring[at]] = false;
            (void)put(t, ring[at], tell_scans && from_scan[at]);
        }
        ring[at] = block;
        from_scan[at] = scanning;
        in_memory[block] = true;
    }
    end = stats(t);
    o.hits = end.hits;
    o.inserted = end.inserted;
    o.scans = end.scans;
    assert_int_equal(end.lookups, end.hits + end.misses);
    qm_tier_close(t, QM_TIER_KEEP);
    return o;
}

TEST(test_half_the_writes)
{
    static const double exponents[] = {.9, .7, 1.1};

    for (unsigned i = 0; i < qm_rounds(3); i++)
        for (unsigned told = 0; told < 2; told++) {
            struct qm_tier_config c = config(10 * MEMORY, QM_TIER_ADMIT_ALL);
            struct outcome all, some;

            all = run(&c, told, exponents[i], false);
            c.admit = QM_TIER_ADMIT_AUTO;
            some = run(&c, told, exponents[i], false);
            printf("Zipf %.1f, scans %s: %.0f %% of the hits, %.0f %% of the writes\n",
                   exponents[i], told ? "told" : "not told",
                   100. * (double)some.hits / (double)all.hits,
                   100. * (double)some.inserted / (double)all.inserted);
            assert_true(some.hits * 100 >= all.hits * 98);
            assert_true(some.inserted * 2 <= all.inserted);
            assert_int_equal(some.scans > 0, told);
        }
}

/* The working set changes altogether: what was frequent before keeps nothing out. */
TEST(test_shift)
{
    struct qm_tier_config c = config(10 * MEMORY, QM_TIER_ADMIT_ALL);
    struct outcome all, some;

    all = run(&c, true, .9, true);
    c.admit = QM_TIER_ADMIT_AUTO;
    some = run(&c, true, .9, true);
    printf("with a shift: %.0f %% of the hits, %.0f %% of the writes\n",
           100. * (double)some.hits / (double)all.hits,
           100. * (double)some.inserted / (double)all.inserted);
    assert_true(some.hits * 100 >= all.hits * 98);
    assert_true(some.inserted * 2 <= all.inserted);
}

/* What left was read often, and what is read now is read seldom: it gets in
 * nevertheless, once the frequencies of before are forgotten. */
TEST(test_cooler)
{
    struct qm_tier_config c = config(5000, QM_TIER_ADMIT_AUTO);
    struct qm_tier *t = open_ok(&c);
    uint64_t before = 0, seed = 2, capacity = stats(t).capacity;

    for (unsigned round = 0; round < 12; round++)
        for (uint64_t b = 0; b < capacity * 5 / 4; b++) {
            for (unsigned k = 0; k < 3; k++)
                (void)get(t, b);
            (void)put(t, b, false);
        }
    assert_true(stats(t).evicted > 0);
    for (unsigned round = 0; round < 10; round++) {
        before = stats(t).hits;
        for (uint64_t b = 0; b < 6 * capacity; b++) {
            uint64_t block = 100000 + rnd_below(&seed, 6 * capacity);

            (void)get(t, block);
            (void)put(t, block, false);
        }
    }
    /* A sixth fits. */
    assert_true(stats(t).hits - before > 6 * capacity / 8);
    qm_tier_close(t, QM_TIER_KEEP);
}

static uint64_t count_held(struct qm_tier *t, uint64_t first, uint64_t n)
{
    uint64_t held = 0;

    for (uint64_t b = first; b < first + n; b++)
        held += qm_tier_contains(t, b);
    return held;
}

/* Blocks that were read often stay while others pass by, but not for ever: each time
 * the hand comes by they become cooler.  What is read goes on being kept. */
TEST(test_hand_cools)
{
    struct qm_tier_config c = config(5000, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);
    uint64_t capacity, block = 1000000, was, still;

    capacity = stats(t).capacity;
    was = capacity / 4;   /* blocks [0, was): read often, and then no more */
    still = capacity / 4; /* and as many behind them: read all the time */
    for (uint64_t b = 0; b < was + still; b++)
        assert_int_equal(put(t, b, false), 0);
    for (unsigned k = 0; k < 10; k++)
        for (uint64_t b = 0; b < was + still; b++)
            assert_true(get(t, b));
    while (block < 1000000 + capacity)
        (void)put(t, block++, false);
    assert_true(count_held(t, 0, was + still) > (was + still) * 3 / 4);
    for (unsigned round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < capacity; i++) {
            if (i % (capacity / 4) == 0)
                for (uint64_t b = was; b < was + still; b++)
                    (void)get(t, b);
            (void)put(t, block++, false);
        }
    }
    assert_int_equal(count_held(t, 0, was), 0);
    assert_true(count_held(t, was, still) > still / 2);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* What is read ahead and then used is worth as much as what was read on demand; what
 * is read ahead and not used, nothing. */
TEST(test_read_ahead)
{
    struct qm_tier_config c = config(5000, QM_TIER_ADMIT_AUTO);
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_insert insert = {.frequency = UINT32_MAX - 1}; /* whatever is held */
    uint64_t capacity = stats(t).capacity, kept = 0;

    for (uint64_t b = 0; stats(t).evicted == 0; b++) { /* full, of blocks read once */
        (void)get(t, b);
        (void)put(t, b, false);
        if (b >= capacity) {
            (void)get(t, b);
            (void)put(t, b, false);
        }
    }
    for (uint64_t b = 100000; b < 100200; b++) {
        for (unsigned k = 0; k < 4; k++) {
            struct qm_tier_read read = {.block = b, .ahead = true};

            assert_int_equal(qm_tier_read(t, &read, 1), 0);
            if (b % 2)
                qm_tier_touch(t, b);
        }
        assert_int_equal(put(t, b, false), b % 2 ? 0 : EPERM);
    }
    /* It stays when others of its segment go, as it is used by way of memory only. */
    for (uint64_t b = 200000; b < 200000 + 2 * capacity; b++) {
        if (b % 8 == 0)
            for (uint64_t i = 100001; i < 100200; i += 20)
                qm_tier_touch(t, i);
        insert.block = b;
        insert.ticket = qm_tier_ticket(t);
        (void)qm_tier_insert(t, &insert);
    }
    for (uint64_t b = 100001; b < 100200; b += 2)
        kept += qm_tier_contains(t, b);
    assert_int_equal(kept, 10);
    for (uint64_t b = 100001; b < 100200; b += 20)
        assert_true(qm_tier_contains(t, b));
    qm_tier_close(t, QM_TIER_KEEP);
}

TEST(test_none)
{
    struct qm_tier_config c = config(1000, QM_TIER_ADMIT_NONE);
    struct qm_tier *t = open_ok(&c);

    assert_int_equal(put(t, 1, false), EPERM);
    assert_int_equal(stats(t).refused, 1);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A day of as many inserts as possible writes what is allowed. */
TEST(test_write_rate)
{
    struct qm_tier_config c = config(2000, QM_TIER_ADMIT_ALL);
    uint64_t rate = UINT64_C(512) << 20, block = 0;
    struct qm_tier_stats s;
    struct qm_tier *t;

    c.write_rate = rate;
    clock_ns = 0;
    t = open_ok(&c);
    for (unsigned minute = 0; minute < 24 * 60; minute++) {
        clock_ns += UINT64_C(60000000000);
        for (unsigned i = 0; i < 100; i++)
            (void)put(t, block++, false);
    }
    s = stats(t);
    assert_true(s.over_rate > 0);
    assert_true(s.bytes_written > rate * 9 / 10);
    assert_true(s.bytes_written < rate + rate / 10);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Of what is read between, an inclusive tier keeps the copies when others of their
 * segment go, an exclusive one does not. */
TEST(test_modes)
{
    for (unsigned mode = 0; mode < 2; mode++) {
        struct qm_tier_config c = config(2000, QM_TIER_ADMIT_ALL);
        struct qm_tier *t;
        unsigned held = 0;

        c.mode = mode ? QM_TIER_EXCLUSIVE : QM_TIER_INCLUSIVE;
        t = open_ok(&c);
        for (uint64_t b = 0; b < 6000; b++) {
            assert_int_equal(put(t, b, false), 0);
            if (b % 16 == 0 && b >= 16)
                for (uint64_t hot = 0; hot < 8; hot++)
                    (void)get(t, hot);
        }
        for (uint64_t hot = 0; hot < 8; hot++)
            held += qm_tier_contains(t, hot);
        assert_int_equal(held, mode ? 0 : 8);
        assert_int_equal(stats(t).kept > 0, !mode);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

/* The slots of blocks that were written to are filled again, before anything is evicted
 * and with nothing written twice. */
TEST(test_slots_again)
{
    struct qm_tier_config c = config(4000, QM_TIER_ADMIT_ALL);
    struct qm_tier_stats before, after;
    uint64_t capacity, block = 0, changed;
    struct qm_tier *t = open_ok(&c);

    capacity = stats(t).capacity;
    while (block < capacity)
        assert_int_equal(put(t, block++, false), 0);
    before = stats(t);
    assert_int_equal(before.evicted, 0);
    for (uint64_t b = 0; b < capacity; b += 3) {
        struct qm_tier_write w;

        qm_tier_write_begin(t, &w, b * BLOCK, BLOCK);
        qm_tier_write_end(t, &w, QM_TIER_WROTE, NULL);
    }
    changed = stats(t).invalidated;
    assert_int_equal(changed, (capacity + 2) / 3);
    for (uint64_t i = 0; i < changed * 9 / 10; i++)
        assert_int_equal(put(t, block++, false), 0);
    after = stats(t);
    assert_int_equal(after.evicted, 0);
    assert_true(after.bytes_written - before.bytes_written <
                changed * 9 / 10 * BLOCK * 21 / 20);
    for (uint64_t b = 0; b < block; b++)
        assert_int_equal(get(t, b), b % 3 != 0 || b >= capacity);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A loop over some more blocks than there are slots, and a few blocks that are read all
 * the time: these stay, and cost one write each. */
TEST(test_hot_stay)
{
    struct qm_tier_config c = config(4000, QM_TIER_ADMIT_ALL);
    struct qm_tier_stats s;
    uint64_t capacity, inserts = 0;
    struct qm_tier *t = open_ok(&c);

    capacity = stats(t).capacity;
    for (uint64_t b = 0; b < 6 * capacity; b++) {
        uint64_t hot = b % (capacity / 2);

        if (!get(t, hot))
            inserts += put(t, hot, false) == 0;
        if (b % 4 == 0)
            inserts += put(t, 1000000 + b, false) == 0;
    }
    s = stats(t);
    assert_true(s.evicted > capacity / 2);
    assert_int_equal(s.inserted, inserts);
    assert_true(inserts <= capacity / 2 + 6 * capacity / 4 + capacity / 50);
    assert_true(s.bytes_written < inserts * BLOCK * 21 / 20);
    for (uint64_t b = 0; b < capacity / 2; b++)
        assert_true(get(t, b));
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A block that was hot stays so when its new data is inserted: others that come once do
 * not make it leave, though nobody has read it since. */
TEST(test_update_keeps_heat)
{
    struct qm_tier_config c = config(4000, QM_TIER_ADMIT_ALL);
    uint64_t capacity, hot = 200, held = 0;
    struct qm_tier_write w;
    struct qm_tier *t;

    c.update = QM_TIER_UPDATE_AUTO;
    t = open_ok(&c);
    capacity = stats(t).capacity;
    for (uint64_t b = 0; b < hot; b++) {
        assert_int_equal(put(t, b, false), 0);
        for (unsigned i = 0; i < 7; i++)
            assert_true(get(t, b));
    }
    for (uint64_t b = 0; b < hot; b++) {
        qm_tier_write_begin(t, &w, b * BLOCK, BLOCK);
        qm_tier_write_end(t, &w, QM_TIER_WROTE, NULL);
        assert_true(qm_tier_contains(t, b));
    }
    for (uint64_t b = 0; b < 3 * capacity; b++)
        assert_int_equal(put(t, 1000000 + b, false), 0);
    for (uint64_t b = 0; b < hot; b++)
        held += qm_tier_contains(t, b);
    assert_int_equal(held, hot);
    qm_tier_close(t, QM_TIER_KEEP);
}

TEST(test_bloom)
{
    struct qm_tier_config c = config(4000, QM_TIER_ADMIT_ALL);
    uint64_t bits, held = 0, hits = 0;
    unsigned functions;
    struct qm_tier *t;

    /* The thesis' formulas, with 4.1's sign put right. */
    qm_tier_bloom_size(1000000, .01, &bits, &functions);
    assert_int_equal(bits, 9585059);
    assert_int_equal(functions, 7);
    qm_tier_bloom_size(1000000, .1, &bits, &functions);
    assert_int_equal(functions, 3);
    c.bloom = .01;
    t = open_ok(&c);
    for (uint64_t b = 0; b < 60000; b++) /* stale several times */
        (void)put(t, b * 3, false);
    for (uint64_t b = 0; b < 60000; b++) {
        held += qm_tier_contains(t, b * 3);
        hits += get(t, b * 3);
    }
    assert_true(held > 3000);
    assert_int_equal(hits, held);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* At capacity: 24 bytes a block for index, sketch and segments; and nothing else grows.
 */
TEST(test_memory)
{
    static const uint32_t sizes[] = {4096, 16384, 65536};

    for (unsigned i = 0; i < 3; i++) {
        struct qm_tier_config c = config(0, QM_TIER_ADMIT_ALL);
        struct qm_tier_stats s;
        struct qm_tier *t;
        uint64_t block = 0;

        c.identity.block_size = sizes[i];
        c.size = UINT64_C(8) << 30;
        c.update = QM_TIER_UPDATE_AUTO;
        t = open_ok(&c);
        s = stats(t);
        while (stats(t).evicted == 0)
            for (unsigned k = 0; k < 1000; k++)
                assert_int_equal(put(t, block++, false), 0);
        assert_int_equal(stats(t).memory, s.memory);
        assert_int_equal(stats(t).index_memory, s.index_memory);
        s = stats(t);
        assert_true(s.blocks >= s.capacity * 98 / 100);
        printf("blocks of %u: %llu held, index %.2f bytes a block, all memory %.2f\n",
               sizes[i], (unsigned long long)s.blocks,
               (double)s.index_memory / (double)s.blocks,
               (double)s.memory / (double)s.blocks);
        assert_true(s.index_memory <= 24 * s.blocks);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}
