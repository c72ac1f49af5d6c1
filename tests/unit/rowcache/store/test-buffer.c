/* SPDX-License-Identifier: BSD-3-Clause */
/* test-buffer.c - how full the write buffer becomes, by what is read from disk while it
 * is written. */
#include <sys/resource.h>

#include "rowcache/store/store.h"

#include "testing.h"

enum { KEYS = 2000, HOT = 10, SIZE = 64, N = 80, SHIFTS = 3, CALM = 64, TIMES = 100 };

static struct qmstore *s;
static struct partition *p;
static const struct disk_ops *below;
static uint64_t blocks, during; /* of 512 bytes, read until now; in a write, pages */
static uint32_t next;           /* key */
static bool refuses;

int __wrap_getrusage(int who, struct rusage *used);

/* Linked with --wrap. */
int __wrap_getrusage(int who, struct rusage *used)
{
    assert_int_equal(who, RUSAGE_THREAD);
    *used = (struct rusage){.ru_inblock = (long)blocks};
    return 0;
}

static int reading_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    blocks += during * 8;
    return refuses ? EIO : below->apply(d, changes, n);
}

static void put(uint32_t key)
{
    char value[SIZE] = "";

    assert_int_equal(qmstore_put(s, &key, sizeof key, value, sizeof value, 0), 0);
}

/* All keys are on disk but some hot ones, which fill the memory that there is: under
 * LFU, another one that is changed goes to the buffer. */
static void open_store(enum qmstore_durability durability, uint64_t write_buffer)
{
    static struct disk_ops reading;
    struct qmstore_config c = small_config();

    c.memory = 4 << 20;
    c.policy = "lfu";
    c.durability = durability;
    c.write_buffer = write_buffer;
    remove_below(test_dir);
    during = 0;
    refuses = false;
    s = open_ok(&c);
    p = &s->partitions[0];
    for (uint32_t key = 0; key < KEYS; key++)
        put(key);
    p->memory = 0;
    assert_int_equal(store_partition_balance(p), 0);
    assert_int_equal(store_buffer_write(p), 0);
    store_set_memory(p);
    for (unsigned i = 0; i < TIMES; i++)
        for (uint32_t key = 0; key < HOT; key++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
    p->memory = p->used + store_table_bytes(&p->table);
    assert_int_equal(p->memory_keys, HOT);
    assert_int_equal(p->buffer_shift, 0);
    below = p->disk_ops;
    reading = *below;
    reading.apply = reading_apply;
    p->disk_ops = &reading;
    next = HOT;
}

static void change_some(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        put(next);
        if (++next == KEYS)
            next = HOT;
    }
}

/* Writes the buffer; meanwhile `reads` pages are read from disk. */
static void write_all(uint64_t reads)
{
    uint64_t batches = p->stats.disk_batches;

    p->buffer_bytes = 64 << 10;
    during = reads;
    assert_int_equal(store_buffer_write(p), 0);
    during = 0;
    assert_int_equal(p->stats.disk_batches - batches, 1);
    assert_int_equal(p->just_read, 0);
}

/* Writes n keys that were just read, and `others` that were not; meanwhile `reads`
 * pages are read from disk. */
static void write_some(unsigned n, unsigned others, uint64_t reads)
{
    p->buffer_bytes = UINT64_MAX / 2; /* it is not written before */
    change_some(n);
    assert_int_equal(p->just_read, n);
    change_some(others);
    p->just_read = n;
    assert_int_equal(p->buffer.count, n + others);
    write_all(reads);
}

