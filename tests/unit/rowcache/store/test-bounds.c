/* SPDX-License-Identifier: BSD-3-Clause */
/* test-bounds.c - what must stay within bounds, or as it was: deletions, expired keys,
 * large values, a store that cannot be opened, a key on its way from disk. */
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <time.h>

#include "rowcache/store/store.h"

#include "testing.h"

static unsigned warnings;

static void warned(void *opaque, const char *message)
{
    printf("%s\n", message);
    warnings++;
}

static struct qmstore_config c;
static struct qmstore *s; /* that a test leaves open */

static int set_up(void **state)
{
    c = small_config();
    c.write_buffer = 32 << 10;
    c.disk_cache = 128 << 10;
    c.log_buffer = 16 << 10;
    c.warn = warned;
    warnings = 0;
    s = NULL;
    return make_test_dir(state);
}

static void close_store(void)
{
    assert_int_equal(qmstore_close(s), 0);
    s = NULL;
}

static int tear_down(void **state)
{
    if (s)
        close_store();
    return remove_test_dir(state);
}

static void put(uint32_t key, size_t len, uint64_t expires)
{
    static char value[6 << 20];

    assert_int_equal(qmstore_put(s, &key, sizeof key, value, len, expires), 0);
}

static void check_memory(void)
{
    struct qmstore_stats stats = stats_of(s);

    if (stats.memory > c.memory + (64 << 10))
        fail_msg("%llu bytes of %llu", (unsigned long long)stats.memory,
                 (unsigned long long)c.memory);
}

TEST_WITH(test_deletes, set_up, tear_down)
{
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < 60000; key++)
        put(key, 20, 0);
    for (uint32_t key = 0; key < 60000; key++) {
        assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
        if (key % 5000 == 0)
            check_memory();
    }
    check_memory();
    assert_int_equal(stats_of(s).keys, 0);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Keys that nobody asks for again, faster than any clock's tick looks for them. */
TEST_WITH(test_expired, set_up, tear_down)
{
    struct qmstore_stats stats;

    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < 200000; key++)
        put(key, 20, now_ms() - 1);
    stats = stats_of(s);
    printf("%llu of 200000 keys are there\n", (unsigned long long)stats.keys);
    assert_true(stats.keys < 60000);
}

TEST_WITH(test_large, set_up, tear_down)
{
    s = open_ok(&c);
    put(1, 6 << 20, 0);
    for (uint32_t key = 2; key < 40; key++)
        put(key, 2000, 0);
    check_memory();
}

/* The second partition is in the way; the first was closed, and stays as it was. */
TEST_WITH(test_unopened, set_up, tear_down)
{
    char from[100], to[100], err[300];

    c.memory *= 2;
    c.partitions = 2;
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < 100; key++)
        put(key, 10, 0);
    close_store();
    snprintf(from, sizeof from, "%s/1", test_dir);
    snprintf(to, sizeof to, "%s/aside", test_dir);
    assert_int_equal(rename(from, to), 0);
    close(open(from, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(qmstore_open(&c, &s, err, sizeof err), ENOTDIR);
    assert_int_equal(unlink(from), 0);
    assert_int_equal(rename(to, from), 0);
    s = open_ok(&c);
    assert_int_equal(warnings, 0);
    assert_int_equal(stats_of(s).keys, 100);
}

/* From disk to the buffer, from there to memory: then its copy on disk is deleted. */
static void work(uint32_t keys)
{
    s = open_ok(&c);

    for (unsigned round = 0; round < 6; round++)
        for (uint32_t key = 0; key < keys; key++)
            for (unsigned i = 0; i <= round + key % 3; i++)
                (void)qmstore_get(s, &key, sizeof key, NULL, NULL, NULL);
    assert_true(stats_of(s).restorations > 0);
    _exit(0);
}

TEST_WITH(test_restored, set_up, tear_down)
{
    const uint32_t keys = 3000;
    pid_t pid;

    c.policy = "lfu";
    c.durability = QMSTORE_SYNC;
    c.disk = "bdb";
    {
        struct qmstore_config filling = c;

        filling.durability = QMSTORE_NONE;
        s = open_ok(&filling);
        for (uint32_t key = 0; key < keys; key++)
            put(key, 500, 0);
        close_store();
    }
    fflush(NULL);
    if ((pid = fork()) == 0)
        work(keys);
    child_ends_well(pid);
    s = open_ok(&c);
    for (uint32_t key = 0; key < keys; key++)
        if (qmstore_get(s, &key, sizeof key, NULL, NULL, NULL) != 0)
            fail_msg("key %u is lost", key);
}

/* The disk takes nothing: what is asked for there is served, and pushes nothing out of
 * memory that the disk would have to take. */
TEST_WITH(test_refused, set_up, tear_down)
{
    const uint32_t keys = 2000;
    char name[120];

    c.policy = "lru";
    c.disk = "files";
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < keys; key++)
        put(key, 1000, 0);
    assert_true(stats_of(s).disk_keys > keys / 2);
    snprintf(name, sizeof name, "%s/0/disk/new", test_dir);
    assert_int_equal(mkdir(name, 0700), 0); /* where the layer writes a file */
    for (unsigned round = 0; round < 2; round++)
        for (uint32_t key = 0; key < keys; key++) {
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
            if (key % 200 == 0)
                check_memory();
        }
    assert_true(stats_of(s).error != 0);
    assert_int_equal(rmdir(name), 0);
    put(keys, 1000, 0);
    for (uint32_t key = 0; key <= keys; key++)
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
    assert_int_equal(stats_of(s).error, 0);
}

