/* SPDX-License-Identifier: BSD-3-Clause */
/* quiesce.c - see quiesce.h. */
#include "server/quiesce.h"

#include <time.h>

#define LOOK_NS 100000 /* how often the counts are looked at */

void qms_quiesce_init(struct qms_quiesce *g)
{
    atomic_init(&g->current, 0);
    for (unsigned i = 0; i < QMS_STRIPES; i++)
        for (unsigned k = 0; k < 2; k++)
            atomic_init(&g->stripes[i].inside[k], 0);
    pthread_mutex_init(&g->waiting, NULL);
}

unsigned qms_quiesce_enter(struct qms_quiesce *g)
{
    unsigned stripe = qms_stripe(), set = atomic_load(&g->current);

    atomic_fetch_add(&g->stripes[stripe].inside[set], 1);
    return stripe << 1 | set;
}

void qms_quiesce_leave(struct qms_quiesce *g, unsigned token)
{
    atomic_fetch_sub_explicit(&g->stripes[token >> 1].inside[token & 1], 1,
                              memory_order_release);
}

void qms_quiesce_wait(struct qms_quiesce *g)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};

    pthread_mutex_lock(&g->waiting);
    for (int twice = 0; twice < 2; twice++) {
        unsigned set = atomic_load(&g->current);

        atomic_store(&g->current, 1 - set);
        for (unsigned i = 0; i < QMS_STRIPES; i++)
            while (atomic_load(&g->stripes[i].inside[set]) != 0)
                nanosleep(&look, NULL);
    }
    pthread_mutex_unlock(&g->waiting);
}
