/* SPDX-License-Identifier: BSD-3-Clause */
/* test-along.c - what is written with the write buffer: entries in memory that are next
 * to its own on disk, which then leave memory without a write.
 *
 *   store-along [TEST] */

#include "rowcache/store/store.h"

#include "testing.h"

enum { KEYS = 3000, SMALL = 40, LARGE = 700, EVICTED = 100, MANY = 900 };

static char value[LARGE];
static struct disk_ops changed; /* the disk layer's, with an apply() of the test */
static const struct disk_ops *below;
static size_t carried_out; /* of a batch that fails */

static struct qmstore_config config(const char *policy,
                                    enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();

    c.memory = 4 << 20;
    c.policy = policy;
    c.durability = durability;
    return c;
}

static void fill(struct qmstore *s, uint32_t len)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        memcpy(value, &key, sizeof key);
        assert_int_equal(qmstore_put(s, &key, sizeof key, value, len, 0), 0);
    }
}

/* All keys are there, with their values. */
static void check(struct qmstore *s)
{
    assert_int_equal(stats_of(s).keys, KEYS);
    for (uint32_t key = 0; key < KEYS; key++) {
        void *v;

        assert_int_equal(qmstore_get(s, &key, sizeof key, &v, NULL, NULL), 0);
        assert_memory_equal(v, &key, sizeof key);
        free(v);
    }
}

static struct entry *entry_of(struct partition *p, uint32_t key)
{
    return store_table_find(&p->table, store_hash_of(&key, sizeof key), &key,
                            sizeof key);
}

/* Moves some entries to the write buffer, which is not written. */
static void evict_some(struct partition *p, unsigned n)
{
    const uint64_t memory = p->memory, bytes = p->buffer_bytes;

    p->buffer_bytes = UINT64_MAX;
    while (p->buffer.count < n) {
        p->memory = p->used + store_table_bytes(&p->table) - 1;
        assert_int_equal(store_partition_balance(p), 0);
    }
    p->memory = memory;
    p->buffer_bytes = bytes;
}

/* Writes the buffer.  What was in memory is clean if it was beside an entry of the
 * buffer and not `stays`, and only then.  Returns how many are clean. */
static unsigned write_and_look(struct partition *p, bool (*stays)(uint32_t key))
{
    bool *beside = calloc(p->table.n, sizeof *beside);
    size_t buffered = p->buffer.count;
    unsigned clean = 0;

    assert_non_null(beside);
    for (const struct entry *e = p->buffer.oldest; e; e = e->newer)
        beside[store_table_line(&p->table, store_entry_hash(e).high)] = true;
    assert_int_equal(store_buffer_write(p), 0);
    assert_int_equal(p->buffer.count, 0);
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct entry *e = entry_of(p, key);

        if (!e)
            continue;
        assert_int_equal(
            e->clean, beside[store_table_line(&p->table, store_entry_hash(e).high)] &&
                          !stays(key));
        assert_int_equal(e->on_disk, e->clean);
        clean += e->clean;
    }
    free(beside);
    assert_int_equal(p->shadowed, clean);
    assert_int_equal(p->disk_copies, buffered + clean);
    return clean;
}

static bool none(uint32_t key)
{
    return false;
}

static bool all(uint32_t key)
{
    return true;
}

/* They leave memory, and nothing is written; all that is later written is those that
 * stayed.  With few entries, and with more than a slice. */
TEST_WITH(test_written_once, make_test_dir, remove_test_dir)
{
    static const char *const policies[] = {"lru", "lfu", "wtinylfu"};

    for (unsigned i = 0; i < 6; i++) {
        struct qmstore_config c = config(policies[i / 2], QMSTORE_NONE);
        struct qmstore *s;
        struct partition *p;
        unsigned clean;

        remove_below(test_dir);
        s = open_ok(&c);
        p = &s->partitions[0];
        fill(s, SMALL);
        evict_some(p, i % 2 ? MANY : EVICTED);
        clean = write_and_look(p, none);
        assert_true(clean > EVICTED);
        p->memory = 0;
        assert_int_equal(store_partition_balance(p), 0);
        assert_int_equal(store_buffer_write(p), 0);
        assert_int_equal(p->memory_keys, 0);
        assert_int_equal(stats_of(s).disk_writes, KEYS);
        for (uint32_t key = 0; key < KEYS;
             key++) /* the records have their frequencies */
            assert_int_equal(
                store_cold_count(&p->cold, store_hash_of(&key, sizeof key)), 0);
        store_set_memory(p);
        check(s);
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
        check(s);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* With many records on disk, the next one on the line is on another page. */
TEST_WITH(test_near, make_test_dir, remove_test_dir)
{
    const uint64_t supposed = 1 << 20;
    struct qmstore_config c = config("lru", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);
    struct partition *p = &s->partitions[0];
    uint64_t reach =
        UINT64_MAX / (supposed + EVICTED) * 2048 / (sizeof(struct entry) + 4 + SMALL);
    struct store_hash evicted[EVICTED];
    unsigned clean = 0, n = 0;

    fill(s, SMALL);
    evict_some(p, EVICTED);
    for (const struct entry *e = p->buffer.oldest; e && n < EVICTED; e = e->newer)
        evicted[n++] = store_entry_hash(e);
    p->disk_copies += supposed;
    assert_int_equal(store_buffer_write(p), 0);
    p->disk_copies -= supposed;
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct entry *e = entry_of(p, key);
        bool near = false;

        for (unsigned i = 0; e && e->clean && i < n; i++) {
            uint64_t apart = store_entry_hash(e).high - evicted[i].high;

            near |= apart < reach || -apart < reach;
        }
        assert_true(near || !e || !e->clean);
        clean += near;
    }
    assert_true(clean > 0 && clean < EVICTED / 2);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}

/* Files have no pages for several of them. */
TEST_WITH(test_files, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config("lru", QMSTORE_NONE);
    struct qmstore *s;

    c.disk = "files";
    s = open_ok(&c);
    fill(s, SMALL);
    evict_some(&s->partitions[0], EVICTED);
    assert_int_equal(write_and_look(&s->partitions[0], all), 0);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_large, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config("lru", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);

    fill(s, LARGE);
    evict_some(&s->partitions[0], EVICTED);
    assert_int_equal(write_and_look(&s->partitions[0], all), 0);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}

static bool is_hot(uint32_t key)
{
    return key % 2;
}

TEST_WITH(test_hot, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config("lfu", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);

    fill(s, SMALL);
    for (uint32_t key = 1; key < KEYS; key += 2)
        assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
    evict_some(&s->partitions[0], EVICTED);
    assert_true(write_and_look(&s->partitions[0], is_hot) > 0);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}

static int failing_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    assert_int_equal(below->apply(d, changes, n < carried_out ? n : carried_out), 0);
    return ENOSPC;
}

