/* SPDX-License-Identifier: BSD-3-Clause */
/* policy-lru.c - LRU and MRU (the thesis, algorithms 1 to 6).
 *
 * A new key enters memory at once, and a key that is found on disk comes back.  The
 * victim is chosen before either enters: under MRU as printed, the key that has just
 * entered would be the victim, and memory would hold one key less than it may. */
#include <errno.h>
#include <stdlib.h>

#include "rowcache/store/internal.h"

static int init(struct partition *p)
{
    p->policy = calloc(1, sizeof(struct entry_list));
    return p->policy ? 0 : ENOMEM;
}

static void destroy(struct partition *p)
{
    free(p->policy);
    p->policy = NULL;
}

static void seen(struct partition *p, struct store_hash hash)
{
}

static void add(struct partition *p, struct entry *e)
{
    e->place = PLACE_FIRST;
    store_list_push(p->policy, e);
}

static void discard(struct partition *p, struct entry *e)
{
    store_list_remove(p->policy, e);
}

static void replace(struct partition *p, struct entry *old, struct entry *e)
{
    store_list_replace(p->policy, old, e);
}

static void touch(struct partition *p, struct entry *e)
{
    store_list_remove(p->policy, e);
    store_list_push(p->policy, e);
}

static struct entry *least_recent(struct partition *p)
{
    return ((struct entry_list *)p->policy)->oldest;
}

static struct entry *most_recent(struct partition *p)
{
    return ((struct entry_list *)p->policy)->newest;
}

static bool admit(struct partition *p, struct store_hash hash, uint32_t frequency)
{
    return true;
}

const struct policy_ops store_lru = {
    .name = "lru",
    .admits_new = true,
    .init = init,
    .destroy = destroy,
    .seen = seen,
    .add = add,
    .remove = discard,
    .replace = replace,
    .touch = touch,
    .victim = least_recent,
    .admit = admit,
};

const struct policy_ops store_mru = {
    .name = "mru",
    .admits_new = true,
    .init = init,
    .destroy = destroy,
    .seen = seen,
    .add = add,
    .remove = discard,
    .replace = replace,
    .touch = touch,
    .victim = most_recent,
    .admit = admit,
};
