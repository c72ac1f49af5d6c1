/* SPDX-License-Identifier: BSD-3-Clause */
/* test-edges.c - orders of changes, settings and moments that are rare: the write
 * buffer is written in the middle of a batch, a batch pushes out a key that it changes,
 * buffers have no room at all, keys' lives end while the disk refuses.
 *
 * The store's clock is the test's (linked with --wrap=store_now).
 *
 *   store-edges [TEST] */
#include <sys/stat.h>

#include "rowcache/store/store.h"

#include "testing.h"

enum { SIZE = 400 };

static char value[2 * SIZE];
static uint64_t now = UINT64_C(1600000000000);

uint64_t __wrap_store_now(void);

uint64_t __wrap_store_now(void)
{
    return now;
}

static uint64_t ticks = 1000;

uint64_t __wrap_store_ticks(void);

uint64_t __wrap_store_ticks(void)
{
    return ticks;
}

static struct qmstore_config config(const char *policy, const char *disk,
                                    enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();

    c.policy = policy;
    c.disk = disk;
    c.durability = durability;
    return c;
}

static void put(struct qmstore *s, uint32_t key, size_t len)
{
    assert_int_equal(qmstore_put(s, &key, sizeof key, value, len, 0), 0);
}

static struct entry *entry_of(struct partition *p, uint32_t key)
{
    return store_table_find(&p->table, store_hash_of(&key, sizeof key), &key,
                            sizeof key);
}

/* A batch's deletion fills the write buffer, which is written before the next change:
 * of a key that was there. */
TEST_WITH(test_buffer_written_in_batch, make_test_dir, remove_test_dir)
{
    enum { KEYS = 20 };
    struct qmstore_config c = config("lru", "lmdb", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);
    struct partition *p = &s->partitions[0];
    uint32_t deleted = 0, changed = KEYS + 3;
    const struct qmstore_change changes[] = {
        {.key = &deleted, .key_len = sizeof deleted},
        {.key = &changed,
         .value = value,
         .key_len = sizeof changed,
         .value_len = 2 * SIZE},
    };
    uint64_t batches;

    p->memory = 0; /* all goes to the buffer at once */
    for (uint32_t key = 0; key < KEYS; key++)
        put(s, key, SIZE);
    assert_int_equal(store_buffer_write(p), 0);
    for (uint32_t key = KEYS; key < 2 * KEYS; key++)
        put(s, key, SIZE);
    assert_int_equal(p->buffer.count, KEYS);
    p->buffer_bytes = p->buffer.bytes; /* it is full */
    batches = stats_of(s).disk_batches;
    assert_int_equal(qmstore_batch(s, changes, 2), 0);
    assert_int_equal(stats_of(s).disk_batches, batches + 1);
    assert_int_equal(stats_of(s).keys, 2 * KEYS - 1);
    for (unsigned i = 0; i < 2; i++) {
        for (uint32_t key = 0; key < 2 * KEYS; key++) {
            void *v = NULL;
            size_t len = 0;

            assert_int_equal(qmstore_get(s, &key, sizeof key, &v, &len, NULL),
                             key == deleted ? ENOENT : 0);
            if (key != deleted)
                assert_int_equal(len, key == changed ? 2 * SIZE : SIZE);
            free(v);
        }
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
        assert_int_equal(stats_of(s).keys, 2 * KEYS - 1);
    }
    assert_int_equal(qmstore_close(s), 0);
}

enum { HOT, GROWS, CHANGED };

/* Under LFU: CHANGED came from disk, was asked for more often than can be counted
 * there, and is the victim when GROWS takes more room, in a batch that then changes it.
 * Returns what was not as it is to be, or 0. */
static int push_out_in_batch(const struct qmstore_config *c, bool deletes)
{
    static const uint32_t keys[] = {HOT, GROWS, CHANGED};
    struct qmstore *s = open_ok(c);
    struct partition *p = &s->partitions[0];
    const struct qmstore_change changes[] = {
        {&keys[GROWS], value, sizeof keys[0], 2 * SIZE, 0},
        {&keys[CHANGED], deletes ? NULL : value, sizeof keys[0], SIZE / 2, 0},
    };
    struct entry *e;

    put(s, CHANGED, SIZE);
    p->memory = 0;
    if (store_partition_balance(p) != 0 || store_buffer_write(p) != 0)
        return 1;
    p->memory = UINT64_C(1) << 20;
    put(s, HOT, SIZE);
    put(s, GROWS, SIZE);
    for (unsigned i = 0; i < 4 * COLD_MOST; i++)
        for (unsigned key = HOT; key <= (i % 2 ? GROWS : CHANGED); key++)
            if (qmstore_get(s, &keys[key], sizeof keys[0], NULL, NULL, NULL) != 0)
                return 2;
    e = entry_of(p, CHANGED);
    if (!e || !e->clean || p->ops->victim(p) != e ||
        e->frequency - e->copy <= COLD_MOST)
        return 3;
    p->memory = p->used + store_table_bytes(&p->table); /* it is full */
    if (qmstore_batch(s, changes, 2) != 0)
        return 4;
    return stats_of(s).evictions > 0 ? 0 : 5;
}

