/* SPDX-License-Identifier: BSD-3-Clause */
/* test-balance.c - a prefetch part whose share adapts: against a plain model, block by
 * block, and in the situations that it is there for. */
#include "cache/internal.h"
#include "testing.h"

#define BLOCK    4096
#define UNIVERSE 512

/* ---- the model: arrays, the latest first, for a cache of one shard with LRU */

struct list {
    uint64_t block[2 * UNIVERSE];
    size_t n;
};

static size_t where(const struct list *l, uint64_t block)
{
    size_t i = 0;

    while (i < l->n && l->block[i] != block)
        i++;
    return i;
}

static bool has(const struct list *l, uint64_t block)
{
    return where(l, block) < l->n;
}

static void take(struct list *l, uint64_t block)
{
    size_t i = where(l, block);

    l->n--;
    memmove(&l->block[i], &l->block[i + 1], (l->n - i) * sizeof(l->block[0]));
}

static void put(struct list *l, uint64_t block)
{
    memmove(&l->block[1], &l->block[0], l->n * sizeof(l->block[0]));
    l->block[0] = block;
    l->n++;
}

struct model {
    size_t blocks;
    double share;
    struct list main, prefetch;           /* what is held */
    struct list main_left, prefetch_left; /* what was given up */
    uint64_t left_at[UNIVERSE], prefetch_gave;
    struct list filling; /* of prefetch */
    uint64_t hits, arrivals, came[UNIVERSE];
    double usual;
};

static void give_up(struct model *m, bool from_prefetch)
{
    struct list *l = from_prefetch ? &m->prefetch : &m->main;
    struct list *left = from_prefetch ? &m->prefetch_left : &m->main_left;
    uint64_t block = l->block[--l->n];

    put(left, block);
    if (left->n > m->blocks / 2 + 1)
        left->n = m->blocks / 2 + 1;
    if (from_prefetch)
        m->left_at[block] = m->prefetch_gave++;
    if (has(&m->filling, block))
        take(&m->filling, block);
}

static bool has_stale(const struct model *m)
{
    uint64_t oldest = m->prefetch.block[m->prefetch.n - 1];

    return !has(&m->filling, oldest) &&
           m->arrivals - m->came[oldest] > 4 * m->usual + 16;
}

static void use(struct model *m, uint64_t block)
{
    m->usual *= m->arrivals - m->came[block] > m->usual ? 1.05
                : m->usual > 1                          ? 1 - 0.05 / 9
                                                        : 1;
}

static void enter(struct model *m, bool prefetch, uint64_t block)
{
    size_t most = m->blocks / 2, least = m->blocks < 128 ? 1 : m->blocks / 64, share,
           flying = m->filling.n + prefetch;
    double near = (size_t)m->share / 2 > 16 ? (size_t)m->share / 2 : 16;

    if (has(&m->prefetch_left, block)) {
        double age = m->prefetch_gave - m->left_at[block];

        take(&m->prefetch_left, block);
        if (!prefetch)
            m->share += age > near ? near / age * (near / age) : 1;
    } else if (has(&m->main_left, block)) {
        take(&m->main_left, block);
        m->share -= (prefetch ? .5 : 2) * near / (m->blocks / 2 + 1);
    }
    if (m->share < least)
        m->share = least;
    if (m->share > most)
        m->share = most;
    share = m->share;
    if (flying > share)
        share = flying < most ? flying : most;
    m->arrivals += !prefetch;
    if (m->main.n + m->prefetch.n == m->blocks)
        give_up(m, m->prefetch.n > 0 &&
                       (m->main.n == 0 || m->prefetch.n + prefetch > share ||
                        has_stale(m)));
    put(prefetch ? &m->prefetch : &m->main, block);
    m->came[block] = m->arrivals;
}

static enum qm_outcome model_demand(struct model *m, uint64_t block)
{
    if (has(&m->main, block)) {
        take(&m->main, block);
        put(&m->main, block);
        m->arrivals += ++m->hits % 16 == 0;
        return QM_HIT;
    }
    if (has(&m->prefetch, block)) {
        take(&m->prefetch, block);
        if (has(&m->filling, block))
            take(&m->filling, block);
        use(m, block);
        enter(m, false, block);
        return QM_PREFETCH_HIT;
    }
    enter(m, false, block);
    return QM_MISS;
}