/* New keys were not read, and keys that enter memory are not in the buffer. */
TEST_WITH(test_counted, make_memory_dir, remove_test_dir)
{
    open_store(QMSTORE_NONE, 0);
    p->buffer_bytes = UINT64_MAX / 2;
    for (uint32_t key = KEYS; key < KEYS + N; key++)
        put(key);
    assert_int_equal(p->buffer.count, N);
    assert_int_equal(p->just_read, 0);
    p->memory = UINT64_MAX / 2;
    change_some(N);
    assert_int_equal(p->memory_keys, HOT + N);
    assert_int_equal(p->just_read, 0);
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_shrinks, make_memory_dir, remove_test_dir)
{
    open_store(QMSTORE_NONE, 0);
    write_some(N, 0, 0);
    write_some(N, 0, N / 8);
    assert_int_equal(p->buffer_shift, 0);
    write_some(N / 2, N / 2, N / 2); /* the others' pages */
    write_some(N / 2, N / 2, N / 2 + N / 16);
    write_some(0, N, N);
    write_some(0, N, 2 * N); /* none was read before */
    assert_int_equal(p->buffer_shift, 0);
    write_some(N / 2, N / 2, N / 2 + N / 16 + 1);
    assert_int_equal(p->buffer_shift, 1);
    write_some(N, 0, N / 8 + 1);
    assert_int_equal(p->buffer_shift, 2);
    for (unsigned i = 0; i < TIMES; i++)
        write_some(N, 0, N);
    assert_int_equal(p->buffer_shift, SHIFTS); /* not below 8 KiB */
    for (unsigned i = 0; i < KEYS; i++) {
        uint64_t batches = p->stats.disk_batches;

        change_some(1);
        if (p->stats.disk_batches == batches)
            assert_true(p->buffer.bytes <= 8 << 10);
        else
            assert_int_equal(p->buffer.count, 0);
    }
    assert_int_equal(qmstore_close(s), 0);
}

TEST_WITH(test_grows, make_memory_dir, remove_test_dir)
{
    open_store(QMSTORE_NONE, 0);
    write_some(N, 0, N);
    write_some(N, 0, N);
    for (unsigned i = 0; i < CALM - 1; i++)
        write_some(N, 0, 0);
    write_some(0, N, N + 1); /* says nothing */
    assert_int_equal(p->buffer_shift, 2);
    write_some(N, 0, 0);
    assert_int_equal(p->buffer_shift, 1);
    for (unsigned i = 0; i < CALM; i++) /* new keys alone */
        write_some(0, N, N);
    assert_int_equal(p->buffer_shift, 0);
    write_some(N, 0, N);
    for (unsigned i = 0; i < CALM - 1; i++)
        write_some(N, 0, 0);
    write_some(N, 0, N); /* and all of it again */
    assert_int_equal(p->buffer_shift, 2);
    for (unsigned i = 0; i < CALM - 1; i++)
        write_some(N, 0, 0);
    assert_int_equal(p->buffer_shift, 2);
    for (unsigned i = 0; i < 2 * CALM; i++)
        write_some(N, 0, 0);
    assert_int_equal(p->buffer_shift, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* Of the keys that were just read, half are asked for and enter memory: a page of one
 * in eight of the others is read again, or of more. */
TEST_WITH(test_restored, make_memory_dir, remove_test_dir)
{
    for (unsigned more = 0; more < 2; more++) {
        open_store(QMSTORE_NONE, 0);
        p->buffer_bytes = UINT64_MAX / 2;
        change_some(N);
        p->memory = UINT64_MAX / 2;
        for (uint32_t key = HOT; key < HOT + N / 2; key++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
        assert_int_equal(p->buffer.count, N / 2);
        assert_int_equal(p->just_read, N);
        write_all(N / 16 + more);
        assert_int_equal(p->buffer_shift, more);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A write that the disk refuses says nothing; the keys count in the next. */
TEST_WITH(test_refused, make_memory_dir, remove_test_dir)
{
    open_store(QMSTORE_NONE, 0);
    p->buffer_bytes = UINT64_MAX / 2;
    change_some(N);
    refuses = true;
    during = N;
    assert_int_equal(store_buffer_write(p), EIO);
    refuses = false;
    assert_int_equal(p->buffer_shift, 0);
    assert_int_equal(p->just_read, N);
    write_all(N / 8 + 1);
    assert_int_equal(p->buffer_shift, 1);
    assert_int_equal(qmstore_close(s), 0);
}

/* Where a write is synced, or the program chose the size. */
TEST_WITH(test_stays, make_memory_dir, remove_test_dir)
{
    static const enum qmstore_durability synced[] = {QMSTORE_SYNC, QMSTORE_LAZY};

    for (unsigned i = 0; i < 3; i++) {
        open_store(i < 2 ? synced[i] : QMSTORE_NONE, i < 2 ? 0 : 64 << 10);
        write_some(N, 0, N);
        assert_int_equal(p->buffer_shift, 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}
