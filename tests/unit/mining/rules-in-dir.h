/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-in-dir.h - for tests of rules that survive a restart: a directory of its own
 * for each test, in which or below which they are. */
#ifndef QM_MINING_RULES_IN_DIR_H
#define QM_MINING_RULES_IN_DIR_H

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

static char dir[64];

/* Good until the fourth call from now. */
static inline const char *in_dir(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static inline int setup(void **state)
{
    strcpy(dir, "/tmp/quickmine.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int teardown(void **state)
{
    DIR *d = opendir(dir);

    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)remove(in_dir(e->d_name));
    if (d)
        closedir(d);
    return rmdir(dir);
}

static inline bool exists(const char *name)
{
    struct stat st;

    return lstat(in_dir(name), &st) == 0;
}

static inline void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline struct qm_mining_config config_for(const char *device)
{
    struct qm_mining_config config;

    qm_mining_defaults(&config);
    config.rules_dir = dir;
    config.rules_for = device;
    config.block_size = 16384;
    return config;
}

/* Kills a child that works, and writes a byte to the pipe whenever it has saved, after
 * n of these. */
static inline void kill_after(unsigned n, void (*work)(int pipe))
{
    int ready[2], status;
    pid_t pid;
    char c;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        work(ready[1]);
        _exit(1);
    }
    close(ready[1]);
    for (; n > 0; n--)
        assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(ready[0]);
    assert_true(WIFSIGNALED(status));
}

#endif
