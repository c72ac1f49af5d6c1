/* SPDX-License-Identifier: BSD-3-Clause */
/* test-restart.c - whether a server has restarted since we last heard of it: by its
 * uptime, which its clock may falsify, and by the numbers of its connections. */
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rowcache/follow/internal.h"
#include "rowcache/rows.h"
#include "tests/harness.h"

static bool restarted(unsigned server, uint64_t up, uint64_t connection,
                      uint64_t silence)
{
    static const struct qm_life before = {.server = 1, .up = 5000, .connection = 70};
    const struct qm_life now = {server, up, connection};

    return qm_may_have_restarted(&before, &now, silence);
}

TEST(by_uptime)
{
    assert_false(restarted(1, 5010, 71, 10));
    assert_true(restarted(1, 3, 71, 10));
    assert_true(restarted(1, 11, 71, 10)); /* it may round */
    assert_false(restarted(1, 12, 71, 10));
}

/* It started with a slow clock, which was then set an hour ahead. */
TEST(by_connection)
{
    assert_true(restarted(1, 3605, 9, 10));
    assert_false(restarted(1, 3605, 70, 10));
    assert_false(restarted(0, 3605, 9, 10)); /* another server counts by itself */
}

static bool is_near(uint64_t ns, clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec - ns / 1000000000 < 100;
}

/* Both count the time that a machine sleeps; they are compared with each other.  In a
 * namespace of time, as if it had slept for an hour. */
TEST(clocks)
{
    int fd, status = 0;
    pid_t child;

    if (unshare(CLONE_NEWTIME) == -1 ||
        (fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)) == -1)
        skip(); /* not as root, or not in this kernel */
    assert_true(write(fd, "boottime 3600 0", 15) == 15);
    close(fd);
    child = fork();
    if (child == 0)
        _exit(is_near(qm_rows_now(), CLOCK_BOOTTIME) &&
                      is_near(qm_monotonic(), CLOCK_BOOTTIME)
                  ? 0
                  : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
