/* SPDX-License-Identifier: BSD-3-Clause */
/* test-registrar.c - the agent's registrar: which programs register, and the files of
 * its folder.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "clients/bpf/registrar.h"

enum { PATIENCE = 60, DESCRIPTORS = 256 + 3 * 16, MOST = 16, SHARE = MOST / 4 };

static char dir[] = "/tmp/registrar.XXXXXX", path[64], victim[64];
static struct qm_registrar *registrar;
static unsigned arrivals;
static pid_t last;
static bool hostile; /* the folder's owner puts a link in the socket's place at once */

/* The registrar's bind(2): in the test's place of it. */
int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    int r = (int)syscall(SYS_bind, fd, address, size);

    if (r == 0 && hostile) {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(victim, path), 0);
    }
    return r;
}

static int arrived(void *opaque, pid_t process, uid_t user,
                   const struct qm_agent_hello *hello, int table)
{
    arrivals++;
    last = process;
    return 0;
}

static void left(void *opaque, pid_t process)
{
}

static void open_door(void)
{
    const struct qm_registrar_calls calls = {arrived, left, NULL};
    char err[256];

    if (qm_registrar_open(&registrar, path, &calls, err, sizeof err) != 0)
        fail_msg("%s", err);
}

static int set_up(void **state)
{
    FILE *f;

    strcpy(dir + sizeof dir - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(path, sizeof path, "%s/agent.sock", dir);
    snprintf(victim, sizeof victim, "%s/victim", dir);
    f = fopen(victim, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(chmod(victim, 0600), 0);
    arrivals = 0;
    hostile = false;
    return 0;
}

static int tear_down(void **state)
{
    qm_registrar_close(registrar);
    registrar = NULL;
    unlink(path);
    unlink(victim);
    return rmdir(dir);
}

static mode_t mode_of(const char *file)
{
    struct stat st;

    assert_int_equal(lstat(file, &st), 0);
    return st.st_mode & 07777;
}

TEST_WITH(test_mode, set_up, tear_down)
{
    mode_t before = umask(077);

    open_door();
    assert_int_equal(mode_of(path), 0666);
    assert_int_equal(umask(before), 077);
    /* What is made later is made as before. */
}

/* A link in the socket's place is not followed: not for its mode, not at the end. */
TEST_WITH(test_link_in_its_place, set_up, tear_down)
{
    hostile = true;
    open_door();
    assert_int_equal(mode_of(victim), 0600);
    qm_registrar_close(registrar);
    registrar = NULL;
    assert_int_equal(mode_of(victim), 0600);
}

/* A process in the background has left the directory that the path was relative to. */
TEST_WITH(test_relative_path, set_up, tear_down)
{
    const struct qm_registrar_calls calls = {arrived, left, NULL};
    struct stat st;
    char err[256];

    for (int other = 0; other < 2; other++) {
        assert_int_equal(chdir(dir), 0);
        assert_int_equal(
            qm_registrar_open(&registrar, "agent.sock", &calls, err, sizeof err), 0);
        assert_int_equal(chdir("/"), 0);
        if (other) { /* what is not its own stays */
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink(victim, path), 0);
        }
        qm_registrar_close(registrar);
        registrar = NULL;
        assert_int_equal(lstat(path, &st), other - 1);
    }
}

static int knock(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, path);
    if (fd == -1 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        _exit(2);
    return fd;
}

/* A child, which does not outlive a test that fails. */
static pid_t start(void)
{
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(PATIENCE);
    }
    return child;
}

