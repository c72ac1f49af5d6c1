/* SPDX-License-Identifier: BSD-3-Clause */
/* test-churn.c - keys that come and go, expire, grow and shrink, on each disk layer:
 * memory and disk stay within bounds.
 *
 *   store-churn [ROUNDS]     400 by default, of 1000 operations, on each layer */
#include "testing.h"

#include <time.h>

enum { KEYS = 3000, OPERATIONS = 1000, LONGEST = 4000 };

static unsigned rounds = 400;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Values are long in some rounds, and short in others; keys move on. */
static void operate(struct qmstore *s, uint64_t *seed, unsigned round)
{
    static char value[LONGEST];
    size_t longest = round / 20 % 2 ? LONGEST : 200;

    for (unsigned n = 0; n < OPERATIONS; n++) {
        uint32_t key = round / 10 * 100 + (uint32_t)rnd_below(seed, KEYS);
        unsigned what = (unsigned)rnd_below(seed, 10);
        int r = 0;

        if (what < 4)
            r = qmstore_get(s, &key, sizeof key, NULL, NULL, NULL);
        else if (what < 9)
            r = qmstore_put(s, &key, sizeof key, value, rnd_below(seed, longest),
                            now_ms() + 1 + rnd_below(seed, 50));
        else
            r = qmstore_delete(s, &key, sizeof key);
        assert_true(r == 0 || r == ENOENT);
    }
}

static void churn(const char *disk)
{
    struct qmstore_config c;
    struct qmstore_stats stats;
    struct qmstore *s;
    uint64_t seed = 7, most_disk = 0, most_keys = 0;

    remove_below(test_dir);
    qmstore_config_init(&c);
    c.path = test_dir;
    c.disk = disk;
    c.memory = 1 << 20;
    c.write_buffer = 64 << 10;
    c.disk_cache = 128 << 10;
    c.log_buffer = 16 << 10;
    c.durability = QMSTORE_NONE;
    s = open_ok(&c);
    for (unsigned round = 0; round < rounds; round++) {
        operate(s, &seed, round);
        stats = stats_of(s);
        if (stats.memory > c.memory + (64 << 10))
            fail_msg("%s: %llu bytes of memory", disk,
                     (unsigned long long)stats.memory);
        if (stats.keys > most_keys)
            most_keys = stats.keys;
        if (stats.disk > most_disk)
            most_disk = stats.disk;
    }
    printf("%s: at most %llu keys and %llu bytes of disk\n", disk,
           (unsigned long long)most_keys, (unsigned long long)most_disk);
    /* Some 3000 keys live, however many there were; Berkeley DB has logs of 64 MiB. */
    assert_true(most_keys < 5 * KEYS);
    assert_true(most_disk < UINT64_C(160) << 20);
    assert_int_equal(qmstore_close(s), 0);
}

static void test_churn(void **state)
{
    churn("lmdb");
    churn("bdb");
    churn("files");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_churn, make_test_dir, remove_test_dir),
    };

    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
