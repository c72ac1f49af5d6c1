/* SPDX-License-Identifier: BSD-3-Clause */
/* test-scan.c - qmstore_scan(), compared with a plain table: a key that is there all
 * the time is told once, with a value that it has, whatever comes, goes and moves
 * meanwhile.
 *
 *   store-scan [SEED] */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "testing.h"

/* The first STAY keys are there all the time. */
enum { KEYS = 1800, STAY = 700, LONGEST = 6000, ENDED = 40 };

struct model {
    uint32_t version[KEYS]; /* 0: there is none */
};

static uint64_t seed;
static struct model model, before; /* before: as the call found it */
static unsigned told[KEYS], calls, most;
static uint32_t versions;
static struct qmstore *store;
static bool changes; /* each told key brings changes */

static size_t value_of(uint32_t key, uint32_t version, char *value)
{
    uint64_t s = (uint64_t)key << 32 | version;
    size_t len = rnd(&s) % LONGEST;

    for (size_t n = 0; n < len; n++)
        value[n] = (char)(version + n);
    return len;
}

static void put(uint32_t key)
{
    char value[LONGEST];
    size_t len = value_of(key, ++versions, value);

    assert_int_equal(qmstore_put(store, &key, sizeof key, value, len, 0), 0);
    model.version[key] = versions;
}

static void delete_one(uint32_t key)
{
    assert_int_equal(qmstore_delete(store, &key, sizeof key),
                     model.version[key] ? 0 : ENOENT);
    model.version[key] = 0;
}

/* Keys come and go; what is asked for comes from disk, and others go there. */
static void change(void)
{
    uint32_t goes = STAY + (uint32_t)rnd_below(&seed, KEYS - STAY);
    uint32_t comes = STAY + (uint32_t)rnd_below(&seed, KEYS - STAY);

    delete_one(goes);
    put(comes);
    if (rnd(&seed) % 4 == 0)
        put((uint32_t)rnd_below(&seed, STAY));
    for (unsigned i = 0; i < 3; i++) {
        uint32_t key = (uint32_t)rnd_below(&seed, STAY);

        assert_int_equal(qmstore_get(store, &key, sizeof key, NULL, NULL, NULL), 0);
    }
}

static int see(void *opaque, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t expires)
{
    char want[LONGEST];
    uint32_t i;
    size_t len;

    assert_int_equal(key_len, sizeof i);
    memcpy(&i, key, sizeof i);
    if (i >= KEYS || before.version[i] == 0)
        fail_msg("key %u: told, and it is not there", i);
    len = value_of(i, before.version[i], want);
    if (len != value_len || memcmp(value, want, len) != 0)
        fail_msg("key %u: told with another value", i);
    assert_int_equal(expires, 0);
    told[i]++;
    ++*(unsigned *)opaque;
    if (changes)
        change();
    return 0;
}

static void step(uint64_t *cursor)
{
    unsigned n = 0;

    before = model;
    assert_int_equal(qmstore_scan(store, cursor, see, &n), 0);
    calls++;
    if (n > most)
        most = n;
}

static void scan_all(void)
{
    uint64_t cursor = 0;

    memset(told, 0, sizeof told);
    calls = most = 0;
    do
        step(&cursor);
    while (cursor != 0);
}

/* What is told of a store that does not change meanwhile. */
static void check_told(void)
{
    for (uint32_t i = 0; i < KEYS; i++)
        if (told[i] != (model.version[i] != 0))
            fail_msg("key %u: told %u times, and it has version %u", i, told[i],
                     model.version[i]);
}

/* Nothing that these tests do is worth a warning: a key that is missing because its
 * partition was set aside must not look like one that was lost. */
static void warn(void *opaque, const char *text)
{
    fail_msg("warned: %s", text);
}

