/* SPDX-License-Identifier: BSD-3-Clause */
/* test-faults.c - a person's mistakes, foreign and damaged files, disks that refuse.
 *
 * Linked with --wrap for pwrite64 and fdatasync, which the log calls, and for LMDB's
 * commit. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "rowcache/store/store.h"

#include "faults.h"

static int refuses;      /* with this error, or 0 */
static bool only_syncs;  /* writes are carried out */
static off64_t least;    /* so are writes before this offset */
static const char *only; /* of the file with that name: all else is carried out */

static bool is_refused(int fd)
{
    char link[40], path[200];
    ssize_t n;

    if (refuses == 0 || !only)
        return refuses != 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path);
    return n > (ssize_t)strlen(only) &&
           memcmp(path + n - strlen(only), only, strlen(only)) == 0;
}

ssize_t __real_pwrite64(int fd, const void *buf, size_t count, off64_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t count, off64_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

ssize_t __wrap_pwrite64(int fd, const void *buf, size_t count, off64_t offset)
{
    if (!is_refused(fd) || only_syncs || offset < least)
        return __real_pwrite64(fd, buf, count, offset);
    errno = refuses;
    return -1;
}

int __wrap_fdatasync(int fd)
{
    if (!is_refused(fd))
        return __real_fdatasync(fd);
    errno = refuses;
    return -1;
}

#ifdef QM_STORE_LMDB
static unsigned commits; /* which of LMDB's commits is refused: 1 is the next, 0 none */

int __real_mdb_txn_commit(void *txn);
int __wrap_mdb_txn_commit(void *txn);
void mdb_txn_abort(void *txn);

int __wrap_mdb_txn_commit(void *txn)
{
    if (commits == 0 || --commits > 0)
        return __real_mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return EIO;
}

/* In QMSTORE_NONE, LMDB has a transaction for each page.  One that is refused is not
 * forgotten for those behind it: what it should have written stays in the buffer. */
TEST_WITH(test_part_refused, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    struct qmstore *s;
    unsigned n = 0;
    int r = 0;

    c.disk = "lmdb";
    c.durability = QMSTORE_NONE;
    c.disk_cache = 1;
    s = open_ok(&c);
    for (commits = 3; n < 2000 && r == 0; n++)
        r = qmstore_put(s, &n, sizeof n, big, sizeof big, 0);
    assert_int_equal(r, EIO);
    assert_int_equal(commits, 0);
    assert_int_equal(count(s, n - 1), n - 1);
    assert_int_equal(qmstore_flush(s), 0);
    assert_int_equal(qmstore_close(s), 0);
    s = open_ok(&c);
    assert_int_equal(count(s, n - 1), n - 1);
    assert_int_equal(qmstore_close(s), 0);
}
#endif

static void expect_refused(const struct qmstore_config *c, int error, const char *says)
{
    struct qmstore *s = NULL;
    char err[400] = "";
    int r = qmstore_open(c, &s, err, sizeof err);

    if (r != error || !strstr(err, says))
        fail_msg("%d '%s', not %d '%s'", r, err, error, says);
}

TEST_WITH(test_mistakes, make_test_dir, remove_test_dir)
{
    struct qmstore_config c;
    char path[128];
    FILE *f;

#define REFUSED(member, what, says)                                                    \
    do {                                                                               \
        c = config();                                                                  \
        c.member = what;                                                               \
        expect_refused(&c, EINVAL, says);                                              \
    } while (0)
    REFUSED(path, "", "needs a directory");
    REFUSED(partitions, 0, "from 1 to 256");
    REFUSED(partitions, 257, "from 1 to 256");
    REFUSED(partitions, 2, "each of 2 partitions needs 1 MiB");
    REFUSED(policy, "fifo", "there are lru, mru, lfu and wtinylfu");
    REFUSED(disk, "mapdb", "there are bdb, lmdb and files");
    REFUSED(false_positives, 1, "below 1");
    REFUSED(write_buffer, 1 << 20, "too large");
    REFUSED(log_buffer, 1 << 20, "too large");
    c = config();
    snprintf(path, sizeof path, "%s/file", test_dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("a person's", f);
    fclose(f);
    expect_refused(&c, ENOTEMPTY, "nothing was changed"); /* the file lies there */
    c.path = path;
    expect_refused(&c, ENOTDIR, "file");
    c.path = "/proc/none/store";
    expect_refused(&c, ENOENT, "/proc/none/store");
    assert_int_equal(unlink(path), 0);
}

TEST_WITH(test_other_settings, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config();

    c.disk = "lmdb";
    assert_int_equal(qmstore_close(open_ok(&c)), 0);
    c.disk = "files";
    expect_refused(&c, EINVAL, "made with 1 partitions and the disk layer lmdb");
    c.disk = "lmdb";
    c.memory = 8 << 20;
    c.partitions = 4;
    expect_refused(&c, EINVAL, "not with 4");
    c.partitions = 1;
    c.policy = "lru"; /* may change, and so may the rest */
    assert_int_equal(qmstore_close(open_ok(&c)), 0);
}

TEST_WITH(test_two_processes, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    struct qmstore *s = open_ok(&c);
    pid_t child = fork();

    if (child == 0) {
        struct qmstore *other;
        char err[400];
        int r = qmstore_open(&c, &other, err, sizeof err);

        _exit(r == EBUSY && strstr(err, "another process") ? 0 : 1);
    }
    child_ends_well(child);
    expect_refused(&c, EBUSY, "another process"); /* nor twice in one */
    assert_int_equal(qmstore_close(s), 0);
}

/* What a process does whose disk refuses for a while, and that then ends as if killed.
 * Returns what was wrong, or 0. */
static int meet_refusals(const struct qmstore_config *c, int error, bool syncs)
{
    struct qmstore *s = open_ok(c);
    unsigned key = 5000;
    int r = 0;

    fill(s, 0, 1000);
    refuses = error;
    only_syncs = syncs;
    for (unsigned i = 0; i < 100 && r == 0; i++)
        r = qmstore_put(s, &key, sizeof key, big, sizeof big, 0);
    if (r != error)
        return 1;
    if (stats_of(s).error != error)
        return 2;
    for (unsigned i = 0; i < 1000; i++) { /* memory and disk go on serving */
        r = qmstore_get(s, &i, sizeof i, NULL, NULL, NULL);
        if (r != 0)
            return 3;
    }
    refuses = 0;
    if (syncs && (qmstore_flush(s) != 0 || stats_of(s).error != 0))
        return 6; /* it begins the log anew, as a change does */
    key++;
    if (qmstore_put(s, &key, sizeof key, big, 100, 0) != 0)
        return 4;
    if (qmstore_flush(s) != 0 || stats_of(s).error != 0)
        return 5;
    return 0;
}

/* Changes fail with the disk's error, what is there is served, when the disk takes
 * writes again all goes on, and nothing acknowledged is lost. */
TEST_WITH(test_refusals, make_test_dir, remove_test_dir)
{
    static const int errors[] = {ENOSPC, EIO, EROFS};

    for (unsigned e = 0; e < 3; e++) {
        for (int durability = QMSTORE_SYNC; durability <= QMSTORE_LAZY; durability++) {
            struct qmstore_config c = config();
            unsigned key = 5001;
            struct qmstore *s;
            int status;
            pid_t child;

            remove_below(test_dir);
            c.durability = (enum qmstore_durability)durability;
            child = fork();
            if (child == 0)
                _exit(
                    meet_refusals(&c, errors[e], e == 1 && durability == QMSTORE_SYNC));
            assert_int_equal(waitpid(child, &status, 0), child);
            if (status != 0)
                fail_msg("error %d, durability %d: %x", errors[e], durability, status);
            s = open_ok(&c);
            assert_int_equal(count(s, 1000), 1000);
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL), 0);
            assert_int_equal(qmstore_close(s), 0);
        }
    }
}

