/* SPDX-License-Identifier: BSD-3-Clause */
/* order.h - carries out overlapping changes one after the other.
 *
 * A change (a write, zeroing, a trim) is queued when it arrives, and waits until all
 * changes that arrived before it and overlap with it have left; one that overlaps with
 * none does not wait.  Changes are therefore answered in the order in which they took
 * effect, over all connections.
 *
 * It cannot deadlock by itself: a change waits only for earlier ones.  While it waits,
 * a caller must hold nothing that an earlier change may need.
 *
 * The lock is held for a pass over all changes in flight, of which there are at most as
 * many as nbdkit has threads.  Reads are not ordered.
 */
#ifndef QMS_ORDER_H
#define QMS_ORDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

struct qms_order {
    pthread_mutex_t lock;         /* guards the rest, and all changes */
    struct cds_list_head changes; /* in order of arrival */
    pthread_cond_t late;          /* waiting or ended changed */
    unsigned waiting;             /* changes that wait for long */
    bool stopped;                 /* changes that would wait fail */
    bool ended;                   /* qms_order_end() was called */
};

/* A request's change, in the caller's memory, which must stay while it is in flight. */
struct qms_change {
    struct cds_list_head list;
    uint64_t offset, end;
    unsigned earlier; /* changes that it waits for; 0: it may be carried out */
    bool waits;       /* turn is initialized */
    pthread_cond_t turn;
};

void qms_order_init(struct qms_order *order);
void qms_order_destroy(struct qms_order *order); /* nothing is in flight */

/* Queues a change of count bytes, at least one. */
void qms_order_arrive(struct qms_order *order, struct qms_change *change,
                      uint64_t offset, uint64_t count);

/* Waits until a change that has arrived may be carried out.  Returns 0; or ESHUTDOWN,
 * if it would have to wait and the server stops: then it has left. */
int qms_order_await(struct qms_order *order, struct qms_change *change);

/* Removes a change that has been carried out, or has failed. */
void qms_order_leave(struct qms_order *order, struct qms_change *change);

/* The server stops: changes that wait, or would wait later, fail. */
void qms_order_stop(struct qms_order *order);

/* For a thread that polls whether the server stops, only while changes wait: returns
 * true when a change has been waiting for QMS_ORDER_LONG_NS or more; false after
 * qms_order_end(). */
#define QMS_ORDER_LONG_NS 50000000
bool qms_order_await_long(struct qms_order *order);
void qms_order_end(struct qms_order *order);

#endif