/* The disk takes a part of a batch: what went along and may be there is deleted with
 * its key, or written with its later value. */
TEST_WITH(test_part, make_test_dir, remove_test_dir)
{
    for (carried_out = 0; carried_out < 2 * EVICTED; carried_out += EVICTED) {
        struct qmstore_config c = config("lru", QMSTORE_NONE);
        struct qmstore *s;
        struct partition *p;

        remove_below(test_dir);
        s = open_ok(&c);
        p = &s->partitions[0];
        fill(s, SMALL);
        evict_some(p, EVICTED);
        below = p->disk_ops;
        changed = *below;
        changed.apply = failing_apply;
        p->disk_ops = &changed;
        assert_int_equal(store_buffer_write(p), ENOSPC);
        assert_int_equal(stats_of(s).keys, KEYS);
        p->disk_ops = below;
        check(s);
        for (uint32_t key = 0; key < KEYS; key += 2)
            assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
        p->memory = 0;
        assert_int_equal(store_partition_balance(p), 0);
        assert_int_equal(store_buffer_write(p), 0);
        assert_int_equal(p->disk_copies, KEYS / 2);
        assert_int_equal(stats_of(s).keys, KEYS / 2);
        for (uint32_t key = 0; key < KEYS; key++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL),
                             key % 2 ? 0 : ENOENT);
        p->memory = UINT64_MAX / 2;
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* The disk takes nothing of a batch, and later another one without some of what went
 * along.  A filter that is made then is of what is there; and of what is written
 * later. */
TEST_WITH(test_filter_after_failure, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config("lfu", QMSTORE_NONE);
    struct qmstore *s = open_ok(&c);
    struct partition *p = &s->partitions[0];
    size_t supposed = 0;

    fill(s, SMALL);
    evict_some(p, EVICTED);
    below = p->disk_ops;
    changed = *below;
    changed.apply = failing_apply;
    carried_out = 0;
    p->disk_ops = &changed;
    assert_int_equal(store_buffer_write(p), ENOSPC);
    p->disk_ops = below;
    for (uint32_t key = 1; key < KEYS; key += 2)
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
    assert_int_equal(store_buffer_write(p), 0);
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct entry *e = entry_of(p, key);

        supposed += e && e->on_disk && !e->clean;
    }
    assert_true(supposed > 0);
    assert_int_equal(store_filter_make(p), 0);
    assert_int_equal(stats_of(s).keys, KEYS);
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct entry *e = entry_of(p, key);

        assert_true(!e || e->on_disk == e->clean);
    }
    p->memory = 0;
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    assert_int_equal(p->memory_keys, 0);
    assert_int_equal(p->disk_copies, KEYS);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}

/* The process ends after entries went along, were changed or left memory. */
TEST_WITH(test_killed, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config("lru", QMSTORE_SYNC);
    struct qmstore *s;
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct partition *p;

        s = open_ok(&c);
        p = &s->partitions[0];
        for (uint32_t key = 0; key < KEYS; key++)
            (void)qmstore_put(s, &key, sizeof key, "older", 5, 0);
        evict_some(p, EVICTED);
        if (store_buffer_write(p) != 0 || p->shadowed == 0)
            _exit(1);
        fill(s, SMALL);
        evict_some(p, EVICTED);
        _exit(p->disk_copies != p->shadowed);
    }
    child_ends_well(child);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).lost, 0);
    check(s);
    assert_int_equal(qmstore_close(s), 0);
}
