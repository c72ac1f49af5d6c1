/* SPDX-License-Identifier: BSD-3-Clause */
/* test-model.c - random operations on a store, compared with a plain table: each
 * policy, disk layer and durability; reopened in between.
 *
 *   store-model [SEED [RUNS]] */
#include "testing.h"

enum { KEYS = 3000, OPERATIONS = 15000, LONGEST = 3000 };

struct model {
    uint32_t version[KEYS]; /* 0: there is none */
    uint64_t expires[KEYS];
    size_t count;
};

static uint64_t seed;
static struct model model;
static uint32_t versions;

static size_t key_of(unsigned i, char *key)
{
    size_t len = (size_t)sprintf(key, "key:%u", i);

    /* Some are long, and some have zeros. */
    if (i % 50 == 0) {
        memset(key + len, (int)('a' + i % 7), 1000);
        len += 1000;
    } else if (i % 7 == 0) {
        memset(key + len, 0, 3);
        len += 3;
    }
    return len;
}

static size_t value_of(unsigned i, uint32_t version, char *value)
{
    uint64_t s = (uint64_t)i << 32 | version;
    size_t len = rnd(&s) % 9 == 0 ? 0 : rnd(&s) % LONGEST;

    for (size_t n = 0; n < len; n++)
        value[n] = (char)(rnd(&s) >> 11);
    return len;
}

/* The beginning of a value, as far as there is room for it, and nothing behind. */
static void check_head(struct qmstore *s, const char *key, size_t key_len,
                       const char *want, size_t want_len)
{
    char head[LONGEST + 1];
    size_t room = want_len % 2 ? want_len / 2 : LONGEST, len = LONGEST + 1;
    size_t n = want_len < room ? want_len : room;

    memset(head, '~', sizeof head);
    assert_int_equal(qmstore_head(s, key, key_len, head, room, &len, NULL), 0);
    assert_int_equal(len, want_len);
    if (memcmp(head, want, n) != 0 || head[n] != '~')
        fail_msg("the first %zu of %zu bytes are others", n, want_len);
}

static void check(struct qmstore *s, unsigned i)
{
    char key[1100], want[LONGEST];
    size_t len = 0, key_len = key_of(i, key), want_len;
    void *got = NULL;
    int r = qmstore_get(s, key, key_len, &got, &len, NULL);

    if (model.version[i] == 0) {
        if (r != ENOENT)
            fail_msg("key %u: %d, and there is none", i, r);
        assert_int_equal(qmstore_head(s, key, key_len, want, LONGEST, NULL, NULL),
                         ENOENT);
        return;
    }
    if (r != 0)
        fail_msg("key %u: %d, and it has version %u", i, r, model.version[i]);
    want_len = value_of(i, model.version[i], want);
    if (len != want_len || memcmp(got, want, len) != 0)
        fail_msg("key %u: another value (%zu bytes, not %zu)", i, len, want_len);
    free(got);
    check_head(s, key, key_len, want, want_len);
}

static void put(struct qmstore *s, unsigned i)
{
    char key[1100], value[LONGEST];
    size_t key_len = key_of(i, key), len = value_of(i, ++versions, value);

    assert_int_equal(qmstore_put(s, key, key_len, value, len, 0), 0);
    model.count += model.version[i] == 0;
    model.version[i] = versions;
}

static void delete (struct qmstore *s, unsigned i)
{
    char key[1100];
    size_t len = key_of(i, key);

    assert_int_equal(qmstore_delete(s, key, len), model.version[i] ? 0 : ENOENT);
    model.count -= model.version[i] != 0;
    model.version[i] = 0;
}

static void batch(struct qmstore *s)
{
    static char keys[8][1100], values[8][LONGEST];
    struct qmstore_change changes[8];

    for (unsigned n = 0; n < 8; n++) {
        unsigned i = (unsigned)rnd_below(&seed, KEYS);

        changes[n] =
            (struct qmstore_change){.key = keys[n], .key_len = key_of(i, keys[n])};
        model.count -= model.version[i] != 0;
        model.version[i] = 0;
        if (rnd(&seed) % 3 == 0)
            continue;
        changes[n].value = values[n];
        changes[n].value_len = value_of(i, ++versions, values[n]);
        model.version[i] = versions;
        model.count++;
    }
    assert_int_equal(qmstore_batch(s, changes, 8), 0);
}