/* In a process that ends without closing the store. */
static void run_and_end(int (*run)(const struct qmstore_config *, bool),
                        const struct qmstore_config *c, bool how)
{
    pid_t pid;

    fflush(NULL);
    if ((pid = fork()) == 0)
        _exit(run(c, how));
    child_ends_well(pid);
}

/* What the batch made of the key is there after a crash, and not what left memory. */
TEST_WITH(test_pushed_out_in_batch, make_test_dir, remove_test_dir)
{
    for (unsigned deletes = 0; deletes < 2; deletes++) {
        struct qmstore_config c = config("lfu", "lmdb", QMSTORE_SYNC);
        uint32_t key = CHANGED;
        size_t len = 0;
        struct qmstore *s;

        remove_below(test_dir);
        run_and_end(push_out_in_batch, &c, deletes);
        s = open_ok(&c);
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, &len, NULL),
                         deletes ? ENOENT : 0);
        assert_int_equal(len, deletes ? 0 : SIZE / 2);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A log without a buffer: each change is the kernel's when the function returns. */
TEST_WITH(test_no_log_buffer, make_test_dir, remove_test_dir)
{
    enum { KEYS = 50 };
    struct qmstore_config c = config("lru", "lmdb", QMSTORE_LAZY);
    struct qmstore *s;
    pid_t pid;

    c.log_buffer = 0;
    fflush(NULL);
    if ((pid = fork()) == 0) {
        s = open_ok(&c);
        for (uint32_t key = 0; key < KEYS; key++)
            put(s, key, SIZE);
        _exit(0);
    }
    child_ends_well(pid);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, KEYS);
    assert_int_equal(stats_of(s).lost, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* Small beside memory, where keys on disk are changed, but no less than a batch needs.
 */
TEST_WITH(test_write_buffer, make_test_dir, remove_test_dir)
{
    static const struct {
        uint64_t memory, write_buffer;
        unsigned partitions;
        uint64_t bytes; /* of a partition */
    } cases[] = {
        {1 << 20, 0, 1, 64 << 10},   {8 << 20, 0, 1, 64 << 10},
        {64 << 20, 0, 1, 512 << 10}, {64 << 20, 0, 4, 128 << 10},
        {64 << 20, 0, 16, 64 << 10}, {64 << 20, 4 << 20, 4, 1 << 20},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qmstore_config c = config("lru", "files", QMSTORE_NONE);
        struct qmstore *s;

        remove_below(test_dir);
        c.memory = cases[i].memory;
        c.write_buffer = cases[i].write_buffer;
        c.partitions = cases[i].partitions;
        s = open_ok(&c);
        for (unsigned n = 0; n < c.partitions; n++)
            assert_int_equal(s->partitions[n].buffer_bytes, cases[i].bytes);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* Less than a byte of the disk layer's cache for each partition, and of the buffer. */
TEST_WITH(test_no_cache, make_test_dir, remove_test_dir)
{
    enum { KEYS = 50 };
    static const char *const disks[] = {"lmdb", "bdb", "files"};

    for (unsigned d = 0; d < 3; d++) {
        struct qmstore_config c = config("lru", disks[d], QMSTORE_NONE);
        struct qmstore *s;

        remove_below(test_dir);
        c.partitions = 2;
        c.memory *= 2;
        c.disk_cache = 1;
        c.write_buffer = 1;
        s = open_ok(&c);
        for (unsigned i = 0; i < 2; i++)
            s->partitions[i].memory = 0;
        for (uint32_t key = 0; key < KEYS; key++)
            put(s, key, SIZE);
        assert_int_equal(stats_of(s).disk_keys, KEYS);
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
        assert_int_equal(stats_of(s).keys, KEYS);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A disk that has no room for a new log takes what is in the log's buffer: closing the
 * store loses nothing. */
TEST_WITH(test_closed_without_new_log, make_test_dir, remove_test_dir)
{
    enum { KEYS = 10 };
    struct qmstore_config c = config("lru", "lmdb", QMSTORE_LAZY);
    struct qmstore *s = open_ok(&c);
    char name[100];

    for (uint32_t key = 0; key < KEYS; key++)
        put(s, key, SIZE);
    snprintf(name, sizeof name, "%s/0/log.new", test_dir);
    assert_int_equal(mkdir(name, 0700), 0); /* where the new log is made */
    assert_int_equal(qmstore_close(s), EISDIR);
    assert_int_equal(rmdir(name), 0);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, KEYS);
    assert_int_equal(stats_of(s).lost, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* Keys on disk whose life has ended are to be removed there; while it refuses that,
 * those that are asked for do not pile up. */
TEST_WITH(test_expired_while_refused, make_test_dir, remove_test_dir)
{
    enum { KEYS = 4000, ENTRY = SIZE + 100 };
    struct qmstore_config c = config("lru", "files", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);
    struct partition *p = &s->partitions[0];
    char name[100];

    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(
            qmstore_put(s, &key, sizeof key, value, SIZE, now + 1000 + key % 2), 0);
    p->memory = 0;
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    assert_int_equal(stats_of(s).disk_keys, KEYS);
    snprintf(name, sizeof name, "%s/0/disk/new", test_dir);
    assert_int_equal(mkdir(name, 0700), 0); /* where the layer writes a file */
    put(s, KEYS, SIZE);
    p->buffer_bytes = SIZE;
    now += 1000; /* of half of them */
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL),
                         key % 2 ? 0 : ENOENT);
        assert_true(p->buffer.bytes <= p->buffer_bytes + ENTRY);
    }
    assert_int_equal(stats_of(s).error, EISDIR);
    assert_int_equal(rmdir(name), 0);
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL),
                         key % 2 ? 0 : ENOENT);
    assert_int_equal(store_buffer_write(p), 0);
    assert_int_equal(stats_of(s).keys, KEYS / 2 + 1);
    assert_int_equal(qmstore_close(s), 0);
    now -= 1000;
}

/* A key that came from disk, is asked for more often than can be counted there, and
 * goes through the write buffer back to memory: its older copy stays on disk.  At
 * first it is in memory, or stays on disk.  Returns what was not as it is to be, or 0.
 */
static int come_back(const struct qmstore_config *c, bool from_memory)
{
    struct qmstore *s = open_ok(c);
    struct partition *p = &s->partitions[0];
    const uint64_t memory = p->memory;
    const uint32_t key = CHANGED;
    struct entry *e;

    put(s, key, SIZE);
    p->memory = 0;
    if (store_partition_balance(p) != 0 || store_buffer_write(p) != 0)
        return 1;
    if (qmstore_close(s) != 0)
        return 2;
    s = open_ok(c);
    p = &s->partitions[0];
    if (entry_of(p, key))
        return 3;
    put(s, HOT, SIZE); /* the victim, which comes more often */
    for (unsigned i = 0; i < 4 * COLD_MOST; i++)
        (void)qmstore_get(s, &(uint32_t){HOT}, sizeof key, NULL, NULL, NULL);
    if (!from_memory)
        p->memory = p->used + store_table_bytes(&p->table); /* it is full */
    for (unsigned i = 0; i < COLD_MOST + 2; i++)
        if (qmstore_get(s, &key, sizeof key, NULL, NULL, NULL) != 0)
            return 4;
    p->memory = p->used + store_table_bytes(&p->table) - (from_memory ? 1 : 0);
    if (store_partition_balance(p) != 0)
        return 5;
    e = entry_of(p, key);
    if (!e || e->place != PLACE_BUFFER || !e->on_disk)
        return 6;
    p->memory = memory;
    if (qmstore_get(s, &key, sizeof key, NULL, NULL, NULL) != 0)
        return 7;
    if (e->place == PLACE_BUFFER || !e->on_disk || e->clean)
        return 8;
    if (store_buffer_write(p) != 0 || p->disk_copies != 1)
        return 9;
    return 0;
}

TEST_WITH(test_back_from_buffer, make_test_dir, remove_test_dir)
{
    for (unsigned from_memory = 0; from_memory < 2; from_memory++) {
        struct qmstore_config c = config("lfu", "lmdb", QMSTORE_SYNC);
        uint32_t key = CHANGED;
        struct qmstore *s;

        remove_below(test_dir);
        run_and_end(come_back, &c, from_memory);
        s = open_ok(&c);
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A disk layer that looks at what it is told, and fails on demand. */
static const struct disk_ops *below;
static unsigned in_order;
static int fails;              /* a batch in its middle, and each walk */
static int sync_fails;         /* a checkpoint */
static unsigned failed, takes; /* batches and checkpoints; ms for each */

static int checked_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    for (size_t i = 1; i < n; i++)
        assert_true(store_disk_compare(changes[i - 1].name, changes[i].name) < 0);
    in_order += n > 1;
    if (fails != 0) {
        failed++;
        ticks += takes;
        assert_int_equal(below->apply(d, changes, n / 2), 0);
        return fails;
    }
    return below->apply(d, changes, n);
}

static int failing_walk(struct disk *d, const struct disk_name *from, disk_visit *visit,
                        void *opaque)
{
    return fails ? fails : below->walk(d, from, visit, opaque);
}

static int failing_checkpoint(struct disk *d)
{
    if (sync_fails == 0)
        return below->checkpoint(d);
    failed++;
    ticks += takes;
    return sync_fails;
}

static struct qmstore *open_checked(const struct qmstore_config *c)
{
    static struct disk_ops checked;
    struct qmstore *s = open_ok(c);

    below = s->partitions[0].disk_ops;
    checked = *below;
    checked.apply = checked_apply;
    checked.walk = failing_walk;
    checked.checkpoint = failing_checkpoint;
    s->partitions[0].disk_ops = &checked;
    in_order = failed = takes = 0;
    fails = sync_fails = 0;
    return s;
}

/* What a disk layer may rely on; with copies of keys that come from memory. */
TEST_WITH(test_order, make_test_dir, remove_test_dir)
{
    enum { KEYS = 5000 };
    struct qmstore_config c = config("lru", "lmdb", QMSTORE_NONE);
    struct qmstore *s = open_checked(&c);

    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t key = 0; key < KEYS; key++)
            put(s, key, SIZE);
        for (uint32_t key = 0; key < KEYS; key += 10)
            (void)qmstore_delete(s, &key, sizeof key);
    }
    assert_true(in_order > 10);
    assert_int_equal(qmstore_close(s), 0);
}

