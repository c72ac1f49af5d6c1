/* SPDX-License-Identifier: BSD-3-Clause */
/* test-faults.c - a disk that fails, is full, flips bits, is cut; memory that is out:
 * reads are right or misses, one warning of each kind, and a tier that is dead is not
 * believed when it is opened again.
 *
 * Linked with --wrap for malloc, calloc, aligned_alloc and strdup. */
#include "disk.h"
#include "tests/unit/no-memory.h"

#define BLOCK  4096u
#define BLOCKS 200u

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);

char *__wrap_strdup(const char *s)
{
    return refuse(strlen(s) + 1) ? NULL : __real_strdup(s);
}

static struct disk *disk;
static struct qm_tier *tier; /* of setup_used() */
static struct told told;
static uint64_t now[BLOCKS], seed, clock_ns;
static _Alignas(4096) char buf[BLOCK];
static const char *boot;

static void keep(void *opaque, const char *message)
{
    keep_warning(&told, message);
}

static uint64_t get_clock(void *opaque)
{
    return clock_ns += 1000;
}

static struct qm_tier_config config(struct qm_tier_io *io)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", 64u << 20, BLOCK, 1};
    c.io = io;
    c.size = 512 << 10;
    c.segment = 32 << 10;
    c.boot_id = boot;
    c.threadless = true;
    c.admit = QM_TIER_ADMIT_ALL;
    c.warn = keep;
    c.now = get_clock;
    return c;
}

static int setup(void **state)
{
    disk = disk_new(1 << 20, seed = 5);
    memset(now, 0, sizeof now);
    memset(&told, 0, sizeof told);
    boot = "boot";
    return 0;
}

static int teardown(void **state)
{
    disk_free(disk);
    return 0;
}

/* A tier that gives up after that many errors; 0: after the default number. */
static struct qm_tier *open_tier_of(unsigned errors)
{
    struct qm_tier_io io = disk_io(disk);
    struct qm_tier_config c = config(&io);

    if (errors > 0)
        c.errors = errors;
    return open_ok(&c);
}

static struct qm_tier *open_tier(void)
{
    return open_tier_of(0);
}

/* Random operations; all that is read is right.  Returns the hits. */
static unsigned use(struct qm_tier *t, unsigned n)
{
    unsigned hits = 0;

    for (unsigned i = 0; i < n; i++) {
        uint64_t block = rnd_below(&seed, BLOCKS);
        struct qm_tier_read read = {.block = block, .buf = buf};
        struct qm_tier_write w;

        switch (rnd_below(&seed, 8)) {
        case 0:
            qm_tier_write_begin(t, &w, block * BLOCK, BLOCK);
            now[block]++;
            qm_tier_write_end(t, &w, QM_TIER_WROTE, NULL);
            break;
        case 1:
        case 2:
        case 3: {
            struct qm_tier_insert insert = {
                .block = block, .data = buf, .ticket = qm_tier_ticket(t)};

            make_block(buf, BLOCK, block, now[block]);
            (void)qm_tier_insert(t, &insert);
            break;
        }
        default:
            if (qm_tier_read(t, &read, 1) == 0)
                break;
            hits++;
            assert_int_equal(version_of(buf, BLOCK, block), now[block]);
        }
        if (i % 100 == 99)
            qm_tier_tick(t, true);
    }
    return hits;
}

static int setup_used(void **state)
{
    setup(state);
    tier = open_tier();
    use(tier, 3000);
    return 0;
}

/* Closes, lets the volume change if nobody would know, and opens again: right, or
 * empty. */
