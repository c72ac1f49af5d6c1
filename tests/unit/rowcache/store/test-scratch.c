/* SPDX-License-Identifier: BSD-3-Clause */
/* test-scratch.c - stores whose contents need not outlive their process: what an
 * earlier one left is removed, a disk that refuses costs keys and gives no error, and
 * keys on disk take no more than they may. */
#include <fcntl.h>
#include <sys/stat.h>

#include "rowcache/store/store.h"

#include "faults.h"

enum { KEYS = 4000, OPERATIONS = 3000, CALM = 3000, HOT = 700, SIZE = 2000 };

#define MOST (UINT64_C(2) << 20)

static const char *const layers[] = {"files", "lmdb", "bdb"};
static const struct disk_ops *below;
static struct disk_ops refusing;
static int refuses, refuses_reads, cannot_open; /* errno values */

static int refusing_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    size_t half = n / 2;

    if (refuses && half > 0)
        (void)below->apply(d, changes, half); /* some may be there */
    return refuses ? refuses : below->apply(d, changes, n);
}

static int refusing_get(struct disk *d, const struct disk_name *name, void **bytes,
                        size_t *len)
{
    return refuses_reads ? refuses_reads : below->get(d, name, bytes, len);
}

static int refusing_walk(struct disk *d, const struct disk_name *from,
                         disk_visit *visit, void *opaque)
{
    return refuses_reads ? refuses_reads : below->walk(d, from, visit, opaque);
}

static int refusing_open(const struct disk_config *c, struct disk **d)
{
    return cannot_open ? cannot_open : below->open(c, d);
}

static struct qmstore *open_scratch(const char *layer, uint64_t most)
{
    struct qmstore_config c = config();
    struct qmstore *s = NULL;
    char err[400] = "";
    int r;

    c.disk = layer;
    r = qmstore_open_scratch(&c, most, &s, err, sizeof err);
    if (r != 0)
        fail_msg("open: %d %s", r, err);
    refuses = refuses_reads = cannot_open = 0;
    below = s->partitions[0].disk_ops;
    refusing = *below;
    refusing.apply = refusing_apply;
    refusing.get = refusing_get;
    refusing.walk = refusing_walk;
    refusing.open = refusing_open;
    s->partitions[0].disk_ops = &refusing;
    message[0] = '\0';
    return s;
}

static bool is_built(const char *layer)
{
    return store_disk_find(layer);
}

/* What a process has left that was killed. */
static void leave_behind(enum qmstore_durability durability)
{
    pid_t child = fork();

    if (child == 0) {
        struct qmstore_config c = config();
        struct qmstore *s;
        char err[400];

        c.disk = "files";
        c.partitions = 2;
        c.memory = 2 << 20;
        c.durability = durability;
        if (qmstore_open(&c, &s, err, sizeof err) != 0)
            _exit(1);
        for (unsigned i = 0; i < 2000; i++)
            if (qmstore_put(s, &i, sizeof i, big, sizeof big, 0) != 0)
                _exit(1);
        _exit(0);
    }
    child_ends_well(child);
}

static void write_file(const char *name)
{
    char path[160];
    int fd;

    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_not_equal(fd, -1);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
}

TEST_WITH(earlier_is_removed, make_memory_dir, remove_test_dir)
{
    char outside[160], link[160];
    struct qmstore *s;

    for (enum qmstore_durability d = QMSTORE_SYNC; d <= QMSTORE_NONE; d++) {
        leave_behind(d);
        snprintf(outside, sizeof outside, "%s.outside", test_dir);
        snprintf(link, sizeof link, "%s/0.damaged-3", test_dir);
        assert_true(mkdir(outside, 0700) == 0 || errno == EEXIST);
        assert_int_equal(symlink(outside, link), 0);
        snprintf(link, sizeof link, "%s/1.damaged", test_dir);
        assert_int_equal(mkdir(link, 0700), 0);
        write_file("1.damaged/kept");
        write_file("notes");
        s = open_scratch("files", 0);
        assert_int_equal(stats_of(s).keys, 0);
        assert_int_equal(count(s, 2000), 0);
        assert_false(exists("1.damaged"));
        assert_false(exists("0.damaged-3"));
        assert_false(exists("1"));
        assert_int_equal(access(outside, F_OK), 0);
        fill(s, 0, 2000);
        assert_int_equal(count(s, 2000), 2000);
        assert_int_equal(qmstore_close(s), 0);
        /* Nothing is left but what is not the store's. */
        assert_false(exists("0"));
        assert_true(exists("notes"));
        assert_int_equal(rmdir(outside), 0);
        s = open_scratch("files", 0); /* again, beside that */
        assert_int_equal(qmstore_close(s), 0);
        remove_below(test_dir);
        assert_int_equal(mkdir(test_dir, 0700), 0);
    }
}

