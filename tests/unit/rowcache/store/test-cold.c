/* SPDX-License-Identifier: BSD-3-Clause */
/* test-cold.c - gets write nothing: how often keys on disk were asked for is counted in
 * memory, exactly while there is room, and within bounds when there is none; keys that
 * come back and leave again as they were are not written. */
#include "rowcache/store/store.h"

#include "testing.h"

static struct store_hash hash_of(uint32_t key)
{
    return store_hash_of(&key, sizeof key);
}

/* Counts as a plain array does. */
TEST_WITH(test_exact, make_test_dir, remove_test_dir)
{
    enum { KEYS = 5000 };
    static uint32_t model[KEYS];
    uint64_t seed = 3;
    struct cold c;

    assert_int_equal(store_cold_init(&c, KEYS, UINT64_C(1) << 20), 0);
    assert_true(store_cold_bytes(&c) <= 5 * KEYS);
    for (unsigned i = 0; i < 50 * KEYS; i++) {
        uint32_t key = (uint32_t)rnd_below(&seed, KEYS);

        if (rnd(&seed) % 40 == 0) {
            store_cold_remove(&c, hash_of(key));
            model[key] = 0;
        } else if (rnd(&seed) % 8 == 0) {
            bool fits = model[key] + 300 <= COLD_MOST;

            assert_int_equal(store_cold_add(&c, hash_of(key), 300), fits);
            model[key] += fits ? 300 : 0;
        } else {
            bool counts = model[key] < COLD_MOST;

            assert_int_equal(store_cold_seen(&c, hash_of(key)), counts);
            model[key] += counts;
        }
    }
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(store_cold_count(&c, hash_of(key)), model[key]);
    for (uint32_t key = KEYS; key < 20 * KEYS; key++)
        assert_int_equal(store_cold_count(&c, hash_of(key)), 0);
    store_cold_free(&c);
}

/* Of many more keys than there is room for, those that come often are known. */
TEST_WITH(test_full, make_test_dir, remove_test_dir)
{
    enum { ROOM = 1000, KEYS = 20000, OFTEN = 100, ROUNDS = 40 };
    struct cold c;
    uint32_t least = UINT32_MAX, rare = 0;

    assert_int_equal(store_cold_init(&c, KEYS, ROOM * 4), 0);
    assert_true(store_cold_bytes(&c) <= ROOM * 4);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint32_t key = 0; key < OFTEN; key++)
            for (unsigned i = 0; i < 10; i++)
                assert_true(store_cold_seen(&c, hash_of(key)));
        for (uint32_t i = 0; i < 1000; i++, rare++)
            assert_true(store_cold_seen(&c, hash_of(OFTEN + rare % (KEYS - OFTEN))));
    }
    for (uint32_t key = 0; key < OFTEN; key++) {
        uint32_t n = store_cold_count(&c, hash_of(key));

        assert_true(n <= 10 * ROUNDS);
        least = n < least ? n : least;
    }
    printf("of %d calls, %u are known at least\n", 10 * ROUNDS, least);
    assert_true(least > 10 * ROUNDS / 4);
    store_cold_free(&c);
}

/* A key that comes often when the others have taken all room gets some: they fade. */
TEST_WITH(test_comes_late, make_test_dir, remove_test_dir)
{
    enum { ROOM = 1000, EARLY = 5000, CALLS = 200 };
    struct cold c;

    assert_int_equal(store_cold_init(&c, EARLY, ROOM * 4), 0);
    for (unsigned i = 0; i < 3; i++)
        for (uint32_t key = 0; key < EARLY; key++)
            (void)store_cold_seen(&c, hash_of(key));
    for (uint32_t key = EARLY; key < EARLY + 10; key++) {
        for (unsigned i = 0; i < CALLS; i++)
            assert_true(store_cold_seen(&c, hash_of(key)));
        assert_true(store_cold_count(&c, hash_of(key)) > CALLS / 2);
    }
    store_cold_free(&c);
}

static struct qmstore *open_lfu(enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();

    remove_below(test_dir);
    c.policy = "lfu";
    c.durability = durability;
    return open_ok(&c);
}

static void get(struct qmstore *s, uint32_t key)
{
    assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
}