static void check(struct model *m, struct qm_cache *cache)
{
    struct qm_cache_stats s = stats_of(cache);

    assert_int_equal(s.prefetch_share, (size_t)m->share);
    assert_int_equal(s.main_blocks, m->main.n);
    assert_int_equal(s.prefetch_blocks, m->prefetch.n);
    for (uint64_t b = 0; b < UNIVERSE; b++)
        assert_int_equal(qm_cache_contains(cache, b),
                         has(&m->main, b) || has(&m->prefetch, b));
    check_identities(cache, 0);
}

static struct qm_cache *make(uint64_t blocks, uint64_t prefetch, const char *eviction)
{
    return new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                               .blocks = blocks,
                                               .prefetch_blocks = prefetch,
                                               .prefetch_adapts = true,
                                               .shards = 1,
                                               .eviction = eviction});
}

static enum qm_outcome demand(struct qm_cache *cache, uint64_t block)
{
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(cache, block, NULL, 0, 1, &found), 0);
    if (found.todo == QM_FETCH)
        qm_cache_fill(cache, found.fill, NULL);
    return found.outcome;
}

static void prefetch(struct qm_cache *cache, uint64_t block)
{
    struct qm_fill *fill;

    if (qm_cache_prefetch(cache, block, 0, &fill) == 0)
        qm_cache_fill(cache, fill, NULL);
}

/* Fills that are on their way: the cache's, and the model's in the same order. */
struct flight {
    struct qm_fill *fill[64];
    uint64_t block[64];
    size_t n;
};

static void land(struct model *m, struct qm_cache *cache, struct flight *f, size_t i)
{
    uint64_t block = f->block[i];

    qm_cache_fill(cache, f->fill[i], NULL);
    /* Once it was given up, another fill of the same block may be on its way. */
    for (size_t k = i + 1; k < f->n; k++)
        if (f->block[k] == block)
            block = UNIVERSE;
    if (has(&m->filling, block))
        take(&m->filling, block);
    f->n--;
    memmove(&f->fill[i], &f->fill[i + 1], (f->n - i) * sizeof(f->fill[0]));
    memmove(&f->block[i], &f->block[i + 1], (f->n - i) * sizeof(f->block[0]));
}

static void random_steps(uint64_t seed, size_t steps)
{
    uint64_t blocks = 2 + rnd_below(&seed, seed % 4 ? 120 : 240), base = 0;
    uint64_t share = 1 + rnd_below(&seed, blocks - 1), most = blocks / 2;
    struct qm_cache *cache = make(blocks, share, "lru");
    struct model *m = calloc(1, sizeof(*m));
    struct flight f = {.n = 0};

    assert_non_null(m);
    m->blocks = blocks;
    m->share = share < most ? share : most;
    m->usual = (double)blocks;
    for (size_t i = 0; i < steps; i++) {
        unsigned busy = rnd_below(&seed, 3) * 30; /* what share of steps prefetches */
        uint64_t block;

        if (i % 300 == 0)
            base = rnd_below(&seed, UNIVERSE);
        block = (base + rnd_below(&seed, 2 * blocks)) % UNIVERSE;
        if (f.n == 64 || (f.n > 0 && rnd_below(&seed, 8) == 0))
            land(m, cache, &f, rnd_below(&seed, f.n));
        if (rnd_below(&seed, 100) < busy) {
            struct qm_fill *fill;

            if (qm_cache_prefetch(cache, block, 0, &fill) == 0) {
                assert_false(has(&m->main, block) || has(&m->prefetch, block));
                enter(m, true, block);
                put(&m->filling, block);
                f.fill[f.n] = fill;
                f.block[f.n++] = block;
            }
        } else {
            /* Who demands what is on its way would wait: let it come first. */
            for (size_t k = f.n; k-- > 0;)
                if (f.block[k] == block)
                    land(m, cache, &f, k);
            assert_int_equal(demand(cache, block), model_demand(m, block));
        }
        if (i % 8 == 0)
            check(m, cache);
    }
    while (f.n > 0)
        land(m, cache, &f, 0);
    check(m, cache);
    qm_cache_free(cache);
    free(m);
}

TEST(test_against_model)
{
    for (uint64_t seed = 1; seed <= qm_rounds(150); seed++)
        random_steps(seed, 3000);
}

/* ---- what it is there for */

/* Without prefetches the main part has all blocks. */
TEST(test_nothing_prefetched)
{
    struct qm_cache *cache = make(100, 20, "lru");

    for (uint64_t i = 0; i < 1000; i++)
        demand(cache, i % 100);
    assert_int_equal(stats_of(cache).misses, 100);
    qm_cache_free(cache);
}

/* 40 readers, each of whose prefetches is wanted 40 reads later: a part with room for
 * fewer wastes them all.  Beside, blocks that nobody reads twice. */