/* A batch that was carried out in part, before its keys are deleted: they stay so. */
TEST_WITH(test_part, make_test_dir, remove_test_dir)
{
    enum { KEYS = 40 };
    struct qmstore_config c = config("lru", "files", QMSTORE_NONE);
    struct qmstore *s = open_checked(&c);
    struct partition *p = &s->partitions[0];

    p->memory = 0;
    for (uint32_t key = 0; key < KEYS; key++)
        put(s, key, SIZE);
    fails = ENOSPC;
    assert_int_equal(store_buffer_write(p), ENOSPC);
    assert_int_equal(stats_of(s).keys, KEYS);
    fails = 0;
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(stats_of(s).keys, 0);
        for (uint32_t key = 0; key < KEYS; key++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL),
                             ENOENT);
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
    }
    assert_int_equal(qmstore_close(s), 0);
}

/* A disk that takes seconds to refuse is not asked by each call, but is again. */
TEST_WITH(test_slow_refusal, make_test_dir, remove_test_dir)
{
    enum { KEYS = 40 };

    for (unsigned slow = 0; slow < 2; slow++) {
        struct qmstore_config c = config("lru", "lmdb", QMSTORE_NONE);
        struct qmstore *s = open_checked(&c);
        struct partition *p = &s->partitions[0];

        p->memory = 0;
        for (uint32_t key = 0; key < KEYS; key++)
            put(s, key, SIZE);
        p->buffer_bytes = p->buffer.bytes - 1; /* it is full */
        fails = ENOSPC;
        takes = slow ? 4000 : 10;
        for (uint32_t key = 0; key < KEYS; key++) {
            assert_int_equal(qmstore_put(s, &key, sizeof key, value, SIZE, 0), ENOSPC);
            assert_int_equal(qmstore_delete(s, &key, sizeof key), ENOSPC);
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
        }
        assert_true(slow ? failed == 1 : failed >= KEYS);
        assert_int_equal(qmstore_flush(s), ENOSPC); /* asks at once */
        assert_int_equal(stats_of(s).error, ENOSPC);
        ticks += slow ? 10000 : 0;
        fails = 0;
        put(s, KEYS, SIZE);
        assert_int_equal(stats_of(s).error, 0);
        assert_int_equal(stats_of(s).keys, KEYS + 1);
        assert_int_equal(qmstore_close(s), 0);
        remove_below(test_dir);
    }
}

