/* SPDX-License-Identifier: BSD-3-Clause */
/* policy-lfu.c - LFU (the thesis, 4.4.2.3 and algorithm 7).
 *
 * An inverted index: for each frequency, a list of the entries that have it, the least
 * recent first to leave; the lists are in a list by frequency, so that every operation
 * takes constant time.  A new key goes to disk with frequency 1 when memory is full; a
 * key that is found on disk takes the victim's place if its frequency, before this
 * access, is at least the victim's. */
#include <errno.h>
#include <stdlib.h>

#include "rowcache/store/internal.h"

struct rank {
    struct rank *lower, *higher;
    uint32_t frequency;
    struct entry_list entries; /* not empty, but of a rank that is being left */
};

struct lfu {
    struct rank *lowest;
    struct rank *free; /* in reserve; NULL while there are several ranks, at most */
};

static int init(struct partition *p)
{
    struct lfu *l = p->policy = calloc(1, sizeof *l);

    if (!l || !(l->free = malloc(sizeof *l->free))) {
        free(l);
        p->policy = NULL;
        return ENOMEM;
    }
    return 0;
}

static void destroy(struct partition *p)
{
    struct lfu *l = p->policy;

    while (l && l->lowest) {
        struct rank *r = l->lowest;

        l->lowest = r->higher;
        free(r);
    }
    if (l)
        free(l->free);
    free(l);
    p->policy = NULL;
}

static void seen(struct partition *p, struct store_hash hash)
{
}

/* The rank of a frequency, looked for from `lower` on (NULL: from the lowest).  One
 * that is kept in reserve makes that a first rank never lacks memory; without memory
 * for another, the nearest. */
static struct rank *rank_of(struct lfu *l, struct rank *lower, uint32_t frequency)
{
    struct rank *higher = lower ? lower->higher : l->lowest, *r;

    while (higher && higher->frequency < frequency) {
        lower = higher;
        higher = higher->higher;
    }
    if (higher && higher->frequency == frequency)
        return higher;
    r = l->free ? l->free : malloc(sizeof *r);
    l->free = NULL;
    if (!r)
        return lower ? lower : higher;
    *r = (struct rank){.lower = lower, .higher = higher, .frequency = frequency};
    if (higher)
        higher->lower = r;
    if (lower)
        lower->higher = r;
    else
        l->lowest = r;
    return r;
}

static void leave(struct lfu *l, struct rank *r)
{
    if (r->entries.count > 0)
        return;
    if (r->lower)
        r->lower->higher = r->higher;
    else
        l->lowest = r->higher;
    if (r->higher)
        r->higher->lower = r->lower;
    free(l->free);
    l->free = r;
}

static void enter(struct lfu *l, struct rank *r, struct entry *e)
{
    e->rank = r;
    store_list_push(&r->entries, e);
}

static void add(struct partition *p, struct entry *e)
{
    struct lfu *l = p->policy;

    e->place = PLACE_FIRST;
    enter(l, rank_of(l, NULL, e->frequency), e);
}

static void discard(struct partition *p, struct entry *e)
{
    struct rank *r = e->rank;

    store_list_remove(&r->entries, e);
    leave(p->policy, r);
}

static void replace(struct partition *p, struct entry *old, struct entry *e)
{
    struct rank *r = old->rank;

    e->rank = r;
    store_list_replace(&r->entries, old, e);
}

static void touch(struct partition *p, struct entry *e)
{
    struct rank *was = e->rank, *r = rank_of(p->policy, was, e->frequency);

    store_list_remove(&was->entries, e);
    enter(p->policy, r, e);
    leave(p->policy, was);
}

static struct entry *victim(struct partition *p)
{
    struct lfu *l = p->policy;

    return l->lowest ? l->lowest->entries.oldest : NULL;
}

static bool admit(struct partition *p, struct store_hash hash, uint32_t frequency)
{
    struct entry *v = victim(p);

    return !v || frequency >= v->frequency;
}

const struct policy_ops store_lfu = {
    .name = "lfu",
    .counts = true,
    .init = init,
    .destroy = destroy,
    .seen = seen,
    .add = add,
    .remove = discard,
    .replace = replace,
    .touch = touch,
    .victim = victim,
    .admit = admit,
};
