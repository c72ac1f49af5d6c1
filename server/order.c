/* SPDX-License-Identifier: BSD-3-Clause */
/* order.c - a list in order of arrival, in which each counts what it has to wait for.
 */
#include <errno.h>
#include <time.h>

#include "server/order.h"

void qms_order_init(struct qms_order *o)
{
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->late, NULL);
    CDS_INIT_LIST_HEAD(&o->changes);
    o->waiting = 0;
    o->stopped = o->ended = false;
}

void qms_order_destroy(struct qms_order *o)
{
    pthread_cond_destroy(&o->late);
    pthread_mutex_destroy(&o->lock);
}

static bool overlap(const struct qms_change *a, const struct qms_change *b)
{
    return a->offset < b->end && b->offset < a->end;
}

static void make_turn(struct qms_change *c)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->turn, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void qms_order_arrive(struct qms_order *o, struct qms_change *c, uint64_t offset,
                      uint64_t count)
{
    struct qms_change *other;

    c->offset = offset;
    c->end = offset + count;
    c->earlier = 0;
    pthread_mutex_lock(&o->lock);
    cds_list_for_each_entry(other, &o->changes, list) c->earlier += overlap(other, c);
    c->waits = c->earlier > 0;
    if (c->waits)
        make_turn(c);
    cds_list_add_tail(&c->list, &o->changes);
    pthread_mutex_unlock(&o->lock);
}

/* Takes a change out, and tells those that have only waited for it; the lock is held.
 */
static void leave(struct qms_order *o, struct qms_change *c)
{
    struct cds_list_head *at;

    for (at = c->list.next; at != &o->changes; at = at->next) {
        struct qms_change *later = caa_container_of(at, struct qms_change, list);

        if (overlap(c, later) && --later->earlier == 0)
            pthread_cond_signal(&later->turn);
    }
    cds_list_del(&c->list);
}

/* Waits for a change's turn for a while; the lock is held. */
static void wait_a_while(struct qms_order *o, struct qms_change *c)
{
    struct timespec until;
    int error = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += QMS_ORDER_LONG_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (c->earlier > 0 && !o->stopped && error == 0)
        error = pthread_cond_timedwait(&c->turn, &o->lock, &until);
}

int qms_order_await(struct qms_order *o, struct qms_change *c)
{
    int error = 0;

    if (!c->waits)
        return 0;
    pthread_mutex_lock(&o->lock);
    wait_a_while(o, c);
    if (c->earlier > 0 && !o->stopped) {
        o->waiting++;
        pthread_cond_signal(&o->late);
        while (c->earlier > 0 && !o->stopped)
            pthread_cond_wait(&c->turn, &o->lock);
        o->waiting--;
    }
    if (c->earlier > 0) {
        leave(o, c);
        error = ESHUTDOWN;
    }
    pthread_mutex_unlock(&o->lock);
    pthread_cond_destroy(&c->turn);
    return error;
}

void qms_order_leave(struct qms_order *o, struct qms_change *c)
{
    pthread_mutex_lock(&o->lock);
    leave(o, c);
    pthread_mutex_unlock(&o->lock);
}

void qms_order_stop(struct qms_order *o)
{
    struct qms_change *c;

    pthread_mutex_lock(&o->lock);
    o->stopped = true;
    cds_list_for_each_entry(c, &o->changes, list)
    {
        if (c->earlier > 0)
            pthread_cond_signal(&c->turn);
    }
    pthread_mutex_unlock(&o->lock);
}

bool qms_order_await_long(struct qms_order *o)
{
    bool is_long;

    pthread_mutex_lock(&o->lock);
    while (o->waiting == 0 && !o->ended)
        pthread_cond_wait(&o->late, &o->lock);
    is_long = !o->ended;
    pthread_mutex_unlock(&o->lock);
    return is_long;
}

void qms_order_end(struct qms_order *o)
{
    pthread_mutex_lock(&o->lock);
    o->ended = true;
    pthread_cond_signal(&o->late);
    pthread_mutex_unlock(&o->lock);
}
