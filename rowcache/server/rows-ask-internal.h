/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-ask-internal.h - what rows-ask.c and rows-early.c share.  The loop's thread. */
#ifndef QM_ROWCACHE_ROWS_ASK_INTERNAL_H
#define QM_ROWCACHE_ROWS_ASK_INTERNAL_H

#include "rowcache/server/rows-ask.h"

struct waiter {
    struct waiter *next;
    struct waiter *sibling, *elder; /* of the same request */
    struct flight *flight;
    struct request *request;
    unsigned index;
    bool look; /* not for this answer: it looks again when that is there */
};

struct flight {
    struct qm_fill_job job; /* first: a job is a flight */
    struct waiter *waiters;
    bool newest;                /* it is in the table */
    struct client *early;       /* for which it is early; NULL: for none */
    struct flight *next, *prev; /* the client's others */
    UT_hash_handle hh;
};

/* The flight is no client's early one any more. */
void rows_end_early(struct flight *f);
/* It counts as a miss when its command is carried out. */
void rows_note_landed(struct early *e, const struct flight *f, uint64_t now);
/* It is kept, and its landing is still to be told. */
bool rows_take_flying(struct client *c, const char *key, size_t length, uint64_t *took);
/* Whether its row came early: then took says how long that was. */
bool rows_take_landed(struct early *e, const char *key, size_t length, uint64_t *took);

#endif
