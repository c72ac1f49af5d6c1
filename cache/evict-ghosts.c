/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-ghosts.c - blocks that left.
 *
 * Entries are numbered from 1, so that they link each other in 4 bytes: in their queue
 * or the free list, and in the chain of their bucket.  Buckets are half as many as
 * entries or more.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/evict-ghosts.h"
#include "cache/hash.h"

struct entry {
    uint64_t block;
    uint32_t newer, older; /* in its queue; newer also in the free list */
    uint32_t chain;        /* the next in its bucket */
    uint32_t queue : 1;
    uint32_t came : 31; /* when: how many had come to its queue */
};

struct queue {
    uint32_t newest, oldest;
    uint32_t count;
    uint32_t came : 31; /* ever */
};

struct qm_ghosts {
    struct entry *entries; /* the first is not used */
    uint32_t *buckets;
    uint32_t mask;
    uint32_t made, free;
    struct queue queues[2];
};

_Static_assert(sizeof(struct entry) + sizeof(uint32_t) <= QM_GHOST_BYTES,
               "an entry and a bucket");

/* Of an empty set.  Returns 0 or ENOMEM, then nothing is allocated. */
static int allocate(struct qm_ghosts *ghosts, uint64_t capacity)
{
    uint64_t buckets = 1;

    if (capacity >= INT32_MAX)
        return ENOMEM;
    while (buckets * 2 <= capacity)
        buckets *= 2;
    ghosts->mask = buckets - 1;
    ghosts->entries = malloc((capacity + 1) * sizeof(ghosts->entries[0]));
    ghosts->buckets = calloc(buckets, sizeof(ghosts->buckets[0]));
    if (ghosts->entries && ghosts->buckets)
        return 0;
    free(ghosts->entries);
    free(ghosts->buckets);
    return ENOMEM;
}

struct qm_ghosts *qm_ghosts_new(uint64_t capacity)
{
    struct qm_ghosts *ghosts = calloc(1, sizeof(*ghosts));

    if (ghosts && allocate(ghosts, capacity) != 0) {
        free(ghosts);
        ghosts = NULL;
    }
    return ghosts;
}

void qm_ghosts_free(struct qm_ghosts *ghosts)
{
    if (!ghosts)
        return;
    free(ghosts->entries);
    free(ghosts->buckets);
    free(ghosts);
}

uint64_t qm_ghosts_count(const struct qm_ghosts *ghosts, int queue)
{
    return ghosts->queues[queue].count;
}

/* The link that leads to block's entry, or the 0 at the end of where it would be. */
static uint32_t *find(struct qm_ghosts *ghosts, uint64_t block)
{
    uint32_t *link = &ghosts->buckets[qm_hash(block) & ghosts->mask];

    while (*link && ghosts->entries[*link].block != block)
        link = &ghosts->entries[*link].chain;
    return link;
}

void qm_ghosts_add(struct qm_ghosts *ghosts, int queue, uint64_t block)
{
    struct queue *q = &ghosts->queues[queue];
    uint32_t *bucket = &ghosts->buckets[qm_hash(block) & ghosts->mask];
    uint32_t number = ghosts->free;
    struct entry *entry;

    if (number) {
        entry = &ghosts->entries[number];
        ghosts->free = entry->newer;
    } else {
        number = ++ghosts->made;
        entry = &ghosts->entries[number];
    }
    *entry = (struct entry){.block = block,
                            .older = q->newest,
                            .chain = *bucket,
                            .queue = queue,
                            .came = q->came++};
    *bucket = number;
    if (q->newest)
        ghosts->entries[q->newest].newer = number;
    else
        q->oldest = number;
    q->newest = number;
    q->count++;
}

/* The entry to which link leads. */
static void forget(struct qm_ghosts *ghosts, uint32_t *link)
{
    uint32_t number = *link;
    struct entry *entry = &ghosts->entries[number];
    struct queue *q = &ghosts->queues[entry->queue];

    *link = entry->chain;
    if (entry->older)
        ghosts->entries[entry->older].newer = entry->newer;
    else
        q->oldest = entry->newer;
    if (entry->newer)
        ghosts->entries[entry->newer].older = entry->older;
    else
        q->newest = entry->older;
    q->count--;
    entry->newer = ghosts->free;
    ghosts->free = number;
}

int qm_ghosts_take_aged(struct qm_ghosts *ghosts, uint64_t block, uint32_t *age)
{
    uint32_t *link = find(ghosts, block);
    int queue;

    if (!*link)
        return QM_GHOST_NONE;
    queue = (int)ghosts->entries[*link].queue;
    *age = (ghosts->queues[queue].came - ghosts->entries[*link].came) & INT32_MAX;
    forget(ghosts, link);
    return queue;
}

int qm_ghosts_take(struct qm_ghosts *ghosts, uint64_t block)
{
    uint32_t age;

    return qm_ghosts_take_aged(ghosts, block, &age);
}

uint64_t qm_ghosts_drop(struct qm_ghosts *ghosts, int queue)
{
    uint64_t block = ghosts->entries[ghosts->queues[queue].oldest].block;

    forget(ghosts, find(ghosts, block));
    return block;
}

int qm_ghosts_reserve(struct qm_ghosts *ghosts, uint64_t capacity)
{
    struct qm_ghosts to = {0};

    if (allocate(&to, capacity) != 0)
        return ENOMEM;
    while ((uint64_t)ghosts->queues[0].count + ghosts->queues[1].count > capacity)
        qm_ghosts_drop(ghosts, ghosts->queues[1].count > ghosts->queues[0].count);
    for (int queue = 0; queue < 2; queue++) {
        const struct queue *q = &ghosts->queues[queue];

        for (uint32_t i = q->oldest; i; i = ghosts->entries[i].newer) {
            qm_ghosts_add(&to, queue, ghosts->entries[i].block);
            to.entries[to.made].came = ghosts->entries[i].came;
        }
        to.queues[queue].came = q->came;
    }
    free(ghosts->entries);
    free(ghosts->buckets);
    *ghosts = to;
    return 0;
}
