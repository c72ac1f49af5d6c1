/* SPDX-License-Identifier: BSD-3-Clause */
/* test-end.c - what a command that is told to end before it is ready removes, and what
 * it leaves; with another program that does something in the instant before or after an
 * owner's file is locked, or after it is not any more.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

#include "clients/libqmctx/background.h"
#include "clients/libqmctx/device.h"

static char dir[] = "/tmp/qmctx.XXXXXX", path[128];
static struct qm_owner owner;
static int other = -1; /* another program's descriptor */
static uint8_t number[QM_OWNER_SIZE];

/* Called before, and after, each of libqmctx's locks. */
static void (*before)(void), (*after)(void);
/* Called once, after a descriptor was closed. */
static void (*closed)(void);

#pragma GCC visibility push(default)

int flock(int fd, int operation)
{
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    int result, error;

    if (before)
        before();
    result = next(fd, operation);
    error = errno;
    if (after)
        after();
    errno = error;
    return result;
}

int close(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    void (*then)(void) = closed;
    int result = next(fd);

    closed = NULL;
    if (then)
        then();
    return result;
}

#pragma GCC visibility pop

/* Another program makes the file, or opens it, with a number in it. */
static void other_writes(void)
{
    other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_not_equal(other, -1);
    memset(number, 7, sizeof number);
    assert_int_equal(pwrite(other, number, sizeof number, 0), sizeof number);
}

static bool is_there(void)
{
    return access(path, F_OK) == 0;
}

static int end(void **state)
{
    before = after = NULL;
    qm_owner_leave(&owner);
    if (other != -1)
        close(other);
    other = -1;
    unlink(path);
    return 0;
}

TEST_WITH(test_unused_and_used, NULL, end)
{
    assert_int_equal(qm_owner_open(&owner, path, 0), 0);
    assert_true(owner.fresh);
    qm_owner_unused(&owner);
    assert_false(is_there());
    qm_owner_leave(&owner);
    other_writes();
    qm_owner_unused(&owner); /* which is not open */
    assert_int_equal(qm_owner_open(&owner, path, 0), 0);
    assert_memory_equal(owner.id, number, sizeof number);
    qm_owner_unused(&owner);
    assert_true(is_there());
}

static void killed_with_requests(void)
{
    other_writes();
    close(other);
    other = -1;
}

/* One that was empty when it was opened, and had another owner until it was locked. */
TEST_WITH(test_owner_in_between, NULL, end)
{
    before = killed_with_requests;
    assert_int_equal(qm_owner_open(&owner, path, 0), 0);
    assert_memory_equal(owner.id, number, sizeof number);
    assert_false(owner.fresh);
    qm_owner_unused(&owner);
    assert_true(is_there());
}

static void replace_once(void)
{
    before = NULL;
    assert_int_equal(unlink(path), 0);
}

/* After the first, whose file has no name any more, another program makes the next, and
 * a signal comes at any time. */
static void other_has_the_next(void)
{
    if (other == -1) {
        int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");

        other_writes();
        assert_int_equal(next(other, LOCK_EX | LOCK_NB), 0);
    }
    qm_owner_unused(&owner);
}

TEST_WITH(test_others_next_file, NULL, end)
{
    before = replace_once;
    after = other_has_the_next;
    assert_int_equal(qm_owner_open(&owner, path, 0), EWOULDBLOCK);
    assert_true(is_there());
}

static void other_has_this_one(void)
{
    other = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    qm_owner_unused(&owner);
}

TEST_WITH(test_left_to_the_next, NULL, end)
{
    assert_int_equal(qm_owner_open(&owner, path, 0), 0);
    closed = other_has_this_one;
    qm_owner_leave(&owner);
    assert_int_not_equal(other, -1);
    assert_true(is_there());
}

static void say_so(void)
{
    _exit(3); /* instead of what would be removed */
}

static void do_nothing(void)
{
}

static int ends_by(int sig, void (*tidy)(void), bool tidied)
{
    pid_t child = fork();
    int status;

    assert_int_not_equal(child, -1);
    if (child == 0) {
        signal(sig, SIG_DFL);
        qm_background_tidy(tidy);
        if (tidied)
            qm_background_tidied();
        raise(sig);
        _exit(4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* By the signal, and not with its number plus 128. */
TEST(test_tidy)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};

    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ends_by(signals[i], say_so, false), 3);
        assert_int_equal(ends_by(signals[i], do_nothing, false), -signals[i]);
        assert_int_equal(ends_by(signals[i], say_so, true), -signals[i]);
    }
}

static int set_up(void **state)
{
    owner = QM_OWNER_NONE;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/owner", dir);
    return 0;
}

static int tear_down(void **state)
{
    return rmdir(dir);
}

int main(void)
{
    return run_listed(set_up, tear_down);
}
