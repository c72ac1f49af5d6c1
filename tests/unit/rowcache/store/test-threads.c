/* SPDX-License-Identifier: BSD-3-Clause */
/* test-threads.c - walks, look-ups, batches, flushes and the store's own thread at a
 * time.  Keys that are there all the time are told once by each walk and found by each
 * look-up, while they go to disk and come back, are changed, the filter is made anew
 * and other keys come, end and go.  Then nothing but they is there, also when the store
 * is opened again.
 *
 *   store-threads [ROUNDS] */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "rowcache/store/store.h"

#include "testing.h"

enum { STAY = 1500, OWN = 4000, LONGEST = 1500, THREADS = 2, BATCH = 6 };

#ifdef __SANITIZE_THREAD__
static unsigned rounds = 3;
#else
static unsigned rounds = 30;
#endif
static struct qmstore *store;
static atomic_bool ends;
static atomic_int wrong; /* what a thread met, or 0 */
static _Atomic unsigned turns;

static char value[LONGEST];

static int batch(uint64_t *seed, uint32_t first)
{
    struct qmstore_change changes[BATCH] = {0};
    uint32_t keys[BATCH];

    for (unsigned i = 0; i < BATCH; i++) {
        bool stays = rnd(seed) % 4 == 0;

        keys[i] =
            (uint32_t)(stays ? rnd_below(seed, STAY) : first + rnd_below(seed, OWN));
        changes[i].key = &keys[i];
        changes[i].key_len = sizeof keys[i];
        if (!stays && rnd(seed) % 2)
            continue;
        changes[i].value = value;
        changes[i].value_len = rnd_below(seed, LONGEST);
        changes[i].expires = !stays && rnd(seed) % 2 ? store_now() + rnd(seed) % 50 : 0;
    }
    return qmstore_batch(store, changes, BATCH);
}

static void *disturb(void *opaque)
{
    uint64_t seed = (uintptr_t)opaque + 1;
    uint32_t first = STAY + OWN * (uint32_t)(uintptr_t)opaque;

    while (!atomic_load(&ends) && atomic_load(&wrong) == 0) {
        uint32_t key = (uint32_t)rnd_below(&seed, rnd(&seed) % 2 ? STAY : STAY / 20);
        unsigned what = (unsigned)rnd_below(&seed, 100);
        void *v = NULL;
        char head[16];
        int r = 0;

        if (what < 20)
            r = qmstore_head(store, &key, sizeof key, head, sizeof head, NULL, NULL);
        else if (what < 60)
            r = qmstore_get(store, &key, sizeof key, &v, NULL, NULL);
        else if (what < 98)
            r = batch(&seed, first);
        else
            r = qmstore_flush(store);
        free(v);
        if (r != 0)
            atomic_store(&wrong, r);
        atomic_fetch_add(&turns, 1);
    }
    return NULL;
}

static unsigned told[STAY];

static int see(void *opaque, const void *key, size_t key_len, const void *v, size_t len,
               uint64_t expires)
{
    uint32_t i;

    memcpy(&i, key, sizeof i);
    if (i < STAY)
        told[i]++;
    return 0;
}

static void walk(bool in_parts)
{
    uint64_t cursor = 0;

    memset(told, 0, sizeof told);
    if (!in_parts)
        assert_int_equal(qmstore_each(store, see, NULL), 0);
    else
        do
            assert_int_equal(qmstore_scan(store, &cursor, see, NULL), 0);
        while (cursor != 0);
    for (uint32_t i = 0; i < STAY; i++)
        if (told[i] != 1)
            fail_msg("key %u was told %u times", i, told[i]);
}

static void check_rest(void)
{
    assert_int_equal(stats_of(store).keys, STAY);
    walk(true);
    for (uint32_t key = 0; key < STAY; key++)
        assert_int_equal(qmstore_get(store, &key, sizeof key, NULL, NULL, NULL), 0);
}

static void run(const struct qmstore_config *c)
{
    pthread_t threads[THREADS];
    struct qmstore_stats stats;

    store = open_ok(c);
    for (uint32_t key = 0; key < STAY; key++)
        assert_int_equal(qmstore_put(store, &key, sizeof key, value, LONGEST / 2, 0),
                         0);
    atomic_store(&ends, false);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, disturb, (void *)i), 0);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned until = atomic_load(&turns) + 300;

        walk(i % 2);
        while (atomic_load(&turns) < until && atomic_load(&wrong) == 0)
            sched_yield();
    }
    stats = stats_of(store);
    atomic_store(&ends, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(stats.error, 0);
    assert_true(stats.restorations > 10 && stats.disk_batches > 10); /* else nothing was
                                                                        tried */
    printf("%s %s: %llu evictions, %llu restorations, %llu batches\n", c->policy,
           c->disk, (unsigned long long)stats.evictions,
           (unsigned long long)stats.restorations,
           (unsigned long long)stats.disk_batches);
    for (uint32_t key = STAY; key < STAY + OWN * THREADS; key++) {
        int r = qmstore_delete(store, &key, sizeof key);

        assert_true(r == 0 || r == ENOENT);
    }
    check_rest();
    assert_int_equal(qmstore_close(store), 0);
    store = open_ok(c);
    check_rest();
    assert_int_equal(qmstore_close(store), 0);
}

TEST_WITH(test_threads, make_test_dir, remove_test_dir)
{
    static const char *const policies[] = {"lru", "lfu", "wtinylfu", "mru"};
    static const char *const disks[] = {"lmdb", "bdb", "lmdb", "files"};

    for (unsigned n = 0; n < 4; n++) {
        struct qmstore_config c;

        remove_below(test_dir);
        qmstore_config_init(&c);
        c.path = test_dir;
        c.memory = 1 << 20;
        c.write_buffer = 32 << 10;
        c.log_buffer = 16 << 10;
        c.policy = policies[n];
        c.disk = disks[n];
        c.durability = n % 2 ? QMSTORE_NONE : QMSTORE_LAZY;
        run(&c);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    return run_listed(NULL, NULL);
}
