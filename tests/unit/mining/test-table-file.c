/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs that survive a restart, and when they do not. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "baseline.h"
#include "rules-in-dir.h"
#include "mining/markov/table-file.h"
#include "mining/core/rules-dir.h"

/* memory: for rules; err: what there was to say. */
static struct qm_prefetcher *open_rules(uint64_t memory, char *err, size_t len)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_prefetcher *p = NULL;

    config.rules_memory = memory;
    assert_int_equal(qm_prefetcher_find("ppm")->create(&config, &p, err, len), 0);
    return p;
}

static void read_path(struct qm_prefetcher *p, uint64_t first, unsigned n)
{
    struct qm_stream *s = begin(p);
    struct qm_work *work;

    for (unsigned i = 0; i < n; i++)
        p->ops->access(p, s, first + 7 * i, QM_ACCESS_MISS, &work);
    end(p, s);
}

/* How many blocks of the path it knows to come after its first. */
static unsigned knows(struct qm_prefetcher *p, uint64_t first)
{
    struct qm_stream *s = begin(p);
    struct asked asked = step(p, s, first, QM_ACCESS_MISS);

    for (unsigned i = 0; i < asked.n; i++)
        assert_int_equal(asked.blocks[i], first + 7 * (i + 1));
    end(p, s);
    return asked.n;
}

#define MEMORY (1 << 20)

TEST_WITH(test_restart, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    assert_string_equal(err, "");
    for (uint64_t path = 0; path < 100; path++) {
        read_path(p, path * 1000, 20);
        for (int again = 0; again < 5 && path % 2 == 0; again++)
            read_path(p, path * 1000, 20);
    }
    p->ops->destroy(p);
    for (int restart = 0; restart < 3; restart++) {
        unsigned known = 0;

        p = open_rules(MEMORY, err, sizeof err);
        assert_string_equal(err, "");
        /* Those seen more than once, but for what found its line full. */
        assert_in_range(stats_of(p).rules, 50 * (19 + 18) - 10, 50 * (19 + 18));
        assert_in_range(stats_of(p).rules_bytes, 1, MEMORY / 4);
        for (uint64_t path = 0; path < 100; path++)
            known +=
                path % 2 == 0 ? knows(p, path * 1000) == 2 : knows(p, path * 1000) == 0;
        assert_in_range(known, 98, 100);
        p->ops->destroy(p);
    }
    assert_false(exists("rules.db.bad-1"));
}

enum {
    TAG = 96
}; /* that a key of the first lines can have, one of them as its number */

static int see(void *opaque, uint64_t line, unsigned tag,
               const struct qm_markov_pair *found, unsigned n)
{
    uint64_t *seen = opaque;

    if (line == TAG && tag == TAG) /* they may be the same */
        return 0;
    assert_in_range(line, 5, 7);
    assert_int_equal(tag, TAG);
    for (unsigned i = 0; i < n; i++)
        seen[line - 5] += found[i].block * 100 + found[i].count;
    return 0;
}

/* A block may have the number of its line, or of its tag; and while threads learn, it
 * may be there twice. */
TEST_WITH(test_records, setup, teardown)
{
    struct qm_mining_config config;
    struct qm_rules_dir *records;
    uint64_t seen[3] = {0};
    char err[512];

    qm_mining_defaults(&config);
    config.rules_dir = dir;
    for (int load = 0; load < 2; load++) {
        struct qm_markov *pairs = qm_markov_new(MEMORY);

        assert_int_equal(qm_markov_load(pairs, &config, &records, err, sizeof err), 0);
        assert_string_equal(err, "");
        if (load == 0) {
            assert_true(qm_markov_put(pairs, 5, TAG, 5, 3));
            assert_true(qm_markov_put(pairs, 6, TAG, TAG, 4));
            assert_true(qm_markov_put(pairs, 7, TAG, 11, 5));
            assert_true(qm_markov_put(pairs, 7, TAG, 12, 4));
            assert_true(qm_markov_put(pairs, 7, TAG, 11, 3));
            assert_true(qm_markov_put(pairs, TAG, TAG, 9, 3));
            assert_int_equal(qm_markov_save(pairs, records), 0);
        } else {
            assert_int_equal(qm_markov_each(pairs, 1, see, seen), 0);
            assert_int_equal(seen[0], 503);
            assert_int_equal(seen[1], TAG * 100 + 4);
            assert_int_equal(seen[2], 1105 + 1204);
        }
        qm_rules_dir_close(records);
        qm_markov_free(pairs);
    }
}

