/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of the hybrid store share. */
#ifndef QM_TESTS_STORE_TESTING_H
#define QM_TESTS_STORE_TESTING_H

#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

#include "rowcache/store/qmstore.h"
#include "tests/unit/random.h"

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw)
{
    return remove(path);
}

/* A directory of this process's own, below which all is removed. */
static char test_dir[64];

static inline int make_dir_in(const char *parent)
{
    snprintf(test_dir, sizeof test_dir, "%s/qmstore.XXXXXX", parent);
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline int make_test_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");

    return make_dir_in(tmp ? tmp : "/tmp");
}

/* The same in memory, if there is a place: for tests that sync often, and whose machine
 * goes on, so that a disk makes them slow and nothing else. */
static inline int make_memory_dir(void **state)
{
    struct statvfs fs;

    if (statvfs("/dev/shm", &fs) == 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize >= UINT64_C(1) << 30 &&
        make_dir_in("/dev/shm") == 0)
        return 0;
    return make_test_dir(state);
}

static inline void remove_below(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int remove_test_dir(void **state)
{
    remove_below(test_dir);
    return 0;
}

/* Of a store in the test's directory, as small as may be, without a thread. */
static inline struct qmstore_config small_config(void)
{
    struct qmstore_config c;

    qmstore_config_init(&c);
    c.path = test_dir;
    c.memory = 1 << 20;
    c.threadless = true;
    return c;
}

/* Waits for a child, which must end with 0. */
static inline void child_ends_well(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static inline struct qmstore *open_ok(const struct qmstore_config *c)
{
    struct qmstore *s = NULL;
    char err[400] = "";
    int r = qmstore_open(c, &s, err, sizeof err);

    if (r != 0)
        fail_msg("open: %d %s", r, err);
    return s;
}

static inline struct qmstore_stats stats_of(struct qmstore *s)
{
    struct qmstore_stats stats;

    qmstore_get_stats(s, &stats);
    return stats;
}

#endif