static unsigned seen[KEYS], walked;

static int see(void *opaque, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t expires)
{
    char want[LONGEST], number[16] = {0};
    unsigned i;
    size_t len;

    memcpy(number, (const char *)key + 4, key_len - 4 < 8 ? key_len - 4 : 8);
    i = (unsigned)strtoul(number, NULL, 10);
    assert_true(i < KEYS);
    len = value_of(i, model.version[i], want);
    if (model.version[i] == 0 || len != value_len || memcmp(value, want, len) != 0)
        fail_msg("key %u: walked, and it is not there, or another", i);
    seen[i]++;
    walked++;
    return 0;
}

static void check_all(struct qmstore *s)
{
    struct qmstore_stats stats = stats_of(s);

    assert_int_equal(stats.keys, model.count);
    assert_int_equal(stats.memory_keys + stats.buffer_keys + stats.disk_keys,
                     model.count);
    memset(seen, 0, sizeof seen);
    walked = 0;
    assert_int_equal(qmstore_each(s, see, NULL), 0);
    assert_int_equal(walked, model.count);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], model.version[i] != 0);
    for (unsigned i = 0; i < KEYS; i++)
        check(s, i);
}

static struct qmstore *operate(struct qmstore *s, const struct qmstore_config *c)
{
    for (unsigned n = 0; n < OPERATIONS; n++) {
        /* Some keys are hot, so that they are restored. */
        unsigned i = (unsigned)rnd_below(&seed, rnd(&seed) % 2 ? KEYS : KEYS / 20);
        unsigned what = (unsigned)rnd_below(&seed, 1000);

        if (what < 550)
            check(s, i);
        else if (what < 880)
            put(s, i);
        else if (what < 960)
            delete (s, i);
        else if (what < 990)
            batch(s);
        else if (what < 998)
            assert_int_equal(qmstore_flush(s), 0);
        else if (what < 999) {
            assert_int_equal(qmstore_close(s), 0);
            s = open_ok(c);
        }
    }
    check_all(s);
    return s;
}

static unsigned runs = 12;
/* With the address sanitizer, one run of each policy but the last, and of each disk. */
#ifdef __SANITIZE_ADDRESS__
#define STEP 5
#else
#define STEP 1
#endif

TEST_WITH(test_model, make_test_dir, remove_test_dir)
{
    static const char *const policies[] = {"lru", "mru", "lfu", "wtinylfu"};
    static const char *const disks[] = {"bdb", "lmdb", "files"};

    for (unsigned run = 0; run < runs; run += STEP) {
        struct qmstore_config c;
        struct qmstore_stats stats;
        struct qmstore *s;

        qmstore_config_init(&c);
        c.path = test_dir;
        c.threadless = run % 2;
        c.partitions = run % 4 == 0 ? 3 : 1;
        c.memory = (UINT64_C(1) << 20) * c.partitions;
        c.policy = policies[run % 4];
        c.disk = disks[run / 4 % 3];
        c.durability = (enum qmstore_durability)((run + run / 3) % 3);
        c.false_positives = run % 5 == 0 ? 0 : .01;
        c.write_buffer = 64 << 10;
        c.log_buffer = 16 << 10;
        remove_below(test_dir);
        memset(&model, 0, sizeof model);
        s = open_ok(&c);
        s = operate(s, &c);
        stats = stats_of(s);
        printf("%s %s %d: %llu evictions, %llu restorations, %llu disk hits, "
               "%llu false positives of %llu reads\n",
               c.policy, c.disk, c.durability, (unsigned long long)stats.evictions,
               (unsigned long long)stats.restorations,
               (unsigned long long)stats.disk_hits,
               (unsigned long long)stats.false_positives,
               (unsigned long long)stats.disk_reads);
        assert_true(stats.disk_hits > 0);
        /* A batch may enlarge the log's buffer once. */
        if (stats.memory > c.memory + 16 * LONGEST)
            fail_msg("%llu bytes, not %llu", (unsigned long long)stats.memory,
                     (unsigned long long)c.memory);
        assert_int_equal(qmstore_clear(s), 0);
        memset(&model, 0, sizeof model);
        check_all(s);
        assert_int_equal(qmstore_close(s), 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        runs = (unsigned)strtoul(argv[2], NULL, 10);
    return run_listed(NULL, NULL);
}
