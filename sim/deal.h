/* SPDX-License-Identifier: BSD-3-Clause */
/* deal.h - which client makes which of a trace's requests.
 *
 * The one rule of quickmine replay and of quickmine sim --clients: trees of contexts (a
 * root and all that is nested in it) are dealt out to clients in turn, and so are
 * requests without a context.  It follows from the trace and the number of clients
 * alone.
 */
#ifndef QM_SIM_DEAL_H
#define QM_SIM_DEAL_H

#include <stdint.h>

#include "trace/trace.h"

struct qm_deal {
    unsigned clients;
    unsigned next; /* client for the next root */
    uint32_t
        *owner;    /* the client that has the context in a slot of the trace's reader */
    uint32_t room; /* of owner[] */
};

/* clients: at least 1. */
void qm_deal_init(struct qm_deal *deal, unsigned clients);
void qm_deal_clear(struct qm_deal *deal);

/* Sets *client to that of an event, 0 to clients - 1; to be called for the trace's
 * events in their order.  Returns 0 or ENOMEM. */
int qm_deal(struct qm_deal *deal, const struct qm_event *event, unsigned *client);

#endif