/* Keys that memory has no place for, while those in memory come more often. */
TEST_WITH(test_no_write, make_test_dir, remove_test_dir)
{
    enum { KEYS = 3000, SIZE = 1000, CALLS = 2000 };
    static char value[SIZE];

    for (int d = QMSTORE_SYNC; d <= QMSTORE_NONE; d++) {
        struct qmstore *s = open_lfu((enum qmstore_durability)d);
        struct partition *p = &s->partitions[0];
        struct qmstore_stats before, after;
        struct entry *v;
        uint32_t hot, cold = KEYS - 1;

        for (uint32_t key = 0; key < KEYS; key++)
            assert_int_equal(qmstore_put(s, &key, sizeof key, value, SIZE, 0), 0);
        assert_int_equal(qmstore_flush(s), 0);
        assert_int_equal(store_buffer_write(p), 0);
        /* All in memory have come CALLS times. */
        for (hot = 0; hot < KEYS; hot++)
            if (store_table_find(&p->table, hash_of(hot), &hot, sizeof hot))
                for (unsigned i = 1; i < CALLS; i++)
                    get(s, hot);
        v = p->ops->victim(p);
        assert_int_equal(v->frequency, CALLS);
        before = stats_of(s);
        assert_true(before.disk_keys > KEYS / 3);
        for (unsigned i = 1; i < 1000; i++)
            for (uint32_t key = KEYS - 20; key < KEYS; key++)
                get(s, key);
        after = stats_of(s);
        assert_int_equal(after.disk_hits - before.disk_hits, 999 * 20);
        assert_int_equal(after.disk_writes, before.disk_writes);
        assert_int_equal(after.log_bytes, before.log_bytes);
        assert_int_equal(after.buffer_keys, 0);
        assert_int_equal(after.restorations, before.restorations);
        /* More than can be counted: its record is written anew, now and then. */
        for (unsigned i = 1000; i < CALLS; i++) {
            get(s, cold);
            if (store_table_find(&p->table, hash_of(cold), &cold, sizeof cold))
                assert_int_equal(store_buffer_write(p), 0);
        }
        after = stats_of(s);
        assert_int_equal(after.disk_writes - before.disk_writes, 1);
        /* As often as the victim: now it is restored, with one more. */
        assert_int_equal(after.restorations, before.restorations);
        get(s, cold);
        assert_int_equal(stats_of(s).restorations, before.restorations + 1);
        assert_int_equal(
            store_table_find(&p->table, hash_of(cold), &cold, sizeof cold)->frequency,
            CALLS + 1);
        assert_int_equal(store_cold_count(&p->cold, hash_of(cold)), 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* The filter is made anew, and with it the table; the counts stay. */
TEST_WITH(test_rebuilt, make_test_dir, remove_test_dir)
{
    enum { KEYS = 4000 };
    struct qmstore *s = open_lfu(QMSTORE_NONE);
    struct partition *p = &s->partitions[0];
    static uint32_t counts[KEYS];
    unsigned counted = 0;

    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(qmstore_put(s, &key, sizeof key, test_dir, 60, 0), 0);
    p->memory = 0; /* nothing is restored */
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    for (uint32_t key = 0; key < KEYS; key++) {
        for (unsigned i = 0; i < key % 7; i++)
            (void)store_cold_seen(&p->cold, hash_of(key));
        counts[key] = store_cold_count(&p->cold, hash_of(key));
        counted += counts[key] > 0;
    }
    assert_true(counted > KEYS / 8);
    assert_int_equal(store_filter_make(p), 0);
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(store_cold_count(&p->cold, hash_of(key)), counts[key]);
    assert_int_equal(qmstore_close(s), 0);
}

/* Asks for keys up and down, so that LFU restores some, too. */
static void get_all(struct qmstore *s, uint32_t keys, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++)
        for (uint32_t i = 0; i < keys; i++)
            get(s, round % 2 ? keys - 1 - i : i);
}

/* Keys go to memory and back, and are written when they were changed. */
TEST_WITH(test_unchanged, make_test_dir, remove_test_dir)
{
    enum { KEYS = 2000, SIZE = 1000 };
    static const char *const policies[] = {"lru", "wtinylfu", "lfu"};
    static char value[SIZE], want[SIZE];

    for (unsigned n = 0; n < 6; n++) {
        struct qmstore_stats before, after;
        struct qmstore_config c = small_config();
        struct qmstore *s;
        uint32_t key;

        remove_below(test_dir);
        c.policy = policies[n % 3];
        c.durability = n < 3 ? QMSTORE_SYNC : QMSTORE_NONE;
        s = open_ok(&c);
        for (key = 0; key < KEYS; key++)
            assert_int_equal(qmstore_put(s, &key, sizeof key, value, SIZE, 0), 0);
        /* Nearly all that was put has left memory; what is there came from disk. */
        get_all(s, KEYS, 20);
        assert_int_equal(store_buffer_write(&s->partitions[0]), 0);
        before = stats_of(s);
        get_all(s, KEYS, 6);
        after = stats_of(s);
        if (after.restorations == before.restorations)
            fail_msg("%s: nothing was restored", c.policy);
        assert_true(after.evictions > before.evictions);
        assert_true(after.disk_writes - before.disk_writes <
                    (after.evictions - before.evictions) / 2);
        if (n < 3)
            assert_true(after.log_bytes - before.log_bytes <
                        (after.evictions - before.evictions) * SIZE / 2);
        assert_int_equal(after.keys, KEYS);
        /* A changed one is not what the disk has; nor is one that was deleted. */
        memset(want, 1, SIZE);
        for (key = 0; key < KEYS; key += 2)
            assert_int_equal(qmstore_put(s, &key, sizeof key, want, SIZE, 0), 0);
        for (key = 1; key < KEYS; key += 4)
            assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
        for (unsigned round = 0; round < 6; round++) {
            for (key = 0; key < KEYS; key++) {
                void *v = NULL;
                int r = qmstore_get(s, &key, sizeof key, &v, NULL, NULL);

                assert_int_equal(r, key % 4 == 1 ? ENOENT : 0);
                if (r == 0)
                    assert_memory_equal(v, key % 2 ? value : want, SIZE);
                free(v);
            }
            if (round == 3) {
                assert_int_equal(qmstore_close(s), 0);
                s = open_ok(&c);
            }
        }
        assert_int_equal(stats_of(s).keys, KEYS / 4 * 3);
        assert_int_equal(qmstore_close(s), 0);
    }
}
