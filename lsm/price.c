/* SPDX-License-Identifier: BSD-3-Clause */
/* price.c - see price.h. */
#include "lsm/price.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SLOTS 16384u /* sampled blocks; a newer one displaces an older one */
#define EACH  4u     /* slots for each block that is sampled: few displace another */
#define STEP  16     /* part of its error by which a look-up moves the residence */

struct price {
    _Atomic uint64_t evictions;
    _Atomic int64_t room; /* blocks that can be inserted without one */
    _Atomic uint64_t blocks;
    _Atomic uint64_t residence[2]; /* of blocks that were hit last; that were missed */
    _Atomic uint64_t mask; /* a block is sampled if these bits of its hash are 0 */
    pthread_mutex_t lock;
    struct {
        uint64_t hash, last;
        bool missed; /* then */
    } slot[SLOTS];
    double within;           /* look-ups with R / 2 <= d < R, of the sample, decayed */
    double since;            /* evictions before `settled`, decayed likewise */
    double missed, hit_then; /* look-ups that missed; that hit a block which was missed
                                the time before; both likewise */
    uint64_t settled;
};

struct price *price_new(void)
{
    struct price *p = calloc(1, sizeof *p);

    if (p)
        pthread_mutex_init(&p->lock, NULL);
    return p;
}

void price_free(struct price *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Half of what was counted before counts, after as many evictions as the cache has
 * blocks. */
static void settle(struct price *p, uint64_t now, uint64_t blocks)
{
    uint64_t residence;

    if (now - p->settled < blocks / 4 + 16)
        return;
    p->since = (p->since + (double)(now - p->settled)) * .84;
    p->within *= .84;
    p->missed *= .84;
    p->hit_then *= .84;
    p->settled = now;
    /* Where no look-up tells, as in a loop over more than the cache, towards the blocks
     * that it has. */
    for (int i = 0; i < 2; i++) {
        residence = atomic_load_explicit(&p->residence[i], memory_order_relaxed);
        if (residence < blocks)
            atomic_store(&p->residence[i], residence + (blocks - residence + 31) / 32);
    }
}

/* Under the lock: a look-up d evictions after the one before. */
static uint64_t moved(uint64_t residence, uint64_t blocks, uint64_t d, bool hit)
{
    if (hit && d > residence)
        residence += (d - residence + STEP - 1) / STEP;
    else if (!hit && d < residence)
        residence -= (residence - d + STEP - 1) / STEP;
    if (residence > blocks * 2)
        return blocks * 2;
    return residence < blocks / 16 + 1 ? blocks / 16 + 1 : residence;
}

void price_look(struct price *p, uint64_t hash, bool hit)
{
    uint64_t mask = atomic_load_explicit(&p->mask, memory_order_relaxed), now, blocks,
             residence, d;
    uint32_t i;

    if (hash & mask)
        return;
    i = (uint32_t)(hash >> 40) % SLOTS;
    pthread_mutex_lock(&p->lock);
    /* Under the lock: not below what another thread settled or kept. */
    now = atomic_load_explicit(&p->evictions, memory_order_relaxed);
    blocks = atomic_load_explicit(&p->blocks, memory_order_relaxed);
    settle(p, now, blocks);
    if (p->slot[i].hash == hash && blocks > 0) {
        bool missed = p->slot[i].missed;
        residence = atomic_load_explicit(&p->residence[missed], memory_order_relaxed);
        d = now - p->slot[i].last;
        p->hit_then += missed && hit;
        if (d >= residence / 2 && d < residence)
            p->within += (double)(mask + 1);
        atomic_store(&p->residence[missed], moved(residence, blocks, d, hit));
    }
    p->missed += !hit;
    p->slot[i].hash = hash;
    p->slot[i].last = now;
    p->slot[i].missed = !hit;
    pthread_mutex_unlock(&p->lock);
}

void price_insert(struct price *p)
{
    int64_t room = atomic_load_explicit(&p->room, memory_order_relaxed);

    while (room > 0)
        if (atomic_compare_exchange_weak(&p->room, &room, room - 1))
            return;
    atomic_fetch_add_explicit(&p->evictions, 1, memory_order_relaxed);
}

void price_erased(struct price *p, uint64_t blocks)
{
    atomic_fetch_add(&p->room, (int64_t)blocks);
}

void price_forget(struct price *p, uint64_t hash)
{
    uint32_t i = (uint32_t)(hash >> 40) % SLOTS;

    if (hash & atomic_load_explicit(&p->mask, memory_order_relaxed))
        return;
    pthread_mutex_lock(&p->lock);
    if (p->slot[i].hash == hash)
        p->slot[i].hash = 0;
    pthread_mutex_unlock(&p->lock);
}

void price_blocks(struct price *p, uint64_t blocks)
{
    uint64_t mask = 0, before;

    while (blocks * EACH / (mask + 1) > SLOTS)
        mask = mask * 2 + 1;
    atomic_store(&p->mask, mask);
    before = atomic_exchange(&p->blocks, blocks);
    if (before == 0) {
        atomic_store(&p->residence[0], blocks);
        atomic_store(&p->residence[1], blocks);
        atomic_fetch_add(&p->room, (int64_t)blocks);
    }
}

double price_now(struct price *p)
{
    double price, used, fresh, other, since;
    uint64_t now;

    pthread_mutex_lock(&p->lock);
    now = atomic_load(&p->evictions);
    settle(p, now, atomic_load(&p->blocks));
    since = p->since + (double)(now - p->settled);
    price = since > 0 ? 2 * p->within / since : 0;
    used = p->missed > p->hit_then ? p->hit_then / p->missed : p->missed > 0;
    pthread_mutex_unlock(&p->lock);
    fresh = (double)atomic_load(&p->residence[1]);
    other = (double)atomic_load(&p->residence[0]);
    return fresh > 0 ? price * fresh / ((1 - used) * fresh + used * other) : price;
}

uint64_t price_clock(struct price *p)
{
    return atomic_load_explicit(&p->evictions, memory_order_relaxed);
}

uint64_t price_residence(struct price *p)
{
    return atomic_load_explicit(&p->residence[1], memory_order_relaxed);
}
