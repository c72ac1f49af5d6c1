/* SPDX-License-Identifier: BSD-3-Clause */
/* fair.h - a bounded queue that clients share fairly.
 *
 * A client's items are served in order of arrival.  The next turn goes to the client
 * that has been served least, by the cost of its items.  A client without a backlog
 * counts as served as much as the last one, so that turns cannot be saved up
 * (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM'96).
 *
 * Of n clients with a backlog, a client below its 1/n share of the capacity evicts the
 * newest item of the longest backlog if the queue is full (longest queue drop: Suter
 * and others, INFOCOM'98).  A single client can therefore use the whole queue, but
 * cannot keep others out of it.
 *
 * Nothing here locks: the caller does.  Choosing takes time linear in the number of
 * clients with a backlog.
 */
#ifndef QM_ENGINE_FAIR_H
#define QM_ENGINE_FAIR_H

#include <stdint.h>
#include <urcu/list.h>

/* Numbers of clients: 0 to this - 1. */
#define QM_FAIR_CLIENTS 256

struct qm_fair_item {
    struct cds_list_head list;
    unsigned client;
    uint64_t cost; /* of serving it, and its part of the capacity; at least 1 */
};

struct qm_fair_client {
    struct cds_list_head busy;  /* if it has items */
    struct cds_list_head items; /* the oldest first */
    uint64_t waiting;           /* cost of its items */
    uint64_t served;            /* cost, see above */
};

struct qm_fair {
    struct cds_list_head busy; /* clients */
    unsigned busy_count;
    uint64_t now; /* `served` of the last client, before its turn */
    struct qm_fair_client clients[QM_FAIR_CLIENTS];
};

void qm_fair_init(struct qm_fair *fair);

/* Adds an item, whose client and cost are set.  It is the caller's memory, and must
 * stay where it is while it is queued. */
void qm_fair_push(struct qm_fair *fair, struct qm_fair_item *item);

/* The next item to be served, which stays queued.  NULL: the queue is empty. */
struct qm_fair_item *qm_fair_next(struct qm_fair *fair);

/* Take an item out of the queue: to serve it, or without serving it. */
void qm_fair_serve(struct qm_fair *fair, struct qm_fair_item *item);
void qm_fair_remove(struct qm_fair *fair, struct qm_fair_item *item);

/* The item to remove when an item of `client`, of that cost, finds a queue of that
 * capacity full: another client's, or NULL if the new item is to be dropped.  If the
 * removed one was smaller, call it again. */
struct qm_fair_item *qm_fair_yields(struct qm_fair *fair, unsigned client,
                                    uint64_t cost, uint64_t capacity);

#endif