/* A block that several follow, of unlike counts. */
TEST_WITH(test_several, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);
    struct qm_stream *s = begin(p);
    struct asked asked;

    for (unsigned i = 0; i < 60; i++) {
        step(p, s, 1, QM_ACCESS_MISS);
        step(p, s, 10 + i % 6 / 3 + i % 6 / 5, QM_ACCESS_MISS); /* 3, 2 and 1 of 6 */
    }
    end(p, s);
    p->ops->destroy(p);
    p = open_rules(MEMORY, err, sizeof err);
    assert_string_equal(err, "");
    s = begin(p);
    asked = step(p, s, 1, QM_ACCESS_MISS);
    assert_true(asked.n >= 3);
    end(p, s);
    p->ops->destroy(p);
}

/* Paths of 20 blocks, of which `paths` are known; each is read n times. */
static void read_paths(struct qm_prefetcher *p, unsigned paths, int n)
{
    for (unsigned path = 0; path < paths; path++)
        for (int again = 0; again < n; again++)
            read_path(p, 5000 + path * 1000, 20);
}

static unsigned paths_known_from(struct qm_prefetcher *p, uint64_t from, unsigned paths)
{
    unsigned known = 0;

    for (unsigned path = 0; path < paths; path++) {
        uint64_t first = from + path * 1000;
        struct qm_stream *s = begin(p);
        struct asked asked = step(p, s, first, QM_ACCESS_MISS);
        unsigned right = 0; /* now and then another key is taken for this one */

        for (unsigned i = 0; i < asked.n; i++)
            right += asked.blocks[i] == first + 7 || asked.blocks[i] == first + 14;
        known += right == 2;
        end(p, s);
    }
    return known;
}

static unsigned paths_known(struct qm_prefetcher *p, unsigned paths)
{
    return paths_known_from(p, 5000, paths);
}

/* They are not of a table of some size: what is known stays known when it is made
 * larger and smaller. */
TEST_WITH(test_other_size, setup, teardown)
{
    static const uint64_t sizes[] = {MEMORY,     4 * MEMORY,  4 * MEMORY + 100000,
                                     MEMORY / 2, 64 * MEMORY, MEMORY};
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    read_paths(p, 100, 5);
    assert_int_equal(p->ops->destroy(p), 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        p = open_rules(sizes[i], err, sizeof err);
        assert_string_equal(err, "");
        /* Few of other keys are taken for one of these. */
        assert_in_range(stats_of(p).rules, 100 * (19 + 18) * 9 / 10,
                        100 * (19 + 18) * 11 / 10);
        assert_in_range(paths_known(p, 100), 95, 100);
        read_path(p, 5000, 20); /* it is saved again, as of this size */
        assert_int_equal(p->ops->destroy(p), 0);
    }
    assert_false(exists("rules.db.bad-1"));
}

/* What does not fit is left out, the pairs with the lowest counts first. */
TEST_WITH(test_cut_down, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(4 * MEMORY, err, sizeof err);
    struct qm_mining_stats stats;

    read_paths(p, 2000, 2);
    for (unsigned path = 0; path < 60; path++)
        for (int again = 0; again < 12; again++)
            read_path(p, 3000000 + path * 1000, 20);
    assert_int_equal(p->ops->destroy(p), 0);
    p = open_rules(MEMORY / 4, err, sizeof err);
    assert_string_equal(err, "");
    stats = stats_of(p);
    assert_in_range(stats.rules_bytes, 1, MEMORY / 4);
    assert_in_range(stats.rules, 1, MEMORY / 4 / 8);
    assert_true(paths_known_from(p, 3000000, 60) > 45);
    assert_int_equal(p->ops->destroy(p), 0);
}

/* A device of which the blocks are too many to try them all. */
TEST_WITH(test_other_size_far_apart, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    read_paths(p, 50, 5);
    for (int again = 0; again < 5; again++)
        read_path(p, UINT64_C(1) << 33, 20);
    assert_int_equal(p->ops->destroy(p), 0);
    p = open_rules(2 * MEMORY, err, sizeof err);
    assert_string_equal(err, "");
    /* What follows a path's first block is lost, as that follows none. */
    assert_in_range(stats_of(p).rules, 51 * (18 + 17) * 9 / 10, 51 * (19 + 18));
    assert_int_equal(p->ops->destroy(p), 0);
}

static unsigned char whole[1 << 16], changed[1 << 16];

static size_t read_file(const char *name, unsigned char *bytes, size_t max)
{
    FILE *f = fopen(in_dir(name), "rb");
    size_t n;

    assert_non_null(f);
    n = fread(bytes, 1, max, f);
    assert_true(n < max);
    fclose(f);
    return n;
}

