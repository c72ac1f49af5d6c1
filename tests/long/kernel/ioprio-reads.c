/* SPDX-License-Identifier: BSD-3-Clause */
/* ioprio-reads.c - clients of an NBD server: some that read one after another block,
 * and some that read blocks at random, each with one read at a time.
 *
 * ioprio-reads SOCKET SEQUENTIAL RANDOM READS [SECONDS]: numbers of clients.
 * Those that read in sequence begin at even distances in the first half of the device
 * and read READS blocks of 16 KiB each, the others as many in the second half; with
 * SECONDS, all go on until then.  It prints a line for each kind: its reads, and what
 * they took in microseconds (mean, median, 99 %, longest).
 */
#include <inttypes.h>
#include <libnbd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK 16384

static struct {
    const char *socket;
    unsigned sequential, random;
    uint64_t reads, end; /* end: ns; 0: after `reads` */
} o;

struct client {
    pthread_t thread;
    unsigned number;
    bool random;
    uint64_t n, room;
    uint32_t *us;
};

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "ioprio-reads: %s: %s\n", what, nbd_get_error());
    exit(1);
}

static void *run(void *opaque)
{
    struct client *c = opaque;
    struct nbd_handle *nbd = nbd_create();
    uint64_t blocks, at, first, x = 88172645463325252u + c->number, start;
    static _Thread_local char buf[BLOCK];

    if (!nbd || nbd_connect_unix(nbd, o.socket) == -1)
        die("connect");
    blocks = (uint64_t)nbd_get_size(nbd) / BLOCK / 2;
    first = c->random ? blocks : blocks / o.sequential * c->number;
    while (o.end ? now() < o.end : c->n < o.reads) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        at = c->random ? first + x % blocks : (first + c->n) % blocks;
        start = now();
        if (nbd_pread(nbd, buf, BLOCK, at * BLOCK, 0) == -1)
            die("read");
        if (c->n == c->room) {
            c->room = 2 * c->room + 1024;
            c->us = realloc(c->us, c->room * sizeof *c->us);
            if (!c->us)
                die("memory");
        }
        c->us[c->n++] = (uint32_t)((now() - start) / 1000);
    }
    nbd_shutdown(nbd, 0);
    nbd_close(nbd);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void report(const char *name, const struct client *clients, unsigned n)
{
    uint64_t all = 0, sum = 0;
    uint32_t *us;

    for (unsigned i = 0; i < n; i++)
        all += clients[i].n;
    if (all == 0)
        return;
    us = malloc(all * sizeof *us);
    if (!us)
        die("memory");
    all = 0;
    for (unsigned i = 0; i < n; i++) {
        memcpy(us + all, clients[i].us, clients[i].n * sizeof *us);
        all += clients[i].n;
    }
    for (uint64_t i = 0; i < all; i++)
        sum += us[i];
    qsort(us, all, sizeof *us, compare);
    printf("%s: %" PRIu64 " reads, mean %" PRIu64 " p50 %" PRIu32 " p99 %" PRIu32
           " max %" PRIu32 "\n",
           name, all, sum / all, us[all / 2], us[all * 99 / 100], us[all - 1]);
    free(us);
}

int main(int argc, char **argv)
{
    struct client *clients;
    unsigned n;

    if (argc < 5)
        return 2;
    o.socket = argv[1];
    o.sequential = (unsigned)strtoul(argv[2], NULL, 10);
    o.random = (unsigned)strtoul(argv[3], NULL, 10);
    o.reads = strtoull(argv[4], NULL, 10);
    if (argc > 5)
        o.end = now() + strtoull(argv[5], NULL, 10) * 1000000000;
    n = o.sequential + o.random;
    clients = calloc(n + 1, sizeof *clients);
    if (!clients)
        die("memory");
    for (unsigned i = 0; i < n; i++) {
        clients[i].number = i;
        clients[i].random = i >= o.sequential;
        if (pthread_create(&clients[i].thread, NULL, run, &clients[i]) != 0)
            die("thread");
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(clients[i].thread, NULL);
    report("sequential", clients, o.sequential);
    report("random", clients + o.sequential, o.random);
    for (unsigned i = 0; i < n; i++)
        free(clients[i].us);
    free(clients);
    return 0;
}