/* A log of what is overwritten all the time is begun anew. */
TEST_WITH(test_log, set_up, tear_down)
{
    s = open_ok(&c);
    for (uint32_t i = 0; i < 20000; i++) {
        put(i % 100, 2000, 0);
        if (i % 500 == 0 && stats_of(s).log_bytes > 8 * c.memory)
            fail_msg("a log of %llu bytes", (unsigned long long)stats_of(s).log_bytes);
    }
}

/* Values that grow and shrink where they are: what they take is reckoned anew. */
TEST_WITH(test_growing, set_up, tear_down)
{
    const uint32_t keys = 200;

    c.durability = QMSTORE_NONE;
    c.policy = "lru";
    s = open_ok(&c);
    for (uint32_t key = 0; key < keys; key++)
        put(key, 10, 0);
    for (uint32_t key = 0; key < keys; key++)
        put(key, 20000, 0);
    if (stats_of(s).memory_keys * 20000 > c.memory)
        fail_msg("%llu keys of 20000 bytes in memory",
                 (unsigned long long)stats_of(s).memory_keys);
    for (uint32_t key = 0; key < 3000; key++)
        put(key, 10, 0);
    assert_int_equal(stats_of(s).memory_keys, 3000);
}

/* Values that move between the arena's chunks and malloc(), which has the large ones.
 */
TEST_WITH(test_moving, set_up, tear_down)
{
    static const size_t sizes[] = {100, 100000, 3000, 0, 70000, 64};
    const uint32_t keys = 50;

    c.memory = 16 << 20;
    c.durability = QMSTORE_NONE;
    c.policy = "lru";
    s = open_ok(&c);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint32_t key = 0; key < keys; key++)
            put(key, sizes[i], 0);
    assert_int_equal(s->partitions[0].table.arena.count, 1);
    for (uint32_t key = 0; key < keys; key++)
        assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
    assert_true(s->partitions[0].table.arena.has_empty);
}

/* Keys of memory that came from disk and are changed have copies there to be deleted,
 * whose list is within the bound, too. */
TEST_WITH(test_changed, set_up, tear_down)
{
    const uint32_t keys = 300000;

    c.memory = 16 << 20;
    c.policy = "lfu";
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < keys; key++)
        put(key, 8, 0);
    for (uint32_t i = 0; i < 3 * keys; i++) {
        uint32_t key = i % keys;
        uint64_t hits = s->partitions[0].stats.memory_hits;

        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
        if (i >= 2 * keys && s->partitions[0].stats.memory_hits > hits)
            put(key, 8, 0);
        if (i % 1000 == 0)
            check_memory();
    }
}

enum { LARGE_KEYS = 60, LARGE = 256 << 10 };

static unsigned walked[LARGE_KEYS];

static int tell(void *opaque, const void *key, size_t key_len, const void *value,
                size_t value_len, uint64_t expires)
{
    uint32_t number;

    assert_int_equal(key_len, sizeof number);
    memcpy(&number, key, sizeof number);
    assert_true(number < LARGE_KEYS);
    assert_int_equal(value_len, LARGE);
    walked[number]++;
    ++*(unsigned *)opaque;
    return 0;
}

/* A walk has copies of a part of the keys, which are fewer where values are large:
 * whether these are in memory or on disk. */
TEST_WITH(test_walk, set_up, tear_down)
{
    for (unsigned in_memory = 0; in_memory < 2; in_memory++) {
        uint64_t cursor = 0;

        c.memory = in_memory ? 64 << 20 : 1 << 20;
        s = open_ok(&c);
        for (uint32_t key = 0; key < LARGE_KEYS; key++)
            put(key, LARGE, 0);
        assert_true(stats_of(s).disk_keys >= (in_memory ? 0 : LARGE_KEYS / 2));
        memset(walked, 0, sizeof walked);
        do {
            unsigned n = 0;

            assert_int_equal(qmstore_scan(s, &cursor, tell, &n), 0);
            assert_true(n * LARGE <= 1 << 20);
        } while (cursor != 0);
        for (uint32_t key = 0; key < LARGE_KEYS; key++)
            assert_int_equal(walked[key], 1);
        assert_int_equal(qmstore_clear(s), 0);
        assert_int_equal(stats_of(s).keys, 0);
        close_store();
    }
}

/* What the store says that it takes is what it allocates, filters and counts of keys on
 * disk included. */
TEST_WITH(test_told, set_up, tear_down)
{
#ifndef __SANITIZE_ADDRESS__
    const uint32_t keys = 18000;
    struct mallinfo2 before = mallinfo2(), after;
    struct qmstore_stats stats;
    uint64_t allocated, told;

    c.policy = "lfu";
    c.disk = "files"; /* allocates nothing that stays */
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (uint32_t key = 0; key < keys; key++)
        put(key, 8, 0);
    stats = stats_of(s);
    after = mallinfo2();
    allocated = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    told = stats.memory - store_disk_cache(&c);
    assert_true(stats.disk_keys > keys / 3 && stats.memory <= c.memory);
    if (told > allocated * 103 / 100 || told < allocated * 97 / 100)
        fail_msg("%llu bytes told, %llu allocated", (unsigned long long)told,
                 (unsigned long long)allocated);
#endif
}
