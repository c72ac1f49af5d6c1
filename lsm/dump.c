/* SPDX-License-Identifier: BSD-3-Clause */
/* dump.c - see dump.h. */
#include "lsm/dump.h"
#include "lsm/feature.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ROW 600u /* bytes at most */

struct dump {
    pthread_mutex_t lock;
    FILE *file;
    uint64_t left;
    bool ended;
};

struct dump *dump_open(const char *path, uint64_t bytes)
{
    struct dump *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->file = fopen(path, "wxe");
    if (!d->file) {
        free(d);
        return NULL;
    }
    pthread_mutex_init(&d->lock, NULL);
    d->left = bytes;
    fputs("family,ranges,interval,range,r1,r2,r3,r4,r5,r6,w1,w2,w3,w4,w5,w6,hour,"
          "minute,second,p1,p2,p3\n",
          d->file);
    return d;
}

void dump_close(struct dump *d)
{
    if (!d)
        return;
    fclose(d->file);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Whole numbers and thousandths: no locale writes them otherwise. */
static int number(FILE *file, double x)
{
    uint64_t thousandths = x > 0 && x < 1e15 ? (uint64_t)(x * 1000 + .5) : 0;
    uint64_t rest = thousandths % 1000;

    return rest == 0
               ? fprintf(file, ",%" PRIu64, thousandths / 1000)
               : fprintf(file, ",%" PRIu64 ".%03" PRIu64, thousandths / 1000, rest);
}

static uint64_t row(struct dump *d, uint32_t family, uint64_t interval, struct table *t,
                    uint32_t i, const struct moment *moment)
{
    double features[FEATURES];
    int n = fprintf(d->file, "%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32, family,
                    t->serial, interval, i);

    features_of(t, i, moment, features);
    for (uint32_t k = 0; k < FEATURES; k++)
        n += number(d->file, features[k]);
    fputc('\n', d->file);
    return (uint64_t)n + 1;
}

int dump_interval(struct dump *d, uint32_t family, uint64_t interval, struct table *t)
{
    struct moment moment = features_moment(time(NULL));
    uint32_t each = t->n / DUMP_ROWS + 1;
    int e = 0;

    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < t->n && !d->ended; i++) {
        if (each > 1 && i * UINT32_C(2654435761) % each != 0)
            continue;
        if (!table_range(t, i))
            continue;
        if (d->left < ROW)
            d->ended = true;
        else
            d->left -= row(d, family, interval, t, i, &moment);
    }
    if (!d->ended && (fflush(d->file) != 0 || ferror(d->file))) {
        d->ended = true;
        e = -1;
    }
    pthread_mutex_unlock(&d->lock);
    return e;
}
