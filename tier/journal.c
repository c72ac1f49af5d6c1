/* SPDX-License-Identifier: BSD-3-Clause */
/* journal.c - changes of the volume: what they outdate is dropped, for this process and
 * for the next, and inserts that they have overtaken are refused.
 *
 * *Stamps* order changes and inserts.  A change takes a number from journal.now when it
 * begins and when it ends, and leaves it in the stamps of its blocks.  An insert is
 * stale if a stamp of its block is above its ticket or a change is in flight.
 * index_add() looks under the shard's lock, and qm_tier_write_begin() takes that lock
 * after it has set the stamp: either it finds the block, or the block is found stale.
 */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int journal_new(struct qm_tier *t)
{
    t->journal.stamps = tier_alloc(t, STAMPS * sizeof(struct stamp));
    return t->journal.stamps ? 0 : ENOMEM;
}

void journal_free(struct qm_tier *t)
{
    free(t->journal.stamps);
}

/* Neighbours have stamps of their own. */
static struct stamp *stamp_of(struct qm_tier *t, uint64_t block)
{
    return &t->journal.stamps[(block ^ block / STAMPS * 31) % STAMPS];
}

bool journal_is_stale(struct qm_tier *t, uint64_t block, uint64_t ticket)
{
    struct stamp *s = stamp_of(t, block);

    /* In flight first: an end sets the stamp before it leaves. */
    return atomic_load(&s->in_flight) > 0 || atomic_load(&t->journal.wide) > 0 ||
           atomic_load(&s->last) > ticket || atomic_load(&t->journal.floor) > ticket;
}

uint64_t qm_tier_ticket(struct qm_tier *t)
{
    return atomic_load(&t->journal.now);
}

static void raise_to(_Atomic uint64_t *to, uint64_t value)
{
    uint64_t was = atomic_load(to);

    while (was < value && !atomic_compare_exchange_weak(to, &was, value))
        ;
}

#define RUN 64

/* Tags of blocks whose slots follow each other are killed together.  A block leaves the
 * index only after its tag is dead: two changes of a block may begin together (of other
 * bytes of it), and the one that does not find the block goes on at once. */
struct run {
    uint32_t segment, slot, n;
    uint16_t pins[2];
    uint64_t blocks[RUN];
};

static int kill_run(struct qm_tier *t, struct run *run)
{
    bool locked = run->n > 0 && verify_lock(t);
    int r = run->n > 0 ? log_kill(t, run->segment, run->slot, run->n) : 0;

    for (uint32_t i = 0; i < run->n; i++)
        if (index_remove_from(t, run->blocks[i], run->segment, run->slot + i))
            COUNT(t, invalidated);
    verify_unlock(t, locked);
    for (unsigned i = 0; run->n > 0 && i < 2; i++)
        atomic_fetch_sub(&segment_of(t, run->segment)->pins[i], run->pins[i]);
    run->n = 0;
    return r;
}

/* held: set if it was there; or NULL. */
static int drop(struct qm_tier *t, uint64_t block, struct run *run, struct slot *held)
{
    struct slot s;
    int r = 0;

    if (!index_find(t, block, &s)) /* it pins the segment */
        return 0;
    if (held)
        *held = s;
    if (run->n > 0 &&
        (run->segment != s.segment || run->slot + run->n != s.slot || run->n >= RUN))
        r = kill_run(t, run);
    if (run->n == 0) {
        run->segment = s.segment;
        run->slot = s.slot;
        run->pins[0] = run->pins[1] = 0;
    }
    run->pins[s.phase]++;
    run->blocks[run->n++] = block;
    return r;
}

void journal_drop(struct qm_tier *t, uint64_t block)
{
    struct run run;
    int r;

    run.n = 0;
    r = drop(t, block, &run, NULL);
    if (r == 0)
        r = kill_run(t, &run);
    if (r != 0)
        tier_die(t, "cannot invalidate a block: %s", strerror(r));
}

/* Whether the write covers all of its i-th block; and, if there are others at the same
 * time, can tell by the stamps. */
static bool covers_all_of(const struct qm_tier *t, const struct qm_tier_write *w,
                          uint64_t i)
{
    uint64_t at = (w->first + i) * t->g.block_size;

    return !w->wide && at >= w->offset && at + t->g.block_size <= w->offset + w->count;
}

/* The new data of the i-th block is to be inserted, as hot as that. */
static void renew(struct qm_tier_write *w, uint64_t i, unsigned heat)
{
    w->renews = true;
    w->renewed[i / 2] |= (uint8_t)((heat + 1) << i % 2 * 4);
}

/* Its heat + 1, or 0: it is not. */
static unsigned renewed(const struct qm_tier_write *w, uint64_t i)
{
    return w->wide ? 0 : w->renewed[i / 2] >> i % 2 * 4 & 15;
}

static int drop_range(struct qm_tier *t, struct qm_tier_write *w)
{
    struct run run;
    int r = 0, k;

    run.n = 0;
    if (!w->wide || w->last - w->first <= atomic_load(&t->blocks)) {
        for (uint64_t b = w->first; b <= w->last && r == 0; b++) {
            struct slot held = {.block = QM_TIER_VOID};
            uint64_t i = b - w->first;

            r = drop(t, b, &run, &held);
            if (held.block == b && covers_all_of(t, w, i) && admit_update(t, b))
                renew(w, i, held.heat);
        }
    } else {
        /* More blocks than the index has.  What is added meanwhile is stale. */
        uint64_t found[256], n, all;

        do {
            struct cursor at = {0};

            all = 0;
            while (r == 0 &&
                   (n = index_gather(t, &at, w->first, w->last, found, 256)) > 0) {
                for (uint64_t i = 0; i < n && r == 0; i++)
                    r = drop(t, found[i], &run, NULL);
                all += n;
            }
            if (r == 0)
                r = kill_run(t, &run);
        } while (all > 0 && r == 0);
    }
    k = kill_run(t, &run); /* which unpins in any case */
    return r ? r : k;
}

