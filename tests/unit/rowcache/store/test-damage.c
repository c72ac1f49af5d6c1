/* SPDX-License-Identifier: BSD-3-Clause */
/* test-damage.c - damaged pages of LMDB and Berkeley DB.
 *
 * A store that was closed has bytes, pages or a file's end changed at random, again and
 * again.  Opening it must not end the process, no value may be another than the newest,
 * and no key may be missing without a word: its partition was set aside, or its record
 * is reported.  What is written then is found.
 *
 *   store-damage [ROUNDS [SEED]]      of each layer */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "testing.h"

enum { KEYS = 6000, LARGE = 200, LARGEST = 9000, FILES = 16, PAGE = 4096 };

static unsigned rounds = 60;
static uint64_t seed = 1;
static unsigned warnings;

static void warn(void *opaque, const char *text)
{
    warnings++;
}

static struct file {
    char path[160];
    char *bytes;
    size_t len;
} files[FILES];
static unsigned file_count;

static int keep(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    struct file *f = &files[file_count];
    int fd;

    if (type != FTW_F)
        return 0;
    assert_true(file_count < FILES);
    file_count++;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->len = (size_t)st->st_size;
    f->bytes = malloc(f->len + 1);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, f->bytes, f->len), f->len);
    return close(fd);
}

