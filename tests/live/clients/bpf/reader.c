/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c - `bpf-reader WHERE DEVICE`: reads in contexts that it announces there.
 *
 * Four threads: each has a connection with 3 transactions of 10 queries, and reads 16
 * KiB in each query, past the page cache, at the place that says whose it is: the
 * device's block is thread * 32 + transaction * 10 + query.  Then children, made while
 * contexts are open, by fork() and in a way that libraries do not hear of, read block
 * 200 and 201.  Waits for the agent to know it: on a busy machine that takes more than
 * the second that qmctx_announce() waits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/libqmctx/qmctx.h"

#define BLOCK 16384

enum { THREADS = 4 };

static struct qmctx *ctx;
static int fd;
/* A thread that begins when another has ended would get its slots of the table, 64, and
 * overwrite what an agent that comes late has not looked at. */
static pthread_barrier_t all_have_slots;

static void read_block(void *buf, long n)
{
    if (pread(fd, buf, BLOCK, n * BLOCK) != BLOCK) {
        perror("pread");
        exit(1);
    }
}

static void *thread(void *arg)
{
    long me = (long)arg;
    char name[32];
    void *buf;

    if (posix_memalign(&buf, 4096, BLOCK) != 0)
        exit(1);
    snprintf(name, sizeof name, "connection %ld", me);
    qmctx_begin(ctx, QMCTX_CONNECTION, 1, name);
    pthread_barrier_wait(&all_have_slots);
    for (long t = 0; t < 3; t++) {
        qmctx_begin(ctx, QMCTX_TRANSACTION, 2, "transaction");
        for (long q = 0; q < 10; q++) {
            snprintf(name, sizeof name, "query %ld", me * 32 + t * 10 + q);
            qmctx_begin(ctx, QMCTX_QUERY, (uint64_t)(me * 32 + t * 10 + q), name);
            read_block(buf, me * 32 + t * 10 + q);
            qmctx_end(ctx);
        }
        qmctx_end(ctx);
    }
    qmctx_end(ctx);
    free(buf);
    return NULL;
}

/* It is looked for when contexts begin. */
static bool is_known(void)
{
    for (unsigned i = 0; i < 60000 && !qmctx_connected(ctx); i++) {
        qmctx_begin(ctx, QMCTX_CONNECTION, 0, NULL);
        qmctx_end(ctx);
        usleep(1000);
    }
    return qmctx_connected(ctx);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int status = 0;
    pid_t child;
    void *buf;

    if (argc != 3 || qmctx_announce(argv[1], &ctx) != 0 || !is_known()) {
        fprintf(stderr, "%s\n", argc == 3 ? qmctx_error() : "two arguments");
        return 1;
    }
    fd = open(argv[2], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd == -1 || posix_memalign(&buf, 4096, BLOCK) != 0) {
        perror(argv[2]);
        return 1;
    }
    pthread_barrier_init(&all_have_slots, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, (void *)i) != 0)
            return 1;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qmctx_begin(ctx, QMCTX_QUERY, 999, "parent");
    if (fork() == 0) {
        read_block(buf, 200);
        _exit(0);
    }
    wait(&status);
    child = _Fork();
    if (child == 0) {
        qmctx_begin(ctx, QMCTX_QUERY, 1000, "child");
        read_block(buf, 201);
        qmctx_end(ctx);
        _exit(0);
    }
    if (status == 0)
        waitpid(child, &status, 0);
    qmctx_end(ctx);
    qmctx_close(ctx);
    pthread_barrier_destroy(&all_have_slots);
    free(buf);
    close(fd);
    return status != 0;
}