void qm_tier_write_begin(struct qm_tier *t, struct qm_tier_write *w, uint64_t offset,
                         uint64_t count)
{
    uint64_t size = t->config.identity.size;
    int r;

    /* The volume may have grown, and the block that it ended in has more bytes now. */
    if (count > 0 && offset >= size &&
        offset / t->g.block_size == (size - 1) / t->g.block_size) {
        count = 1;
        offset = size - 1;
    }
    *w = (struct qm_tier_write){.offset = offset, .count = count};
    if (count == 0 || offset >= size)
        return;
    if (count > size - offset)
        w->count = count = size - offset;
    w->tracked = true;
    w->first = offset / t->g.block_size;
    w->last = (offset + count - 1) / t->g.block_size;
    w->wide = w->last - w->first >= QM_TIER_WIDE;
    atomic_fetch_add(&t->journal.writing, 1);
    if (w->wide) {
        atomic_fetch_add(&t->journal.wide, 1);
        w->stamp = atomic_fetch_add(&t->journal.now, 1) + 1;
        raise_to(&t->journal.floor, w->stamp);
    } else {
        for (uint64_t b = w->first; b <= w->last; b++)
            atomic_fetch_add(&stamp_of(t, b)->in_flight, 1);
        w->stamp = atomic_fetch_add(&t->journal.now, 1) + 1;
        for (uint64_t b = w->first; b <= w->last; b++)
            raise_to(&stamp_of(t, b)->last, w->stamp);
    }
    state_change(t);
    intent_begin(t, offset, count);
    if (!tier_dead(t)) {
        r = drop_range(t, w);
        if (r != 0)
            tier_die(t, "cannot invalidate a block: %s", strerror(r));
    }
    if (tier_dead(t))
        tier_wait_dead(t);
}

/* Inserts the new data of those blocks that were held and are worth it.  What the queue
 * has no room for is left out: to wait for it would be to wait for the disk. */
static void update(struct qm_tier *t, const struct qm_tier_write *w, const char *data,
                   uint64_t ticket)
{
    uint32_t size = t->g.block_size;

    for (uint64_t i = 0; i <= w->last - w->first; i++) {
        uint64_t block = w->first + i;
        unsigned heat = renewed(w, i);
        struct qm_tier_insert insert = {
            .block = block,
            .ticket = ticket,
            .frequency = UINT32_MAX - 1, /* it has earned its place before */
        };

        if (heat == 0)
            continue;
        insert.data = data ? data + (block * size - w->offset) : NULL;
        (void)queue_insert(t, &insert, heat - 1);
    }
}

/* Inserts the whole blocks of data that was moved, but for those that update() did. */
static void hand_on(struct qm_tier *t, const struct qm_tier_write *w, const char *data,
                    uint64_t ticket)
{
    uint32_t size = t->g.block_size;
    uint64_t block = (w->offset + size - 1) / size;

    for (; (block + 1) * size <= w->offset + w->count; block++) {
        const struct qm_tier_insert insert = {
            .block = block,
            .data = data ? data + (block * size - w->offset) : NULL,
            .ticket = ticket,
            .frequency = UINT32_MAX - 1, /* it has earned a place elsewhere */
        };

        if (renewed(w, block - w->first) || !rebuild_wants(t, block) ||
            qm_tier_insert(t, &insert) != 0)
            continue;
        COUNT(t, handed_on);
        rebuild_handed_on(t, block);
    }
}

/* Whether no other change of the write's blocks has begun since it did, or is in
 * flight. To be asked when the write has its last number and before it leaves: a change
 * that begins later has a higher one; one that has left has set its stamp before. */
static bool is_alone(struct qm_tier *t, const struct qm_tier_write *w)
{
    bool alone = atomic_load(&t->journal.wide) == 0;

    alone = alone && atomic_load(&t->journal.floor) <= w->stamp;
    for (uint64_t b = w->first; b <= w->last && alone; b++) {
        alone = atomic_load(&stamp_of(t, b)->in_flight) == 1;
        alone = alone && atomic_load(&stamp_of(t, b)->last) <= w->stamp;
    }
    return alone;
}

void qm_tier_write_end(struct qm_tier *t, struct qm_tier_write *w,
                       enum qm_tier_result result, const void *data)
{
    bool usable = result == QM_TIER_WROTE && (data || !t->config.data), alone = false;
    uint64_t stamp;

    if (!w->tracked)
        return;
    w->tracked = false;
    stamp = atomic_fetch_add(&t->journal.now, 1) + 1;
    if (w->wide) {
        raise_to(&t->journal.floor, stamp);
        atomic_fetch_sub(&t->journal.wide, 1);
    } else {
        alone = usable && is_alone(t, w);
        for (uint64_t b = w->first; b <= w->last; b++)
            raise_to(&stamp_of(t, b)->last, stamp);
        for (uint64_t b = w->first; b <= w->last; b++)
            atomic_fetch_sub(&stamp_of(t, b)->in_flight, 1);
    }
    intent_end(t, w->offset, w->count);
    atomic_fetch_sub(&t->journal.writing, 1);
    if (alone && w->renews)
        update(t, w, data, stamp);
    if (usable && rebuild_moved(t, w) && alone)
        hand_on(t, w, data, stamp);
}