TEST(test_too_small_grows)
{
    struct qm_cache *cache = make(400, 4, "lru");
    uint64_t misses = 0;

    for (uint64_t i = 0; i < 40000; i++) {
        if (i == 30000)
            misses = stats_of(cache).misses;
        prefetch(cache, 1000000 + i + 40);
        demand(cache, 1000000 + i);
    }
    assert_in_range(stats_of(cache).prefetch_share, 40, 200);
    assert_int_equal(stats_of(cache).misses, misses);
    qm_cache_free(cache);
}

/* Prefetches that nobody wants, and 390 blocks that are wanted again and again: all but
 * a few of the 400 must go to these. */
TEST(test_worthless_shrinks)
{
    struct qm_cache *cache = make(400, 200, "lru");
    uint64_t misses = 0, seed = 1;

    for (uint64_t i = 0; i < 60000; i++) {
        if (i == 50000)
            misses = stats_of(cache).misses;
        if (i % 4 == 0)
            prefetch(cache, 1000000 + i);
        demand(cache, rnd_below(&seed, 390));
    }
    assert_in_range(stats_of(cache).prefetch_share, 1, 20);
    assert_in_range(stats_of(cache).misses - misses, 0, 500);
    qm_cache_free(cache);
}

/* First the one, then the other, then the first again. */
TEST(test_follows)
{
    struct qm_cache *cache = make(400, 16, "lru");
    uint64_t seed = 1;

    for (uint64_t i = 0; i < 180000; i++) {
        bool late = i / 60000 % 2;

        prefetch(cache, 1000000 + i + (late ? 0 : 60));
        demand(cache, late ? rnd_below(&seed, 420) : 1000000 + i);
        if (i == 59999 || i == 179999)
            assert_in_range(stats_of(cache).prefetch_share, 60, 200);
        if (i == 119999)
            assert_in_range(stats_of(cache).prefetch_share, 1, 20);
    }
    qm_cache_free(cache);
}

/* What is on its way is not given up for others of its kind, up to half of the cache.
 */
TEST(test_in_flight_stays)
{
    struct qm_cache *cache = make(100, 1, "lru");
    struct qm_fill *fill[80];

    for (uint64_t b = 0; b < 100; b++)
        demand(cache, b);
    for (uint64_t b = 0; b < 80; b++)
        assert_int_equal(qm_cache_prefetch(cache, 1000 + b, 0, &fill[b]), 0);
    assert_int_equal(stats_of(cache).prefetch_blocks, 50);
    assert_int_equal(stats_of(cache).wasted, 30);
    /* Nor for a demand. */
    demand(cache, 2000);
    assert_int_equal(stats_of(cache).prefetch_blocks, 50);
    /* Once they are there, they are. */
    for (uint64_t b = 0; b < 80; b++)
        qm_cache_fill(cache, fill[b], NULL);
    for (uint64_t b = 0; b < 60; b++)
        demand(cache, 3000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 1);
    qm_cache_free(cache);
}

/* Where nothing is missed, hits tell that time passes: what was prefetched long ago and
 * not used goes before blocks that are hit. */
TEST(test_stale_by_hits)
{
    struct qm_cache *cache = make(100, 50, "lru");

    for (uint64_t b = 0; b < 90; b++)
        demand(cache, b);
    for (uint64_t b = 0; b < 10; b++)
        prefetch(cache, 1000 + b);
    for (unsigned i = 0; i < 100; i++)
        for (uint64_t b = 0; b < 90; b++)
            assert_int_equal(demand(cache, b), QM_HIT);
    for (uint64_t b = 0; b < 10; b++)
        demand(cache, 2000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 0);
    for (uint64_t b = 0; b < 90; b++)
        assert_int_equal(demand(cache, b), QM_HIT);
    qm_cache_free(cache);
}

/* Place that is reserved is the prefetch part's, up to half of the cache, until it is
 * no longer reserved. */
TEST(test_reserved)
{
    struct qm_cache *cache = make(100, 1, "lru");

    for (uint64_t b = 0; b < 100; b++)
        demand(cache, b);
    qm_cache_reserve(cache, 30);
    for (uint64_t b = 0; b < 40; b++)
        prefetch(cache, 1000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 30);
    for (uint64_t b = 0; b < 200; b++)
        demand(cache, 2000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 30);
    assert_int_equal(demand(cache, 1039), QM_PREFETCH_HIT);
    qm_cache_reserve(cache, 1000);
    for (uint64_t b = 0; b < 80; b++)
        prefetch(cache, 4000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 50);
    qm_cache_reserve(cache, 0);
    for (uint64_t b = 0; b < 60; b++)
        demand(cache, 3000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 1);
    qm_cache_free(cache);
}