/* The same of one that refuses when the log is to begin anew: what the write buffer
 * has, or to sync. */
TEST_WITH(test_slow_checkpoint, make_test_dir, remove_test_dir)
{
    enum { PUTS = 20 };

    for (unsigned i = 0; i < 4; i++) {
        const bool slow = i % 2, syncs = i / 2;
        struct qmstore_config c = config("lru", "lmdb", QMSTORE_LAZY);
        struct qmstore *s;
        uint32_t key = 1, other = 2;

        c.log_buffer = 0;
        s = open_checked(&c);
        s->config.memory = 4 << 10; /* of which the log's length depends */
        put(s, other, SIZE);
        s->partitions[0].memory = 0;
        put(s, key, SIZE); /* the other goes to the write buffer */
        assert_int_not_equal(s->partitions[0].buffer.count, 0);
        *(syncs ? &sync_fails : &fails) = ENOSPC;
        takes = slow ? 4000 : 10;
        while (failed == 0)
            put(s, key, SIZE);
        for (unsigned n = 1; n < PUTS; n++) {
            put(s, key, SIZE);
            assert_int_equal(failed, slow ? 1 : n + 1);
        }
        assert_int_equal(stats_of(s).error, ENOSPC);
        ticks += slow ? 10000 : 0;
        put(s, key, SIZE);
        assert_int_equal(failed, slow ? 2 : PUTS + 1);
        fails = sync_fails = 0;
        assert_int_equal(qmstore_close(s), 0); /* asks at once */
        s = open_ok(&c);
        assert_int_equal(stats_of(s).keys, 2);
        assert_int_equal(qmstore_close(s), 0);
        remove_below(test_dir);
    }
}

