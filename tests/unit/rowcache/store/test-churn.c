/* SPDX-License-Identifier: BSD-3-Clause */
/* test-churn.c - hours of keys that come and go, expire, grow and shrink, on each disk
 * layer: memory, disk, the log and open files stay within bounds.
 *
 * The store's clock is the test's (linked with --wrap=store_now): a minute is a number
 * of operations of two threads, keys live up to half an hour, values are long in some
 * hours and short in others, and each four hours the store is closed and opened again.
 *
 *   store-churn [HOURS [OPERATIONS [LAYER]]]     2 hours by default, of 2000 operations
 *                                                a minute, on each layer */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "testing.h"
#include "tests/resident.h"

/* Keys that are in use at a time. As many of earlier times may not have expired yet. */
enum { THREADS = 2, KEYS = 3000, LONGEST = 4000, LIFE = 30 * 60 * 1000 };
enum { REOPENED = 4 * 60 };

static unsigned hours = 2, operations = 2000;
static const char *only;
static _Atomic uint64_t now = UINT64_C(1600000000000);
static struct qmstore *store;
static unsigned minute;

uint64_t __wrap_store_now(void);

uint64_t __wrap_store_now(void)
{
    return atomic_load(&now);
}

/* Keys move on, so that all that were there have gone after some hours. */
static void *operate(void *opaque)
{
    static char value[LONGEST];
    uint64_t seed = minute * 64 + *(unsigned *)opaque;
    size_t longest = minute / 45 % 2 ? LONGEST : 200;

    for (unsigned n = 0; n < operations / THREADS; n++) {
        uint32_t key = minute / 10 * 100 + (uint32_t)rnd_below(&seed, KEYS);
        unsigned what = (unsigned)rnd_below(&seed, 100);
        int r = 0;

        if (what < 40)
            r = qmstore_get(store, &key, sizeof key, NULL, NULL, NULL);
        else if (what < 90)
            r = qmstore_put(store, &key, sizeof key, value, rnd_below(&seed, longest),
                            atomic_load(&now) + 1 + rnd_below(&seed, LIFE));
        else
            r = qmstore_delete(store, &key, sizeof key);
        if (r != 0 && r != ENOENT) {
            fprintf(stderr, "%s\n", strerror(r));
            abort();
        }
    }
    return NULL;
}

static void pass_minute(void)
{
    unsigned numbers[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, operate, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_fetch_add(&now, 60000);
}

static unsigned open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

struct most {
    uint64_t keys, memory, disk, log;
    unsigned files;
    unsigned long early, late; /* KiB resident, in the first and the second half */
};

#define ENLARGE(member, value)                                                         \
    do {                                                                               \
        if ((value) > m->member)                                                       \
            m->member = (value);                                                       \
    } while (0)

static void look(struct most *m)
{
    struct qmstore_stats stats = stats_of(store);

    assert_int_equal(stats.error, 0);
    ENLARGE(keys, stats.keys);
    ENLARGE(memory, stats.memory);
    ENLARGE(disk, stats.disk);
    ENLARGE(log, stats.log_bytes);
    ENLARGE(files, open_files());
    if (minute < hours * 30)
        ENLARGE(early, resident() / 1024);
    else
        ENLARGE(late, resident() / 1024);
}

static void churn(const char *disk, enum qmstore_durability durability)
{
    struct qmstore_config c;
    struct most most = {0};

    if (only && strcmp(only, disk) != 0)
        return;
    remove_below(test_dir);
    qmstore_config_init(&c);
    c.path = test_dir;
    c.disk = disk;
    c.partitions = 2;
    c.memory = 2 << 20;
    c.write_buffer = 128 << 10;
    c.disk_cache = 256 << 10;
    c.log_buffer = 16 << 10;
    c.durability = durability;
    store = open_ok(&c);
    for (minute = 0; minute < hours * 60; minute++) {
        pass_minute();
        look(&most);
        if (minute % REOPENED == REOPENED - 1) {
            assert_int_equal(qmstore_close(store), 0);
            store = open_ok(&c);
        }
    }
    printf("%s: at most %llu keys, %llu bytes of memory of %llu, %llu of disk, %llu of "
           "logs, %u open files; resident at most %lu and %lu KiB in the halves\n",
           disk, (unsigned long long)most.keys, (unsigned long long)most.memory,
           (unsigned long long)c.memory, (unsigned long long)most.disk,
           (unsigned long long)most.log, most.files, most.early, most.late);
    fflush(stdout);
    assert_true(most.memory < c.memory + (64 << 10));
    assert_true(most.keys < 5 * KEYS);
    /* Berkeley DB has logs of 64 MiB for each partition. */
    assert_true(most.disk < UINT64_C(320) << 20);
    /* Twice what is in memory, and four times that before it is begun anew. */
    assert_true(most.log < UINT64_C(16) << 20);
    assert_true(most.files < 64);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* Nothing leaks; sanitizers keep what was freed. */
    assert_true(most.late < most.early + (8 << 10));
#endif
    assert_int_equal(qmstore_close(store), 0);
}

TEST_WITH(test_churn, make_test_dir, remove_test_dir)
{
    churn("lmdb", QMSTORE_LAZY);
    churn("bdb", QMSTORE_LAZY);
    churn("files", QMSTORE_NONE);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        hours = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        operations = (unsigned)strtoul(argv[2], NULL, 10);
    if (argc > 3)
        only = argv[3];
    return run_listed(NULL, NULL);
}
