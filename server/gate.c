/* SPDX-License-Identifier: BSD-3-Clause */
/* gate.c - see gate.h.
 *
 * A thread that enters counts itself first and looks at the flag then; one that closes
 * sets the flag first and looks at the counts then.  Both are sequentially consistent,
 * so at least one of them sees the other.
 */
#include "server/gate.h"

#include <time.h>

#define LOOK_NS 20000 /* how often the counts are looked at */

void qms_gate_init(struct qms_gate *g)
{
    atomic_init(&g->closed, false);
    for (unsigned i = 0; i < QMS_STRIPES; i++)
        atomic_init(&g->stripes[i].inside, 0);
    pthread_mutex_init(&g->lock, NULL);
}

void qms_gate_destroy(struct qms_gate *g)
{
    pthread_mutex_destroy(&g->lock);
}

bool qms_gate_try_enter(struct qms_gate *g, unsigned *stripe)
{
    *stripe = qms_stripe();
    atomic_fetch_add(&g->stripes[*stripe].inside, 1);
    if (!atomic_load(&g->closed))
        return true;
    qms_gate_leave(g, *stripe);
    return false;
}

unsigned qms_gate_enter(struct qms_gate *g)
{
    unsigned stripe;

    while (!qms_gate_try_enter(g, &stripe)) {
        pthread_mutex_lock(&g->lock);
        pthread_mutex_unlock(&g->lock);
    }
    return stripe;
}

void qms_gate_leave(struct qms_gate *g, unsigned stripe)
{
    atomic_fetch_sub_explicit(&g->stripes[stripe].inside, 1, memory_order_release);
}

void qms_gate_close(struct qms_gate *g)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};

    pthread_mutex_lock(&g->lock);
    atomic_store(&g->closed, true);
    for (unsigned i = 0; i < QMS_STRIPES; i++)
        while (atomic_load(&g->stripes[i].inside) != 0)
            nanosleep(&look, NULL);
}

void qms_gate_open(struct qms_gate *g)
{
    atomic_store(&g->closed, false);
    pthread_mutex_unlock(&g->lock);
}
