/* SPDX-License-Identifier: BSD-3-Clause */
/* store.h - an open store: for store.c, which opens and closes it, and keys.c, which is
 * what programs call for keys. */
#ifndef QM_STORE_STORE_H
#define QM_STORE_STORE_H

#include "rowcache/store/internal.h"

struct qmstore {
    struct qmstore_config config;
    char *path;
    int dir, format;
    unsigned hash; /* of names on disk: as in disk_config */
    bool has_short;
    bool scratch; /* see scratch.c */
    uint64_t disk_most;
    struct partition *partitions;
    unsigned opened; /* of the partitions, while the store is being opened */

    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool ends;
};

/* An error with a sentence; returns it. */
int store_refuse(char *err, size_t len, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* format.c.  Opens the format file, or makes it; locked, and as this process expects
 * it.
 */
int store_format_open(struct qmstore *s, char *err, size_t len);

/* One round of the background thread over a partition. */
void store_tick(struct qmstore *s, unsigned i);

#endif
