/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-library.c - programs that know libqmctx only: qmctx_begin(), and reads that
 * know of nothing. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "clients/libqmctx/qmctx.h"
#include "tests/long/kernel/guest.h"

#define BASE (RAW + (UINT64_C(96) << 20))

static void enter(struct qmctx *q, unsigned kind, const char *parent, const char *klass)
{
    CHECK(qmctx_begin(q, kind, class_id(klass), klass) == 0);
    say_begin(kind, parent, klass);
}

static void leave(struct qmctx *q, const char *klass)
{
    CHECK(qmctx_end(q) == 0);
    say("@end %s\n", klass);
}

static void read_at(const char *klass, unsigned block)
{
    uint64_t at = BASE + (uint64_t)block * BLOCK;
    int fd = open_device(O_RDONLY | O_DIRECT);
    void *buffer = aligned_buffer(BLOCK);

    CHECK(pread(fd, buffer, BLOCK, at) == BLOCK);
    say("@read %s %llu %d\n", klass, (unsigned long long)at, BLOCK);
    free(buffer);
    close(fd);
}

/* Levels, and what is read between them. */
static void nested(struct qmctx *q)
{
    enter(q, QMCTX_CONNECTION, "-", "library-connection");
    read_at("library-connection", 0);
    for (int i = 0; i < 3; i++) {
        char tx[32], query[32];

        snprintf(tx, sizeof tx, "library-tx-%d", i);
        enter(q, QMCTX_TRANSACTION, "library-connection", tx);
        for (int j = 0; j < 4; j++) {
            snprintf(query, sizeof query, "library-query-%d-%d", i, j);
            enter(q, QMCTX_QUERY, tx, query);
            read_at(query, 2 + 40 * i + 8 * j);
            read_at(query, 4 + 40 * i + 8 * j);
            leave(q, query);
            if (j == 1)
                read_at(tx, 6 + 40 * i);
        }
        leave(q, tx);
        read_at("library-connection", 36 + 40 * i);
    }
    enter(q, QMCTX_TRANSACTION, "library-connection", "library-tx-cut");
    enter(q, QMCTX_QUERY, "library-tx-cut", "library-query-cut");
    read_at("library-query-cut", 200);
    CHECK(qmctx_depth(q) == 3 && qmctx_end_to(q, 1) == 0 && qmctx_depth(q) == 1);
    say("@end library-query-cut\n@end library-tx-cut\n");
    read_at("library-connection", 202);
    leave(q, "library-connection");
    CHECK(qmctx_end(q) == -1 && errno == EINVAL);
    read_at("-", 204);
}

/* Deeper than the kernel has it: what is read there is the 64th's. */
static void deep(struct qmctx *q)
{
    char klass[32], parent[32] = "-";

    for (int i = 1; i <= 70; i++) {
        snprintf(klass, sizeof klass, "library-deep-%d", i);
        if (i <= 64)
            enter(q, QMCTX_QUERY, parent, klass);
        else
            CHECK(qmctx_begin(q, QMCTX_QUERY, 1, "too deep") == 0);
        strcpy(parent, klass);
        if (i == 1 || i == 64)
            read_at(klass, 300 + 2 * i);
    }
    read_at("library-deep-64", 450);
    CHECK(qmctx_end_to(q, 64) == 0);
    read_at("library-deep-64", 452);
    CHECK(qmctx_end_to(q, 63) == 0);
    read_at("library-deep-63", 454);
    CHECK(qmctx_end_to(q, 0) == 0);
    for (int i = 1; i <= 64; i++)
        say("@end library-deep-%d\n", i);
    read_at("-", 456);
}

/* What is current already: contexts begin in it, and it is current again afterwards. */
static void within(struct qmctx *q)
{
    int64_t own = begin(APP_CTX_CONNECTION, 0, "-", "library-own"), inner;
    struct qmctx *other;

    CHECK(ctx_set(own) == 0);
    enter(q, QMCTX_QUERY, "library-own", "library-in-own");
    read_at("library-in-own", 500);
    leave(q, "library-in-own");
    CHECK(ctx_get() == own);
    read_at("library-own", 502);

    /* Two instances: what began last is current; what ends out of turn leaves that so.
     */
    CHECK(qmctx_announce(NULL, &other) == 0);
    enter(q, QMCTX_TRANSACTION, "library-own", "library-one");
    inner = ctx_get();
    enter(other, QMCTX_QUERY, "library-one", "library-other");
    read_at("library-other", 504);
    leave(other, "library-other");
    CHECK(ctx_get() == inner);
    enter(other, QMCTX_QUERY, "library-one", "library-third");
    read_at("library-third", 506);
    inner = ctx_get();
    CHECK(qmctx_end(q) == 0); /* and what is within */
    say("@end library-third\n@end library-one\n");
    CHECK(ctx_get() == inner);
    CHECK(qmctx_end(other) == 0);
    CHECK(ctx_get() == 0);
    qmctx_close(other);

    /* What is around it has ended meanwhile. */
    CHECK(ctx_set(own) == 0);
    enter(q, QMCTX_QUERY, "library-own", "library-left");
    read_at("library-left", 508);
    end(own, "library-own");
    say("@end library-left\n");
    CHECK(qmctx_begin(q, QMCTX_QUERY, class_id("library-root"), "library-root") == 0);
    say_begin(QMCTX_QUERY, "-", "library-root");
    read_at("library-root", 510);
    leave(q, "library-root");
    CHECK(qmctx_end(q) == 0);
    CHECK(ctx_get() == 0);
}

