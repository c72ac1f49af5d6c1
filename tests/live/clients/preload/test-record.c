/* SPDX-License-Identifier: BSD-3-Clause */
/* test-record.c - a program that is recorded and treats descriptors as if all were its
 * own: the trace has one, too, and a file of the program's must not get its number.
 *
 *   preload-program descriptors FILE HOW
 *
 * reads READS lines' worth of FILE after it has closed what it has, or opened FILE over
 * it, or had a child of vfork() close the file's descriptor, or has read in signal
 * handlers.
 *
 *   preload-program submits FILE
 *
 * submits reads of which the kernel takes some: the first two of four, none of one, 100
 * of 100 and one far behind the file's end.
 */
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { READS = 10, BYTES = 4096, MOST = 1024, HANDLED = 2000 };

static void close_all(const char *how)
{
    if (strcmp(how, "closefrom") == 0)
        closefrom(3);
    else if (strcmp(how, "close_range") == 0)
        CHECK(close_range(3, ~0U, 0) == 0);
    else if (strcmp(how, "unseen") == 0)
        CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    else if (strcmp(how, "close") == 0)
        for (int fd = 3; fd < MOST; fd++)
            close(fd);
}

static const char *file;
static volatile sig_atomic_t handled;

static void handler(int number)
{
    char c;
    int fd = open(file, O_RDONLY), copy = dup(fd);

    (void)number;
    if (copy != -1 && read(copy, &c, 1) == 1)
        handled++;
    close(fd);
    close(copy);
}

/* Reads while handlers do so, too, within reads. */
static void interrupt(const char *path)
{
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    int fd = open(path, O_RDONLY);
    char c;

    file = path;
    CHECK(fd != -1 && sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < HANDLED)
        CHECK(pread(fd, &c, 1, 0) == 1);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(close(fd) == 0);
}

int run_descriptors(const char *path, const char *how)
{
    char buf[BYTES];
    int fd, status;
    pid_t child;

    if (strcmp(how, "handler") == 0)
        interrupt(path);
    close_all(how);
    fd = open(path, O_RDWR);
    CHECK(fd != -1);
    if (strcmp(how, "dup2") == 0)
        for (int to = 500; to < 530; to++)
            CHECK(dup2(fd, to) == to);
    else if (strcmp(how, "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            close(fd);
            closefrom(3);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    } else
        for (int i = 4; i < MOST - 10; i++)
            CHECK(dup(fd) != -1); /* every number is the file's */
    for (int i = 0; i < READS; i++)
        CHECK(pread(fd, buf, sizeof buf, i * (off_t)sizeof buf) == sizeof buf);
    return 0;
}

int run_submits(const char *path)
{
    enum { MANY = 100, BROKEN = 99 };
    static char buf[BYTES];
    io_context_t id = 0;
    struct iocb iocbs[MANY], *list[MANY];
    struct io_event events[MANY];
    int fd = open(path, O_RDONLY);

    CHECK(fd != -1 && io_setup(2 * MANY, &id) == 0);
    for (int i = 0; i < MANY; i++) {
        io_prep_pread(&iocbs[i], fd, buf, BYTES, i * (long long)BYTES);
        list[i] = &iocbs[i];
    }
    iocbs[2].aio_lio_opcode = BROKEN;
    CHECK(io_submit(id, 4, list) == 2);
    CHECK(io_submit(id, 1, list + 2) == -EINVAL);
    CHECK(io_getevents(id, 2, 2, events, NULL) == 2);
    io_prep_pread(&iocbs[2], fd, buf, BYTES, 2LL * BYTES);
    CHECK(io_submit(id, MANY, list) == MANY);
    CHECK(io_getevents(id, MANY, MANY, events, NULL) == MANY);
    io_prep_pread(&iocbs[0], fd, buf, BYTES, 1LL << 62);
    CHECK(io_submit(id, 1, list) == 1);
    CHECK(io_getevents(id, 1, 1, events, NULL) == 1);
    CHECK(io_destroy(id) == 0);
    return 0;
}

/* The trace ends while its message would go into the program's file. */
int run_stderr(const char *path)
{
    char buf[BYTES];
    int fd;

    CHECK(close(STDERR_FILENO) == 0);
    fd = open(path, O_RDWR);
    CHECK(fd == STDERR_FILENO);
    CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    for (int i = 0; i < READS; i++)
        CHECK(pread(fd, buf, sizeof buf, i * (off_t)sizeof buf) == sizeof buf);
    return 0;
}