/* Prefetches that are used, each `wait` blocks after it came: twice as many as there
 * are waiting. */
static void use_after(struct qm_cache *cache, uint64_t first, uint64_t n, uint64_t wait)
{
    for (uint64_t b = 0; b < n; b++) {
        prefetch(cache, first + b);
        if (b >= wait)
            assert_int_equal(demand(cache, first + b - wait), QM_PREFETCH_HIT);
    }
}

/* `loops` times all of `n` blocks, and beside them `used` blocks that are prefetched,
 * and demanded when 45 others have come.  Returns the last loop's misses. */
static uint64_t loop_beside(struct qm_cache *cache, unsigned loops, uint64_t n,
                            uint64_t used)
{
    uint64_t misses = 0, next = 100000;

    for (unsigned i = 0; i < loops; i++) {
        misses = 0;
        for (uint64_t b = 0; b < n; b++) {
            misses += demand(cache, b) == QM_MISS;
            if (b < used) {
                prefetch(cache, next + 45);
                (void)demand(cache, next++);
            }
        }
    }
    return misses;
}

/* What is reserved gives way where the main part misses more by it than it saves, and
 * not where it does not. */
TEST(test_reserved_must_pay)
{
    struct qm_cache *cache = make(100, 4, "lru");

    qm_cache_reserve(cache, 50);
    assert_in_range(loop_beside(cache, 100, 70, 8), 0, 10);
    assert_in_range(stats_of(cache).prefetch_blocks, 1, 25);
    qm_cache_free(cache);

    cache = make(100, 4, "lru");
    qm_cache_reserve(cache, 50);
    use_after(cache, 10000, 1000, 45);
    (void)loop_beside(cache, 5, 4, 0);
    use_after(cache, 20000, 1000, 45);
    qm_cache_free(cache);
}

/* What is never used goes, although place is reserved, once the others have shown how
 * long blocks wait; what is used as late as they were stays. */
TEST(test_stale)
{
    struct qm_cache *cache = make(200, 40, "lru");

    qm_cache_reserve(cache, 100);
    for (uint64_t b = 0; b < 200; b++)
        demand(cache, b);
    use_after(cache, 10000, 1000, 8);
    for (uint64_t b = 0; b < 40; b++)
        prefetch(cache, 1000 + b);
    for (uint64_t b = 0; b < 12; b++)
        demand(cache, 2000 + b);
    assert_int_equal(demand(cache, 1000), QM_PREFETCH_HIT);
    for (uint64_t b = 0; b < 100; b++)
        demand(cache, 3000 + b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 0);
    assert_int_equal(stats_of(cache).main_blocks, 200);
    qm_cache_free(cache);
}

/* Readers that are slower than others: what they will use stays. */
TEST(test_slow_readers)
{
    struct qm_cache *cache = make(200, 40, "lru");

    qm_cache_reserve(cache, 100);
    for (uint64_t b = 0; b < 200; b++)
        demand(cache, b);
    use_after(cache, 10000, 1000, 8);
    use_after(cache, 20000, 2000, 30);
    use_after(cache, 30000, 2000, 80);
    qm_cache_free(cache);
}

/* A block that a reader waits for is not driven out by what is prefetched meanwhile:
 * it would be read twice. */
TEST(test_waited_for_stays)
{
    for (size_t i = 0; i < POLICIES; i++) {
        struct qm_cache *cache = make(100, 4, policies[i]);
        struct qm_fill *fill;
        struct qm_lookup found;

        for (uint64_t b = 0; b < 300; b++)
            demand(cache, b % 150);
        assert_int_equal(qm_cache_prefetch(cache, 1000, 0, &fill), 0);
        assert_int_equal(qm_cache_demand(cache, 1000, NULL, 0, 1, &found), 0);
        assert_int_equal(found.todo, QM_WAIT);
        qm_cache_reserve(cache, 50);
        for (uint64_t b = 0; b < 45; b++)
            prefetch(cache, 2000 + b);
        assert_true(qm_cache_fill(cache, fill, NULL));
        assert_int_equal(qm_cache_wait(cache, found.fill, NULL, 0, 1), 0);
        qm_cache_free(cache);
    }
}

