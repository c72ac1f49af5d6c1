/* SPDX-License-Identifier: BSD-3-Clause */
/* test-children.c - child processes, signal handlers and threads that end, while other
 * threads wait for the server: what they may do, and what they must leave alone.
 *
 * The server's disk answers nothing while the file `stall` is there.
 */
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

extern char **environ;

enum { BLOCK = 16384, PATIENCE = 300 /* seconds, after which something hangs */ };

static const char *stall;
/* Each is read once, so that it is not in the server's cache; the first is. */
static off_t next_block = 16 * BLOCK;

static off_t fresh(void)
{
    off_t at = next_block;

    next_block += 16 * BLOCK;
    CHECK(at + BLOCK <= size, "the device is too small");
    return at;
}

static void must_end_well(pid_t pid)
{
    int status;

    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(status == 0, "the child: status 0x%x", (unsigned)status);
}

/* That fd is the routed file. */
static void must_be_routed(int fd)
{
    char buf[512], want[512];
    int file = must_open(other, O_RDONLY);

    CHECK(pread(fd, buf, sizeof buf, 4096) == sizeof buf);
    CHECK(pread(file, want, sizeof want, 4096) == sizeof want);
    CHECK(memcmp(buf, want, sizeof buf) == 0);
    close(file);
}

static char read_one(int fd)
{
    char c;

    CHECK(read(fd, &c, 1) == 1);
    return c;
}

/* --- children that share the parent's memory, but not its descriptors --- */

enum { COPY = 100, PLAIN = 101, UNUSED = 150 };

/* What the child needs, and what it found: it shares the memory. */
struct family {
    int fd, fd2; /* routed; so is COPY */
    int out;     /* a pipe's; so is PLAIN */
    int read_errno, open_errno, written, fds;
};

static int same_memory(void *opaque)
{
    struct family *f = opaque;
    struct sigaction act = {.sa_handler = SIG_DFL};
    char c;

    f->read_errno = pread(f->fd, &c, 1, 0) == -1 ? errno : 0;
    f->open_errno = open(routed, O_RDWR) == -1 ? errno : 0;
    /* The numbers of routed files are other files' here, and the other way round. */
    f->written = dup2(f->out, f->fd) == f->fd && write(f->fd, "c", 1) == 1;
    close(COPY);
    f->fds = open("/dev/null", O_RDWR) != -1 && dup2(f->fd2, PLAIN) == PLAIN &&
             fcntl(f->fd2, F_DUPFD, UNUSED) >= UNUSED && dup(f->fd2) != -1 &&
             fcntl(f->fd2, F_GETFD) != -1;
    close_range(3, 90, 0);
    sigaction(SIGPIPE, &act, NULL);
    execl("/bin/true", "true", NULL);
    _exit(127);
}

static void check_family(const struct family *f, int in)
{
    must_be_routed(f->fd);
    must_be_routed(f->fd2);
    must_be_routed(COPY);
    CHECK(write(PLAIN, "p", 1) == 1 && read_one(in) == 'p');
    /* A number that was a routed file's in the child only. */
    CHECK(dup2(f->out, UNUSED) == UNUSED && write(UNUSED, "u", 1) == 1 &&
          read_one(in) == 'u');
    close(UNUSED);
}

static void test_same_memory(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    static struct family f; /* not in registers, which vfork() gives back */
    posix_spawn_file_actions_t actions;
    char *argv[] = {"true", NULL};
    int pipes[2];
    pid_t pid;

    f.fd = must_open(routed, O_RDWR);
    f.fd2 = must_open(routed, O_RDWR);
    CHECK(pipe(pipes) == 0 && dup2(pipes[1], PLAIN) == PLAIN);
    CHECK(dup2(f.fd, COPY) == COPY);
    f.out = pipes[1];

    pid =
        clone(same_memory, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &f);
    must_end_well(pid);
    CHECK(f.written && f.fds && read_one(pipes[0]) == 'c');
    CHECK(f.read_errno == EBADF && f.open_errno == EOPNOTSUPP, "%s, %s",
          strerrorname_np(f.read_errno), strerrorname_np(f.open_errno));
    check_family(&f, pipes[0]);

    pid = vfork();
    if (pid == 0)
        same_memory(&f);
    must_end_well(pid);
    CHECK(read_one(pipes[0]) == 'c');
    check_family(&f, pipes[0]);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, f.fd, PLAIN);
    posix_spawn_file_actions_addclose(&actions, f.fd2);
    CHECK(posix_spawn(&pid, "/bin/true", &actions, NULL, argv, environ) == 0);
    must_end_well(pid);
    posix_spawn_file_actions_destroy(&actions);
    check_family(&f, pipes[0]);

    /* A copy of the memory that nobody has told the library of. */
    pid = _Fork();
    if (pid == 0)
        _exit(pread(f.fd, stack, 1, 0) == -1 && errno == EBADF && close(f.fd) == 0 &&
                      dup2(f.out, f.fd2) == f.fd2 && write(f.fd2, "f", 1) == 1
                  ? 0
                  : 1);
    must_end_well(pid);
    CHECK(read_one(pipes[0]) == 'f');
    check_family(&f, pipes[0]);
    for (int i = 0; i < 2; i++)
        close(pipes[i]);
    close(f.fd);
    close(f.fd2);
    close(COPY);
    close(PLAIN);
}

