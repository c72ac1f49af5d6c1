/* SPDX-License-Identifier: BSD-3-Clause */
/* files.h - files for the tests of traces, in a directory that the test removes. */
#ifndef QM_TESTS_TRACE_FILES_H
#define QM_TESTS_TRACE_FILES_H

#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

static char files_dir[200];

static inline int files_make(void **state)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(files_dir, sizeof files_dir, "%s/qm-trace.XXXXXX", tmp ? tmp : P_tmpdir);
    return mkdtemp(files_dir) ? 0 : -1;
}

static inline const char *files_path(const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/%s", files_dir, name);
    return path;
}

static inline int files_remove(void **state)
{
    static const char *const names[] = {"t",    "t.gz",  "t.zst", "u",
                                        "u.gz", "u.zst", "t.1",   "t.2",
                                        "t.3",  "t.4",   "link",  "t.zst.1"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(files_path(names[i]));
    return rmdir(files_dir);
}

static inline void files_put(const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(files_path(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

/* Reads a whole file; *bytes is the caller's. */
static inline size_t files_get(const char *name, char **bytes)
{
    FILE *f = fopen(files_path(name), "rb");
    size_t count, room = 64 << 20;

    assert_non_null(f);
    *bytes = malloc(room);
    assert_non_null(*bytes);
    count = fread(*bytes, 1, room, f);
    assert_true(count < room);
    fclose(f);
    return count;
}

#endif