/* Creates with what is saved there: it must be set aside with a warning that says why,
 * and nothing of it used. */
static void expect_set_aside(uint64_t memory, const char *why)
{
    char err[512];
    struct qm_prefetcher *p;

    (void)unlink(in_dir("rules.db.bad-1"));
    p = open_rules(memory, err, sizeof err);
    if (!strstr(err, why) || !strstr(err, "renamed to rules.db.bad-1"))
        fail_msg("not \"%s\": \"%s\"", why, err);
    assert_int_equal(stats_of(p).rules, 0);
    assert_true(exists("rules.db.bad-1"));
    assert_false(exists("rules.db"));
    assert_int_equal(p->ops->destroy(p), 0);
}

/* Saves something; its bytes are in whole. */
static size_t save_some(void)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    assert_string_equal(err, "");
    read_paths(p, 5, 3);
    assert_int_equal(p->ops->destroy(p), 0);
    return read_file("rules.db", whole, sizeof whole);
}

/* Makes the hash that of the file. */
static void seal_file(unsigned char *file, size_t n)
{
    uint64_t hash = htole64(
        XXH3_64bits_withSeed(file, 64, XXH3_64bits(file + 64, n - 64 - sizeof hash)));

    memcpy(file + n - sizeof hash, &hash, sizeof hash);
}

TEST_WITH(test_set_aside, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p;

    save_some();
    write_file("rules.db", whole, 100);
    expect_set_aside(2 * MEMORY, "damaged");
    save_some();
    p = open_rules(2 * MEMORY, err, sizeof err); /* the next time all is well */
    assert_string_equal(err, "");
    assert_int_equal(paths_known(p, 5), 5);
    assert_int_equal(p->ops->destroy(p), 0);
}

/* Any byte changed, any length cut, anything behind: found out. */
TEST_WITH(test_damaged, setup, teardown)
{
    size_t n = save_some();
    struct rng rng = {5};
    char err[512];
    struct qm_prefetcher *p;

    assert_true(n > 1000);
    for (size_t at = 0; at < n; at += at < 200 || at >= n - 40 ? 1 : 37) {
        memcpy(changed, whole, n);
        changed[at] ^= (unsigned char)(1 + rng_below(&rng, 255));
        write_file("rules.db", changed, n);
        expect_set_aside(MEMORY, "damaged");
    }
    for (size_t at = 0; at < n; at += at < 200 || at >= n - 40 ? 1 : 37) {
        write_file("rules.db", whole, at);
        expect_set_aside(MEMORY, "damaged");
    }
    memcpy(changed, whole, n);
    changed[n] = 0;
    write_file("rules.db", changed, n + 1);
    expect_set_aside(MEMORY, "damaged");
    write_file("rules.db", whole, n);
    p = open_rules(MEMORY, err, sizeof err);
    assert_string_equal(err, "");
    assert_int_equal(paths_known(p, 5), 5);
    assert_int_equal(p->ops->destroy(p), 0);
}

/* Whole files that say what cannot be: found out, and none of it is used, in a table of
 * the same size and of another. */
TEST_WITH(test_inconsistent, setup, teardown)
{
    static const struct {
        unsigned at; /* the first key is at 68 */
        unsigned size;
        uint64_t value;
    } cases[] = {
        {12, 4, 0},          /* no name */
        {12, 4, UINT32_MAX}, /* a name longer than the file */
        {24, 8, 0},          /* lines */
        {24, 8, 1},
        {24, 8, 1000},
        {24, 8, 16391}, /* as many as no table has */
        {24, 8, UINT64_MAX},
        {32, 8, 0}, /* keys */
        {32, 8, UINT64_MAX},
        {40, 8, 0}, /* pairs */
        {40, 8, UINT64_C(1) << 61},
        {68, 8, UINT64_MAX},                     /* a line */
        {76, 4, UINT32_MAX},                     /* a tag */
        {80, 4, 0},                              /* how many pairs a key has */
        {80, 4, 2},                              /* the next key is taken for one */
        {80, 4, 9},                              /* too many */
        {90, 2, 0},                              /* a count */
        {90, 2, 16},                             /* too high */
        {84, 8, UINT64_C(0xffffffff) << 32 | 1}, /* a block beyond all */
    };
    size_t n = save_some();

    assert_memory_equal(whole + 64, "disk", 4);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int other = 0; other < 2; other++) {
            uint64_t value = htole64(cases[i].value);

            memcpy(changed, whole, n);
            memcpy(changed + cases[i].at, &value, cases[i].size);
            seal_file(changed, n);
            write_file("rules.db", changed, n);
            expect_set_aside(MEMORY << other, "damaged");
        }
    /* The last key of all is wrong: those before it are not used either. */
    memcpy(changed, whole, n);
    memset(changed + n - 8 - 24, 0xff, 8);
    seal_file(changed, n);
    write_file("rules.db", changed, n);
    expect_set_aside(MEMORY, "damaged");
    /* A key that is there twice. */
    memcpy(changed, whole, n);
    if (changed[80] == 1 && changed[80 + 24] == 1) {
        memcpy(changed + 68 + 24, changed + 68, 12);
        seal_file(changed, n);
        write_file("rules.db", changed, n);
        expect_set_aside(MEMORY, "damaged");
    }
}