static void put_back(void)
{
    char path[100];

    remove_below(test_dir);
    mkdir(test_dir, 0700);
    snprintf(path, sizeof path, "%s/0", test_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/0/disk", test_dir);
    mkdir(path, 0700);
    for (unsigned i = 0; i < file_count; i++) {
        int fd = open(files[i].path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        assert_int_equal(write(fd, files[i].bytes, files[i].len), files[i].len);
        close(fd);
    }
}

static size_t value_of(uint32_t key, char *value)
{
    size_t len = key % LARGE == 7 ? LARGEST : 20 + key % 60;

    for (size_t i = 0; i < len; i++)
        value[i] = (char)(key * 31 + i * (key % 5 + 1));
    return len;
}

static struct qmstore_config config(const char *disk)
{
    struct qmstore_config c = small_config();

    c.write_buffer = 8 << 10;
    c.policy = "lru";
    c.disk = disk;
    c.warn = warn;
    return c;
}

static void make(const struct qmstore_config *c)
{
    struct qmstore *s = open_ok(c);
    char value[LARGEST];

    for (unsigned round = 0; round < 2; round++)
        for (uint32_t key = 0; key < KEYS; key++)
            assert_int_equal(
                qmstore_put(s, &key, sizeof key, value, value_of(key, value), 0), 0);
    for (uint32_t key = 0; key < KEYS; key += 9)
        assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
    assert_true(stats_of(s).disk_keys > KEYS / 4);
    assert_int_equal(qmstore_close(s), 0);
    while (file_count > 0)
        free(files[--file_count].bytes);
    nftw(test_dir, keep, 16, FTW_PHYS);
}

/* Of the disk layer's data, rather than of its log. */
static const struct file *choose(void)
{
    const struct file *f;

    do
        f = &files[rnd_below(&seed, file_count)];
    while (!strstr(f->path, "/disk/") || f->len == 0 ||
           (strstr(f->path, "/log.") && rnd(&seed) % 4));
    return f;
}

static void damage(void)
{
    const struct file *f = choose();
    size_t pages = (f->len + PAGE - 1) / PAGE, page = rnd_below(&seed, pages);
    /* Headers, and what is behind them, are hit more often. */
    size_t at =
        page * PAGE + (rnd(&seed) % 2 ? rnd_below(&seed, 64) : rnd_below(&seed, PAGE));
    char bytes[PAGE] = {0};
    size_t len = rnd(&seed) % 3 ? 1 : 1 + rnd_below(&seed, 32);
    int fd = open(f->path, O_WRONLY);

    if (rnd(&seed) % 4 == 0) /* and the first pages */
        at %= 4 * PAGE;
    at %= f->len;
    switch (rnd_below(&seed, 10)) {
    case 0: /* a page is another */
        at = page * PAGE;
        len = f->len - at < PAGE ? f->len - at : PAGE;
        memcpy(bytes, f->bytes + rnd_below(&seed, pages) * PAGE, len);
        break;
    case 1: /* or zeros */
        at = page * PAGE;
        len = PAGE;
        break;
    case 2:
        assert_int_equal(ftruncate(fd, (off_t)at), 0);
        len = 0;
        break;
    default:
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)rnd(&seed);
    }
    if (len > f->len - at)
        len = f->len - at;
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    close(fd);
}

static unsigned walked;

static int see(void *opaque, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t expires)
{
    char want[LARGEST];
    uint32_t k;

    memcpy(&k, key, sizeof k);
    walked++;
    return key_len == sizeof k && k < KEYS && k % 9 != 0 &&
                   value_of(k, want) == value_len && memcmp(value, want, value_len) == 0
               ? 0
               : -1;
}

/* What is wrong, or NULL. */
static const char *look(const struct qmstore_config *c)
{
    char want[LARGEST], err[400];
    unsigned missing = 0;
    struct qmstore *s;
    uint32_t key;

    if (qmstore_open(c, &s, err, sizeof err) != 0)
        return "it does not open";
    if (qmstore_each(s, see, NULL) != 0)
        return "a walk finds what is not there";
    for (key = 0; key < KEYS; key++) {
        size_t len, want_len = value_of(key, want);
        void *value = NULL;
        int r = qmstore_get(s, &key, sizeof key, &value, &len, NULL);

        if (r == 0 &&
            (key % 9 == 0 || len != want_len || memcmp(value, want, len) != 0))
            return "a value is wrong";
        missing += r != 0 && key % 9 != 0;
        free(value);
        if (r != 0 && r != ENOENT && r != EBADMSG)
            return "another error";
    }
    if (missing > 0 && warnings == 0)
        return "keys are missing without a word";
    for (key = 0; key < KEYS; key += 2)
        if (qmstore_put(s, &key, sizeof key, want, value_of(key, want), 0) != 0)
            return "a key cannot be put";
    if (qmstore_close(s) != 0 || qmstore_open(c, &s, err, sizeof err) != 0)
        return "it does not close or open again";
    for (key = 0; key < KEYS; key += 2)
        if (qmstore_get(s, &key, sizeof key, NULL, NULL, NULL) != 0)
            return "a key that was put is missing";
    return qmstore_close(s) ? "it does not close" : NULL;
}

static unsigned told; /* rounds with warnings */

static void try(const struct qmstore_config *c)
{
    const char *wrong;
    int status, fds[2];
    pid_t pid;
    char said[100] = "";

    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    if ((pid = fork()) == 0) {
        warnings = 0;
        wrong = look(c);
        if (wrong)
            (void)!write(fds[1], wrong, strlen(wrong));
        _exit(wrong ? 1 : warnings > 0 ? 2 : 0);
    }
    close(fds[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)!read(fds[0], said, sizeof said - 1);
    close(fds[0]);
    if (!WIFEXITED(status))
        fail_msg("%s, seed %llu: ended by signal %d", c->disk, (unsigned long long)seed,
                 WTERMSIG(status));
    if (WEXITSTATUS(status) == 1)
        fail_msg("%s, seed %llu: %s", c->disk, (unsigned long long)seed, said);
    told += WEXITSTATUS(status) == 2;
}

TEST_WITH(test_damage, make_memory_dir, remove_test_dir)
{
    static const char *const disks[] = {"lmdb", "bdb"};

    for (unsigned d = 0; d < 2; d++) {
        struct qmstore_config c = config(disks[d]);

        remove_below(test_dir);
        make(&c);
        told = 0;
        try(&c); /* as it was */
        assert_int_equal(told, 0);
        for (unsigned i = 0; i < rounds; i++) {
            put_back();
            for (unsigned n = 1 + rnd(&seed) % 3; n > 0; n--)
                damage();
            try(&c);
        }
        printf("%s: %u of %u damages were told\n", disks[d], told, rounds);
        assert_true(told > rounds / 4);
    }
}

static void put_byte(const char *file, off_t at, uint8_t byte)
{
    char path[160];
    int fd;

    snprintf(path, sizeof path, "%s/0/disk/%s", test_dir, file);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Damages of a byte that were met: the partition is set aside. */
TEST_WITH(test_bytes, make_memory_dir, remove_test_dir)
{
    static const struct {
        const char *disk, *file;
        off_t at;
        uint8_t byte;
    } damages[] = {
        {"lmdb", "data.mdb", 20, 2},         /* the format's version, in */
        {"lmdb", "data.mdb", PAGE + 23, 1},  /* one meta page of two */
        {"bdb", "records", 21, 0},           /* pages of no bytes */
        {"bdb", "records", 23, 1},           /* or of 16 MiB */
        {"bdb", "records", 25, 10},          /* a hash's first page */
        {"bdb", "records", 26, 1},           /* checksums, and there are none */
        {"bdb", "records", 48, 0x80},        /* a tree of another kind */
        {"bdb", "log.0000000001", 3332, 'x'} /* the log ends before its pages */
    };
    const char *made = "";

    for (unsigned i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct qmstore_config c = config(damages[i].disk);

        remove_below(test_dir);
        if (strcmp(made, damages[i].disk) != 0)
            make(&c);
        made = damages[i].disk;
        put_back();
        put_byte(damages[i].file, damages[i].at, damages[i].byte);
        told = 0;
        try(&c);
        if (told != 1)
            fail_msg("%s, byte %d: no warning", damages[i].file, (int)damages[i].at);
    }
}

/* Both meta pages are of a version to come: that is no damage. */
TEST_WITH(test_later_version, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c = config("lmdb");
    struct qmstore *s;
    char err[400], aside[100];

    make(&c);
    put_byte("data.mdb", 20, 2);
    put_byte("data.mdb", PAGE + 20, 2);
    warnings = 0;
    assert_int_equal(qmstore_open(&c, &s, err, sizeof err), ENOTSUP);
    assert_int_equal(warnings, 0);
    snprintf(aside, sizeof aside, "%s/0.damaged", test_dir);
    assert_int_equal(access(aside, F_OK), -1);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    return run_listed(NULL, NULL);
}