static void expect_not_believed(struct qm_tier *t)
{
    assert_true(stats(t).dead);
    assert_non_null(strstr(told.text, "is detached, and service goes on without it"));
    assert_int_equal(use(t, 500), 0); /* and the volume changes */
    qm_tier_close(t, QM_TIER_KEEP);
    disk->reads_fail = disk->writes_fail = disk->syncs_fail = disk->flips = 0;
    disk->meta_too = disk->no_resize = false;
    t = open_tier();
    assert_int_equal(stats(t).blocks, 0);
    assert_true(use(t, 500) > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}

TEST_WITH(test_some_errors, setup_used, teardown)
{
    struct qm_tier_stats s;
    unsigned n;

    assert_int_equal(told.n, 0);
    /* A few, and then successes enough to forget them. */
    disk->reads_fail = disk->flips = 1;
    while (s = stats(tier), s.read_errors + s.wrong_checksums < 10)
        use(tier, 10);
    disk->reads_fail = disk->flips = 0;
    for (n = 0; n < 5000;)
        n += use(tier, 1000);
    disk->reads_fail = 1;
    while (s = stats(tier), s.read_errors + s.wrong_checksums < 20)
        use(tier, 10);
    disk->reads_fail = 0;
    s = stats(tier);
    assert_false(s.dead);
    assert_true(s.read_errors > 0 && s.wrong_checksums > 0);
    assert_int_equal(told.n, 2); /* one of each kind */
    assert_non_null(strstr(told.text, "cannot read from the tier: Input/output error"));
    assert_non_null(strstr(told.text, "wrong checksum"));
    assert_int_equal(qm_tier_close(tier, QM_TIER_KEEP), 0);
}

TEST_WITH(test_reads_fail, setup_used, teardown)
{
    disk->reads_fail = 100;
    use(tier, 1000);
    expect_not_believed(tier);
    assert_int_equal(told.n, 3); /* the first, detached, and what was found again */
}

TEST_WITH(test_flips, setup_used, teardown)
{
    disk->flips = 100;
    use(tier, 1000);
    expect_not_believed(tier);
}

TEST_WITH(test_writes_fail, setup_used, teardown)
{
    disk->writes_fail = 100;
    use(tier, 2000);
    expect_not_believed(tier);
}

/* The first invalidation that cannot be written is the end; the file is cut, since it
 * cannot be marked. */
TEST_WITH(test_all_writes_fail, setup_used, teardown)
{
    disk->writes_fail = 100;
    disk->meta_too = true;
    use(tier, 200);
    assert_false(stats(tier).unsafe);
    expect_not_believed(tier);
}

/* One change whose invalidation cannot be written is enough. */
TEST_WITH(test_first_failure_counts, setup_used, teardown)
{
    struct qm_tier_write w;
    uint64_t block = 0;

    while (!qm_tier_contains(tier, block))
        block++;
    /* Which marks the region. */
    qm_tier_write_begin(tier, &w, (block ^ 1) * BLOCK, BLOCK);
    now[block ^ 1]++;
    qm_tier_write_end(tier, &w, QM_TIER_WROTE, NULL);
    disk->writes_fail = 100;
    disk->meta_too = true;
    qm_tier_write_begin(tier, &w, block * BLOCK, BLOCK);
    assert_true(stats(tier).dead);
    now[block]++;
    qm_tier_write_end(tier, &w, QM_TIER_WROTE, NULL);
    expect_not_believed(tier);
}

/* Nothing can be written, nor cut: it is said, and tried again later. */
TEST_WITH(test_unsafe, setup_used, teardown)
{
    disk->writes_fail = 100;
    disk->meta_too = disk->no_resize = true;
    use(tier, 300);
    assert_true(stats(tier).dead && stats(tier).unsafe);
    assert_non_null(strstr(told.text, "remove its file before the next start"));
    qm_tier_tick(tier, false);
    assert_true(stats(tier).unsafe);
    disk->writes_fail = 0;
    qm_tier_tick(tier, false);
    assert_false(stats(tier).unsafe);
    expect_not_believed(tier);
}

TEST_WITH(test_full, setup, teardown)
{
    struct qm_tier *t = open_tier();
    unsigned n;

    disk->writes_fail = 100;
    disk->with = ENOSPC;
    use(t, 3000);
    assert_false(stats(t).dead);
    assert_int_equal(told.n, 1);
    assert_non_null(strstr(told.text, "no space left for the tier"));
    disk->writes_fail = 0;
    clock_ns += UINT64_C(20000000000);
    n = use(t, 3000);
    assert_true(n > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}

TEST_WITH(test_cut, setup_used, teardown)
{
    disk->size = 100 << 10;
    use(tier, 300);
    assert_non_null(strstr(told.text, "truncated"));
    expect_not_believed(tier);
}

TEST_WITH(test_sync_fails, setup_used, teardown)
{
    disk->syncs_fail = 100;
    assert_int_equal(qm_tier_sync(tier), EIO);
    expect_not_believed(tier);
}

/* A partition is not cut when it is emptied: what it held for another volume, or
 * before, does not come back. */
TEST_WITH(test_partition, setup, teardown)
{
    struct qm_tier *t;
    char err[400];

    disk->size = disk->room;
    for (unsigned i = 0; i < 6; i++) {
        struct qm_tier_io io = disk_io(disk);
        struct qm_tier_config c = config(&io);

        io.fixed = true;
        c.identity.volume = i % 2 ? "w" : "v";
        c.size = 0;
        for (unsigned k = 0; k < 1 + i % 4; k++) {
            assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), 0);
            if (k == 0)
                assert_int_equal(stats(t).blocks, 0);
            use(t, k == 0 && i % 2 ? 1 : 1000);
            disk->crashed = i % 2; /* so that one superblock is all that it wrote */
            assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
            disk_restart(disk);
        }
        for (unsigned b = 0; b < BLOCKS; b++)
            now[b] += 1000; /* the volumes differ */
    }
}

