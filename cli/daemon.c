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
#include <syslog.h>
#include <unistd.h>

#include "cli/cli.h"
#include "clients/libqmctx/background.h"
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

static void log_to_syslog(void)
{
    char ident[32];

    snprintf(ident, sizeof ident, "quickmine-%s", command);
    openlog(strdup(ident), LOG_PID, LOG_DAEMON);
    atomic_store(&to_syslog, true);
}

void daemon_ready(void)
{
    char state[64];

    qm_pidfile_write(&pid_file);
    snprintf(state, sizeof state, "READY=1\nMAINPID=%ld", (long)getpid());
    daemon_notify(state);
    if (parent == -1)
        return;
    log_to_syslog();
    if (!qm_background_ready(parent)) {
        /* It was killed, and nobody knows that this is ready. */
        daemon_log(LOG_WARNING, "the command that was to start it has gone");
        kill(getpid(), SIGTERM);
    }
    parent = -1;
}

void daemon_tidy(void)
{
    qm_pidfile_remove(&pid_file);
}

static int run_in_background(int (*run)(void *opaque), void *opaque)
{
    int ended = 0, who = qm_background_start(&parent, &ended);

    if (who == 0)
        return run(opaque);
    /* It said what was wrong, unless a signal ended it. */
    if (ended > 0)
        daemon_log(LOG_ERR, "ended by a signal: %s", strsignal(ended));
    else if (ended < 0)
        daemon_log(LOG_ERR, "%s", strerror(-ended));
    if (who == -1) /* and the child may have had no time to */
        qm_pidfile_remove(&pid_file);
    exit(who == 1 ? CLI_OK : CLI_FAILED);
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
