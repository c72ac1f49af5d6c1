/* SPDX-License-Identifier: BSD-3-Clause */
/* clients.c - numbers go round. */
#include <string.h>

#include "server/clients.h"

void qms_clients_init(struct qms_clients *c, struct qm_prefetcher *prefetcher)
{
    memset(c, 0, sizeof *c);
    c->prefetcher = prefetcher;
    pthread_mutex_init(&c->lock, NULL);
}

void qms_clients_destroy(struct qms_clients *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* Says which owners are there; the lock is held. */
static void tell(struct qms_clients *c)
{
    unsigned there = 0;

    for (unsigned i = 0; i < QM_OWNERS; i++)
        if (c->owners[i] > 0)
            there |= 1u << i;
    if (c->prefetcher && c->prefetcher->ops->owners)
        c->prefetcher->ops->owners(c->prefetcher, there);
}

/* A client more or less is that owner; the lock is held. */
static void count_owner(struct qms_clients *c, unsigned owner, int by)
{
    c->owners[owner] += by;
    tell(c);
}

void qms_clients_tell(struct qms_clients *c, struct qm_prefetcher *prefetcher)
{
    pthread_mutex_lock(&c->lock);
    c->prefetcher = prefetcher;
    tell(c);
    pthread_mutex_unlock(&c->lock);
}

unsigned qms_client_enter(struct qms_clients *c)
{
    unsigned best = 0;

    pthread_mutex_lock(&c->lock);
    for (unsigned i = 1; i < QMS_CLIENTS; i++) {
        unsigned n = 1 + (c->last + i - 1) % (QMS_CLIENTS - 1);

        if (best == 0 || c->users[n] < c->users[best])
            best = n;
    }
    c->users[best]++;
    c->last = best;
    count_owner(c, qms_client_owner(best), 1);
    pthread_mutex_unlock(&c->lock);
    return best;
}

void qms_client_leave(struct qms_clients *c, unsigned client)
{
    pthread_mutex_lock(&c->lock);
    c->users[client]--;
    count_owner(c, qms_client_owner(client), -1);
    pthread_mutex_unlock(&c->lock);
}