/* Each policy while the share wanders: the parts never have more than all blocks. */
TEST(test_policies)
{
    for (size_t p = 0; p < POLICIES; p++) {
        struct qm_cache *cache = make(200, 8, policies[p]);
        uint64_t seed = p, least = 200, most = 0;

        for (uint64_t i = 0; i < 100000; i++) {
            bool late = i / 25000 % 2;
            struct qm_cache_stats s;

            if (i % 2)
                prefetch(cache, 1000000 + i + (late ? 0 : 30));
            demand(cache, late ? rnd_below(&seed, 260) : 1000000 + i);
            s = stats_of(cache);
            assert_true(s.main_blocks + s.prefetch_blocks <= 200);
            least = s.prefetch_share < least ? s.prefetch_share : least;
            most = s.prefetch_share > most ? s.prefetch_share : most;
        }
        assert_true(least < 8);
        assert_in_range(most, 16, 100);
        check_identities(cache, 0);
        qm_cache_free(cache);
    }
}

/* A policy is told what it has: LRU, with a note of it. */
static struct qm_evict_ops noting;
static uint64_t noted, assured;

static void *note_created(uint64_t capacity, void *opaque)
{
    return qm_evict_find("lru")->create(capacity);
}

static void note_resized(void *policy, uint64_t capacity)
{
    noted = capacity;
}

static void note_assured(void *policy, uint64_t capacity)
{
    assured = capacity;
    assert_true(assured <= noted);
}

static struct qm_cache *make_noting(uint64_t blocks, uint64_t prefetch)
{
    noting = *qm_evict_find("lru");
    noting.create_for = note_created;
    noting.resize = note_resized;
    noting.assured = note_assured;
    return new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                               .blocks = blocks,
                                               .prefetch_blocks = prefetch,
                                               .prefetch_adapts = true,
                                               .shards = 1,
                                               .own_eviction = &noting});
}

/* Of each new share, and of what the prefetch part holds of late, to a 64th: as many as
 * its share at most. */
TEST(test_policies_are_told)
{
    struct qm_cache *cache = make_noting(100, 4);
    uint64_t changes = 0;
    double holds = 4;

    assert_int_equal(noted, 96);
    assert_int_equal(assured, 96);
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t before = assured, held;
        double less;

        prefetch(cache, 1000 + i + 30);
        held = stats_of(cache).prefetch_blocks;
        if (demand(cache, 1000 + i) == QM_PREFETCH_HIT)
            held--; /* when it enters the main part, it has left */
        holds += ((double)held - holds) / 100;
        assert_int_equal(assured, 100 - stats_of(cache).prefetch_share);
        changes += assured != before;
        less = holds < 100 - assured ? holds : 100 - assured;
        assert_in_range(noted, (uint64_t)(100 - less) - 1, (uint64_t)(100 - less) + 2);
        assert_true(noted >= assured);
    }
    assert_in_range(changes, 26, 46);
    assert_in_range(assured, 50, 70);
    qm_cache_free(cache);
}

/* Where the prefetch part holds few, the main part has the others, though the share
 * stays; and less again when they wait. */
TEST(test_what_is_not_held)
{
    struct qm_cache *cache = make_noting(1000, 400);
    uint64_t less;

    for (uint64_t b = 0; b < 1000; b++)
        demand(cache, b);
    assert_int_equal(assured, 600);
    use_after(cache, 10000, 5000, 8);
    assert_int_equal(assured, 600);
    assert_in_range(noted, 970, 992);
    /* Never more than there are. */
    less = noted - 1;
    assert_int_equal(qm_cache_resize(cache, less), 0);
    assert_in_range(noted, less - 20, less);
    assert_int_equal(qm_cache_resize(cache, 1000), 0);
    use_after(cache, 20000, 2000, 30);
    use_after(cache, 30000, 5000, 80);
    assert_in_range(noted, 900, 940);
    qm_cache_resize(cache, 500);
    assert_in_range(noted, 400, 440);
    qm_cache_free(cache);
}

/* Each block that the share loses is the main part's at once. */
TEST(test_share_that_shrinks)
{
    struct qm_cache *cache = make_noting(1000, 400);

    for (uint64_t b = 0; b < 400; b++)
        prefetch(cache, 2000 + b);
    for (uint64_t b = 0; b < 700; b++)
        demand(cache, b);
    assert_int_equal(stats_of(cache).prefetch_blocks, 400);
    for (uint64_t b = 0; b < 50; b++) { /* that have left */
        demand(cache, b);
        assert_int_equal(noted, 1000 - stats_of(cache).prefetch_share);
    }
    assert_true(assured > 610);
    qm_cache_free(cache);
}