static void keep_in(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_insert insert = {
        .block = block, .data = buf, .ticket = qm_tier_ticket(t)};

    make_block(buf, BLOCK, block, 0);
    (void)qm_tier_insert(t, &insert);
}

static bool is_read(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_read read = {.block = block, .buf = buf};

    if (qm_tier_read(t, &read, 1) == 0)
        return false;
    assert_int_equal(version_of(buf, BLOCK, block), 0);
    return true;
}

/* Blocks that stay in the segment that is being filled do so when others are emptied.
 */
TEST_WITH(test_shrink_while_filling, setup, teardown)
{
    for (uint64_t more = 1; more < 40; more++) {
        struct qm_tier *t;
        uint64_t block = 0;

        disk_free(disk);
        disk = disk_new(1 << 20, seed);
        t = open_tier();
        while (stats(t).evicted == 0 || block % 40 != more) {
            keep_in(t, block);
            if (block % 3 == 0)
                assert_true(is_read(t, block));
            block++;
        }
        assert_true(stats(t).kept > 0);
        assert_int_equal(qm_tier_resize(t, 400 << 10), 0);
        for (uint64_t i = 0; i < 8; i++)
            keep_in(t, block++);
        for (uint64_t b = 0; b < block; b++)
            assert_int_equal(is_read(t, b), qm_tier_contains(t, b));
        assert_int_equal(stats(t).wrong_checksums, 0);
        assert_int_equal(told.n, 0);
        assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    }
}

/* Of several blocks that are read at once, those that fail are misses, and only these;
 * what fails too often ends the tier. */
TEST_WITH(test_some_of_many_fail, setup, teardown)
{
    enum { N = 16 };
    static _Alignas(4096) char many[N][BLOCK];
    struct qm_tier_stats s;
    struct qm_tier *t;
    unsigned hits = 0, misses = 0;

    disk->many = true;
    t = open_tier_of(1000000);
    for (unsigned round = 0; round < 500; round++) {
        struct qm_tier_read reads[N];

        disk->reads_fail = round % 5 * 10;
        disk->flips = round % 3 * 10;
        for (size_t i = 0; i < N; i++) {
            keep_in(t, i);
            reads[i] = (struct qm_tier_read){.block = i, .buf = many[i]};
        }
        (void)qm_tier_read(t, reads, N);
        for (size_t i = 0; i < N; i++) {
            hits += reads[i].hit;
            misses += !reads[i].hit;
            assert_int_equal(qm_tier_contains(t, i), reads[i].hit);
            if (reads[i].hit)
                assert_int_equal(version_of(many[i], BLOCK, i), now[i]);
            else
                assert_true(disk->reads_fail > 0 || disk->flips > 0);
        }
    }
    s = stats(t);
    assert_int_equal(s.hits, hits);
    assert_int_equal(s.misses, misses);
    assert_int_equal(s.read_errors + s.wrong_checksums, misses);
    assert_true(s.read_errors > 0 && s.wrong_checksums > 0 && hits > misses);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}

/* The footer in the file may lack the last blocks of its segment, or be none: these
 * leave the index all the same when their slots are filled anew. */
