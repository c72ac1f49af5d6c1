/* SPDX-License-Identifier: BSD-3-Clause */
/* clients.h - numbers clients, so that queues and memory can be shared fairly.
 *
 * A client is a session, or a connection to the plain view; a program that opens
 * several counts as several.  Numbers are few, so that each part of the server keeps an
 * array by number, with nothing to undo when a client leaves.  With more clients than
 * numbers, some share a number, and its share.
 *
 * All functions may be called by any thread at any time.
 */
#ifndef QMS_CLIENTS_H
#define QMS_CLIENTS_H

#include <pthread.h>

#include "engine/fair.h"
#include "mining/core/prefetcher.h"

#define QMS_CLIENTS     QM_FAIR_CLIENTS /* numbers: 0 to this - 1 */
#define QMS_CLIENT_NONE 0               /* reads of no particular client */

struct qms_clients {
    struct qm_prefetcher *prefetcher; /* told which owners are in use; or NULL */
    pthread_mutex_t lock;             /* guards the rest */
    unsigned last;                    /* number given out last */
    unsigned users[QMS_CLIENTS];      /* clients with that number */
    unsigned owners[QM_OWNERS];       /* clients of that owner */
};

void qms_clients_init(struct qms_clients *clients, struct qm_prefetcher *prefetcher);
void qms_clients_destroy(struct qms_clients *clients);

/* The caller has stopped all that uses the present prefetcher.  The other is told which
 * owners are in use. */
void qms_clients_tell(struct qms_clients *clients, struct qm_prefetcher *prefetcher);

/* A number for a new client: one that the fewest clients have, and of these the one
 * that was given out longest ago. */
unsigned qms_client_enter(struct qms_clients *clients);
void qms_client_leave(struct qms_clients *clients, unsigned client);

/* The prefetcher's owner number of a client. */
static inline unsigned qms_client_owner(unsigned client)
{
    return client == QMS_CLIENT_NONE ? 0 : 1 + (client - 1) % (QM_OWNERS - 1);
}

#endif
