/* SPDX-License-Identifier: BSD-3-Clause */
/* nbdkit-server.c - see nbdkit-server.h. */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nbdkit-server.h"

#define MAX_ARGS 32

void nbdkit_server_init(struct nbdkit_server *s)
{
    *s = (struct nbdkit_server){.dir = "/tmp/qmctx.XXXXXX"};
    if (!mkdtemp(s->dir))
        err(1, "mkdtemp");
    snprintf(s->uri, sizeof s->uri, "nbd+unix:///?socket=%s/socket", s->dir);
}

/* What a module that is built with a sanitizer needs in the program that loads it. */
static void preload_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    const char *name = "libtsan.so.2";
#elif defined(__SANITIZE_ADDRESS__)
    const char *name = "libasan.so.8";
#else
    const char *name = NULL;
#endif
    if (name)
        setenv("LD_PRELOAD", name, 1);
    else
        unsetenv("LD_PRELOAD");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
}

void nbdkit_server_start(struct nbdkit_server *s, ...)
{
    char socket[96], pidfile[96], log[96],
        *argv[MAX_ARGS] = {"nbdkit", "-f", "-U", socket, "-P", pidfile};
    time_t until = time(NULL) + 60;
    struct stat st;
    unsigned n = 6;
    va_list args;

    snprintf(socket, sizeof socket, "%s/socket", s->dir);
    snprintf(pidfile, sizeof pidfile, "%s/pid", s->dir);
    snprintf(log, sizeof log, "%s/log", s->dir);
    va_start(args, s);
    while (n < MAX_ARGS - 1 && (argv[n] = va_arg(args, char *)))
        n++;
    va_end(args);
    unlink(socket); /* nbdkit leaves it behind */
    unlink(pidfile);
    s->pid = fork();
    if (s->pid == -1)
        err(1, "fork");
    if (s->pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (fd != -1)
            dup2(fd, 2);
        preload_sanitizer();
        execvp("nbdkit", argv);
        _exit(127);
    }
    while (stat(pidfile, &st) == -1 || st.st_size == 0) {
        if (time(NULL) > until || waitpid(s->pid, NULL, WNOHANG) != 0)
            errx(1, "nbdkit did not start: see %s", log);
        usleep(10000);
    }
}

void nbdkit_server_stop(struct nbdkit_server *s, int signal)
{
    time_t until = time(NULL) + 60;
    pid_t pid = s->pid;

    s->pid = 0;
    kill(pid, signal);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (time(NULL) > until) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            errx(1, "nbdkit did not end");
        }
        usleep(10000);
    }
}

void nbdkit_server_destroy(struct nbdkit_server *s)
{
    struct dirent *e;
    DIR *d;

    /* Of a test that failed: clients that are still there would keep it. */
    if (s->pid)
        nbdkit_server_stop(s, SIGKILL);
    d = opendir(s->dir);
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(s->dir);
}
