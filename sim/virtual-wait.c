/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-wait.c - readers that wait for others' reads, in virtual time (virtual.h).
 *
 * Where requests come faster than the device serves them, thousands of readers wait,
 * and for few blocks: no more than the cache has.  The first that waits for a read
 * leads those who wait for it, too, so that one look is enough for all of them.  They
 * go on in the order in which they began to wait.
 */
#include "sim/virtual-internal.h"

void vt_wait(struct vt_reader *r, struct qm_fill *fill)
{
    struct qm_virtual *v = r->actor.v;
    struct vt_reader *leader;

    r->awaited = fill;
    r->awaited_from = ++v->waits;
    CDS_INIT_LIST_HEAD(&r->followers);
    HASH_FIND_PTR(v->leaders, &r->awaited, leader);
    if (leader) {
        cds_list_add_tail(&r->list, &leader->followers);
        return;
    }
    cds_list_add_tail(&r->list, &v->waiting);
    r->lost = false; /* if it becomes true, nobody follows */
    HASH_ADD_PTR(v->leaders, awaited, r);
}

static void woken(void *opaque, void *what)
{
    (void)opaque;
    vt_resume(what);
}

/* Takes the one out that has waited longest; its first follower leads the others. */
static struct vt_reader *take_first(struct cds_list_head *leaders)
{
    struct vt_reader *first = cds_list_first_entry(leaders, struct vt_reader, list);
    struct vt_reader *r;

    cds_list_for_each_entry(r, leaders, list)
    {
        if (r->awaited_from < first->awaited_from)
            first = r;
    }
    if (!cds_list_empty(&first->followers)) {
        r = cds_list_first_entry(&first->followers, struct vt_reader, list);
        cds_list_del(&r->list);
        cds_list_splice(&first->followers, &r->followers);
        cds_list_add_tail(&r->list, leaders);
    }
    cds_list_del(&first->list);
    return first;
}

void vt_wake(struct qm_virtual *v)
{
    CDS_LIST_HEAD(over);
    struct vt_reader *r, *next;

    cds_list_for_each_entry_safe(r, next, &v->waiting, list)
    {
        if (!qm_cache_settled(v->sim->cache, r->awaited))
            continue;
        if (!r->lost)
            HASH_DEL(v->leaders, r);
        cds_list_move(&r->list, &over);
    }
    while (!cds_list_empty(&over))
        vt_at(v, v->now, woken, take_first(&over));
}