/* Who is told that the store was closed finds it so: in QMSTORE_NONE, a partition whose
 * state does not say that is set aside. */
TEST_WITH(test_state_refused, make_test_dir, remove_test_dir)
{
    for (unsigned error = 0; error < 2; error++) {
        struct qmstore_config c = config();
        struct qmstore *s;

        remove_below(test_dir);
        message[0] = 0;
        c.durability = QMSTORE_NONE;
        s = open_ok(&c);
        fill(s, 0, 10);
        refuses = error ? EIO : 0;
        only = "/state";
        assert_int_equal(qmstore_close(s), refuses);
        refuses = 0;
        only = NULL;
        s = open_ok(&c);
        assert_int_equal(count(s, 10), error ? 0 : 10);
        assert_int_equal(message[0] != 0, error);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A change that fills the log's buffer by itself is synced, too. */
TEST_WITH(test_large_not_synced, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    unsigned key = 1;
    struct qmstore *s;

    c.durability = QMSTORE_SYNC;
    c.log_buffer = sizeof big / 2;
    s = open_ok(&c);
    refuses = EIO;
    only_syncs = true;
    assert_int_equal(qmstore_put(s, &key, sizeof key, big, sizeof big, 0), EIO);
    refuses = 0;
    only_syncs = false;
    assert_int_equal(qmstore_close(s), 0);
}

/* A new log that has no room: the old one goes on, with what is in its buffer. */
static int go_on(const struct qmstore_config *c)
{
    struct qmstore *s = open_ok(c);

    fill(s, 0, 5);
    refuses = ENOSPC;
    only = "/log.new";
    least = 1; /* it begins well */
    if (store_checkpoint(&s->partitions[0]) != ENOSPC)
        return 1;
    if (exists("0/log.new"))
        return 2;
    fill(s, 5, 10);
    return qmstore_flush(s) != 0 || stats_of(s).error != 0 ? 3 : 0;
}

TEST_WITH(test_new_log_refused, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config();
    struct qmstore *s;
    pid_t child;

    fflush(NULL);
    if ((child = fork()) == 0)
        _exit(go_on(&c));
    child_ends_well(child);
    s = open_ok(&c);
    assert_int_equal(count(s, 10), 10);
    assert_int_equal(stats_of(s).lost, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* Keys that were deleted stay so when the log is begun anew after it has failed: it
 * then has what is in the write buffer, too. */
static int delete_and_fail(const struct qmstore_config *c)
{
    struct qmstore *s = open_ok(c);
    unsigned key;

    fill(s, 0, 1000);
    for (key = 0; key < 20; key++)
        if (qmstore_delete(s, &key, sizeof key) != 0)
            return 1;
    key = 5000;
    refuses = EIO;
    for (unsigned i = 0; i < 100; i++)
        if (qmstore_put(s, &key, sizeof key, big, sizeof big, 0) == EIO)
            break;
    refuses = 0;
    if (stats_of(s).error != EIO)
        return 2;
    return qmstore_put(s, &key, sizeof key, big, 100, 0) || qmstore_flush(s) ? 3 : 0;
}

TEST_WITH(test_deleted_before_refusal, make_test_dir, remove_test_dir)
{
    for (int durability = QMSTORE_SYNC; durability <= QMSTORE_LAZY; durability++) {
        struct qmstore_config c = config();
        struct qmstore *s;
        int status;
        pid_t child;

        remove_below(test_dir);
        c.durability = (enum qmstore_durability)durability;
        if ((child = fork()) == 0)
            _exit(delete_and_fail(&c));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            fail_msg("durability %d: %x", durability, status);
        s = open_ok(&c);
        for (unsigned key = 0; key < 1000; key++)
            assert_int_equal(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL),
                             key < 20 ? ENOENT : 0);
        assert_int_equal(qmstore_close(s), 0);
    }
}

static void overwrite(const char *name, off_t offset)
{
    char path[160];
    int fd;

    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    fd = open(path, O_RDWR);
    assert_true(fd != -1);
    assert_int_equal(pwrite(fd, "\xff\x00\xff\x00 damage", 11, offset), 11);
    close(fd);
}

/* A damaged partition is set aside as a whole, and the store goes on without. */
TEST_WITH(test_damage, make_test_dir, remove_test_dir)
{
    for (unsigned i = 0; i < 4; i++) {
        struct qmstore_config c = config();
        struct qmstore *s;
        char path[160];

        remove_below(test_dir);
        message[0] = 0;
        c.disk = "lmdb";
        s = open_ok(&c);
        fill(s, 0, 1000);
        assert_int_equal(qmstore_close(s), 0);
        if (i < 2) {
            overwrite("0/log", i == 0 ? 0 : 200);
        } else if (i == 2) {
            snprintf(path, sizeof path, "%s/0/log", test_dir);
            assert_int_equal(truncate(path, 10), 0);
        } else { /* LMDB has two such pages */
            overwrite("0/disk/data.mdb", 16);
            overwrite("0/disk/data.mdb", 4096 + 16);
        }
        s = open_ok(&c);
        if (!strstr(message, "set aside as 0.damaged"))
            fail_msg("damage %u: '%s'", i, message);
        assert_true(exists("0.damaged/log") && exists("0.damaged/disk"));
        assert_int_equal(stats_of(s).keys, 0);
        fill(s, 0, 10);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* A log that ends in the middle of a record, as a process that is killed may leave it,
 * loses that record and what would follow, and says so. */
TEST_WITH(test_torn, make_test_dir, remove_test_dir)
{
    for (unsigned cut = 1; cut < 4000; cut += 333) {
        struct qmstore_config c = config();
        unsigned lost = (cut + 2043) / 2044; /* records of 40 bytes, key and value */
        struct qmstore *s;
        struct stat st;
        char path[160];

        remove_below(test_dir);
        message[0] = 0;
        s = open_ok(&c);
        fill(s, 0, 10);
        assert_int_equal(qmstore_close(s), 0);
        snprintf(path, sizeof path, "%s/0/log", test_dir);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, st.st_size - cut), 0);
        s = open_ok(&c);
        assert_int_equal(count(s, 10), 10 - lost);
        assert_non_null(strstr(message, "are lost"));
        assert_int_equal(stats_of(s).lost, lost);
        assert_int_equal(qmstore_close(s), 0);
    }
}

/* The same in the middle of a batch: none of it is there, all before it is, and the
 * partition is not taken for damaged, however many whole records of the batch there
 * are. */
TEST_WITH(test_torn_batch, make_test_dir, remove_test_dir)
{
    enum { CHANGES = 6, BEFORE = 10 };

    for (unsigned cut = 1; cut < CHANGES * 2044; cut += 1700) {
        struct qmstore_change changes[CHANGES];
        struct qmstore_config c = config();
        unsigned keys[CHANGES];
        struct qmstore *s;
        struct stat st;
        char path[160];
        pid_t child;

        remove_below(test_dir);
        message[0] = 0;
        for (unsigned i = 0; i < CHANGES; i++) {
            keys[i] = BEFORE + i;
            changes[i] =
                (struct qmstore_change){&keys[i], big, sizeof keys[i], sizeof big, 0};
        }
        child = fork();
        if (child == 0) {
            s = open_ok(&c);
            fill(s, 0, BEFORE);
            if (qmstore_batch(s, changes, CHANGES) != 0 || qmstore_flush(s) != 0)
                _exit(1);
            _exit(0); /* as if killed */
        }
        child_ends_well(child);
        snprintf(path, sizeof path, "%s/0/log", test_dir);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, st.st_size - cut), 0);
        s = open_ok(&c);
        if (count(s, BEFORE + CHANGES) != BEFORE)
            fail_msg("cut by %u: %u keys; '%s'", cut, count(s, BEFORE + CHANGES),
                     message);
        assert_non_null(strstr(message, "are lost"));
        assert_int_equal(stats_of(s).lost, CHANGES);
        assert_int_equal(qmstore_close(s), 0);
    }
}