TEST_WITH(test_footers_fail, setup, teardown)
{
    struct qm_tier *t = open_tier_of(1000000);

    disk->meta_too = true;
    disk->with = EIO;
    for (uint64_t b = 0; b < 20000; b++) {
        disk->writes_fail = b % 100 < 50 ? 30 : 0;
        keep_in(t, b);
        if (b % 3 == 0)
            (void)is_read(t, b);
    }
    disk->writes_fail = 0;
    for (uint64_t b = 0; b < 20000; b++)
        assert_int_equal(is_read(t, b), qm_tier_contains(t, b));
    assert_int_equal(stats(t).wrong_checksums, 0);
    assert_true(stats(t).evicted > 0 && stats(t).blocks > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}

/* A segment of which all writes failed has no footer, and needs none. */
TEST_WITH(test_segment_of_nothing, setup, teardown)
{
    struct qm_tier *t = open_tier_of(1000);

    disk->with = EIO;
    for (uint64_t b = 0; b < 1000; b++) {
        disk->writes_fail = b < 30 ? 100 : 0;
        keep_in(t, b);
    }
    assert_int_equal(stats(t).write_errors, 30);
    assert_int_equal(stats(t).read_errors, 0);
    assert_true(stats(t).evicted > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}

/* Some of each segment. */
static unsigned read_hot(struct qm_tier *t)
{
    unsigned hits = 0;

    for (uint64_t b = 0; b < 60; b += 2) {
        struct qm_tier_read read = {.block = b, .buf = buf};

        hits += (unsigned)qm_tier_read(t, &read, 1);
    }
    return hits;
}

/* A wrong checksum is no sign of a failing disk as long as a crash of the machine may
 * be why.  That ends when what is left has been read: in the segments that are filled
 * again with it (fill), or with the tier's end. */
static void doubt_ends(bool fill)
{
    struct qm_tier_stats was, s;
    struct qm_tier *t;

    setup(NULL);
    t = open_tier();
    for (uint64_t b = 0; b < 40; b++)
        keep_in(t, b);
    qm_tier_tick(t, true);
    for (uint64_t b = 40; b < 60; b++)
        keep_in(t, b);
    disk->crashed = true;
    qm_tier_close(t, QM_TIER_KEEP);
    disk_reboot(disk);
    boot = "boot after that";
    t = open_tier();
    for (unsigned i = 0; i < 4; i++)
        assert_true(read_hot(t) >= 20);
    if (fill) {
        for (uint64_t b = 60; b < 1000; b++) {
            keep_in(t, b);
            if (b % 8 == 0)
                read_hot(t);
        }
        assert_true(stats(t).kept > 0);
    } else {
        for (uint64_t b = 1; b < 60; b += 2)
            (void)qm_tier_read(t, &(struct qm_tier_read){.block = b, .buf = buf}, 1);
        assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
        t = open_tier();
    }
    was = stats(t);
    assert_false(was.dead);
    assert_int_equal(was.wrong_checksums, 0);
    disk->flips = 100;
    assert_int_equal(read_hot(t), 0);
    s = stats(t);
    assert_int_equal(s.lost_in_crash, was.lost_in_crash);
    assert_true(s.dead);
    qm_tier_close(t, QM_TIER_KEEP);
    disk_free(disk);
}

TEST(test_doubt_ends)
{
    doubt_ends(false);
}

TEST(test_doubt_ends_by_fills)
{
    doubt_ends(true);
}

/* Each time, what is there at the end is right; and after a failure nothing is
 * believed. */
TEST_WITH(test_no_memory, setup, teardown)
{
    struct qm_tier *t = open_tier();
    int r = ENOMEM;
    long n;

    use(t, 3000);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    for (n = 0; r == ENOMEM; n++) {
        struct qm_tier_io io = disk_io(disk);
        struct qm_tier_config c = config(&io);
        char err[400];

        countdown = n;
        r = qm_tier_open(&c, &t, err, sizeof err);
        countdown = -1;
        if (r == ENOMEM) {
            assert_null(t);
            assert_true(err[0]);
            /* Served without a tier; but what failed before it was looked at, is as it
             * was (see tier.h, rule 3). */
            if (strcmp(err, "out of memory") != 0)
                now[rnd_below(&seed, BLOCKS)]++;
        }
    }
    assert_int_equal(r, 0);
    assert_true(n > 20);
    use(t, 1000);
    r = ENOMEM;
    for (n = 0; r == ENOMEM; n++) {
        countdown = n;
        r = qm_tier_resize(t, 700 << 10);
        countdown = -1;
        use(t, 200);
    }
    assert_int_equal(r, 0);
    countdown = 0; /* nothing else allocates */
    use(t, 5000);
    countdown = -1;
    assert_true(stats(t).capacity > (600 << 10) / BLOCK);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
}
