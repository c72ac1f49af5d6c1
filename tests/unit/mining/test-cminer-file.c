/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of C-Miner*'s rules: what is written is read again, and nothing else is. */
#include "cminer-testing.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BLOCK = 16384, HEADER = 96, SEAL = 8 };

static struct qm_cminer_db small_database(void)
{
    struct qm_cminer_db db = {0};
    const uint64_t s[2][4] = {{1, 5, UINT64_MAX, 7}, {5, 1, 7, 9}};
    assert_int_equal(qm_cminer_add(&db, s[0], 4), 0);
    assert_int_equal(qm_cminer_add(&db, s[1], 4), 0);
    assert_int_equal(qm_cminer_number(&db), 0);
    return db;
}

static struct qm_cminer_info some_info(void)
{
    struct qm_cminer_info info = {.level = QM_LEVEL_THREAD, .block_size = BLOCK};
    qm_cminer_defaults(&info.config);
    info.config.max_gap = 3;
    info.config.segment = 4;
    info.config.min_confidence = 7;
    return info;
}

static struct qm_cminer_counts write_rules(const struct qm_cminer_db *db)
{
    const struct qm_cminer_info info = some_info();
    return cminer_write(&info, db);
}

struct bytes {
    unsigned char *v;
    size_t n;
};

