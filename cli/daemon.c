/* SPDX-License-Identifier: BSD-3-Clause */
/* daemon.c - see daemon.h. */
#include "cli/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "cli/cli.h"
#include "clients/libqmctx/pidfile.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

static const char *command;
static atomic_bool to_syslog;
static int parent = -1; /* where to tell that we are ready */
static struct qm_pidfile pid_file = {.dir = -1, .fd = -1};

void daemon_log(int priority, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (atomic_load(&to_syslog))
        syslog(priority, "%s", text);
    else
        fprintf(stderr, "quickmine %s: %s\n", command, text);
}

void daemon_notify(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (n == 0 || n >= sizeof address.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(address.sun_path, path, n);
    if (*path == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

static void leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char ident[32];

    setsid();
    (void)!chdir("/");
    snprintf(ident, sizeof ident, "quickmine-%s", command);
    openlog(strdup(ident), LOG_PID, LOG_DAEMON);
    atomic_store(&to_syslog, true);
    if (null == -1)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    if (null > STDERR_FILENO)
        close(null);
}

void daemon_ready(void)
{
    char state[64];

    qm_pidfile_write(&pid_file);
    snprintf(state, sizeof state, "READY=1\nMAINPID=%ld", (long)getpid());
    daemon_notify(state);
    if (parent == -1)
        return;
    leave_terminal();
    if (write(parent, "", 1) != 1) {
        /* It was killed, and nobody knows that this is ready. */
        daemon_log(LOG_WARNING, "the command that was to start it has gone");
        kill(getpid(), SIGTERM);
    }
    close(parent);
    parent = -1;
}

static volatile pid_t starting; /* 0: none; the child, of its parent */

/* The parent is to end: then the child must not go on, and be ready later. */
static void on_stop(int sig)
{
    if (starting > 0)
        kill(starting, SIGTERM);
}

/* Waits until the child is ready, or has failed.  Returns the exit status. */
static int wait_for_child(pid_t child, int from_child)
{
    int status = 0;
    ssize_t n;
    char c;

    do
        n = read(from_child, &c, 1);
    while (n == -1 && errno == EINTR);
    if (n == 1) {
        starting = 0; /* it lives by itself from now on */
        return CLI_OK;
    }
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    starting = 0;
    /* It said what was wrong, unless a signal ended it. */
    if (WIFSIGNALED(status))
        daemon_log(LOG_ERR, "ended by a signal: %s", strsignal(WTERMSIG(status)));
    return CLI_FAILED;
}

static int run_in_background(int (*run)(void *opaque), void *opaque)
{
    struct sigaction stop = {.sa_handler = on_stop};
    sigset_t signals, before;
    int ends[2], status;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, &before);
    if (pipe2(ends, O_CLOEXEC) == -1 || (starting = fork()) == -1) {
        daemon_log(LOG_ERR, "%s", strerror(errno));
        return CLI_FAILED;
    }
    if (starting == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        parent = ends[1];
        return run(opaque);
    }
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    status = wait_for_child(starting, ends[0]);
    close(ends[0]);
    if (status != CLI_OK) /* and the child may have had no time to */
        qm_pidfile_remove(&pid_file);
    exit(status);
}

int daemon_start(const char *name, bool foreground, const char *pidfile,
                 int (*run)(void *opaque), void *opaque)
{
    const char *wrong;
    int status;

    command = name;
    if (pidfile && (wrong = qm_pidfile_open(&pid_file, pidfile))) {
        daemon_log(LOG_ERR, "%s: %s", pidfile, wrong);
        return CLI_FAILED;
    }
    status = foreground ? run(opaque) : run_in_background(run, opaque);
    qm_pidfile_remove(&pid_file);
    return status;
}

static void be_killed_last(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd == -1 || write(fd, "-1000", 5) != 5)
        daemon_log(LOG_WARNING,
                   "the kernel may kill this process when memory is short: %s",
                   strerror(errno));
    if (fd != -1)
        close(fd);
}

void daemon_protect(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0)
        daemon_log(LOG_WARNING, "this process may be swapped out: %s", strerror(errno));
    if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0)
        daemon_log(LOG_WARNING,
                   "when memory is short, this process may wait for itself: %s",
                   strerror(errno));
    be_killed_last();
}