TEST_WITH(test_other_files, setup, teardown)
{
    size_t n = save_some();
    uint32_t btree = 0x053162;

    memcpy(changed, whole, n);
    changed[8] = 2; /* the version */
    seal_file(changed, n);
    write_file("rules.db", changed, n);
    expect_set_aside(MEMORY, "of format version 2, not 1");
    memcpy(changed, whole, n);
    memcpy(changed + 64, "tape", 4);
    seal_file(changed, n);
    write_file("rules.db", changed, n);
    expect_set_aside(MEMORY, "of another device (\"tape\", not \"disk\")");
    memcpy(changed, whole, n);
    changed[17] = 0x10; /* the block size */
    seal_file(changed, n);
    write_file("rules.db", changed, n);
    expect_set_aside(MEMORY, "of another block size (4096, not 16384)");
    /* What was saved before there was this format. */
    memset(changed, 0, 4096);
    memcpy(changed + 12, &btree, sizeof btree);
    write_file("rules.db", changed, 4096);
    expect_set_aside(MEMORY, "of policy quickmine, or of an earlier version");
}

static void save_on(int pipe)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    do {
        read_path(p, 1000, 20);
        read_path(p, 1000, 20);
    } while (!err[0] && p->ops->save(p) == 0 && write(pipe, "x", 1) == 1);
}

/* Killed at any moment, even while it saves: the next one starts with what was saved.
 */
TEST_WITH(test_killed, setup, teardown)
{
    char err[512];

    for (unsigned round = 0; round < 8; round++) {
        struct qm_prefetcher *p;

        kill_after(round + 1, save_on);
        p = open_rules(MEMORY, err, sizeof err);
        assert_string_equal(err, "");
        assert_int_equal(knows(p, 1000), 2);
        assert_int_equal(p->ops->destroy(p), 0);
        assert_false(exists("rules.db.new"));
    }
}

/* It is saved when asked to, if something has changed. */
TEST_WITH(test_in_passing, setup, teardown)
{
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);

    assert_int_equal(p->ops->save(p), 0);
    assert_false(exists("rules.db"));
    read_path(p, 1000, 20);
    read_path(p, 1000, 20);
    for (int again = 0; again < 3; again++)
        assert_int_equal(p->ops->save(p), 0);
    assert_int_equal(stats_of(p).saves, 1);
    assert_true(exists("rules.db"));
    read_path(p, 1000, 2); /* no pair is new, but a count is */
    assert_int_equal(p->ops->save(p), 0);
    assert_int_equal(stats_of(p).saves, 2);
    assert_int_equal(p->ops->destroy(p), 0);
    p = open_rules(MEMORY, err, sizeof err);
    assert_int_equal(knows(p, 1000), 2);
    assert_int_equal(p->ops->destroy(p), 0);
}

/* That it is not saved is said, and what was saved stays. */
TEST_WITH(test_full, setup, teardown)
{
    struct rlimit limit, small;
    char err[512];
    struct qm_prefetcher *p = open_rules(MEMORY, err, sizeof err);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);

    for (int again = 0; again < 3; again++)
        read_path(p, 1000, 20);
    assert_int_equal(p->ops->destroy(p), 0);
    p = open_rules(MEMORY, err, sizeof err);
    assert_string_equal(err, "");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){500, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    read_path(p, 1000, 20);
    assert_int_equal(p->ops->save(p), EFBIG);
    assert_int_equal(p->ops->save(p), EFBIG); /* it is tried again */
    int r = p->ops->destroy(p);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(r, EFBIG);
    p = open_rules(MEMORY, err, sizeof err);
    assert_string_equal(err, "");
    assert_int_equal(knows(p, 1000), 2);
    assert_int_equal(p->ops->destroy(p), 0);
    signal(SIGXFSZ, old);
}
