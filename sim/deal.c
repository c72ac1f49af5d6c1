/* SPDX-License-Identifier: BSD-3-Clause */
/* deal.c - see deal.h. */
#include "sim/deal.h"

#include <errno.h>
#include <stdlib.h>

void qm_deal_init(struct qm_deal *deal, unsigned clients)
{
    *deal = (struct qm_deal){.clients = clients};
}

void qm_deal_clear(struct qm_deal *deal)
{
    free(deal->owner);
    qm_deal_init(deal, deal->clients);
}

static unsigned in_turn(struct qm_deal *deal)
{
    unsigned client = deal->next;

    deal->next = (deal->next + 1) % deal->clients;
    return client;
}

static int set_owner(struct qm_deal *deal, uint32_t slot, unsigned client)
{
    uint32_t room = deal->room ? deal->room : 64;
    uint32_t *owner;

    while (room <= slot)
        room *= 2; /* the reader has this many contexts open, in more memory */
    if (room != deal->room) {
        owner = realloc(deal->owner, room * sizeof *owner);
        if (!owner)
            return ENOMEM;
        deal->owner = owner;
        deal->room = room;
    }
    deal->owner[slot] = client;
    return 0;
}

int qm_deal(struct qm_deal *deal, const struct qm_event *event, unsigned *client)
{
    uint32_t slot = event->slot;

    if (event->type == QM_TRACE_BEGIN) {
        slot = event->parent_slot;
        *client = slot ? deal->owner[slot] : in_turn(deal);
        return set_owner(deal, event->slot, *client);
    }
    *client = slot ? deal->owner[slot] : in_turn(deal);
    return 0;
}
