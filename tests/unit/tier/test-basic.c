/* SPDX-License-Identifier: BSD-3-Clause */
/* test-basic.c - a tier in a file: insert, read, write, evict, close and open again;
 * what is refused, and what is emptied with a warning. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "testing.h"
#include "tier/format.h"
#include "tier/io.h"

#define BLOCK  4096u
#define VOLUME (UINT64_C(64) << 20)
#define SIZE   (UINT64_C(4) << 20)

static char dir[] = "/tmp/tier-basic.XXXXXX", path[64], witness[64];
static bool ring;
static struct told told;
static _Alignas(4096) char buf[BLOCK];

static struct qm_tier_config config(void)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"a-volume", VOLUME, BLOCK, 7};
    c.path = path;
    c.size = SIZE;
    c.admit = QM_TIER_ADMIT_ALL;
    c.ring = ring;
    c.warn = keep_warning;
    c.opaque = &told;
    return c;
}

static int setup(void **state)
{
    unlink(path);
    unlink(witness);
    memset(&told, 0, sizeof told);
    return 0;
}

static int put(struct qm_tier *t, uint64_t block, uint64_t version)
{
    return insert_version(t, buf, BLOCK, block, version);
}

static uint64_t get(struct qm_tier *t, uint64_t block)
{
    return read_version(t, buf, BLOCK, block);
}

static void change(struct qm_tier *t, uint64_t block, uint64_t blocks)
{
    struct qm_tier_write w;

    qm_tier_write_begin(t, &w, block * BLOCK, blocks * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
}

static void test_insert_read_write(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_read reads[100];
    static _Alignas(4096) char many[100][BLOCK];

    assert_int_equal(get(t, 5), 0);
    for (uint64_t b = 0; b < 100; b++) {
        assert_int_equal(put(t, b, 1), 0);
        qm_tier_drain(t);
    }
    assert_int_equal(put(t, 5, 1), EEXIST);
    assert_int_equal(put(t, VOLUME / BLOCK, 1), EINVAL);
    assert_int_equal(get(t, 5), 1);
    change(t, 5, 3);
    assert_int_equal(get(t, 4), 1);
    for (uint64_t b = 5; b < 8; b++)
        assert_int_equal(get(t, b), 0);
    assert_int_equal(get(t, 8), 1);
    assert_int_equal(put(t, 5, 2), 0);
    qm_tier_drain(t);
    assert_int_equal(get(t, 5), 2);
    for (size_t i = 0; i < 100; i++)
        reads[i] = (struct qm_tier_read){.block = 99 - i, .buf = many[i]};
    assert_int_equal(qm_tier_read(t, reads, 100), 98);
    for (size_t i = 0; i < 100; i++)
        if (reads[i].hit)
            assert_int_equal(version_of(many[i], BLOCK, 99 - i), i == 94 ? 2 : 1);
    assert_int_equal(stats(t).lookups, stats(t).hits + stats(t).misses);
    assert_int_equal(stats(t).inserted, 101);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    assert_int_equal(told.n, 0);
}

/* An insert that a write has overtaken is refused, whenever it comes. */
static void test_tickets(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_insert insert = {.block = 9, .data = buf};
    struct qm_tier_write w;

    insert.ticket = qm_tier_ticket(t);
    qm_tier_write_begin(t, &w, 9 * BLOCK + 100, 1);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), 0);
    insert.block = 10;
    change(t, 0, VOLUME / BLOCK);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* With update, a write of what the tier holds brings the new data, unless another write
 * to the same block has come between. */