static void say_hello_with(int fd, unsigned tables)
{
    struct qm_agent_hello hello = {
        .magic = QM_AGENT_MAGIC, .version = QM_AGENT_VERSION, .slots = 16};
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(tables * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    int table = memfd_create("table", MFD_CLOEXEC), both[2] = {table, table};

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(tables * sizeof(int));
    memcpy(CMSG_DATA(c), both, tables * sizeof(int));
    if (table == -1 || sendmsg(fd, &message, MSG_NOSIGNAL) != sizeof hello)
        _exit(2);
    close(table);
}

static void say_hello(int fd)
{
    say_hello_with(fd, 1);
}

/* Whether the registrar has closed it. */
static bool is_closed(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* Serves until a child has come to its next step, and ended one says how. */
static void await_step(int from_child)
{
    struct pollfd p = {.fd = from_child, .events = POLLIN};
    time_t until = time(NULL) + PATIENCE;
    char c;

    while (poll(&p, 1, 5) == 0) {
        assert_true(time(NULL) < until);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
        qm_registrar_serve(registrar);
    }
    assert_int_equal(read(from_child, &c, 1), 1);
    qm_registrar_serve(registrar);
}

/* A user that connects more often than his share is refused the rest; others come in.
 */
TEST_WITH(test_shares, set_up, tear_down)
{
    struct rlimit before, few;
    int steps[2], go[2], fds[MOST], open = 0, status;
    pid_t child;
    char c = 0;

    if (geteuid() != 0)
        skip();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    open_door();
    assert_int_equal(pipe(steps), 0);
    assert_int_equal(pipe(go), 0);
    child = start();
    if (child == 0) {
        if (setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        for (int i = 0; i < MOST; i++)
            fds[i] = knock();
        (void)!write(steps[1], &c, 1);
        (void)!read(go[0], &c, 1);
        for (int i = 0; i < MOST; i++)
            open += !is_closed(fds[i]);
        if (open != SHARE)
            _exit(3);
        /* One that goes makes place for another of his. */
        close(fds[0]);
        (void)!write(steps[1], &c, 1);
        (void)!read(go[0], &c, 1);
        fds[0] = knock();
        say_hello(fds[0]);
        (void)!write(steps[1], &c, 1);
        (void)!read(go[0], &c, 1);
        _exit(is_closed(fds[0]) ? 4 : 0);
    }
    await_step(steps[0]);
    (void)!write(go[1], &c, 1);
    await_step(steps[0]);
    (void)!write(go[1], &c, 1);
    await_step(steps[0]);
    assert_int_equal(arrivals, 1);
    assert_int_equal(last, child);
    /* Another user's place, and root's. */
    pid_t other = start();
    if (other == 0) {
        if (setresuid(65533, 65533, 65533) != 0)
            _exit(2);
        fds[0] = knock();
        say_hello(fds[0]);
        (void)!write(steps[1], &c, 1);
        (void)!read(go[0], &c, 1);
        _exit(is_closed(fds[0]) ? 5 : 0);
    }
    await_step(steps[0]);
    assert_int_equal(arrivals, 2);
    assert_int_equal(last, other);
    (void)!write(go[1], "go", 2);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    close(steps[0]);
    close(steps[1]);
    close(go[0]);
    close(go[1]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* A process that has said hello and ended before it is heard is not registered: its
 * number may be another's by now.  Its connection is held by a child of its own. */
TEST_WITH(test_hello_of_one_who_has_ended, set_up, tear_down)
{
    int steps[2], go[2], status, fd;
    pid_t child;
    char c = 0;

    open_door();
    assert_int_equal(pipe(steps), 0);
    assert_int_equal(pipe(go), 0);
    child = start();
    if (child == 0) {
        fd = knock();
        (void)!write(steps[1], &c, 1);
        (void)!read(go[0], &c, 1);
        say_hello(fd);
        if (fork() == 0) {
            alarm(PATIENCE);
            close(steps[1]);
            close(go[1]);
            (void)!read(go[0], &c, 1);
            _exit(0);
        }
        _exit(0);
    }
    close(steps[1]);
    await_step(steps[0]);
    (void)!write(go[1], &c, 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    qm_registrar_serve(registrar);
    assert_int_equal(arrivals, 0);
    (void)!write(go[1], &c, 1);
    close(steps[0]);
    close(go[0]);
    close(go[1]);
}

/* Serves until the registrar has closed the test's own connection. */
static void await_closed(int fd)
{
    time_t until = time(NULL) + PATIENCE;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct qm_agent_welcome answer;

        assert_true(time(NULL) < until);
        qm_registrar_serve(registrar);
        if (poll(&p, 1, 5) == 1 && recv(fd, &answer, sizeof answer, MSG_DONTWAIT) <= 0)
            return;
    }
}

/* A process has one registration: the newest. */
TEST_WITH(test_registering_anew, set_up, tear_down)
{
    int first, second;

    open_door();
    first = knock();
    qm_registrar_serve(registrar);
    say_hello(first);
    qm_registrar_serve(registrar);
    assert_int_equal(arrivals, 1);
    second = knock();
    qm_registrar_serve(registrar);
    say_hello(second);
    await_closed(first);
    assert_int_equal(arrivals, 2);
    assert_false(is_closed(second));
    close(first);
    close(second);
}

/* Who comes and says nothing, or brings more than one table, does not stay. */
TEST_WITH(test_silent_and_strange, set_up, tear_down)
{
    int silent, strange;

    open_door();
    silent = knock();
    strange = knock();
    qm_registrar_serve(registrar);
    say_hello_with(strange, 2);
    await_closed(strange);
    assert_int_equal(arrivals, 0);
    await_closed(silent);
    close(silent);
    close(strange);
}
