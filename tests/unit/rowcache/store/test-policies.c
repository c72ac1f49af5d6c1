/* SPDX-License-Identifier: BSD-3-Clause */
/* test-policies.c - which keys are in memory and which on disk, as the thesis'
 * algorithms say (4.4.2); the Bloom filter; keys whose life ends. */
#include <sys/stat.h>

#include "rowcache/store/store.h"

#include "testing.h"

enum { VALUE = 4000 };

static char value[VALUE];

/* A store whose memory has room for `keys` keys with such values. */
static struct qmstore *open_for(const char *policy, unsigned keys)
{
    struct qmstore_config c = small_config();
    struct qmstore *s;

    remove_below(test_dir);
    c.policy = policy;
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    s->partitions[0].memory =
        store_table_bytes(&s->partitions[0].table) +
        (uint64_t)keys * ((sizeof(struct entry) + 1 + VALUE + 8 + 15) / 16 * 16);
    return s;
}

static void put(struct qmstore *s, char key)
{
    memset(value, key, sizeof value);
    assert_int_equal(qmstore_put(s, &key, 1, value, sizeof value, 0), 0);
}

static void get(struct qmstore *s, char key)
{
    size_t len;
    void *v;

    assert_int_equal(qmstore_get(s, &key, 1, &v, &len, NULL), 0);
    assert_int_equal(len, sizeof value);
    memset(value, key, sizeof value);
    assert_memory_equal(v, value, len);
    free(v);
}

/* "+a" sets a, "?a" gets it. */
static void play(struct qmstore *s, const char *operations)
{
    for (const char *o = operations; *o; o += 2) {
        if (o[0] == '+')
            put(s, o[1]);
        else
            get(s, o[1]);
    }
}

static bool is_in_memory(struct qmstore *s, char key, uint32_t *frequency)
{
    const struct entry *e =
        store_table_find(&s->partitions[0].table, store_hash_of(&key, 1), &key, 1);

    if (e)
        *frequency = e->frequency;
    return e && e->place != PLACE_BUFFER;
}

/* The keys in memory, sorted; behind each its frequency, if that counts. */
static void expect(struct qmstore *s, const char *want)
{
    char got[256] = "", *at = got;
    uint32_t frequency;

    for (char key = 'a'; key <= 'z'; key++) {
        if (!is_in_memory(s, key, &frequency))
            continue;
        *at++ = key;
        if (s->partitions[0].ops->counts)
            at += sprintf(at, "%u", frequency);
    }
    assert_string_equal(got, want);
}

/* What memory evicted is in the write buffer, or on disk: both are tried. */
static void write_buffer(struct qmstore *s, bool does)
{
    if (does)
        assert_int_equal(qmstore_flush(s), 0);
}

TEST_WITH(test_lru, make_test_dir, remove_test_dir)
{
    for (unsigned flushed = 0; flushed < 2; flushed++) {
        struct qmstore *s = open_for("lru", 3);

        play(s, "+a+b+c"); /* as many as there is room for */
        expect(s, "abc");
        play(s, "?a+d"); /* b is the least recent */
        expect(s, "acd");
        write_buffer(s, flushed);
        play(s, "?b"); /* is restored, for c */
        expect(s, "abd");
        write_buffer(s, flushed);
        play(s, "+c"); /* a key on disk that is set comes back, too */
        expect(s, "bcd");
        assert_int_equal(stats_of(s).keys, 4);
        assert_int_equal(qmstore_close(s), 0);
    }
}

