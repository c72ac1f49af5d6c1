/* SPDX-License-Identifier: BSD-3-Clause */
/* test-state.c - the file "state": damaged, missing, of version 1. */
#include <fcntl.h>
#include <sys/stat.h>

#include "testing.h"

enum { KEYS = 300, HEAD = 72, CHECKSUM = 64, ACKNOWLEDGED = 512 };

static char message[600];

static void warn(void *opaque, const char *text)
{
    snprintf(message, sizeof message, "%s", text);
}

static struct qmstore_config config(enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();

    c.durability = durability;
    c.log_buffer = 16 << 10;
    c.warn = warn;
    return c;
}

static void put_all(struct qmstore *s)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(qmstore_put(s, &i, sizeof i, "value", 5, 0), 0);
}

/* A new store, closed or of a process that is killed. */
static void make(enum qmstore_durability durability, bool closed)
{
    struct qmstore_config c = config(durability);
    pid_t pid;

    remove_below(test_dir);
    if ((pid = fork()) == 0) {
        struct qmstore *s = open_ok(&c);

        put_all(s);
        _exit(closed && qmstore_close(s) != 0);
    }
    child_ends_well(pid);
    message[0] = 0;
}

static char *path_of(const char *name)
{
    static char path[160];

    snprintf(path, sizeof path, "%s/0/%s", test_dir, name);
    return path;
}

static void access_state(void *bytes, size_t len, off_t at, bool writes)
{
    int fd = open(path_of("state"), O_RDWR);
    ssize_t n = writes ? pwrite(fd, bytes, len, at) : pread(fd, bytes, len, at);

    assert_int_equal(n, len);
    close(fd);
}

/* Opens it: either all is there and nothing is said, or nothing is, and that is said.
 */
static bool is_set_aside(enum qmstore_durability durability)
{
    struct qmstore_config c = config(durability);
    struct qmstore *s;
    uint64_t keys;

    message[0] = 0;
    s = open_ok(&c);
    keys = stats_of(s).keys;
    assert_int_equal(qmstore_close(s), 0);
    if (!message[0]) {
        assert_int_equal(keys, KEYS);
        return false;
    }
    assert_non_null(strstr(message, "set aside as 0.damaged"));
    assert_int_equal(keys, 0);
    return true;
}

/* Each byte that says something. */
TEST_WITH(test_damaged, make_test_dir, remove_test_dir)
{
    for (off_t at = 0; at < ACKNOWLEDGED + 8; at++) {
        unsigned char byte;

        if (at == HEAD)
            at = ACKNOWLEDGED;
        else if (at < HEAD && at % 5 != 0)
            continue;
        make(QMSTORE_LAZY, true);
        access_state(&byte, 1, at, false);
        byte ^= (unsigned char)(1 << at % 8);
        access_state(&byte, 1, at, true);
        assert_true(is_set_aside(QMSTORE_LAZY));
    }
}

/* Without it, nobody knows whether the last process closed the partition. */
TEST_WITH(test_missing, make_test_dir, remove_test_dir)
{
    for (unsigned what = 0; what < 4; what++) {
        struct qmstore_config c = config(QMSTORE_NONE);
        struct qmstore *s;

        make(QMSTORE_NONE, true);
        if (what > 0) { /* of more keys than memory has room for */
            s = open_ok(&c);
            for (unsigned i = 0; i < 8000; i++)
                assert_int_equal(qmstore_put(s, &i, sizeof i, test_dir, 60, 0), 0);
            assert_int_equal(qmstore_close(s), 0);
        }
        assert_int_equal(
            what == 3 ? truncate(path_of("state"), 100) : unlink(path_of("state")), 0);
        if (what == 2)
            assert_int_equal(unlink(path_of("log")), 0);
        assert_true(is_set_aside(QMSTORE_NONE));
    }
}

/* Version 1 had no checksum, and what was acknowledged behind `durability`. */
static void make_old(uint64_t more)
{
    char head[HEAD];
    uint64_t word;

    access_state(head, sizeof head, 0, false);
    access_state(&word, sizeof word, ACKNOWLEDGED, false);
    word = (word >> 16) + more;
    memcpy(head + 16, &word, sizeof word);
    head[7] = '1';
    memset(head + CHECKSUM, 0, 8);
    word = 0;
    access_state(head, sizeof head, 0, true);
    access_state(&word, sizeof word, ACKNOWLEDGED, true);
}

TEST_WITH(test_old, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config(QMSTORE_LAZY);
    struct qmstore *s;
    char magic[8];

    make(QMSTORE_LAZY, true);
    make_old(0);
    assert_false(is_set_aside(QMSTORE_LAZY));
    access_state(magic, sizeof magic, 0, false);
    assert_memory_equal(magic, "QMSTSTA2", 8);
    assert_false(is_set_aside(QMSTORE_LAZY));
    /* What it says still counts. */
    make_old(7);
    s = open_ok(&c);
    assert_non_null(strstr(message, "the last 7 changes"));
    assert_int_equal(stats_of(s).lost, 7);
    assert_int_equal(qmstore_close(s), 0);
    make(QMSTORE_NONE, true);
    make_old(0);
    assert_false(is_set_aside(QMSTORE_NONE));
    make(QMSTORE_NONE, false);
    make_old(0);
    assert_true(is_set_aside(QMSTORE_NONE));
}
