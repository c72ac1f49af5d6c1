/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules that survive a restart, and all that can be wrong with what was saved. */
#include "rules-in-dir.h"

#include <db.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "mining/quickmine/bdb.h"
#include "mining/quickmine/seal.h"
#include "model.h"

static void learn_some(struct qm_prefetcher *p, struct model *model, uint64_t seed)
{
    struct rng rng = {seed};
    for (int s = 0; s < 30; s++) {
        uint64_t blocks[40];
        size_t n = 3 + rng_below(&rng, 37);
        for (size_t i = 0; i < n; i++) {
            blocks[i] = rng_below(&rng, 15) << (rng_below(&rng, 2) * 40);
        }
        assert_int_equal(read_blocks(p, blocks, n), 0);
        if (model) {
            model_learn(model, blocks, n, 5);
        }
    }
}

static struct model model_of(const struct qm_mining_config *config)
{
    return (struct model){.max_prefix = config->max_prefix,
                          .max_suffix = config->max_suffix,
                          .grace = config->grace};
}

TEST_WITH(test_survives, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct model model = model_of(&config);
    for (uint64_t round = 1; round <= 4; round++) {
        struct qm_prefetcher *p = make_quickmine(&config);
        assert_same_rules(p, &model);
        learn_some(p, &model, round);
        assert_same_rules(p, &model);
        p->ops->destroy(p);
        assert_true(exists("rules.db"));
        assert_false(exists("rules.db.new"));
        assert_false(exists("rules.db.bad-1"));
    }
    model_free(&model);
}

/* What is in memory and what is in Berkeley DB, all is saved, and in its order of use.
 */
TEST_WITH(test_more_than_memory_survives, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    config.rules_pool = 64 << 10;
    config.max_prefix = 4000;
    struct model model = model_of(&config);
    struct rng rng = {31};
    for (int restart = 0; restart < 3; restart++) {
        struct qm_prefetcher *p = make_quickmine(&config);
        assert_same_rules(p, &model);
        for (int s = 0; s < 60; s++) {
            uint64_t blocks[40];
            for (size_t i = 0; i < 40; i++) {
                blocks[i] = rng_below(&rng, 100) << 30;
            }
            assert_int_equal(read_blocks(p, blocks, 40), 0);
            model_learn(&model, blocks, 40, 5);
        }
        assert_same_rules(p, &model);
        p->ops->destroy(p);
    }
    model_free(&model);
}

/* The order of use survives, too, that by matches included, and grace periods do. */
TEST_WITH(test_order_survives, setup, teardown)
{
    for (uint64_t round = 1; round <= 10; round++) {
        struct qm_mining_config config = config_for("disk");
        config.max_prefix = 60;
        struct model model = model_of(&config);
        struct rng rng = {round};
        for (int restart = 0; restart < 4; restart++) {
            struct qm_prefetcher *p = make_quickmine(&config);
            learn_some(p, &model, rng_next(&rng));
            for (int i = 0; i < 100; i++) {
                uint64_t a = rng_below(&rng, 15), b = rng_below(&rng, 15), is[4];
                uint64_t should[4];
                if (a != b) {
                    unsigned n = look_up(p, a, b, is, 4);
                    assert_int_equal(n, model_look_up(&model, a, b, should, 4));
                }
            }
            assert_same_rules(p, &model);
            p->ops->destroy(p);
        }
        /* With a smaller bound the most recent ones are left. */
        config.max_prefix = model.max_prefix = 10;
        while (model.n > 10) {
            model_evict(&model);
        }
        struct qm_prefetcher *p = make_quickmine(&config);
        assert_same_rules(p, &model);
        learn_some(p, &model, 99);
        assert_same_rules(p, &model);
        model_free(&model);
        p->ops->destroy(p);
        assert_int_equal(unlink(in_dir("rules.db")), 0);
    }
}