/* A filter that cannot be made anew: the old one, and what is counted, stay. */
TEST_WITH(test_no_new_filter, make_test_dir, remove_test_dir)
{
    enum { KEYS = 400, CALLS = 5 };
    struct qmstore_config c = config("lfu", "lmdb", QMSTORE_NONE);
    struct qmstore *s = open_checked(&c);
    struct partition *p = &s->partitions[0];
    struct qmstore_stats stats;

    for (uint32_t key = 0; key < KEYS; key++)
        put(s, key, SIZE);
    p->memory = 0;
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    for (unsigned i = 0; i < CALLS; i++)
        for (uint32_t key = 0; key < KEYS; key++)
            (void)store_cold_seen(&p->cold, store_hash_of(&key, sizeof key));
    fails = EIO;
    assert_int_equal(store_filter_make(p), EIO);
    fails = 0;
    stats = stats_of(s);
    assert_int_equal(stats.keys, KEYS);
    assert_int_equal(stats.disk_keys, KEYS);
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_int_equal(store_cold_count(&p->cold, store_hash_of(&key, sizeof key)),
                         CALLS);
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
    }
    assert_int_equal(qmstore_close(s), 0);
}

/* A log that cannot be begun anew goes on for a while, and then changes are refused. */
TEST_WITH(test_long_log, make_test_dir, remove_test_dir)
{
    enum { MOST = 100 << 10 };
    struct qmstore_config c = config("lru", "lmdb", QMSTORE_LAZY);
    struct qmstore *s;
    uint32_t key = 1;
    char name[100];
    int r = 0;

    c.log_buffer = 0;
    s = open_ok(&c);
    s->config.memory = 4 << 10; /* of which the log's length depends */
    snprintf(name, sizeof name, "%s/0/log.new", test_dir);
    assert_int_equal(mkdir(name, 0700), 0); /* where the new log is made */
    for (unsigned i = 0; r == 0 && i < 2 * MOST / SIZE; i++)
        r = qmstore_put(s, &key, sizeof key, value, SIZE, 0);
    assert_int_equal(r, EISDIR);
    assert_true(stats_of(s).log_bytes > MOST / 4 && stats_of(s).log_bytes < MOST);
    assert_int_equal(rmdir(name), 0);
    put(s, key, SIZE);
    assert_true(stats_of(s).log_bytes < 4 * SIZE);
    assert_int_equal(qmstore_close(s), 0);
}
