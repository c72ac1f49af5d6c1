/* order.h - changes of the same bytes are carried out one after the other.
 *
 * A change (a write, zeroing, a trim) takes its place when it arrives, and waits for
 * its turn, that is until all changes that arrived before it and overlap with it have
 * left.  Those that overlap with none do not wait.  So the order in which a client sees
 * its changes answered is the order in which they took effect, over all connections.
 *
 * It cannot deadlock by itself: a change waits only for earlier ones.  A caller holds
 * nothing while it waits that an earlier change may need.
 *
 * The lock is held for as long as it takes to look at all changes in flight, of which
 * there are at most as many as nbdkit has threads.  Reads know nothing of this.
 */
#ifndef QMS_ORDER_H
#define QMS_ORDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

struct qms_order {
    pthread_mutex_t lock;         /* of all that follows, and of all changes */
    struct cds_list_head changes; /* in order of arrival */
    pthread_cond_t late;          /* a change waits for long, or there is an end */
    unsigned waiting;             /* changes that wait for long */
    bool stopped;                 /* changes need not wait any more: they fail */
    bool ended;
};

/* One request's; the caller's memory, untouched while it is in flight. */
struct qms_change {
    struct cds_list_head list;
    uint64_t offset, end;
    unsigned earlier; /* changes that it waits for; 0: it is its turn */
    bool waits;       /* turn is made */
    pthread_cond_t turn;
};

void qms_order_init(struct qms_order *order);
void qms_order_destroy(struct qms_order *order); /* nothing is in flight */

/* A change of count bytes, at least one, takes its place. */
void qms_order_arrive(struct qms_order *order, struct qms_change *change,
                      uint64_t offset, uint64_t count);

/* Waits for the turn of a change that has arrived.  Returns 0; or ESHUTDOWN, if it
 * would have to wait and the server stops: then it has left. */
int qms_order_await(struct qms_order *order, struct qms_change *change);

/* A change whose turn it was has been carried out, or has failed. */
void qms_order_leave(struct qms_order *order, struct qms_change *change);

/* The server stops: whatever waits for its turn now, or will, fails. */
void qms_order_stop(struct qms_order *order);

/* For a thread that finds out whether the server stops, which need not be known while
 * nothing waits: returns true when a change has been waiting for QMS_ORDER_LONG_NS or
 * more; false when qms_order_end() has been called. */
#define QMS_ORDER_LONG_NS 50000000
bool qms_order_await_long(struct qms_order *order);
void qms_order_end(struct qms_order *order);

#endif
