/* SPDX-License-Identifier: BSD-3-Clause */
/* test-process.c - a store in a program that does what programs do: it changes its
 * working directory, forks, and waits for signals. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "testing.h"

static const char *const disks[] = {"lmdb", "bdb", "files"};

static struct qmstore_config config(const char *path)
{
    struct qmstore_config c;

    qmstore_config_init(&c);
    c.path = path;
    c.memory = 1 << 20;
    return c;
}

static void put_all(struct qmstore *s, uint32_t keys)
{
    static char value[1000];

    for (uint32_t key = 0; key < keys; key++)
        assert_int_equal(qmstore_put(s, &key, sizeof key, value, sizeof value, 0), 0);
}

/* Berkeley DB makes new files of its log, and a scratch store a new disk, where the
 * store was opened. */
TEST_WITH(test_directory_changes, make_test_dir, remove_test_dir)
{
    static const uint32_t keys[] = {3000, 20000, 1000}; /* more than a log of 16 MiB */
    char before[4096], err[400];

    assert_non_null(getcwd(before, sizeof before));
    for (unsigned i = 0; i < 2 * sizeof disks / sizeof disks[0]; i++) {
        struct qmstore_config c = config("store");
        struct qmstore *s;

        c.disk = disks[i / 2];
        assert_int_equal(chdir(test_dir), 0);
        remove_below("store");
        assert_int_equal(i % 2 ? qmstore_open_scratch(&c, 0, &s, err, sizeof err)
                               : qmstore_open(&c, &s, err, sizeof err),
                         0);
        assert_int_equal(chdir("/"), 0);
        if (i % 2)
            assert_int_equal(qmstore_clear(s), 0);
        put_all(s, keys[i / 2]);
        assert_int_equal(stats_of(s).error, 0);
        assert_int_equal(stats_of(s).keys, keys[i / 2]);
        assert_int_equal(qmstore_close(s), 0);
    }
    assert_int_equal(chdir(before), 0);
}

/* A child that does something else, and lives longer than the store was open. */
TEST_WITH(test_child_lives_on, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config(test_dir);
    struct qmstore *s = open_ok(&c);
    int status;
    pid_t child;

    put_all(s, 1);
    fflush(NULL);
    if ((child = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test fails */
        for (;;)
            pause();
    }
    assert_int_not_equal(child, -1);
    assert_int_equal(qmstore_close(s), 0);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, 1);
    assert_int_equal(qmstore_close(s), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

/* The mask of signals of the process's only other thread, when it sleeps. */
static uint64_t mask_of_other(void)
{
    char path[300], line[200], was = 0;
    uint64_t mask = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;

    assert_non_null(tasks);
    while ((entry = readdir(tasks)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid())
            snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    closedir(tasks);
    for (unsigned i = 0; i < 10000 && was != 'S'; i++) {
        FILE *f = fopen(path, "re");

        assert_non_null(f);
        while (fgets(line, sizeof line, f)) {
            (void)sscanf(line, "State: %c", &was);
            (void)sscanf(line, "SigBlk: %" SCNx64, &mask);
        }
        fclose(f);
        usleep(1000);
    }
    assert_int_equal(was, 'S');
    return mask;
}

/* The store's thread takes none of them, and the caller's mask stays. */
TEST_WITH(test_signals, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = config(test_dir);
    struct qmstore *s = open_ok(&c);
    uint64_t mask = mask_of_other();
    sigset_t own;

    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP)
            assert_true(mask >> (i - 1) & 1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &own), 0);
    assert_false(sigismember(&own, SIGTERM));
    assert_int_equal(qmstore_close(s), 0);
}
