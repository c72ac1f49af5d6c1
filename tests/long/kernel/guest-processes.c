/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-processes.c - contexts and fork, exec, kill; and what is refused. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/long/kernel/guest.h"

#define BASE (RAW + (UINT64_C(48) << 20))

static void read_at(int fd, const char *klass, unsigned block)
{
    uint64_t at = BASE + (uint64_t)block * BLOCK;
    void *buffer = aligned_buffer(BLOCK);

    CHECK(pread(fd, buffer, BLOCK, at) == BLOCK);
    say("@read %s %llu %d\n", klass, (unsigned long long)at, BLOCK);
    free(buffer);
}

static void expect_exit(pid_t pid)
{
    int status;

    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* The program that execs: its context ends with it. */
static void exec_it(void)
{
    int fd = open_device(O_RDONLY | O_DIRECT);
    int64_t ctx = begin(APP_CTX_CONNECTION, 0, "-", "processes-exec");

    CHECK(ctx_set(ctx) == 0);
    read_at(fd, "processes-exec", 20);
    say("@end processes-exec\n");
    execl("/proc/self/exe", "guest", "after-exec", NULL);
    CHECK(!"execl");
}

void after_exec(void)
{
    int fd = open_device(O_RDONLY | O_DIRECT);

    CHECK(ctx_get() == 0);
    read_at(fd, "-", 22);
    close(fd);
}

/* Never ends its context, nor the one within; is killed. */
static void be_killed(int ready)
{
    int fd = open_device(O_RDONLY | O_DIRECT);
    int64_t ctx = begin(APP_CTX_TRANSACTION, 0, "-", "processes-killed");
    int64_t inner =
        begin(APP_CTX_QUERY, ctx, "processes-killed", "processes-killed-query");

    CHECK(ctx_set(inner) == 0);
    read_at(fd, "processes-killed-query", 30);
    CHECK(write(ready, "", 1) == 1);
    for (;;)
        pause();
}

void processes(void)
{
    int fd = open_device(O_RDONLY | O_DIRECT), ready[2], status;
    int64_t ctx = begin(APP_CTX_CONNECTION, 0, "-", "processes-parent");
    char byte;
    pid_t pid;

    CHECK(ctx_set(ctx) == 0);
    read_at(fd, "processes-parent", 0);
    pid = fork();
    if (pid == 0) {
        int64_t own;

        /* A child has none, and cannot use its parent's. */
        CHECK(ctx_get() == 0);
        read_at(fd, "-", 2);
        CHECK(ctx_set(ctx) == -1 && errno == ENOENT);
        CHECK(ctx_end(ctx) == -1 && errno == ENOENT);
        CHECK(ctx_pread(fd, &byte, 1, 0, ctx) == -1 && errno == ENOENT);
        own = begin(APP_CTX_CONNECTION, 0, "-", "processes-child");
        CHECK(ctx_set(own) == 0);
        read_at(fd, "processes-child", 4);
        say("@end processes-child\n"); /* by its exit */
        _exit(0);
    }
    expect_exit(pid);
    CHECK(ctx_get() == ctx);
    read_at(fd, "processes-parent", 6);
    end(ctx, "processes-parent");

    pid = fork();
    if (pid == 0)
        exec_it();
    expect_exit(pid);

    CHECK(pipe(ready) == 0);
    pid = fork();
    if (pid == 0)
        be_killed(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    say("@end processes-killed-query\n@end processes-killed\n");
    close(fd);
}

static void *of_a_thread(void *opaque)
{
    /* A thread has none when it starts, and may use its process's. */
    CHECK(ctx_get() == 0);
    CHECK(ctx_set(*(int64_t *)opaque) == 0);
    return NULL;
}

/* Nothing of this reaches the server. */
void refusals(void)
{
    int64_t ctx = ctx_begin(APP_CTX_QUERY, 0, 1, "refused", 7), last = ctx, deep[64];
    struct app_ctx_attr attr = {.kind = APP_CTX_QUERY};
    char longer[64] = {0};
    pthread_t thread;
    int n;

    CHECK(ctx > 0);
    CHECK(ctx_begin(0, 0, 1, NULL, 0) == -1 && errno == EINVAL);
    CHECK(ctx_begin(5, 0, 1, NULL, 0) == -1 && errno == EINVAL);
    CHECK(ctx_begin(APP_CTX_QUERY, ctx + 65536, 1, NULL, 0) == -1 && errno == ENOENT);
    CHECK(ctx_begin(APP_CTX_QUERY, 0, 1, (char *)8, 9) == -1 && errno == EFAULT);
    attr.name_len = APP_CTX_NAME_MAX + 1;
    CHECK(ctx_action(APP_CTX_BEGIN, 0, &attr, sizeof attr) == -1 && errno == EINVAL);
    attr.name_len = 0;
    CHECK(ctx_action(APP_CTX_BEGIN, 0, &attr, sizeof attr - 1) == -1 &&
          errno == EINVAL);
    CHECK(ctx_action(APP_CTX_BEGIN, ctx, &attr, sizeof attr) == -1 && errno == EINVAL);
    CHECK(ctx_action(APP_CTX_SET, ctx, &attr, sizeof attr) == -1 && errno == EINVAL);
    CHECK(ctx_action(APP_CTX_GET, ctx, NULL, 0) == -1 && errno == EINVAL);
    CHECK(ctx_action(99, 0, NULL, 0) == -1 && errno == EINVAL);
    /* A later version's attributes: allowed where they are 0. */
    memcpy(longer, &attr, sizeof attr);
    CHECK((last = ctx_action(APP_CTX_BEGIN, 0, (void *)longer, sizeof longer)) > ctx);
    CHECK(ctx_end(last) == 0);
    longer[sizeof longer - 1] = 1;
    CHECK(ctx_action(APP_CTX_BEGIN, 0, (void *)longer, sizeof longer) == -1 &&
          errno == E2BIG);

    CHECK(pthread_create(&thread, NULL, of_a_thread, &ctx) == 0);
    pthread_join(thread, NULL);
    CHECK(ctx_get() == 0);

    /* 64 deep, and they all end with the first. */
    deep[0] = ctx;
    for (n = 1; n < 64; n++)
        CHECK((deep[n] = ctx_begin(APP_CTX_QUERY, deep[n - 1], 1, NULL, 0)) > 0);
    CHECK(ctx_begin(APP_CTX_QUERY, deep[63], 1, NULL, 0) == -1 && errno == ELOOP);
    CHECK(ctx_set(deep[63]) == 0);
    CHECK(ctx_end(ctx) == 0);
    for (n = 0; n < 64; n++)
        CHECK(ctx_end(deep[n]) == -1 && errno == ENOENT);
    CHECK(ctx_get() == deep[63]); /* which does nothing any more */
    CHECK(ctx_set(0) == deep[63]);

    /* As many as there are, and no more; handles are not used again. */
    for (n = 0; (ctx = ctx_begin(APP_CTX_QUERY, 0, 1, NULL, 0)) > 0; n++)
        CHECK(ctx > last);
    CHECK(errno == EAGAIN && n > 32000);
}
