/* clients.c - numbers go round. */
#include <string.h>

#include "server/clients.h"

void qms_clients_init(struct qms_clients *c)
{
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
}

void qms_clients_destroy(struct qms_clients *c)
{
    pthread_mutex_destroy(&c->lock);
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
    pthread_mutex_unlock(&c->lock);
    return best;
}

void qms_client_leave(struct qms_clients *c, unsigned client)
{
    pthread_mutex_lock(&c->lock);
    c->users[client]--;
    pthread_mutex_unlock(&c->lock);
}