static void test_update(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier_write a, b;
    struct qm_tier *t;

    c.update = QM_TIER_UPDATE_ALL;
    t = open_ok(&c);
    assert_int_equal(put(t, 3, 1), 0);
    qm_tier_drain(t);
    make_block(buf, BLOCK, 3, 2);
    qm_tier_write_begin(t, &a, 3 * BLOCK, BLOCK);
    qm_tier_write_end(t, &a, QM_TIER_WROTE, buf);
    qm_tier_drain(t);
    assert_int_equal(get(t, 3), 2);
    qm_tier_write_begin(t, &a, 3 * BLOCK, BLOCK);
    qm_tier_write_begin(t, &b, 3 * BLOCK + 5, 1);
    qm_tier_write_end(t, &b, QM_TIER_WROTE, buf);
    make_block(buf, BLOCK, 3, 3);
    qm_tier_write_end(t, &a, QM_TIER_WROTE, buf);
    qm_tier_drain(t);
    assert_int_equal(get(t, 3), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Writes the blocks [first, last), all of each but for the last `less` bytes; data: 9.
 */
static void write_blocks(struct qm_tier *t, uint64_t first, uint64_t last,
                         uint64_t less)
{
    static char data[8 * BLOCK];
    struct qm_tier_write w;

    for (uint64_t b = first; b < last; b++)
        make_block(data + (b - first) * BLOCK, BLOCK, b, 9);
    qm_tier_write_begin(t, &w, first * BLOCK, (last - first) * BLOCK - less);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
}

/* By QM_TIER_UPDATE_AUTO, what is written again and again without a read between is
 * dropped, but not at once; a read makes it worth it again. */
static void test_update_auto(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier_write w;
    struct qm_tier *t;

    c.update = QM_TIER_UPDATE_AUTO;
    t = open_ok(&c);
    write_blocks(t, 3, 4, 0);
    assert_false(qm_tier_contains(t, 3)); /* it was not held */
    for (uint64_t b = 3; b < 9; b++)
        assert_int_equal(put(t, b, 1), 0);
    qm_tier_drain(t);
    for (unsigned read = 0; read < 8; read++) {
        write_blocks(t, 3, 9, 0);
        for (uint64_t b = 3; b < 9; b++)
            assert_int_equal(get(t, b), 9);
    }
    assert_int_equal(stats(t).inserted, 6 + 8 * 6);
    assert_int_equal(stats(t).blocks, 6);
    write_blocks(t, 3, 9, 1);
    assert_false(qm_tier_contains(t, 8)); /* not all of it was written */
    for (uint64_t b = 3; b < 8; b++)
        assert_true(qm_tier_contains(t, b));
    for (unsigned i = 0; i < 4; i++)
        write_blocks(t, 3, 8, 0);
    for (uint64_t b = 3; b < 8; b++)
        assert_false(qm_tier_contains(t, b));
    assert_int_equal(get(t, 3), 0); /* the reader gets it from below */
    assert_int_equal(put(t, 3, 9), 0);
    qm_tier_drain(t);
    write_blocks(t, 3, 4, 0);
    assert_true(qm_tier_contains(t, 3));
    qm_tier_write_begin(t, &w, 3 * BLOCK, BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, NULL);
    assert_false(qm_tier_contains(t, 3)); /* there is no data */
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A large write brings all of its blocks, as hot as they were; one of more than
 * QM_TIER_WIDE none; and of one that the queue cannot take, the rest is dropped. */
static void test_update_large(void **state)
{
    enum { N = 300, ODD = QM_TIER_WIDE + 1 };
    struct qm_tier_config c = config();
    char *data = malloc((size_t)ODD * BLOCK);
    struct qm_tier_write w;
    struct qm_tier *t;
    uint64_t blocks;

    assert_non_null(data);
    c.update = QM_TIER_UPDATE_ALL;
    c.queue = 400;
    t = open_ok(&c);
    for (uint64_t b = 0; b < N; b++) {
        assert_int_equal(put(t, 7 + b, 1), 0);
        make_block(data + b * BLOCK, BLOCK, 7 + b, 2);
    }
    qm_tier_drain(t);
    assert_int_equal(get(t, 7 + N / 2), 1); /* heats it */
    qm_tier_write_begin(t, &w, 7 * BLOCK, N * BLOCK);
    assert_int_equal(stats(t).blocks, 0);
    assert_int_equal(w.renewed[N / 4] & 15, 2);
    assert_int_equal(w.renewed[N / 4] >> 4, 1);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    memset(data, 0xff, N * BLOCK); /* it is the caller's again */
    qm_tier_drain(t);
    assert_int_equal(stats(t).blocks, N);
    for (uint64_t b = 0; b < N; b++)
        assert_int_equal(get(t, 7 + b), 2);

    for (uint64_t b = 0; b < ODD; b++)
        make_block(data + b * BLOCK, BLOCK, b, 3);
    qm_tier_write_begin(t, &w, 0, ODD * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
    assert_int_equal(stats(t).blocks, 0);

    for (uint64_t b = 0; b < 600; b++) {
        assert_int_equal(put(t, b, 3), 0);
        if (b % 100 == 99)
            qm_tier_drain(t);
    }
    blocks = stats(t).inserted;
    qm_tier_write_begin(t, &w, 0, (QM_TIER_WIDE - 1) * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
    assert_in_range(stats(t).inserted - blocks, 400, 600);
    for (uint64_t b = 0; b < 600; b++)
        assert_int_equal(get(t, b), qm_tier_contains(t, b) ? 3 : 0);
    qm_tier_close(t, QM_TIER_KEEP);
    free(data);
}

/* Several times what fits; then all that it holds is held again after opening. */
static void test_evict_and_reopen(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    uint64_t n = 4 * SIZE / BLOCK, held = 0, again = 0, kept;

    for (uint64_t b = 0; b < n; b++) {
        while (put(t, b, b + 1) == EAGAIN)
            qm_tier_drain(t);
    }
    qm_tier_drain(t);
    for (uint64_t b = 0; b < n; b++) {
        uint64_t version = get(t, b);

        assert_true(version == 0 || version == b + 1);
        held += version != 0;
    }
    assert_int_equal(held, stats(t).blocks);
    assert_true(held > stats(t).capacity * 3 / 4);
    assert_true(stats(t).evicted > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    t = open_ok(&c);
    assert_int_equal(stats(t).recovered, held);
    for (uint64_t b = 0; b < n; b++) {
        uint64_t version = get(t, b);

        assert_true(version == 0 || version == b + 1);
        again += version != 0;
    }
    assert_int_equal(again, held);
    kept = stats(t).blocks;
    change(t, 0, n);
    assert_int_equal(stats(t).blocks, 0);
    assert_int_equal(stats(t).invalidated, kept);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    t = open_ok(&c);
    assert_int_equal(stats(t).blocks, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    assert_int_equal(told.n, 0);
}

static void fill(const struct qm_tier_config *c)
{
    struct qm_tier *t = open_ok(c);

    if (!qm_tier_contains(t, 1))
        assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    memset(&told, 0, sizeof told);
}

static void expect_emptied(const struct qm_tier_config *c, const char *why)
{
    struct qm_tier *t = open_ok(c);

    if (told.n != 1 || !strstr(told.text, why))
        fail_msg("warned %u times: %s", told.n, told.text);
    assert_int_equal(stats(t).blocks, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
}

static void test_identity(void **state)
{
    struct qm_tier_config c = config(), other;

    fill(&c);
    other = c;
    other.identity.volume = "b-volume";
    expect_emptied(&other, "of volume \"a-volume\", not \"b-volume\"");
    fill(&c);
    other = c;
    other.identity.size += BLOCK;
    expect_emptied(&other, "the volume had");
    fill(&c);
    other = c;
    other.identity.block_size *= 2;
    expect_emptied(&other, "its blocks are of 4096 bytes, not of 8192");
    fill(&c);
    other = c;
    other.identity.generation++;
    expect_emptied(&other, "generation is 8 now, not 7");
}

static void copy(const char *from, const char *to, bool same_inode)
{
    char command[300];

    if (!same_inode)
        unlink(to);
    snprintf(command, sizeof command, "cat %s > %s", from, to);
    assert_int_equal(system(command), 0);
}

/* An older copy: told by its inode, or by the witness. */
static void test_older_copy(void **state)
{
    struct qm_tier_config c = config();
    char saved[100];

    snprintf(saved, sizeof saved, "%s/saved", dir);
    fill(&c);
    copy(path, saved, false);
    copy(saved, path, false);
    expect_emptied(&c, "is a copy of the file");

    setup(state);
    c.witness = witness;
    fill(&c);
    copy(path, saved, false);
    fill(&c); /* finds its block, and changes the epoch */
    copy(saved, path, true);
    expect_emptied(&c, "older copy");
    fill(&c);
    unlink(witness);
    expect_emptied(&c, "no witness");
    unlink(saved);
}

/* A server that ends between the two writes of its witness has served nothing: the tier
 * is as the one before left it, or of the new epoch, and both are right. */
static void test_witness_half_way(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier_testimony w;
    struct qm_tier *t;

    c.witness = witness;
    for (unsigned ahead = 0; ahead < 2; ahead++) {
        setup(state);
        fill(&c);
        assert_int_equal(qm_tier_witness_read(witness, &w), 0);
        assert_int_equal(w.coming, 0);
        w.coming = w.epoch + !ahead;
        w.epoch -= ahead;
        qm_tier_testimony_seal(&w);
        assert_int_equal(qm_tier_witness_write(witness, &w), 0);
        t = open_ok(&c);
        assert_int_equal(get(t, 1), 1);
        qm_tier_close(t, QM_TIER_KEEP);
        assert_int_equal(told.n, 0);
    }
    w.epoch += 7;
    w.coming = 0;
    qm_tier_testimony_seal(&w);
    assert_int_equal(qm_tier_witness_write(witness, &w), 0);
    expect_emptied(&c, "older copy");
    assert_int_equal(truncate(witness, 10), 0);
    expect_emptied(&c, "its witness is damaged");
}

static void test_refused(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t, *u;
    char err[400];
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    assert_int_equal(pwrite(fd, "precious", 8, 70000), 8);
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), EINVAL);
    assert_non_null(strstr(err, "something else than a tier"));
    assert_int_equal(pread(fd, buf, 8, 70000), 8);
    assert_memory_equal(buf, "precious", 8);
    close(fd);
    unlink(path);
    t = open_ok(&c);
    assert_int_equal(qm_tier_open(&c, &u, err, sizeof err), EBUSY);
    assert_non_null(strstr(err, "another process has this tier open"));
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    c.size = 100000;
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), EINVAL);
    assert_non_null(strstr(err, "at least 4 segments"));
    c.size = SIZE;
    c.path = "/nonexistent/tier";
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), ENOENT);
    assert_non_null(strstr(err, "/nonexistent/tier: No such file"));
}

static bool knows(void *opaque, const char *had, char *why, size_t len)
{
    const char *known = "a-volume";

    snprintf(why, len, "%s", strcmp(had, known) == 0 ? "" : "it is none of ours");
    return strcmp(had, known) == 0;
}

/* A volume that has another name now, as the caller says. */
static void test_renamed(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);

    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    qm_tier_close(t, QM_TIER_KEEP);
    c.identity.volume = "b-volume";
    c.same_volume = knows;
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    /* That is its name from now on. */
    c.same_volume = NULL;
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    c.same_volume = knows;
    c.identity.volume = "c-volume";
    expect_emptied(&c, "is emptied: it is none of ours");
}

/* A change of more blocks than a write of tags has is whole after a kill. */
static void test_large_change_killed(void **state)
{
    struct qm_tier_config c = config();
    const uint64_t n = 200;
    struct qm_tier *t;
    pid_t child;
    int status;

    c.segment = 1 << 20;
    c.size = 8 << 20;
    child = fork();
    if (child == 0) {
        t = open_ok(&c);
        for (uint64_t b = 0; b < n; b++) {
            while (put(t, b, 1) == EAGAIN)
                qm_tier_drain(t);
        }
        qm_tier_drain(t);
        qm_tier_sync(t);
        for (uint64_t b = 0; b < n; b++)
            if (get(t, b) != 1)
                _exit(1);
        change(t, 0, n);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    t = open_ok(&c);
    for (uint64_t b = 0; b < n; b++)
        assert_int_equal(get(t, b), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* The file's operations, and what is written to the superblocks. */
static struct {
    struct qm_tier_io file;
    int (*sync)(void *opaque); /* in place of the file's; NULL: the file's */
    unsigned supers, undurable;
    uint64_t dies_at; /* epoch, when that is in the file; 0: never */
} seen;

static int write_seen(void *opaque, enum qm_tier_file which, const void *data, size_t n,
                      uint64_t at, bool durable)
{
    int r = seen.file.write(opaque, which, data, n, at, durable);
    struct qm_tier_super super;

    if (which != QM_TIER_META || at >= QM_TIER_SUPERS || n != QM_TIER_PAGE)
        return r;
    memcpy(&super, data, sizeof super);
    seen.supers++;
    seen.undurable += !durable;
    if (seen.dies_at != 0 && super.epoch == seen.dies_at)
        kill(getpid(), SIGKILL);
    return r;
}

static struct qm_tier *open_seen(const struct qm_tier_config *config)
{
    struct qm_tier_config c = *config;
    struct qm_tier_io io;
    char err[400];

    assert_int_equal(qm_tier_io_file(&seen.file, path, true, false, err, sizeof err),
                     0);
    io = seen.file;
    io.write = write_seen;
    if (seen.sync)
        io.sync = seen.sync;
    c.io = &io;
    return open_ok(&c);
}

/* A server that ends between the announcement of an epoch and the witness' last word
 * has served nothing: the tier is believed. */
static void test_killed_while_opening(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;
    pid_t child;
    int status;

    c.witness = witness;
    t = open_ok(&c);
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    qm_tier_close(t, QM_TIER_KEEP);
    child = fork();
    if (child == 0) {
        seen.dies_at = 2;
        (void)open_seen(&c);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
}

static struct qm_tier *changing; /* by the next sync of its file; NULL: none */

static int sync_seen(void *opaque)
{
    struct qm_tier *t = changing;

    changing = NULL;
    if (t)
        change(t, 1, 1);
    return seen.file.sync(opaque);
}

/* A change that comes and goes while regions are being unmarked leaves its region
 * marked: of what lies there, nothing is believed after a crash of the machine. */
static void test_changed_while_clearing(void **state)
{
    for (unsigned changed = 0; changed < 2; changed++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        pid_t child;
        int status;

        unlink(path);
        c.boot_id = "one";
        c.sync_ms = 3600000; /* the tick below is the only one */
        child = fork();
        if (child == 0) {
            seen.sync = sync_seen;
            t = open_seen(&c);
            change(t, 1, 1);
            assert_int_equal(put(t, 5, 1), 0);
            assert_int_equal(qm_tier_sync(t), 0);
            qm_tier_flush_end(t, qm_tier_flush_begin(t), true);
            changing = changed ? t : NULL;
            qm_tier_tick(t, true);
            if (changing || stats(t).regions_cleared != !changed)
                _exit(1);
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        c.boot_id = "two";
        t = open_ok(&c);
        assert_int_equal(get(t, 5), !changed);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

static bool observe_one(void *opaque, char text[QM_TIER_STATE])
{
    snprintf(text, QM_TIER_STATE, "one");
    return true;
}

/* The state that was recorded is erased, durably, before the first change. */
static void test_erased_durably(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier_write w;
    struct qm_tier *t;

    c.verify = QM_TIER_VERIFY_AUTO;
    c.before = "one";
    c.known = "one";
    c.observe = observe_one;
    t = open_seen(&c);
    seen.supers = seen.undurable = 0;
    qm_tier_write_begin(t, &w, 0, BLOCK);
    assert_int_equal(seen.supers, 1);
    assert_int_equal(seen.undurable, 0);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
    qm_tier_close(t, QM_TIER_KEEP);
}

static void fill_file(const char *name, uint64_t at, const char *text, uint64_t size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)at), strlen(text));
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void check_file(const char *name, uint64_t at, const char *text, uint64_t size)
{
    int fd = open(name, O_RDONLY);

    assert_int_equal(lseek(fd, 0, SEEK_END), size);
    assert_int_equal(pread(fd, buf, strlen(text), (off_t)at), strlen(text));
    assert_memory_equal(buf, text, strlen(text));
    close(fd);
}

static void refuses(const struct qm_tier_config *c, const char *why)
{
    struct qm_tier *t;
    char err[400];

    assert_int_equal(qm_tier_open(c, &t, err, sizeof err), EINVAL);
    if (!strstr(err, why))
        fail_msg("%s", err);
}

/* A file with data anywhere is somebody's; one of zeros only is empty. */
static void test_mistyped(void **state)
{
    const uint64_t size = UINT64_C(3) << 30;
    struct qm_tier_config c = config();
    struct qm_tier *t;
    int fd;

    fill_file(path, size - 5, "data!", size);
    refuses(&c, "something else than a tier");
    check_file(path, size - 5, "data!", size);
    fill_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    refuses(&c, "something else than a tier");
    check_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    /* Zeros, a hole, and data behind it. */
    fill_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    fd = open(path, O_RDWR);
    memset(buf, 0, 4096);
    assert_int_equal(pwrite(fd, buf, 4096, 0), 4096);
    close(fd);
    refuses(&c, "something else than a tier");
    check_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    fill_file(path, 1 << 20, "", size);
    t = open_ok(&c);
    qm_tier_close(t, QM_TIER_KEEP);
    unlink(path);
}

/* Nor is a witness written over what is none. */
static void test_mistyped_witness(void **state)
{
    struct qm_tier_config c = config();
    char other[80];
    struct qm_tier *t;

    c.witness = witness;
    fill_file(witness, 0, "precious", 8);
    refuses(&c, "something else than the witness of a tier");
    check_file(witness, 0, "precious", 8);
    assert_int_equal(access(path, F_OK), -1);
    fill_file(witness, 0, "", 4096); /* zeros: it is not empty */
    refuses(&c, "something else than the witness of a tier");
    c.witness = dir;
    refuses(&c, "something else than the witness of a tier");
    /* Whatever else is wrong, it stays. */
    c.witness = witness;
    fill_file(witness, 0, "precious", 8);
    c.path = "/nonexistent/tier";
    refuses(&c, "something else than the witness of a tier");
    check_file(witness, 0, "precious", 8);
    c = config();
    c.witness = path;
    refuses(&c, "both the tier and its witness");
    snprintf(other, sizeof other, "%s/../%s/tier", dir, strrchr(dir, '/') + 1);
    c.witness = other;
    t = NULL;
    fill_file(path, 0, "", 0);
    refuses(&c, "both the tier and its witness");
    assert_null(t);
    unlink(path);
    /* The file beside it, too, is somebody's. */
    c.witness = witness;
    unlink(witness);
    snprintf(other, sizeof other, "%s.new", witness);
    fill_file(other, 0, "precious", 8);
    assert_int_equal(qm_tier_witness_write(witness, &(struct qm_tier_testimony){0}),
                     EEXIST);
    check_file(other, 0, "precious", 8);
    unlink(other);
    /* An empty file becomes one. */
    fill_file(witness, 0, "", 0);
    t = open_ok(&c);
    qm_tier_close(t, QM_TIER_KEEP);
    unlink(path);
}

/* Blocks that stayed in their segments when others left are there after an end, and
 * after a kill. */
static void test_stayed(void **state)
{
    for (unsigned killed = 0; killed < 2; killed++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        struct qm_tier_stats s;
        pid_t child;
        int status;

        unlink(path);
        child = fork();
        if (child == 0) {
            t = open_ok(&c);
            for (uint64_t b = 0; b < 2 * stats(t).capacity; b++) {
                put(t, b, 1);
                qm_tier_drain(t);
                for (uint64_t hot = 0; b % 16 == 0 && hot < 32; hot++)
                    get(t, hot);
            }
            qm_tier_sync(t);
            s = stats(t);
            if (s.kept < 32 || s.evicted < 32)
                _exit(1);
            if (killed)
                kill(getpid(), SIGKILL);
            qm_tier_close(t, QM_TIER_KEEP);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(killed ? WIFSIGNALED(status) : status == 0);
        t = open_ok(&c);
        assert_true(stats(t).recovered >= stats(t).capacity * 95 / 100);
        for (uint64_t hot = 0; hot < 32; hot++)
            assert_int_equal(get(t, hot), 1);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

/* Killed without a word: what was written is there, what was changed is not. */
static void test_killed(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;
    pid_t child = fork();
    int status;

    if (child == 0) {
        t = open_ok(&c);
        for (uint64_t b = 0; b < 200; b++) {
            put(t, b, 1);
            qm_tier_drain(t);
        }
        qm_tier_sync(t);
        change(t, 50, 10);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    t = open_ok(&c);
    for (uint64_t b = 0; b < 200; b++)
        assert_int_equal(get(t, b), b < 50 || b >= 60);
    qm_tier_close(t, QM_TIER_KEEP);
    assert_int_equal(told.n, 0);
}

/* The machine crashes, and before the tier was opened the volume was changed: with no
 * flush that covers that, nothing is kept, and with one everything is. */
static void test_unflushed(void **state)
{
    for (unsigned flushes = 0; flushes < 3; flushes++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        uint64_t token;
        pid_t child;
        int status;

        unlink(path);
        c.boot_id = "one";
        child = fork();
        if (child == 0) {
            t = open_ok(&c);
            qm_tier_unflushed(t);
            for (uint64_t b = 0; b < 100; b++)
                put(t, b, 1);
            qm_tier_sync(t);
            token = qm_tier_flush_begin(t);
            qm_tier_flush_end(t, token, flushes == 2);
            qm_tier_tick(t, true);
            if (flushes == 0)
                qm_tier_unflushed(t); /* what is there is not dropped by it */
            if (get(t, 5) == 1)
                kill(getpid(), SIGKILL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        c.boot_id = "two";
        t = open_ok(&c);
        assert_int_equal(stats(t).recovered, flushes == 2 ? 100 : 0);
        for (uint64_t b = 0; b < 100; b++)
            assert_int_equal(get(t, b), flushes == 2);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

/* The file's name goes: it is used to the end, and said once.  The file is cut: that is
 * the end. */
static void test_vanished(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);

    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    unlink(path);
    qm_tier_tick(t, false);
    qm_tier_tick(t, false);
    assert_int_equal(get(t, 1), 1);
    assert_int_equal(told.n, 1);
    assert_non_null(strstr(told.text, "was removed"));
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
    t = open_ok(&c);
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(truncate(path, 100000), 0);
    qm_tier_tick(t, false);
    assert_true(stats(t).dead);
    assert_int_equal(get(t, 1), 0);
    assert_int_equal(put(t, 2, 1), ENODEV);
    change(t, 1, 1);
    assert_int_equal(told.n, 1);
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
    expect_emptied(&c, "it was detached or had failed");
}

static void test_forget(void **state)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;

    fill(&c);
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    assert_int_equal(qm_tier_close(t, QM_TIER_FORGET), 0);
    expect_emptied(&c, "it was detached");
}

/* With an argument, several blocks are read by threads, not by io_uring. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_insert_read_write, setup),
        cmocka_unit_test_setup(test_tickets, setup),
        cmocka_unit_test_setup(test_update, setup),
        cmocka_unit_test_setup(test_update_auto, setup),
        cmocka_unit_test_setup(test_update_large, setup),
        cmocka_unit_test_setup(test_evict_and_reopen, setup),
        cmocka_unit_test_setup(test_identity, setup),
        cmocka_unit_test_setup(test_older_copy, setup),
        cmocka_unit_test_setup(test_witness_half_way, setup),
        cmocka_unit_test_setup(test_refused, setup),
        cmocka_unit_test_setup(test_killed, setup),
        cmocka_unit_test_setup(test_unflushed, setup),
        cmocka_unit_test_setup(test_renamed, setup),
        cmocka_unit_test_setup(test_large_change_killed, setup),
        cmocka_unit_test_setup(test_changed_while_clearing, setup),
        cmocka_unit_test_setup(test_killed_while_opening, setup),
        cmocka_unit_test_setup(test_erased_durably, setup),
        cmocka_unit_test_setup(test_mistyped, setup),
        cmocka_unit_test_setup(test_mistyped_witness, setup),
        cmocka_unit_test_setup(test_stayed, setup),
        cmocka_unit_test_setup(test_vanished, setup),
        cmocka_unit_test_setup(test_forget, setup),
    };
    int r;

    ring = argc < 2;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tier", dir);
    snprintf(witness, sizeof witness, "%s/witness", dir);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    setup(NULL);
    rmdir(dir);
    return r;
}