/* A number that was closed, and used again, unseen. */
static void test_unseen(void)
{
    int fd = must_open(routed, O_RDWR), copy = fcntl(fd, F_DUPFD, UNUSED), pipes[2];
    struct stat st;

    CHECK(copy >= UNUSED && syscall(SYS_close, copy) == 0 && pipe(pipes) == 0);
    CHECK(syscall(SYS_dup3, pipes[1], copy, O_CLOEXEC) == copy);
    CHECK(write(copy, "w", 1) == 1 && read_one(pipes[0]) == 'w');
    CHECK(fstat(copy, &st) == 0 && S_ISFIFO(st.st_mode));
    must_be_routed(fd);
    close(copy);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

/* --- while another thread waits for the server --- */

struct reader {
    pthread_t thread;
    _Atomic pid_t tid;
    int fd;
    off_t at;
    char buf[BLOCK];
};

/* At the file's position, which is locked meanwhile. */
static void *read_stalled(void *opaque)
{
    struct reader *r = opaque;

    r->tid = gettid();
    CHECK(read(r->fd, r->buf, BLOCK) == BLOCK);
    return NULL;
}

static bool asleep(pid_t tid)
{
    char path[64], text[256] = "", *state;
    FILE *f;

    if (tid == 0)
        return false;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    f = fopen(path, "re");
    CHECK(f && fgets(text, sizeof text, f), "%s", path);
    fclose(f);
    state = strrchr(text, ')');
    return state && state[2] == 'S';
}

static void start_reader(struct reader *r)
{
    int file = open(stall, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    CHECK(file != -1 && close(file) == 0);
    *r = (struct reader){.fd = must_open(routed, O_RDWR), .at = fresh()};
    CHECK(lseek(r->fd, r->at, SEEK_SET) == r->at);
    CHECK(pthread_create(&r->thread, NULL, read_stalled, r) == 0);
    while (!asleep(r->tid))
        usleep(1000);
}

static void join_reader(struct reader *r)
{
    static char want[BLOCK];
    int file = must_open(other, O_RDONLY);

    CHECK(unlink(stall) == 0 && pthread_join(r->thread, NULL) == 0);
    CHECK(pread(file, want, BLOCK, r->at) == BLOCK);
    CHECK(memcmp(r->buf, want, BLOCK) == 0);
    close(file);
}

static void test_fork_meanwhile(void)
{
    static struct reader r;
    int pipes[2], idle = must_open(routed, O_RDWR);
    char c;
    pid_t pid;

    CHECK(pipe(pipes) == 0);
    start_reader(&r);
    pid = fork();
    if (pid == 0) {
        alarm(PATIENCE / 2);
        if (lseek(r.fd, 0, SEEK_CUR) != r.at || dup2(r.fd, COPY) != COPY ||
            close(r.fd) != 0 || dup2(pipes[1], COPY) != COPY ||
            write(COPY, "c", 1) != 1 || close(idle) != 0)
            _exit(1);
        close_range(3, ~0U, 0);
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    must_end_well(pid);
    CHECK(read_one(pipes[0]) == 'c');
    pid = vfork();
    if (pid == 0) {
        close(r.fd);
        close_range(3, ~0U, 0);
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    must_end_well(pid);
    join_reader(&r);
    CHECK(lseek(r.fd, 0, SEEK_CUR) == r.at + BLOCK);
    must_be_routed(r.fd);
    must_be_routed(idle);

    /* A child's own requests, and its child. */
    pid = fork();
    if (pid == 0) {
        if (pread(idle, &c, 1, 0) != 1)
            _exit(1);
        pid = fork();
        if (pid == 0)
            _exit(pread(r.fd, &c, 1, 0) == 1 ? 0 : 1);
        must_end_well(pid);
        _exit(0);
    }
    must_end_well(pid);
    close(r.fd);
    close(idle);
    close(pipes[0]);
    close(pipes[1]);
}

/* --- a signal handler, in the thread that waits --- */

static struct {
    int fd;
    _Atomic bool done;
    bool fine;
} handled;

static void handler(int signal)
{
    int err = errno, copy = dup(handled.fd);

    handled.fine = copy != -1 && dup2(handled.fd, COPY) == COPY && close(copy) == 0 &&
                   close(handled.fd) == 0 && close(COPY) == 0;
    handled.done = true;
    errno = err;
}

static void test_handler(void)
{
    static struct reader r;
    struct sigaction act = {.sa_handler = handler};
    int others[3];

    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    start_reader(&r);
    handled.fd = r.fd;
    CHECK(pthread_kill(r.thread, SIGUSR1) == 0);
    while (!handled.done)
        usleep(1000);
    CHECK(handled.fine);
    /* Files that are opened meanwhile are others. */
    for (int i = 0; i < 3; i++)
        others[i] = must_open(routed, O_RDONLY);
    join_reader(&r);
    for (int i = 0; i < 3; i++) {
        CHECK(lseek(others[i], 0, SEEK_CUR) == 0);
        close(others[i]);
    }
}

/* --- a thread that is cancelled while it waits --- */

static void test_cancel(void)
{
    static struct reader r;

    start_reader(&r);
    CHECK(pthread_cancel(r.thread) == 0);
    join_reader(&r);
    CHECK(lseek(r.fd, 0, SEEK_CUR) == r.at + BLOCK);
    must_be_routed(r.fd);
    close(r.fd);
}

/* --- a ring, or a context of libaio, that goes while a request is in flight --- */

static struct {
    bool by_uring;
    struct io_uring ring;
    io_context_t aio;
    off_t at;
    char buf[BLOCK], want[BLOCK];
    _Atomic pid_t tid;
    _Atomic bool over;
} leaving;

/* The buffer is the program's again afterwards. */
static void *leave(void *opaque)
{
    leaving.tid = gettid();
    if (leaving.by_uring)
        io_uring_queue_exit(&leaving.ring);
    else
        CHECK(io_destroy(leaving.aio) == 0);
    leaving.over = true;
    CHECK(memcmp(leaving.buf, leaving.want, BLOCK) == 0, "it did not wait");
    return NULL;
}

/* False: it cannot be had here. */
static bool test_leave(bool by_uring)
{
    int fd = must_open(routed, O_RDONLY), file = must_open(other, O_RDONLY);
    struct iocb iocb, *list = &iocb;
    pthread_t thread;

    memset(&leaving, 0, sizeof leaving);
    leaving.by_uring = by_uring;
    leaving.at = fresh();
    if (by_uring && io_uring_queue_init(4, &leaving.ring, 0) != 0)
        return false;
    CHECK(pread(file, leaving.want, BLOCK, leaving.at) == BLOCK);
    close(file);
    file = open(stall, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file != -1 && close(file) == 0);
    if (by_uring) {
        io_uring_prep_read(io_uring_get_sqe(&leaving.ring), fd, leaving.buf, BLOCK,
                           (uint64_t)leaving.at);
        CHECK(io_uring_submit(&leaving.ring) == 1);
    } else {
        CHECK(io_setup(4, &leaving.aio) == 0);
        io_prep_pread(&iocb, fd, leaving.buf, BLOCK, leaving.at);
        CHECK(io_submit(leaving.aio, 1, &list) == 1);
    }
    CHECK(pthread_create(&thread, NULL, leave, NULL) == 0);
    while (!leaving.over && !asleep(leaving.tid))
        usleep(1000);
    CHECK(unlink(stall) == 0 && pthread_join(thread, NULL) == 0);
    close(fd);
    return true;
}

int run_children(const char *path)
{
    bool has_uring;

    stall = path;
    alarm(PATIENCE);
    test_same_memory();
    test_unseen();
    test_fork_meanwhile();
    test_handler();
    test_cancel();
    has_uring = test_leave(true);
    CHECK(test_leave(false));
    check_same(0, (size_t)size);
    if (has_uring)
        return 0;
    fprintf(stderr, "skipped: io_uring cannot be had here\n");
    return 77;
}
