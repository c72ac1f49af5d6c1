/* SPDX-License-Identifier: BSD-3-Clause */
/* background.c - see background.h. */
#include "clients/libqmctx/background.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t second; /* 0: none */

static void on_stop(int sig)
{
    if (second > 0)
        kill(second, SIGTERM);
}

static int wait_for(pid_t child, int from_child, int *signal)
{
    int status = 0;
    ssize_t n;
    char c;

    do
        n = read(from_child, &c, 1);
    while (n == -1 && errno == EINTR);
    if (n == 1) {
        second = 0; /* it lives by itself from now on */
        return 1;
    }
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    second = 0;
    *signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return -1;
}

bool qm_background_hangup_counts(void)
{
    struct sigaction hangup;

    return sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN;
}

int qm_background_start(int *ready, int *signal)
{
    struct sigaction stop = {.sa_handler = on_stop};
    sigset_t signals, before;
    int ends[2], result;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    if (pipe2(ends, O_CLOEXEC) == -1 || (second = fork()) == -1) {
        *signal = -errno;
        return -1;
    }
    if (second == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        *ready = ends[1];
        return 0;
    }
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (qm_background_hangup_counts())
        sigaction(SIGHUP, &stop, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    result = wait_for(second, ends[0], signal);
    close(ends[0]);
    return result;
}

static void (*tidy_up)(void);

static void on_early_end(int sig)
{
    if (tidy_up)
        tidy_up();
    signal(sig, SIG_DFL);
    raise(sig);
    _exit(128 + sig); /* no default action ends the first process of a container */
}

void qm_background_tidy(void (*tidy)(void))
{
    struct sigaction end = {.sa_handler = on_early_end, .sa_flags = SA_NODEFER};

    tidy_up = tidy;
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    if (qm_background_hangup_counts())
        sigaction(SIGHUP, &end, NULL);
}

void qm_background_tidied(void)
{
    tidy_up = NULL;
}

static void leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    setsid();
    (void)!chdir("/");
    if (null == -1)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    if (null > STDERR_FILENO)
        close(null);
}

bool qm_background_ready(int ready)
{
    bool known;

    leave_terminal();
    known = write(ready, "", 1) == 1;
    close(ready);
    return known;
}