static struct qmstore_config config(const char *policy, const char *disk,
                                    unsigned partitions)
{
    struct qmstore_config c = small_config();

    c.partitions = partitions;
    c.memory = (UINT64_C(1) << 20) * partitions;
    c.write_buffer = (32 << 10) * partitions;
    c.disk_cache = (128 << 10) * partitions;
    c.log_buffer = 16 << 10;
    c.policy = policy;
    c.disk = disk;
    c.warn = warn;
    c.durability = QMSTORE_NONE;
    remove_below(test_dir);
    memset(&model, 0, sizeof model);
    store = open_ok(&c);
    return c;
}

/* Keys in memory, in the write buffer and on disk. */
static void fill(void)
{
    static char none[10];
    struct qmstore_stats stats;
    struct timespec t;

    for (uint32_t i = 0; i < KEYS; i++)
        put(i);
    for (uint32_t i = STAY; i < KEYS; i += 2)
        delete_one(i);
    clock_gettime(CLOCK_REALTIME, &t);
    for (uint32_t i = KEYS; i < KEYS + ENDED; i++) /* their life has ended */
        assert_int_equal(qmstore_put(store, &i, sizeof i, none, sizeof none,
                                     (uint64_t)t.tv_sec * 1000 - 1),
                         0);
    for (uint32_t i = 0; i < KEYS; i++)
        (void)qmstore_get(store, &i, sizeof i, NULL, NULL, NULL);
    stats = stats_of(store);
    if (stats.memory_keys < 100 || stats.disk_keys < 100)
        fail_msg("%llu keys in memory, %llu on disk",
                 (unsigned long long)stats.memory_keys,
                 (unsigned long long)stats.disk_keys);
}