static struct bytes slurp(void)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    struct bytes b = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    assert_non_null(b.v);
    assert_int_equal(fread(b.v, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static void spill(const unsigned char *v, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(v, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* It is not taken, and err says something like this of the file. */
static void assert_refused(const char *says)
{
    struct qm_cminer_rules *rules;
    struct qm_cminer_info info;
    char err[256] = "";
    assert_int_equal(qm_cminer_read(path, BLOCK, 4, &rules, &info, err, sizeof err),
                     EINVAL);
    assert_null(rules);
    assert_ptr_equal(strstr(err, path), err);
    if (!strstr(err, says)) {
        fail_msg("'%s' does not say '%s'", err, says);
    }
}

static void seal(struct bytes *b)
{
    uint64_t hash = htole64(XXH3_64bits_withSeed(
        b->v, HEADER, XXH3_64bits(b->v + HEADER, b->n - HEADER - SEAL)));
    memcpy(b->v + b->n - SEAL, &hash, SEAL);
}

TEST(test_round_trip)
{
    struct qm_cminer_db db = small_database();
    struct qm_cminer_counts counts = write_rules(&db);
    struct qm_cminer_rules *rules;
    struct qm_cminer_rules_size size;
    struct qm_cminer_info info;
    struct stat st;
    char err[256];
    static const uint64_t sizes[] = {0, BLOCK};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            qm_cminer_read(path, sizes[i], 64, &rules, &info, err, sizeof err), 0);
        assert_string_equal(err, "");
        assert_int_equal(info.level, QM_LEVEL_THREAD);
        assert_int_equal(info.block_size, BLOCK);
        assert_int_equal(info.config.max_gap, 3);
        assert_int_equal(info.config.segment, 4);
        assert_int_equal(info.config.min_support, 1);
        assert_int_equal(info.config.min_confidence, 7);
        assert_int_equal(info.accesses, 8);
        assert_int_equal(info.segments, 2);
        assert_int_equal(info.blocks, 5);
        assert_int_equal(info.rules, counts.rules);
        assert_int_equal(info.prefixes, counts.prefixes);
        qm_cminer_rules_size(rules, &size);
        assert_int_equal(size.rules, counts.rules);
        assert_int_equal(size.prefixes, counts.prefixes);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size,
                         qm_cminer_file_size(5, counts.prefixes, counts.rules));
        /* 1 is followed by 5, the largest block and 7 twice, and 9. */
        const uint64_t last[2] = {0, 1};
        uint64_t found[64];
        bool any;
        assert_int_equal(qm_cminer_rules_lookup(rules, last, 1, found, 64, &any), 4);
        assert_true(any);
        const uint64_t should[] = {5, 7, 9, UINT64_MAX};
        assert_memory_equal(found, should, sizeof should);
        qm_cminer_rules_free(rules);
    }
    qm_cminer_db_free(&db);
}

TEST(test_empty)
{
    struct qm_cminer_db db = {0};
    struct qm_cminer_rules *rules;
    struct qm_cminer_info info;
    char err[256];
    assert_int_equal(qm_cminer_number(&db), 0);
    write_rules(&db);
    assert_int_equal(qm_cminer_read(path, BLOCK, 4, &rules, &info, err, sizeof err), 0);
    const uint64_t last[2] = {1, 2};
    uint64_t found[4];
    bool any;
    assert_int_equal(qm_cminer_rules_lookup(rules, last, 2, found, 4, &any), 0);
    assert_false(any);
    qm_cminer_rules_free(rules);
    qm_cminer_db_free(&db);
}

TEST(test_damaged)
{
    struct qm_cminer_db db = small_database();
    write_rules(&db);
    struct bytes b = slurp();
    static const unsigned char flips[] = {1, 0x80, 0xff};
    for (size_t i = 0; i < b.n; i++) {
        for (size_t f = 0; f < sizeof flips; f++) {
            b.v[i] ^= flips[f];
            spill(b.v, b.n);
            assert_refused(i < 8    ? "is not a file of rules"
                           : i < 12 ? "of its format, not 1"
                                    : "is damaged: mine it again");
            b.v[i] ^= flips[f];
        }
    }
    for (size_t n = 0; n < b.n; n++) {
        spill(b.v, n);
        assert_refused(n < HEADER + SEAL ? "is not a file of rules" : "is damaged");
    }
    b.v[b.n] = 0;
    spill(b.v, b.n + 1);
    assert_refused("is damaged");
    /* It is these changes that were refused. */
    struct qm_cminer_rules *rules;
    struct qm_cminer_info info;
    char err[256];
    spill(b.v, b.n);
    assert_int_equal(qm_cminer_read(path, BLOCK, 4, &rules, &info, err, sizeof err), 0);
    qm_cminer_rules_free(rules);
    assert_int_equal(qm_cminer_read(path, 4096, 4, &rules, &info, err, sizeof err),
                     EINVAL);
    assert_non_null(strstr(err, "is of blocks of 16384 bytes, not 4096"));
    free(b.v);
    qm_cminer_db_free(&db);
}

/* Whole, by its hash, but wrong in itself. */
TEST(test_inconsistent)
{
    struct qm_cminer_db db = small_database();
    write_rules(&db);
    struct bytes b = slurp();
    size_t body = HEADER + 5 * sizeof(uint64_t); /* the first prefix */
    const struct {
        size_t at;
        unsigned char byte;
    } wrong[] = {
        {24, 1},        /* max_gap */
        {28, 1},        /* segment */
        {32, 0},        /* min_support */
        {36, 101},      /* min_confidence */
        {HEADER, 6},    /* blocks that are not sorted */
        {body, 5},      /* a: no such block */
        {body + 4, 6},  /* b: no such block */
        {body + 7, 77}, /* nor this */
        {body + 12, 0}, /* no rules */
        {body + 12, 1}, /* fewer than there are */
        {body + 15, 9}, /* more than there can be */
        {body + 16, 5}, /* c: no such block */
        {body, 3},      /* a: prefixes that are not sorted */
        {72, 1},        /* rules: not as long */
        {79, 255},      {71, 255}, {63, 255},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned char before = b.v[wrong[i].at];
        assert_int_not_equal(before, wrong[i].byte);
        b.v[wrong[i].at] = wrong[i].byte;
        seal(&b);
        spill(b.v, b.n);
        assert_refused("is damaged");
        b.v[wrong[i].at] = before;
    }
    b.v[8] = 2;
    seal(&b);
    spill(b.v, b.n);
    assert_refused("is of version 2 of its format, not 1: mine it again");
    /* The seal is what the reader takes it for. */
    b.v[8] = 1;
    b.v[40] ^= 1; /* accesses */
    seal(&b);
    spill(b.v, b.n);
    struct qm_cminer_rules *rules;
    struct qm_cminer_info info;
    char err[256];
    assert_int_equal(qm_cminer_read(path, BLOCK, 4, &rules, &info, err, sizeof err), 0);
    assert_int_equal(info.accesses, 9);
    qm_cminer_rules_free(rules);
    free(b.v);
    qm_cminer_db_free(&db);
}

TEST(test_no_file)
{
    struct qm_cminer_rules *rules;
    struct qm_cminer_info info;
    char err[256];
    assert_int_equal(
        qm_cminer_read("/nowhere/x", BLOCK, 4, &rules, &info, err, sizeof err), ENOENT);
    assert_string_equal(err, "/nowhere/x cannot be read: No such file or directory");
    assert_int_equal(qm_cminer_read(dir, BLOCK, 4, &rules, &info, err, sizeof err),
                     EINVAL);
    assert_non_null(strstr(err, "is not a file of rules"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: it is not waited for */
    assert_refused("is not a file of rules");
    unlink(path);
}

/* A set that is filled in the wrong order, or with blocks that it does not have. */
TEST(test_add)
{
    const uint64_t blocks[] = {10, 20, 30};
    static const struct qm_cminer_suffix good[] = {{1, 1}}, bad[] = {{3, 1}};
    static const uint32_t none = QM_CMINER_NONE;
    const struct {
        struct qm_cminer_prefix prefix;
        int result;
    } steps[] = {
        {{1, none, 1, 1, good}, 0},      {{1, none, 1, 1, good}, EINVAL},
        {{1, 0, 1, 1, good}, 0},         {{1, 2, 1, 1, good}, 0},
        {{1, 2, 1, 1, good}, EINVAL},    {{1, 0, 1, 1, good}, EINVAL},
        {{1, none, 1, 1, good}, EINVAL}, {{0, none, 1, 1, good}, EINVAL},
        {{3, none, 1, 1, good}, EINVAL}, {{2, 3, 1, 1, good}, EINVAL},
        {{2, 0, 1, 0, good}, EINVAL},    {{2, 0, 1, 1, bad}, EINVAL},
        {{2, 1, 1, 1, good}, 0},
    };
    struct qm_cminer_rules *rules = qm_cminer_rules_new(blocks, 3, 4);
    struct qm_cminer_rules_size size;
    assert_non_null(rules);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(qm_cminer_rules_add(rules, &steps[i].prefix), steps[i].result);
    }
    qm_cminer_rules_finish(rules);
    qm_cminer_rules_size(rules, &size);
    assert_int_equal(size.prefixes, 4);
    assert_int_equal(size.rules, 4);
    qm_cminer_rules_free(rules);
}

static unsigned files_in_dir(void)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

/* What was there stays unless all is written. */
TEST(test_not_written)
{
    struct qm_cminer_db db = small_database();
    struct qm_cminer_info info = some_info();
    struct qm_cminer_writer *writer;
    struct qm_cminer_counts counts;
    char err[256];
    write_rules(&db);
    struct bytes before = slurp();

    assert_int_equal(qm_cminer_write(path, &info, &db, &writer, err, sizeof err), 0);
    assert_int_equal(qm_cminer_write_end(writer, false, err, sizeof err), 0);
    assert_string_equal(err, "");

    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < before.n; most += 50) {
        none = (struct rlimit){.rlim_cur = most, .rlim_max = limit.rlim_max};
        assert_int_equal(qm_cminer_write(path, &info, &db, &writer, err, sizeof err),
                         0);
        assert_int_equal(
            qm_cminer_mine(&info.config, &db, qm_cminer_write_prefix, writer, &counts),
            0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        int r = qm_cminer_write_end(writer, true, err, sizeof err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(r, EFBIG);
        assert_non_null(strstr(err, "cannot be written: File too large"));
    }
    struct bytes after = slurp();
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.v, before.v, after.n);
    assert_int_equal(files_in_dir(), 1);
    free(before.v);
    free(after.v);
    assert_int_equal(qm_cminer_write(dir, &info, &db, &writer, err, sizeof err),
                     EINVAL);
    assert_non_null(strstr(err, "is not a plain file"));
    qm_cminer_db_free(&db);
}

int main(void)
{
    return run_listed(make_dir, remove_dir);
}
