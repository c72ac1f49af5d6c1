/* SPDX-License-Identifier: BSD-3-Clause */
/* fair.c - a list of items a client, and a list of the clients that have any. */
#include <stddef.h>

#include "engine/fair.h"

void qm_fair_init(struct qm_fair *f)
{
    CDS_INIT_LIST_HEAD(&f->busy);
    f->busy_count = 0;
    f->now = 0;
    for (unsigned i = 0; i < QM_FAIR_CLIENTS; i++) {
        f->clients[i] = (struct qm_fair_client){.served = 0};
        CDS_INIT_LIST_HEAD(&f->clients[i].items);
    }
}

void qm_fair_push(struct qm_fair *f, struct qm_fair_item *item)
{
    struct qm_fair_client *c = &f->clients[item->client];

    if (cds_list_empty(&c->items)) {
        cds_list_add_tail(&c->busy, &f->busy);
        f->busy_count++;
        if (c->served < f->now)
            c->served = f->now;
    }
    cds_list_add_tail(&item->list, &c->items);
    c->waiting += item->cost;
}

void qm_fair_remove(struct qm_fair *f, struct qm_fair_item *item)
{
    struct qm_fair_client *c = &f->clients[item->client];

    cds_list_del(&item->list);
    c->waiting -= item->cost;
    if (cds_list_empty(&c->items)) {
        cds_list_del(&c->busy);
        f->busy_count--;
    }
}

struct qm_fair_item *qm_fair_next(struct qm_fair *f)
{
    struct qm_fair_client *c, *least = NULL;

    cds_list_for_each_entry(c, &f->busy, busy)
    {
        if (!least || c->served < least->served)
            least = c;
    }
    if (!least)
        return NULL;
    f->now = least->served;
    return cds_list_first_entry(&least->items, struct qm_fair_item, list);
}

void qm_fair_serve(struct qm_fair *f, struct qm_fair_item *item)
{
    f->clients[item->client].served += item->cost;
    qm_fair_remove(f, item);
}

struct qm_fair_item *qm_fair_yields(struct qm_fair *f, unsigned client, uint64_t cost,
                                    uint64_t capacity)
{
    const struct qm_fair_client *own = &f->clients[client];
    unsigned n = f->busy_count + (own->waiting == 0);
    struct qm_fair_client *c, *most = NULL;

    if (own->waiting + cost > capacity / n)
        return NULL;
    cds_list_for_each_entry(c, &f->busy, busy)
    {
        if (c != own && (!most || c->waiting > most->waiting))
            most = c;
    }
    return most && most->waiting > own->waiting + cost
               ? cds_list_entry(most->items.prev, struct qm_fair_item, list)
               : NULL;
}