TEST_WITH(test_mru, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_for("mru", 3);

    play(s, "+a+b+c");
    expect(s, "abc");
    play(s, "+d"); /* takes the place of the most recent, c, and not its own */
    expect(s, "abd");
    play(s, "?a+e");
    expect(s, "bde");
    play(s, "?a");
    expect(s, "abd");
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_lfu, make_test_dir, remove_test_dir)
{
    for (unsigned flushed = 0; flushed < 2; flushed++) {
        struct qmstore *s = open_for("lfu", 2);

        play(s, "+a+b");
        expect(s, "a1b1");
        play(s, "?a?a?b");
        expect(s, "a3b2");
        play(s, "+c"); /* a new key goes to disk, with 1 */
        expect(s, "a3b2");
        write_buffer(s, flushed);
        play(s, "?c"); /* 1 < 2: it stays, with 2 */
        expect(s, "a3b2");
        write_buffer(s, flushed);
        play(s, "?c"); /* 2 >= 2: it takes b's place, with 3 */
        expect(s, "a3c3");
        write_buffer(s, flushed);
        play(s, "+b"); /* 2 < 3: its value is changed on disk, with 3 */
        expect(s, "a3c3");
        write_buffer(s, flushed);
        play(s, "+b"); /* 3 >= 3: of equals, the least recent leaves */
        expect(s, "b4c3");
        write_buffer(s, flushed);
        play(s, "?a");
        expect(s, "a4b4");
        assert_int_equal(stats_of(s).keys, 3);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* What is asked for often stays before what comes once. */
TEST_WITH(test_wtinylfu, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_for("wtinylfu", 4);
    uint32_t frequency;

    play(s, "+a+b+c+d?a?b?a?b?a?b");
    for (unsigned i = 0; i < 100; i++) {
        uint32_t scanned = 1000 + i;

        assert_int_equal(qmstore_put(s, &scanned, sizeof scanned, value, VALUE, 0), 0);
    }
    assert_true(is_in_memory(s, 'a', &frequency));
    assert_true(is_in_memory(s, 'b', &frequency));
    assert_true(stats_of(s).evictions >= 100);
    assert_int_equal(qmstore_close(s), 0);
}

/* Hits of memory in the last fifth of calls, by Zipf's law whose popular keys change
 * five times. */
static uint64_t hits_of(const char *policy, size_t value_len, unsigned calls)
{
    enum { KEYS = 4000 };
    static double cumulative[KEYS];
    uint64_t seed = 5, before = 0, hits;
    struct qmstore_config c = small_config();
    struct qmstore *s;
    double sum = 0;

    for (unsigned i = 0; i < KEYS; i++)
        cumulative[i] = sum += 1 / (double)(i + 1);
    remove_below(test_dir);
    c.policy = policy;
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (unsigned i = 0; i < calls; i++) {
        double x = sum * (double)(rnd(&seed) >> 11) / 9007199254740992.;
        uint32_t low = 0, high = KEYS - 1;

        if (i == calls / 5 * 4)
            before = stats_of(s).memory_hits;
        while (low < high) {
            uint32_t middle = (low + high) / 2;

            if (cumulative[middle] < x)
                low = middle + 1;
            else
                high = middle;
        }
        low = (low + i / (calls / 5) * (KEYS / 5)) % KEYS;
        if (qmstore_get(s, &low, sizeof low, NULL, NULL, NULL) == ENOENT)
            assert_int_equal(qmstore_put(s, &low, sizeof low, value, value_len, 0), 0);
    }
    hits = stats_of(s).memory_hits - before;
    assert_int_equal(qmstore_close(s), 0);
    return hits;
}

TEST_WITH(test_shift, make_test_dir, remove_test_dir)
{
    /* Memory for a fifth of the keys; for half of them, whose popularity shifts when
     * each was asked for twice. */
    static const struct {
        size_t value;
        unsigned calls;
    } tries[] = {{1000, 400000}, {250, 40000}};

    for (size_t i = 0; i < 2; i++) {
        uint64_t lfu = hits_of("lfu", tries[i].value, tries[i].calls);
        uint64_t mru = hits_of("mru", tries[i].value, tries[i].calls);
        uint64_t wtinylfu = hits_of("wtinylfu", tries[i].value, tries[i].calls);

        printf(
            "popularity shifts, values of %zu bytes: lfu %llu hits, wtinylfu %llu, mru "
            "%llu\n",
            tries[i].value, (unsigned long long)lfu, (unsigned long long)wtinylfu,
            (unsigned long long)mru);
        assert_true(wtinylfu * 100 > lfu * 103);
        assert_true(lfu > mru);
    }
}

/* Popularity fades: keys that come rarely, but for a long time, do not push out those
 * that come often. */
TEST_WITH(test_fading, make_test_dir, remove_test_dir)
{
    enum { OFTEN = 1600, RARELY = 6000, SIZE = 400, ROUNDS = 300, COUNTED = 50 };
    struct qmstore_config c = small_config();
    uint64_t hits = 0, seed = 9;
    struct qmstore *s;
    uint32_t rare = 0;

    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t k = 0; k < OFTEN + RARELY; k++)
        assert_int_equal(qmstore_put(s, &k, sizeof k, value, SIZE, 0), 0);
    for (unsigned i = 0; i < ROUNDS * OFTEN; i++) {
        uint64_t before = s->partitions[0].stats.memory_hits;
        uint32_t k = (uint32_t)rnd_below(&seed, OFTEN);

        assert_int_equal(qmstore_get(s, &k, sizeof k, NULL, NULL, NULL), 0);
        if (i >= (ROUNDS - COUNTED) * OFTEN)
            hits += s->partitions[0].stats.memory_hits - before;
        if (i % 2 != 0)
            continue;
        k = OFTEN + rare++ % RARELY;
        assert_int_equal(qmstore_get(s, &k, sizeof k, NULL, NULL, NULL), 0);
    }
    printf("%llu keys in memory; of those asked for often, %.2f %% found there\n",
           (unsigned long long)stats_of(s).memory_keys,
           (double)hits * 100 / OFTEN / COUNTED);
    assert_true(hits > (uint64_t)OFTEN * COUNTED * 95 / 100);
    assert_int_equal(qmstore_close(s), 0);
}

/* As many false positives as configured, with no more bits than that takes; a full one
 * is still right. */
TEST_WITH(test_bloom, make_test_dir, remove_test_dir)
{
    static const double rates[] = {.1, .01, .001}, bits[] = {4.793, 9.586, 14.378};

    for (unsigned i = 0; i < 3; i++) {
        struct bloom b;
        unsigned wrong = 0;

        assert_int_equal(store_bloom_init(&b, 10000, rates[i]), 0);
        assert_true((double)b.bits <= 10000 * bits[i] + 64);
        for (uint32_t k = 0; k < 10000; k++)
            store_bloom_add(&b, store_hash_of(&k, sizeof k));
        for (uint32_t k = 0; k < 10000; k++)
            assert_true(store_bloom_may_have(&b, store_hash_of(&k, sizeof k)));
        for (uint32_t k = 100000; k < 300000; k++)
            wrong += store_bloom_may_have(&b, store_hash_of(&k, sizeof k));
        printf("false positives: %.5f of %.3f\n", wrong / 200000., rates[i]);
        assert_true(wrong / 200000. < rates[i] * 1.2);
        assert_true(wrong > 0);
        for (uint32_t k = 10000; k < 100000; k++)
            store_bloom_add(&b, store_hash_of(&k, sizeof k));
        for (uint32_t k = 0; k < 100000; k++)
            assert_true(store_bloom_may_have(&b, store_hash_of(&k, sizeof k)));
        store_bloom_free(&b);
    }
}

TEST_WITH(test_filter_is_rebuilt, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_for("lru", 3);
    struct qmstore_stats stats;

    for (uint32_t k = 0; k < 6000; k++)
        assert_int_equal(qmstore_put(s, &k, sizeof k, value, 200, 0), 0);
    for (uint32_t k = 0; k < 5000; k++)
        assert_int_equal(qmstore_delete(s, &k, sizeof k), 0);
    assert_int_equal(qmstore_flush(s), 0);
    stats = stats_of(s);
    assert_true(stats.filter_rebuilds >= 3);
    assert_true(s->partitions[0].bloom.removed <= s->partitions[0].bloom.capacity / 2);
    for (uint32_t k = 0; k < 6000; k++)
        assert_int_equal(qmstore_get(s, &k, sizeof k, NULL, NULL, NULL),
                         k < 5000 ? ENOENT : 0);
    stats = stats_of(s);
    assert_int_equal(stats.keys, 1000);
    assert_true(stats.false_positives < 500);
    assert_int_equal(qmstore_close(s), 0);
}

/* A batch that the disk refused may be there in part; what is written again is found.
 */
TEST_WITH(test_failed_batch, make_test_dir, remove_test_dir)
{
    enum { KEYS = 40 };
    struct qmstore_config c = small_config();
    struct partition *p;
    struct qmstore *s;
    char name[120];

    c.policy = "lru";
    c.disk = "files";
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    p = &s->partitions[0];
    p->memory = store_table_bytes(&p->table);
    for (uint32_t k = 0; k < KEYS; k++)
        assert_int_equal(qmstore_put(s, &k, sizeof k, value, 100, 0), 0);
    assert_int_equal(p->buffer.count, KEYS);
    snprintf(name, sizeof name, "%s/0/disk/new", test_dir);
    assert_int_equal(mkdir(name, 0700), 0); /* where the layer writes a file */
    assert_int_equal(store_buffer_write(p), EISDIR);
    assert_int_equal(p->buffer.count, KEYS);
    assert_int_equal(rmdir(name), 0);
    assert_int_equal(store_buffer_write(p), 0);
    assert_int_equal(p->buffer.count, 0);
    for (uint32_t k = 0; k < KEYS; k++)
        assert_int_equal(qmstore_get(s, &k, sizeof k, NULL, NULL, NULL), 0);
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_expiry, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_for("lru", 50);
    uint64_t expires;

    for (uint32_t k = 0; k < 600; k++)
        assert_int_equal(qmstore_put(s, &k, sizeof k, value, 1000,
                                     k % 2 ? store_now() + 3600000 : store_now() - 1),
                         0);
    for (uint32_t k = 0; k < 100; k++) {
        assert_int_equal(qmstore_get(s, &k, sizeof k, NULL, NULL, &expires),
                         k % 2 ? 0 : ENOENT);
        if (k % 2)
            assert_true(expires > store_now());
    }
    /* What nobody asks for leaves, too, from memory and disk. */
    assert_int_equal(qmstore_flush(s), 0);
    for (unsigned i = 0; i < 1000 && stats_of(s).keys > 300; i++)
        store_tick(s, 0);
    assert_int_equal(stats_of(s).keys, 300);
    assert_int_equal(qmstore_flush(s), 0);
    assert_int_equal(stats_of(s).disk_keys + stats_of(s).memory_keys, 300);
    assert_int_equal(stats_of(s).expired, 300);
    assert_int_equal(qmstore_put(s, "x", 1, "1", 1, store_now() - 1), 0);
    assert_int_equal(qmstore_delete(s, "x", 1), ENOENT);
    assert_int_equal(qmstore_close(s), 0);
}