TEST_WITH(others_are_not, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    struct qmstore *s = NULL;
    char err[400] = "";

    write_file("0");
    assert_int_equal(qmstore_open_scratch(&c, 0, &s, err, sizeof err), ENOTEMPTY);
    assert_true(exists("0"));
    write_file("qmstore"); /* of somebody else */
    assert_int_equal(qmstore_open_scratch(&c, 0, &s, err, sizeof err), ENOTEMPTY);
    assert_true(exists("0") && exists("qmstore"));
    remove_below(test_dir);
    assert_int_equal(mkdir(test_dir, 0700), 0);

    s = open_scratch("files", 0);
    fill(s, 0, 10);
    {
        struct qmstore *other = NULL;

        assert_int_equal(qmstore_open_scratch(&c, 0, &other, err, sizeof err), EBUSY);
    }
    assert_int_equal(count(s, 10), 10);
    assert_int_equal(qmstore_close(s), 0);
}

/* The disk is full: keys are lost, those in memory are not. */
TEST_WITH(full_disk, make_memory_dir, remove_test_dir)
{
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct qmstore *s;
        unsigned in_memory;

        if (!is_built(layers[i]))
            continue;
        s = open_scratch(layers[i], 0);
        fill(s, 0, 2000);
        assert_true(stats_of(s).disk_keys > 1000);
        refuses = ENOSPC;
        fill(s, 2000, 4000);
        assert_non_null(strstr(message, "No space left on device"));
        assert_int_equal(stats_of(s).error, ENOSPC);
        in_memory = count(s, 4000);
        assert_true(in_memory > 0 && in_memory < 1000);
        refuses = 0;
        fill(s, 4000, 6000);
        assert_true(count(s, 6000) > 1900);
        assert_true(stats_of(s).disk_keys > 1000);
        assert_int_equal(stats_of(s).error, 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* The layer cannot be opened any more: memory goes on, and the layer is tried again. */
TEST_WITH(no_disk, make_memory_dir, remove_test_dir)
{
    struct qmstore *s = open_scratch("files", 0);
    struct partition *p = &s->partitions[0];

    fill(s, 0, 2000);
    refuses = cannot_open = EIO;
    fill(s, 2000, 4000);
    assert_null(p->disk);
    assert_int_equal(stats_of(s).error, EIO);
    assert_true(count(s, 4000) > 0);
    for (unsigned k = 0; k < 4000; k++) {
        int r = qmstore_delete(s, &k, sizeof k);

        assert_true(r == 0 || r == ENOENT);
    }
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_flush(s), 0);
    assert_int_equal(qmstore_clear(s), 0);
    refuses = cannot_open = 0;
    p->scratch->tried = 0; /* the pause is over */
    fill(s, 0, 2000);
    assert_non_null(p->disk);
    assert_int_equal(stats_of(s).error, 0);
    fill(s, 2000, 4000);
    assert_true(count(s, 4000) > 1900);
    assert_int_equal(qmstore_close(s), 0);
}

/* Keys on disk take no more than they may; those that are asked for stay. */
TEST_WITH(bound, make_memory_dir, remove_test_dir)
{
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct qmstore *s;
        struct partition *p;
        uint64_t records;
        unsigned cold = 0, hot = 0;

        if (!is_built(layers[i]))
            continue;
        s = open_scratch(layers[i], MOST);
        p = &s->partitions[0];
        fill(s, 0, HOT);
        for (unsigned k = HOT; k < 10000; k++) {
            fill(s, k, k + 1);
            if (k % 20 == 0) /* more than memory holds */
                for (unsigned h = 0; h < HOT; h++) {
                    bool there = qmstore_get(s, &h, sizeof h, NULL, NULL, NULL) == 0;

                    hot += there;
                    if (!there) /* as a cache does */
                        fill(s, h, h + 1);
                }
            records = p->disk_copies * sizeof big;
            if (records > MOST + MOST / 2)
                fail_msg("%s: %llu bytes at key %u", layers[i],
                         (unsigned long long)records, k);
            if (below->used && below->used(p->disk) > MOST + MOST / 2)
                fail_msg("%s: %llu bytes", layers[i],
                         (unsigned long long)below->used(p->disk));
        }
        assert_true(p->disk_copies * sizeof big > MOST / 3);
        cold = count(s, 10000) - count(s, HOT);
        assert_true(cold < 2500);
        assert_true(hot > 500 * HOT * 3 / 4);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* Small records, of which a write buffer has more than leave at a time. */
TEST_WITH(bound_of_many, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    struct qmstore *s = NULL;
    struct partition *p;
    char err[400] = "";
    uint64_t most = 0;

    c.memory = 16 << 20;
    c.write_buffer = 4 << 20;
    c.disk = is_built("lmdb") ? "lmdb" : "files";
    assert_int_equal(qmstore_open_scratch(&c, MOST, &s, err, sizeof err), 0);
    p = &s->partitions[0];
    for (unsigned k = 0; k < 500000; k++) {
        assert_int_equal(qmstore_put(s, &k, sizeof k, big, 40, 0), 0);
        most = p->disk_copies > most ? p->disk_copies : most;
    }
    if (p->disk_copies * 80 > MOST + MOST / 2)
        fail_msg("%llu records, %llu bytes", (unsigned long long)p->disk_copies,
                 (unsigned long long)p->disk_ops->used(p->disk));
    assert_true(most > 5000);
    assert_int_equal(qmstore_close(s), 0);
}

/* Half of what is free, and never no bound. */
TEST_WITH(half_of_disk, make_memory_dir, remove_test_dir)
{
    struct qmstore *s = open_scratch("files", QMSTORE_DISK_HALF);
    struct statvfs fs;
    uint64_t half, most = s->partitions[0].scratch->most;

    assert_int_equal(statvfs(test_dir, &fs), 0);
    half = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
    assert_true(most >= 1 << 20);
    assert_true(most > half / 2 && most < half * 2);
    assert_int_equal(qmstore_close(s), 0);
}

static struct model {
    uint32_t version; /* 0: there is none */
} model[KEYS];

static void check(struct qmstore *s, unsigned k)
{
    void *got = NULL;
    size_t len;
    int r = qmstore_get(s, &k, sizeof k, &got, &len, NULL);
    uint32_t version = 0;

    if (r != 0 && r != ENOENT)
        fail_msg("key %u: %d", k, r);
    if (r == 0) {
        assert_int_equal(len, SIZE);
        memcpy(&version, got, sizeof version);
        free(got);
    }
    if (version != 0 && version != model[k].version)
        fail_msg("key %u: version %u, not %u", k, version, model[k].version);
}

static int check_one(void *opaque, const void *key, size_t key_len, const void *value,
                     size_t value_len, uint64_t expires)
{
    uint32_t version;
    unsigned k;

    memcpy(&k, key, sizeof k);
    memcpy(&version, value, sizeof version);
    assert_int_equal(version, model[k].version);
    return 0;
}

/* Whatever is refused: what is found is the last value, and what was removed is gone.
 */
TEST_WITH(never_old, make_memory_dir, remove_test_dir)
{
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        uint64_t seed = 7 + i;
        struct qmstore *s;
        uint32_t versions = 0;
        char value[SIZE] = "";

        if (!is_built(layers[i]))
            continue;
        memset(model, 0, sizeof model);
        s = open_scratch(layers[i], MOST / 4);
        for (unsigned n = 0; n < OPERATIONS + CALM; n++) {
            unsigned k = (unsigned)(rnd(&seed) % KEYS), what = rnd(&seed) % 100;
            int r;

            if (n >=
                OPERATIONS) { /* in the end it refuses once more, and then serves */
                refuses_reads = cannot_open = 0;
                refuses = n / 100 == (OPERATIONS + CALM / 2) / 100 ? ENOSPC : 0;
                s->partitions[0].scratch->tried = 0;
            } else if (n % 300 == 0) {
                refuses = rnd(&seed) % 3 == 0 ? ENOSPC : 0;
                refuses_reads = rnd(&seed) % 5 == 0 ? EIO : 0;
                cannot_open = rnd(&seed) % 4 == 0 ? EIO : 0;
                s->partitions[0].scratch->tried = 0;
            }
            if (what < 40) {
                model[k].version = ++versions;
                memcpy(value, &versions, sizeof versions);
                r = qmstore_put(s, &k, sizeof k, value, sizeof value, 0);
                assert_int_equal(r, 0);
            } else if (what < 55) {
                model[k].version = 0;
                r = qmstore_delete(s, &k, sizeof k);
                assert_true(r == 0 || r == ENOENT);
            } else {
                check(s, k);
            }
            assert_true(stats_of(s).disk_keys <= KEYS);
            if (n % 3000 == 1000)
                assert_int_equal(qmstore_each(s, check_one, NULL), 0);
            if (n == 1999) {
                assert_int_equal(qmstore_clear(s), 0);
                memset(model, 0, sizeof model);
                assert_int_equal(stats_of(s).keys, 0);
            }
        }
        assert_true(s->partitions[0].disk_copies > 0);
        for (unsigned k = 0; k < KEYS; k++) {
            check(s, k);
            (void)qmstore_delete(s, &k, sizeof k);
        }
        assert_int_equal(qmstore_flush(s), 0);
        assert_int_equal(s->partitions[0].disk_copies, 0);
        assert_int_equal(s->partitions[0].shadowed, 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}