struct job {
    struct qmctx *q;
    int n;
    pthread_barrier_t *met; /* two of them, or NULL */
};

/* Never ends its contexts: they end with the thread, or with the instance. */
static void *of_a_thread(void *opaque)
{
    struct job *job = opaque;
    char klass[32], query[32];

    snprintf(klass, sizeof klass, "library-thread-%d", job->n);
    snprintf(query, sizeof query, "library-thread-query-%d", job->n);
    enter(job->q, QMCTX_THREAD, "-", klass);
    enter(job->q, QMCTX_QUERY, klass, query);
    for (int i = 0; i < 50; i++)
        read_at(query, 600 + 4 * i + 2 * job->n);
    say("@end %s\n@end %s\n", query, klass);
    if (job->met) {
        pthread_barrier_wait(job->met);
        pthread_barrier_wait(job->met); /* closed in between */
        read_at("-", 850);
    }
    return NULL;
}

static void threads_of(struct qmctx *q)
{
    struct job jobs[2] = {{.q = q, .n = 0}, {.q = q, .n = 1}};
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, of_a_thread, &jobs[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

/* A child has none of its parent's, and may have its own. */
static void child(struct qmctx *q)
{
    int status;
    pid_t pid;

    enter(q, QMCTX_CONNECTION, "-", "library-parent");
    pid = fork();
    if (pid == 0) {
        struct qmctx *own;

        CHECK(qmctx_begin(q, QMCTX_QUERY, 1, NULL) == 0 && !qmctx_connected(q));
        read_at("-", 900);
        CHECK(qmctx_end(q) == 0);
        qmctx_close(q);
        CHECK(qmctx_announce("kernel", &own) == 0);
        enter(own, QMCTX_CONNECTION, "-", "library-child");
        read_at("library-child", 902);
        say("@end library-child\n"); /* by its exit */
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    read_at("library-parent", 904);
    leave(q, "library-parent");
}

void library(void)
{
    pthread_barrier_t met;
    struct job job = {.n = 2, .met = &met};
    pthread_t thread;
    struct qmctx *q;

    CHECK(qmctx_announce(NULL, &q) == 0);
    CHECK(!strcmp(qmctx_transport(q), "kernel") && qmctx_connected(q));
    CHECK(qmctx_begin(q, 0, 1, NULL) == -1 && errno == EINVAL);
    nested(q);
    deep(q);
    within(q);
    threads_of(q);
    child(q);

    pthread_barrier_init(&met, NULL, 2);
    job.q = q;
    CHECK(pthread_create(&thread, NULL, of_a_thread, &job) == 0);
    pthread_barrier_wait(&met);
    enter(q, QMCTX_QUERY, "-", "library-closed");
    read_at("library-closed", 852);
    qmctx_close(q);
    say("@end library-closed\n");
    CHECK(ctx_get() == 0);
    pthread_barrier_wait(&met);
    pthread_join(thread, NULL);
}

/* A library that knows nothing of contexts, here the C library's streams, reads a file.
 */
void library_files(void)
{
    int fd = open("/mnt/b", O_RDONLY | O_CLOEXEC);
    static char buffer[10000];
    struct qmctx *q;
    uint64_t size;
    FILE *stream;

    CHECK(fd >= 0);
    size = lseek(fd, 0, SEEK_END);
    CHECK(qmctx_announce("kernel", &q) == 0);
    enter(q, QMCTX_TRANSACTION, "-", "library-files");
    enter(q, QMCTX_QUERY, "library-files", "library-stream");
    say_cover(fd, "library-stream", 0, size);
    drop_pages();
    stream = fdopen(fd, "r");
    CHECK(stream);
    rewind(stream);
    while (fread(buffer, 1, sizeof buffer, stream) == sizeof buffer)
        ;
    CHECK(feof(stream));
    leave(q, "library-stream");
    leave(q, "library-files");
    fclose(stream);
    qmctx_close(q);
}

/* Where the kernel has no contexts. */
void library_refused(void)
{
    struct qmctx *q;

    CHECK(qmctx_announce(NULL, &q) == -1 && errno == ENOSYS && !q);
    CHECK(qmctx_announce("kernel", &q) == -1 && errno == ENOSYS && !q);
}