TEST_WITH(test_fewer_suffixes, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_prefetcher *p = make_quickmine(&config);
    for (uint64_t c = 10; c < 16; c++) {
        for (uint64_t i = 0; i < c; i++) {
            const uint64_t blocks[] = {1, 2, c};
            assert_int_equal(read_blocks(p, blocks, 3), 0);
        }
    }
    p->ops->destroy(p);
    config.max_suffix = 2;
    p = make_quickmine(&config);
    struct rule_list list = all_rules(p);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.v[0].c, 14);
    assert_int_equal(list.v[1].c, 15);
    assert_int_equal(list.v[1].support, 15);
    assert_int_equal(stats_of(p).rules, 2);
    free(list.v);
    p->ops->destroy(p);
}

TEST_WITH(test_unchanged_is_not_saved, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_prefetcher *p = make_quickmine(&config);
    p->ops->destroy(p);
    assert_false(exists("rules.db"));
    p = make_quickmine(&config);
    learn_some(p, NULL, 1);
    p->ops->destroy(p);
    struct stat before, after;
    assert_int_equal(stat(in_dir("rules.db"), &before), 0);
    assert_int_equal(before.st_mode & 0777, 0600);
    p = make_quickmine(&config);
    p->ops->destroy(p);
    assert_int_equal(stat(in_dir("rules.db"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

/* Creates with what is saved there: it must be set aside with a warning that says why.
 */
static void expect_set_aside(const struct qm_mining_config *config, const char *why)
{
    char err[1024] = "";
    struct qm_prefetcher *p;
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find("quickmine");
    assert_int_equal(unlink(in_dir("rules.db.bad-1")) == 0 || errno == ENOENT ||
                         rmdir(in_dir("rules.db.bad-1")) == 0,
                     1);
    assert_int_equal(ops->create(config, &p, err, sizeof err), 0);
    if (!strstr(err, why) || !strstr(err, "rules.db.bad-1")) {
        fail_msg("not \"%s\": \"%s\"", why, err);
    }
    assert_int_equal(stats_of(p).rules, 0);
    assert_true(exists("rules.db.bad-1"));
    assert_false(exists("rules.db"));
    p->ops->destroy(p);
}

static void save_some(const struct qm_mining_config *config)
{
    struct qm_prefetcher *p = make_quickmine(config);
    learn_some(p, NULL, 5);
    p->ops->destroy(p);
}

TEST_WITH(test_other, setup, teardown)
{
    struct qm_mining_config config = config_for("disk"), other = config_for("tape");
    save_some(&config);
    expect_set_aside(&other, "another device (\"disk\", not \"tape\")");

    other = config;
    other.block_size = 4096;
    save_some(&config);
    expect_set_aside(&other, "another block size (16384, not 4096)");

    /* Who does not say what it is for takes all. */
    save_some(&config);
    other.block_size = 0;
    other.rules_for = NULL;
    struct qm_prefetcher *p = make_quickmine(&other);
    assert_true(stats_of(p).rules > 0);
    p->ops->destroy(p);
}

/* Puts a record into the file as it is, or takes it out (size 0). */
static void change_record(const char *key, const void *data, size_t size)
{
    DB *db;
    DBT k = {.data = (void *)key, .size = (u_int32_t)strlen(key)};
    DBT d = {.data = (void *)data, .size = (u_int32_t)size};
    assert_int_equal(db_create(&db, NULL, 0), 0);
    assert_int_equal(
        db->open(db, NULL, in_dir("rules.db"), NULL, DB_BTREE, DB_CREATE, 0600), 0);
    assert_int_equal(size ? db->put(db, NULL, &k, &d, 0) : db->del(db, NULL, &k, 0), 0);
    assert_int_equal(db->close(db, 0), 0);
    int fd = open(in_dir("rules.db"), O_RDWR);
    assert_int_equal(qm_seal_check(fd), EINVAL);
    assert_int_equal(qm_seal(fd), 0);
    assert_int_equal(qm_seal_check(fd), 0);
    close(fd);
}

static size_t read_record(const char *key, unsigned char *buf, size_t max)
{
    DB *db;
    DBT k = {.data = (void *)key, .size = (u_int32_t)strlen(key)};
    DBT d = {.data = buf, .ulen = (u_int32_t)max, .flags = DB_DBT_USERMEM};
    assert_int_equal(db_create(&db, NULL, 0), 0);
    assert_int_equal(
        db->open(db, NULL, in_dir("rules.db"), NULL, DB_BTREE, DB_RDONLY, 0), 0);
    assert_int_equal(db->get(db, NULL, &k, &d, 0), 0);
    assert_int_equal(db->close(db, 0), 0);
    return d.size;
}

TEST_WITH(test_other_format, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    unsigned char meta[256];
    save_some(&config);
    size_t size = read_record("\xff", meta, sizeof meta);
    assert_memory_equal(meta, "QMRULES\n", 8);
    meta[8]++; /* the version */
    change_record("\xff", meta, size);
    expect_set_aside(&config, "of format version 2, not 1");

    save_some(&config);
    change_record("\xff", meta, 20);
    expect_set_aside(&config, "not a rule cache");

    save_some(&config);
    change_record("\xff", NULL, 0);
    expect_set_aside(&config, "not a rule cache");

    /* A count that is wrong, a prefix that is none, a record that is none. */
    save_some(&config);
    meta[8]--;
    meta[24]++;
    change_record("\xff", meta, size);
    expect_set_aside(&config, "damaged");

    save_some(&config);
    change_record("\x01", "12345678abcdef", 14);
    expect_set_aside(&config, "damaged");

    save_some(&config);
    change_record("\x01\x09\x01\x08", "12345678\x01\x03\x01", 11);
    expect_set_aside(&config, "damaged");
}

/* What another policy has saved is set aside, by either of them. */
TEST_WITH(test_other_policy, setup, teardown)
{
    static const uint64_t blocks[] = {3, 1, 4, 15, 9};
    struct qm_mining_config config = config_for("disk");
    const struct qm_prefetcher_ops *ppm = qm_prefetcher_find("ppm");
    struct qm_prefetcher *p;
    char err[1024];
    save_some(&config);
    assert_int_equal(ppm->create(&config, &p, err, sizeof err), 0);
    if (!strstr(err, "of policy quickmine, or of an earlier version")) {
        fail_msg("\"%s\"", err);
    }
    assert_true(exists("rules.db.bad-1"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read_blocks(p, blocks, 5), 0);
    }
    assert_int_equal(p->ops->destroy(p), 0);
    assert_true(exists("rules.db"));
    expect_set_aside(&config, "of policy ppm");
}

TEST_WITH(test_garbage, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    char garbage[20000];
    struct rng rng = {11};
    for (size_t i = 0; i < sizeof garbage; i++) {
        garbage[i] = (char)rng_next(&rng);
    }
    write_file("rules.db", "", 0);
    expect_set_aside(&config, "damaged");
    write_file("rules.db", garbage, 1);
    expect_set_aside(&config, "damaged");
    write_file("rules.db", garbage, sizeof garbage);
    expect_set_aside(&config, "damaged");

    /* Berkeley DB's, but not sealed, and then not a B-tree. */
    DB *db;
    assert_int_equal(db_create(&db, NULL, 0), 0);
    assert_int_equal(
        db->open(db, NULL, in_dir("rules.db"), NULL, DB_HASH, DB_CREATE, 0600), 0);
    assert_int_equal(db->close(db, 0), 0);
    int fd = open(in_dir("rules.db"), O_RDWR);
    assert_int_equal(qm_seal(fd), 0);
    close(fd);
    expect_set_aside(&config, "damaged");

    assert_int_equal(mkdir(in_dir("rules.db"), 0700), 0);
    expect_set_aside(&config, "not a file");
    assert_int_equal(mkfifo(in_dir("rules.db"), 0600), 0);
    expect_set_aside(&config, "not a file");
    assert_int_equal(symlink("/dev/zero", in_dir("rules.db")), 0);
    expect_set_aside(&config, "not a file");
}

/* Any byte changed, any length cut: found out, and never does it get further. */
TEST_WITH(test_damaged, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct rng rng = {12};
    save_some(&config);
    FILE *f = fopen(in_dir("rules.db"), "r");
    static unsigned char whole[1 << 20], damaged[1 << 20];
    assert_non_null(f);
    size_t n = fread(whole, 1, sizeof whole, f);
    assert_true(n > 4 * QM_BDB_PAGE && n < sizeof whole);
    assert_int_equal(fclose(f), 0);
    for (int i = 0; i < 60; i++) {
        memcpy(damaged, whole, n);
        /* The first page, which says what the others are, most of all. */
        size_t at = rng_below(&rng, i % 2 ? n : QM_BDB_PAGE);
        damaged[at] ^= (unsigned char)(1 + rng_below(&rng, 255));
        write_file("rules.db", damaged, n);
        expect_set_aside(&config, "damaged");
    }
    for (int i = 0; i < 20; i++) {
        size_t at =
            i % 2 ? rng_below(&rng, n) : rng_below(&rng, n / QM_BDB_PAGE) * 4096;
        write_file("rules.db", whole, at);
        expect_set_aside(&config, "damaged");
    }
    for (int i = 0; i < 20; i++) {
        memcpy(damaged, whole, n);
        memset(damaged + rng_below(&rng, n / 4096) * 4096, 0, 4096);
        write_file("rules.db", damaged, n);
        expect_set_aside(&config, "damaged");
    }
    /* It is the damage: without, all is well. */
    write_file("rules.db", whole, n);
    struct qm_prefetcher *p = make_quickmine(&config);
    assert_true(stats_of(p).rules > 0);
    p->ops->destroy(p);
}

TEST_WITH(test_set_aside_is_bounded, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    for (int i = 1; i <= 12; i++) {
        char err[1024], name[32];
        struct qm_prefetcher *p;
        char content = (char)i;
        write_file("rules.db", &content, 1);
        assert_int_equal(
            qm_prefetcher_find("quickmine")->create(&config, &p, err, sizeof err), 0);
        snprintf(name, sizeof name, "rules.db.bad-%d", i < 9 ? i : 9);
        assert_non_null(strstr(err, name));
        p->ops->destroy(p);
    }
    FILE *f = fopen(in_dir("rules.db.bad-9"), "r");
    assert_non_null(f);
    assert_int_equal(fgetc(f), 12);
    fclose(f);
    assert_false(exists("rules.db.bad-10"));
}

static void expect_error(const char *name, int error, const char *says)
{
    char err[1024] = "";
    struct qm_prefetcher *p;
    struct qm_mining_config config = config_for("disk");
    config.rules_dir = name;
    int r = qm_prefetcher_find("quickmine")->create(&config, &p, err, sizeof err);
    if ((error != 0 && r != error) || r == 0 || !strstr(err, says) ||
        !strstr(err, name)) {
        fail_msg("%d, \"%s\"", r, err);
    }
}

TEST_WITH(test_bad_directory, setup, teardown)
{
    write_file("file", "x", 1);
    expect_error(in_dir("file"), ENOTDIR, "is not a directory");
    expect_error(in_dir("file/below"), ENOTDIR, "cannot make");
    expect_error(in_dir("missing/below"), ENOENT, "cannot make");
    expect_error("/proc", 0, "cannot write into"); /* not even root can */
    char name[5000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    struct qm_prefetcher *p;
    char err[64];
    struct qm_mining_config config = config_for("disk");
    config.rules_dir = name;
    assert_int_equal(
        qm_prefetcher_find("quickmine")->create(&config, &p, err, sizeof err),
        ENAMETOOLONG);
    /* What is in the way of saving is found out at once. */
    assert_int_equal(mkdir(in_dir("rules.db.new"), 0700), 0);
    expect_error(dir, 0, "cannot write into");
}

TEST_WITH(test_in_use, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_prefetcher *p = make_quickmine(&config);
    expect_error(dir, EBUSY, "in use by another server");
    p->ops->destroy(p);
    p = make_quickmine(&config);
    p->ops->destroy(p);
}

/* The directory is made; and a server that changes its own still finds it. */
TEST_WITH(test_relative, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(here >= 0);
    assert_int_equal(chdir(dir), 0);
    config.rules_dir = "rules";
    struct qm_prefetcher *p = make_quickmine(&config);
    assert_int_equal(chdir("/"), 0);
    learn_some(p, NULL, 1);
    p->ops->destroy(p);
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_true(exists("rules/rules.db"));
    assert_int_equal(unlink(in_dir("rules/rules.db")), 0);
}

/* What a server that was killed left behind is in nobody's way. */
TEST_WITH(test_left_behind, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    write_file("rules.db.new", "x", 1);
    write_file("__db.rules.db.new", "x", 1);
    save_some(&config);
    struct qm_prefetcher *p = make_quickmine(&config);
    assert_true(stats_of(p).rules > 0);
    p->ops->destroy(p);
    assert_false(exists("rules.db.new"));
    assert_false(exists("__db.rules.db.new"));
}

/* Something, and saves it. */
static int learn_much(struct qm_prefetcher *p)
{
    static const uint64_t once[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    int r = 0;
    for (int i = 0; i < 400 && r == 0; i++) {
        r = read_blocks(p, once, 10);
    }
    (void)p->ops->save(p);
    return r;
}

static int no_sleep(unsigned long seconds, unsigned long microseconds)
{
    return 0;
}

/* The disk is full, so to speak: what was saved stays, and the server goes on. */
TEST_WITH(test_save_fails, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_prefetcher *p = make_quickmine(&config);
    struct model model = model_of(&config);
    learn_some(p, &model, 1);
    p->ops->destroy(p);

    assert_int_equal(db_env_set_func_yield(no_sleep), 0);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){6000, limit.rlim_max};
    p = make_quickmine(&config);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int r = learn_much(p);
    struct qm_mining_stats stats = stats_of(p);
    int last = p->ops->destroy(p); /* which tries, too */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(r, 0);
    assert_int_equal(last, EFBIG);
    assert_int_equal(stats.failed, 0);
    assert_true(stats.save_errors > 0);
    assert_int_equal(stats.saves, 0);
    assert_false(exists("rules.db.new"));
    assert_false(exists("__db.rules.db.new"));

    p = make_quickmine(&config);
    assert_same_rules(p, &model);
    assert_int_equal(learn_much(p), 0);
    assert_true(stats_of(p).saves > 0);
    assert_int_equal(stats_of(p).save_errors, 0);
    assert_int_equal(p->ops->destroy(p), 0);
    signal(SIGXFSZ, old);
    model_free(&model);
}

static void save_on(int pipe)
{
    struct qm_mining_config config = config_for("disk");
    struct qm_mining_stats stats = {0};
    struct qm_prefetcher *p;
    char err[1024];
    if (qm_prefetcher_find("quickmine")->create(&config, &p, err, sizeof err)) {
        return;
    }
    do {
        learn_much(p);
        stats = stats_of(p);
    } while (stats.save_errors == 0 && (stats.saves == 0 || write(pipe, "x", 1) == 1));
}

/* Killed at any moment, even while it saves: the next one starts with what was saved.
 */
TEST_WITH(test_killed, setup, teardown)
{
    struct qm_mining_config config = config_for("disk");
    for (unsigned round = 0; round < 8; round++) {
        kill_after(round + 1, save_on);
        struct qm_prefetcher *p = make_quickmine(&config); /* no warning */
        assert_int_equal(stats_of(p).prefixes, 9 + 8 + 7 - 3);
        p->ops->destroy(p);
    }
}
