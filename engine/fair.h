/* fair.h - a queue that clients share: each gets its turns, and none all of the room.
 *
 * A client's items wait in the order in which they came.  Served next is the oldest
 * item of the client that has got least, by the cost of its items; one that had nothing
 * waiting is taken to have got as much as the one served last, so that nobody saves up
 * turns (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM'96).
 *
 * Room is for whoever comes first, but a client that has less waiting than an n-th of
 * it, where n clients have something waiting, finds room: the newest item of the one
 * that has most has to go for it (longest queue drop: Suter and others, INFOCOM'98).
 * So a client that is alone has all of the room, and one that fills it keeps nobody
 * out.
 *
 * Nothing here locks: the caller does.  Choosing takes time by the number of clients
 * that have something waiting.
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
    uint64_t cost; /* of serving it, and the room that it takes; at least 1 */
};

struct qm_fair_client {
    struct cds_list_head busy;  /* if it has items */
    struct cds_list_head items; /* the oldest first */
    uint64_t waiting;           /* cost of its items */
    uint64_t served;            /* cost, at least what others had got when it came */
};

struct qm_fair {
    struct cds_list_head busy; /* clients */
    unsigned busy_count;
    uint64_t now; /* what the client whose turn it was last had got before */
    struct qm_fair_client clients[QM_FAIR_CLIENTS];
};

void qm_fair_init(struct qm_fair *fair);

/* The item, whose client and cost are set, waits from now on; it is the caller's, and
 * stays where it is. */
void qm_fair_push(struct qm_fair *fair, struct qm_fair_item *item);

/* Whose turn it is; it goes on waiting.  NULL: nothing waits. */
struct qm_fair_item *qm_fair_next(struct qm_fair *fair);

/* An item does not wait any more: it is served, or not after all. */
void qm_fair_serve(struct qm_fair *fair, struct qm_fair_item *item);
void qm_fair_remove(struct qm_fair *fair, struct qm_fair_item *item);

/* There is no room for an item of client's, of that cost, where there is so much room
 * in all: what is to be removed, another client's, or NULL if the new one has to stay
 * out. If what is removed was smaller, ask again. */
struct qm_fair_item *qm_fair_yields(struct qm_fair *fair, unsigned client,
                                    uint64_t cost, uint64_t room);

#endif
