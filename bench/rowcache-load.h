/* SPDX-License-Identifier: BSD-3-Clause */
/* rowcache-load.h - what a workload of bench/rowcache does: rows are read and written
 * by one client after the other, each with random numbers of its own. */
#ifndef QM_BENCH_ROWCACHE_LOAD_H
#define QM_BENCH_ROWCACHE_LOAD_H

#include <mysql.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct client {
    pthread_t thread;
    uint64_t random;
    MYSQL *mysql;
    int fd; /* of the cache; -1: there is none */
    char in[65536];
    size_t length; /* of the last bulk reply */
    unsigned table;
    uint64_t due;   /* ns; with --rate, when its last pause was to end; 0: none yet */
    uint64_t since; /* the same until an access has begun; 0 */
    uint64_t reads, hits, selects, writes, errors;
    float *us, *write_us; /* of the reads, and of the writes */
};

struct workload {
    const char *name;
    void (*act)(struct client *c); /* one page, transaction or frame */
};
extern const struct workload workloads[]; /* the last has no name */

extern unsigned scale, reads_percent;

/* Less than n. */
uint64_t draw(struct client *c, uint64_t n);
/* The row of that table whose id is so. */
void read_row(struct client *c, const char *table, uint64_t id);
void write_row(struct client *c, const char *table, uint64_t id);
void think(struct client *c);
/* Time is up, or all that was to be read is. */
bool is_over(const struct client *c);

#endif