static const struct {
    const char *policy, *disk;
    unsigned partitions;
} kinds[] = {{"lru", "lmdb", 1},
             {"wtinylfu", "bdb", 3},
             {"lfu", "files", 1},
             {"mru", "lmdb", 2}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Nothing changes: each key once, some at a time.  A cursor that is used again tells
 * the same; after the store was closed and opened, too. */
TEST_WITH(test_still, make_test_dir, remove_test_dir)
{
    for (unsigned k = 0; k < KINDS; k++) {
        struct qmstore_config c =
            config(kinds[k].policy, kinds[k].disk, kinds[k].partitions);
        uint64_t cursor = 0;

        scan_all(); /* of an empty store */
        check_told();
        assert_int_equal(calls, kinds[k].partitions);
        fill();
        scan_all();
        check_told();
        if (calls < 10 || most > 500)
            fail_msg("%u calls, of %u keys at most", calls, most);

        memset(told, 0, sizeof told);
        for (unsigned n = 0; n == 0 || cursor != 0; n++) {
            uint64_t again = cursor, twice = cursor;
            unsigned first[KEYS];

            step(&cursor);
            memcpy(first, told, sizeof told);
            step(&twice);
            assert_int_equal(twice, cursor);
            for (uint32_t i = 0; i < KEYS; i++)
                assert_int_equal(told[i] - first[i], first[i] > 0 && told[i] == 2);
            memcpy(told, first, sizeof told);
            if (n == 3) {
                assert_int_equal(qmstore_close(store), 0);
                store = open_ok(&c);
                assert_true(again != cursor);
            }
        }
        check_told();
        assert_int_equal(qmstore_close(store), 0);
    }
}

TEST_WITH(test_moving, make_test_dir, remove_test_dir)
{
    for (unsigned k = 0; k < KINDS; k++) {
        (void)config(kinds[k].policy, kinds[k].disk, kinds[k].partitions);
        fill();
        for (unsigned round = 0; round < 2; round++) {
            struct qmstore_stats was = stats_of(store), is;

            changes = true;
            scan_all();
            changes = false;
            is = stats_of(store);
            /* Otherwise nothing was tried. */
            assert_true(is.evictions > was.evictions + 50);
            assert_true(is.disk_batches > was.disk_batches);
            for (uint32_t i = 0; i < KEYS; i++)
                if (i < STAY ? told[i] != 1 : told[i] > 1)
                    fail_msg("%s %s: key %u was told %u times", kinds[k].policy,
                             kinds[k].disk, i, told[i]);
        }
        scan_all();
        check_told();
        assert_int_equal(qmstore_close(store), 0);
    }
}

static int stop(void *opaque, const void *key, size_t key_len, const void *value,
                size_t value_len, uint64_t expires)
{
    unsigned *left = opaque;

    return --*left == 0 ? -7 : 0;
}

/* A cursor of no partition is refused, and stays; one that points anywhere into a
 * partition is harmless.  A call that is ended early can be made again. */
TEST_WITH(test_cursors, make_test_dir, remove_test_dir)
{
    const uint64_t partition = UINT64_C(1) << 56; /* of cursors: see keys.c */

    (void)config("wtinylfu", "lmdb", 3);
    fill();
    for (unsigned i = 0; i < 300; i++) {
        uint64_t cursor = rnd(&seed), was;

        if (i % 3)
            cursor %= 4 * partition;
        if (i < 3)
            cursor = i == 0 ? UINT64_MAX : i == 1 ? 3 * partition : 3 * partition - 1;
        was = cursor;
        if (cursor >= 3 * partition) {
            unsigned n = 0;

            assert_int_equal(qmstore_scan(store, &cursor, see, &n), EINVAL);
            assert_true(cursor == was && n == 0);
            continue;
        }
        memset(told, 0, sizeof told);
        step(&cursor);
        for (uint32_t key = 0; key < KEYS; key++)
            assert_true(told[key] <= 1);
        assert_true(cursor == 0 || cursor > was);
    }
    {
        uint64_t cursor = 0;
        unsigned left = 5;

        assert_int_equal(qmstore_scan(store, &cursor, stop, &left), -7);
        assert_int_equal(left, 0);
        assert_int_equal(cursor, 0);
    }
    assert_int_equal(qmstore_close(store), 0);
}

static atomic_bool ends;
static _Atomic unsigned turns; /* of the other thread */

/* Keys of its own come and go, and those of the test move. */
static void *disturb(void *opaque)
{
    static char value[LONGEST];
    uint64_t s = 5;

    while (!atomic_load(&ends)) {
        uint32_t own = KEYS + (uint32_t)rnd_below(&s, 3000);
        uint32_t key = (uint32_t)rnd_below(&s, STAY);

        assert_int_equal(qmstore_get(store, &key, sizeof key, NULL, NULL, NULL), 0);
        if (rnd(&s) % 3 == 0)
            (void)qmstore_delete(store, &own, sizeof own);
        else
            assert_int_equal(
                qmstore_put(store, &own, sizeof own, value, rnd(&s) % LONGEST, 0), 0);
        atomic_fetch_add(&turns, 1);
    }
    return NULL;
}

static int see_those_that_stay(void *opaque, const void *key, size_t key_len,
                               const void *value, size_t value_len, uint64_t expires)
{
    uint32_t i;

    memcpy(&i, key, sizeof i);
    return i < KEYS ? see(opaque, key, key_len, value, value_len, expires) : 0;
}

TEST_WITH(test_threads, make_test_dir, remove_test_dir)
{
    pthread_t thread;

    (void)config("wtinylfu", "lmdb", 2);
    fill();
    for (uint32_t i = STAY; i < KEYS; i++)
        delete_one(i);
    assert_int_equal(pthread_create(&thread, NULL, disturb, NULL), 0);
    for (unsigned round = 0; round < 20; round++) {
        unsigned until = atomic_load(&turns) + 500;
        uint64_t cursor = 0;

        before = model;
        memset(told, 0, sizeof told);
        do {
            unsigned n = 0;

            assert_int_equal(qmstore_scan(store, &cursor, see_those_that_stay, &n), 0);
        } while (cursor != 0);
        check_told();
        while (atomic_load(&turns) < until)
            sched_yield();
    }
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    assert_int_equal(qmstore_close(store), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    return run_listed(NULL, NULL);
}
