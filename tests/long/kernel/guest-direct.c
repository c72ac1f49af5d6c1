/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-direct.c - direct I/O by ctx_pread and ctx_pwrite, and after ctx_set. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include "tests/long/kernel/guest.h"

static void read_for(int fd, void *buffer, int64_t ctx, const char *klass, uint64_t at,
                     size_t length)
{
    CHECK(ctx_pread(fd, buffer, length, at, ctx) == (ssize_t)length);
    say("@read %s %llu %zu\n", klass, (unsigned long long)at, length);
}

/* A transaction with two queries in turn; prefix makes the classes' names. */
void direct(const char *prefix)
{
    char tx[64], one[64], two[64], set[64];
    uint64_t base = RAW + (UINT64_C(8) << 20);
    char *buffer = aligned_buffer(64 * 1024);
    int fd = open_device(O_RDWR | O_DIRECT);
    int64_t t, a, b, s;

    snprintf(tx, sizeof tx, "%s-tx", prefix);
    snprintf(one, sizeof one, "%s-one", prefix);
    snprintf(two, sizeof two, "%s-two", prefix);
    snprintf(set, sizeof set, "%s-set", prefix);
    t = begin(APP_CTX_TRANSACTION, 0, "-", tx);
    a = begin(APP_CTX_QUERY, t, tx, one);
    b = begin(APP_CTX_QUERY, t, tx, two);
    for (int i = 0; i < 40; i++) {
        read_for(fd, buffer, i % 3 ? a : b, i % 3 ? one : two,
                 base + (uint64_t)i * 64 * 1024, (1 + i % 4) * BLOCK);
        if (i % 10 == 0)
            read_for(fd, buffer, t, tx, base + (uint64_t)(200 + i) * BLOCK, BLOCK);
        if (i % 7 == 0)
            read_for(fd, buffer, 0, "-", base + (uint64_t)(300 + i) * BLOCK, BLOCK);
    }
    end(a, one);
    /* b ends with the transaction. */
    CHECK(ctx_pwrite(fd, buffer, BLOCK, base, t) == BLOCK);
    say("@write %s %llu %d\n", tx, (unsigned long long)base, BLOCK);
    CHECK(ctx_pwrite(fd, buffer, 8 * BLOCK, base, b) == 8 * BLOCK);
    say("@write %s %llu %d\n", two, (unsigned long long)base, 8 * BLOCK);
    end(t, tx);
    say("@end %s\n", two);

    s = begin(APP_CTX_THREAD, 0, "-", set);
    CHECK(ctx_set(s) == 0 && ctx_get() == s);
    for (int i = 0; i < 5; i++) {
        CHECK(pread(fd, buffer, BLOCK, base + (uint64_t)(500 + i) * BLOCK) == BLOCK);
        say("@read %s %llu %d\n", set, (unsigned long long)base + (500 + i) * BLOCK,
            BLOCK);
        /* One that is named goes before the current one, and leaves it. */
        CHECK(ctx_pread(fd, buffer, BLOCK, base + (600 + i) * BLOCK, 0) == BLOCK);
        say("@read - %llu %d\n", (unsigned long long)base + (600 + i) * BLOCK, BLOCK);
    }
    CHECK(ctx_set(0) == s);
    CHECK(pread(fd, buffer, BLOCK, base + 700 * BLOCK) == BLOCK);
    say("@read - %llu %d\n", (unsigned long long)base + 700 * BLOCK, BLOCK);
    end(s, set);
    close(fd);
    free(buffer);
}

/* Adjacent blocks by two threads that take turns, each for its own context; and then by
 * two at the same time. */
struct shared {
    pthread_barrier_t turn;
    int fd;
};

struct half {
    struct shared *shared;
    const char *klass;
    int n;
};

static void *interleaved(void *opaque)
{
    struct half *half = opaque;
    int64_t ctx = begin(APP_CTX_THREAD, 0, "-", half->klass);
    void *buffer = aligned_buffer(BLOCK);
    uint64_t base = RAW + (UINT64_C(16) << 20);

    CHECK(ctx_set(ctx) == 0);
    for (int i = 0; i < 200; i++) {
        uint64_t at = base + (uint64_t)(2 * i + half->n) * BLOCK;

        if (i < 100)
            for (int turn = 0; turn < half->n; turn++)
                pthread_barrier_wait(&half->shared->turn);
        CHECK(pread(half->shared->fd, buffer, BLOCK, at) == BLOCK);
        say("@read %s %llu %d\n", half->klass, (unsigned long long)at, BLOCK);
        if (i < 100)
            for (int turn = half->n; turn < 2; turn++)
                pthread_barrier_wait(&half->shared->turn);
    }
    end(ctx, half->klass);
    /* It has ended, so the thread reads for nobody, without having been told. */
    CHECK(pread(half->shared->fd, buffer, BLOCK, base + (1000 + half->n) * BLOCK) ==
          BLOCK);
    say("@read - %llu %d\n", (unsigned long long)base + (1000 + half->n) * BLOCK,
        BLOCK);
    free(buffer);
    return NULL;
}

void threads(void)
{
    struct shared shared = {.fd = open_device(O_RDONLY | O_DIRECT)};
    struct half halves[2] = {{&shared, "threads-even", 0}, {&shared, "threads-odd", 1}};
    pthread_t thread[2];

    pthread_barrier_init(&shared.turn, NULL, 2);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, interleaved, &halves[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    close(shared.fd);
}

/* Without any system call of ours: for kernels that have none, too. */
void plain(void)
{
    char *buffer = aligned_buffer(BLOCK);
    int fd = open_device(O_RDWR | O_DIRECT);
    uint64_t base = RAW + (UINT64_C(32) << 20);

    for (int i = 0; i < 64; i++) {
        CHECK(pread(fd, buffer, BLOCK, base + (uint64_t)i * 3 * BLOCK) == BLOCK);
        say("@read - %llu %d\n", (unsigned long long)base + (uint64_t)i * 3 * BLOCK,
            BLOCK);
    }
    CHECK(pwrite(fd, buffer, BLOCK, base) == BLOCK);
    say("@write - %llu %d\n", (unsigned long long)base, BLOCK);
    CHECK(fsync(fd) == 0);
    close(fd);
    free(buffer);
}
