/* SPDX-License-Identifier: BSD-3-Clause */
/* test-tick.c - what the store's thread does at each tick: keys whose life has ended
 * leave, wherever they are, and the log goes to the kernel.
 *
 * The store's clock is the test's (linked with --wrap=store_now), and so are its ticks.
 *
 *   store-tick [TEST] */

#include "rowcache/store/store.h"

#include "testing.h"

enum { LIFE = 1000 };

static const uint32_t key = 1;
static char value[400];
static uint64_t now = UINT64_C(1600000000000);

uint64_t __wrap_store_now(void);

uint64_t __wrap_store_now(void)
{
    return now;
}

static struct qmstore *open_with(enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();

    c.policy = "lru";
    c.durability = durability;
    return open_ok(&c);
}

static struct qmstore *again(struct qmstore *s)
{
    assert_int_equal(qmstore_close(s), 0);
    return open_with(QMSTORE_SYNC);
}

static struct entry *entry(struct qmstore *s)
{
    return store_table_find(&s->partitions[0].table, store_hash_of(&key, sizeof key),
                            &key, sizeof key);
}

static int get(struct qmstore *s)
{
    return qmstore_get(s, &key, sizeof key, NULL, NULL, NULL);
}

static void put(struct qmstore *s, uint64_t expires)
{
    assert_int_equal(qmstore_put(s, &key, sizeof key, value, sizeof value, expires), 0);
}

/* Its only place is the disk then. */
static void put_on_disk(struct qmstore *s, uint64_t expires)
{
    struct partition *p = &s->partitions[0];
    uint64_t memory = p->memory;

    put(s, expires);
    p->memory = 0;
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    p->memory = memory;
    assert_null(entry(s));
    assert_int_equal(p->disk_copies, 1);
}

/* Nothing but the disk says that there are keys whose life ends: the process that put
 * them is gone. */
TEST_WITH(test_on_disk, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_with(QMSTORE_SYNC);

    put_on_disk(s, now + LIFE);
    s = again(s);
    assert_int_equal(stats_of(s).keys, 1);
    now += LIFE;
    store_tick(s, 0);
    assert_int_equal(stats_of(s).expired, 1);
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_deleted_on_disk, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_with(QMSTORE_SYNC);

    put_on_disk(s, now + LIFE);
    now += LIFE;
    assert_int_equal(qmstore_delete(s, &key, sizeof key), ENOENT);
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* A life ends in memory.  The disk has the value of before, whose life does not end. */
TEST_WITH(test_older_copy, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_with(QMSTORE_SYNC);

    put_on_disk(s, 0);
    put(s, now + LIFE);
    assert_true(entry(s) && entry(s)->place != PLACE_BUFFER && entry(s)->on_disk);
    now += LIFE;
    store_tick(s, 0);
    assert_int_equal(stats_of(s).expired, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(get(s), ENOENT);
        assert_int_equal(stats_of(s).keys, 0);
        s = again(s);
    }
    assert_int_equal(qmstore_close(s), 0);
}

/* A value that came from disk is changed: its copy there is no value of the key, and is
 * overwritten when the new one leaves memory. */
TEST_WITH(test_copy_is_overwritten, make_test_dir, remove_test_dir)
{
    struct qmstore *s = open_with(QMSTORE_NONE);
    struct partition *p = &s->partitions[0];

    put_on_disk(s, 0);
    assert_int_equal(get(s), 0);
    assert_true(entry(s)->clean);
    put(s, 0);
    assert_false(entry(s)->clean);
    assert_int_equal(p->disk_copies, 1);
    assert_int_equal(p->shadowed, 1);
    assert_int_equal(stats_of(s).keys, 1);
    put_on_disk(s, now + LIFE);
    assert_null(entry(s));
    assert_int_equal(p->disk_copies, 1);
    assert_int_equal(p->shadowed, 0);
    assert_int_equal(get(s), 0);
    now += LIFE;
    assert_int_equal(get(s), ENOENT);
    assert_int_equal(qmstore_close(s), 0);
}

/* A process ends without closing the store, before a tick or after it. */
TEST_WITH(test_log, make_test_dir, remove_test_dir)
{
    for (unsigned ticks = 0; ticks < 2; ticks++) {
        struct qmstore *s;
        pid_t child;

        remove_below(test_dir);
        child = fork();
        assert_int_not_equal(child, -1);
        if (child == 0) {
            s = open_with(QMSTORE_LAZY);
            put(s, 0);
            if (ticks)
                store_tick(s, 0);
            _exit(0);
        }
        child_ends_well(child);
        s = open_with(QMSTORE_LAZY);
        assert_int_equal(get(s), ticks ? 0 : ENOENT);
        assert_int_equal(qmstore_close(s), 0);
    }
}
