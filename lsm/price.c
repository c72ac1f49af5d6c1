/* SPDX-License-Identifier: BSD-3-Clause */
/* price.c - see price.h. */
#include "lsm/price.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SLOTS 8192u /* sampled blocks; a newer one displaces an older one */

struct price {
    _Atomic uint64_t insertions;
    _Atomic uint64_t blocks;
    _Atomic uint64_t mask; /* a block is sampled if these bits of its hash are 0 */
    pthread_mutex_t lock;
    struct {
        uint64_t hash, last;
    } slot[SLOTS];
    double beyond; /* look-ups with C <= d < 1.25 C, of the sample, decayed */
    double since;  /* insertions, decayed likewise */
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

/* Half of what was counted before counts, after as many insertions as the cache has
 * blocks. */
static void settle(struct price *p, uint64_t now, uint64_t blocks)
{
    if (now - p->settled < blocks / 4 + 16)
        return;
    p->since = p->since * .84 + (double)(now - p->settled);
    p->beyond *= .84;
    p->settled = now;
}

void price_look(struct price *p, uint64_t hash)
{
    uint64_t mask = atomic_load_explicit(&p->mask, memory_order_relaxed), now, blocks,
             d;
    uint32_t i;

    if (hash & mask)
        return;
    i = (uint32_t)(hash >> 40) % SLOTS;
    pthread_mutex_lock(&p->lock);
    /* Under the lock: not below what another thread settled or kept. */
    now = atomic_load_explicit(&p->insertions, memory_order_relaxed);
    blocks = atomic_load_explicit(&p->blocks, memory_order_relaxed);
    settle(p, now, blocks);
    if (p->slot[i].hash == hash) {
        d = now - p->slot[i].last;
        if (blocks > 0 && d >= blocks && d < blocks + blocks / 4)
            p->beyond += (double)(mask + 1);
    }
    p->slot[i].hash = hash;
    p->slot[i].last = now;
    pthread_mutex_unlock(&p->lock);
}

void price_insert(struct price *p)
{
    atomic_fetch_add_explicit(&p->insertions, 1, memory_order_relaxed);
}

void price_blocks(struct price *p, uint64_t blocks)
{
    uint64_t mask = 0;

    while (blocks * 4 / (mask + 1) > SLOTS)
        mask = mask * 2 + 1;
    atomic_store(&p->mask, mask);
    atomic_store(&p->blocks, blocks);
}

double price_now(struct price *p)
{
    double price;

    pthread_mutex_lock(&p->lock);
    settle(p, atomic_load(&p->insertions), atomic_load(&p->blocks));
    price = p->since > 0 ? 4 * p->beyond / p->since : 0;
    pthread_mutex_unlock(&p->lock);
    return price > 1 ? 1 : price;
}

uint64_t price_insertions(struct price *p)
{
    return atomic_load(&p->insertions);
}
