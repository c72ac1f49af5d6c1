/* clients.h - small numbers for clients, by which what they share is divided.
 *
 * A client, for this, is who can be told from others: a session, or a connection to the
 * plain view.  One that opens several is several.  Numbers are few, so that each part
 * of the server can keep an array of what each client has of it, and nothing has to be
 * undone there when a client leaves.  With more clients than numbers some share one,
 * and what goes with it.
 *
 * All functions may be called by any thread at any time.
 */
#ifndef QMS_CLIENTS_H
#define QMS_CLIENTS_H

#include <pthread.h>

#include "engine/fair.h"
#include "mining/core/prefetcher.h"

#define QMS_CLIENTS     QM_FAIR_CLIENTS /* numbers: 0 to this - 1 */
#define QMS_CLIENT_NONE 0               /* what nobody in particular does */

struct qms_clients {
    struct qm_prefetcher *prefetcher; /* that is told of its owners; or NULL */
    pthread_mutex_t lock;             /* of all that follows */
    unsigned last;                    /* number that was given */
    unsigned users[QMS_CLIENTS];
    unsigned owners[QM_OWNERS]; /* clients that each is */
};

void qms_clients_init(struct qms_clients *clients, struct qm_prefetcher *prefetcher);
void qms_clients_destroy(struct qms_clients *clients);

/* A number for a client that has come, which as few as possible have; of several that
 * one that was not given for longest. */
unsigned qms_client_enter(struct qms_clients *clients);
void qms_client_leave(struct qms_clients *clients, unsigned client);

/* The owner that a client is to the prefetcher. */
static inline unsigned qms_client_owner(unsigned client)
{
    return client == QMS_CLIENT_NONE ? 0 : 1 + (client - 1) % (QM_OWNERS - 1);
}

#endif
