/* SPDX-License-Identifier: BSD-3-Clause */
/* test-use.c - who uses a block device, and what only looks at it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "cli/attach.h"

static char device[32];
static pid_t user;
static int claim = -1;
static unsigned naps, leaves_at; /* leaves_at: the nap in which all users leave */

static void leave(void)
{
    if (claim != -1)
        close(claim);
    claim = -1;
    if (user > 0) {
        kill(user, SIGKILL);
        waitpid(user, NULL, 0);
    }
    user = 0;
}

/* Nobody waits here. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (++naps == leaves_at)
        leave();
    return 0;
}

/* Another process has the device open. */
static void open_elsewhere(void)
{
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    user = fork();
    if (user == 0) {
        int fd = open(device, O_RDONLY);

        if (fd != -1)
            (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
}

static int look(char *err, size_t len)
{
    int fd, error = attach_await_unused(device, &fd, err, len);

    assert_true((fd == -1) == (error != 0));
    if (fd != -1)
        close(fd);
    return error;
}

static int begin(void **state)
{
    naps = 0;
    leaves_at = UINT32_MAX;
    return 0;
}

static int end(void **state)
{
    leave();
    return 0;
}

TEST_WITH(test_unused, begin, end)
{
    char err[512];

    assert_int_equal(look(err, sizeof err), 0);
    assert_int_equal(naps, 0);
}

/* udev, blkid and the like, for a moment after something was written. */
TEST_WITH(test_prober, begin, end)
{
    char err[512], want[32];
    int fd;

    open_elsewhere();
    assert_int_equal(attach_check_unused(device, &fd, err, sizeof err), EBUSY);
    snprintf(want, sizeof want, "process %d (", (int)user);
    assert_non_null(strstr(err, want));
    leaves_at = 3;
    assert_int_equal(look(err, sizeof err), 0);
    assert_int_equal(naps, 3);
}

TEST_WITH(test_claim, begin, end)
{
    char err[512];

    claim = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
    assert_int_not_equal(claim, -1);
    leaves_at = 3;
    assert_int_equal(look(err, sizeof err), 0);
    assert_int_equal(naps, 3);
}

TEST_WITH(test_user, begin, end)
{
    char err[512];

    open_elsewhere();
    assert_int_equal(look(err, sizeof err), EBUSY);
    assert_non_null(strstr(err, "is open in process"));
}

int main(void)
{
    char err[512];
    int fd;

    for (int i = 7; i >= 0; i--) {
        snprintf(device, sizeof device, "/dev/loop%d", i);
        if (attach_check_unused(device, &fd, err, sizeof err) == 0) {
            close(fd);
            return run_listed(NULL, NULL);
        }
    }
    fprintf(stderr, "skipped: no block device to look at: %s\n", err);
    return 77;
}
