/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.c - see hints.h.
 *
 * A stripe's two rings hold what waits, oldest first.  Nearly always only what is in
 * flight waits, so a ring is short and is searched from its old end, which is what
 * makes it first in, first out.  What was joined stays in its place, with `waits`
 * false, until it is the oldest.
 */
#include "server/hints.h"

#include <pthread.h>
#include <stdlib.h>

#include "cache/hash.h"

#define STRIPES     64  /* a power of two */
#define RING        128 /* a power of two */
#define CONNECTIONS 4096
#define STEP        (QMS_HINT_WINDOW / 64)

/* A connection's reads are taken for hinted if nearly all of the last ones were: one
 * that meets its hint adds 1, one that stays alone takes 4 away. */
#define SCORE_MOST    64
#define SCORE_COVERED 16
#define SCORE_ALONE   4

struct waiter {
    uint64_t block, since;
    struct qms_hint hint; /* of a hint; of a read: */
    unsigned connection;
    enum qm_outcome outcome;
    bool counted;
    bool waits;
};

struct ring {
    unsigned first, end; /* numbers of waiters, which only grow; modulo RING an index */
    struct waiter waiters[RING];
};

struct stripe {
    _Alignas(64) pthread_mutex_t lock;
    struct ring hints, reads;
    uint64_t said, joined, unread, unhinted;
};

struct qms_hints {
    qms_hints_alone *alone;
    void *opaque;
    _Atomic int sessions;
    /* Of the newest hint and read that have met, when the earlier of the two came. */
    _Atomic uint64_t front;
    _Atomic int scores[CONNECTIONS];
    struct stripe stripes[STRIPES];
};

/* Reads that were left alone, to be dealt with when the lock is released. */
struct left {
    unsigned count;
    struct waiter reads[RING + 1];
};

struct qms_hints *qms_hints_new(qms_hints_alone *alone, void *opaque)
{
    struct qms_hints *h = aligned_alloc(64, (sizeof *h + 63) / 64 * 64);

    if (!h)
        return NULL;
    h->alone = alone;
    h->opaque = opaque;
    atomic_init(&h->sessions, 0);
    atomic_init(&h->front, 0);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        atomic_init(&h->scores[i], 0);
    for (unsigned i = 0; i < STRIPES; i++) {
        struct stripe *s = &h->stripes[i];

        pthread_mutex_init(&s->lock, NULL);
        s->hints.first = s->hints.end = s->reads.first = s->reads.end = 0;
        s->said = s->joined = s->unread = s->unhinted = 0;
    }
    return h;
}

void qms_hints_free(struct qms_hints *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&h->stripes[i].lock);
    free(h);
}

void qms_hints_session(struct qms_hints *h, int one_more_or_less)
{
    atomic_fetch_add_explicit(&h->sessions, one_more_or_less, memory_order_relaxed);
}

bool qms_hints_active(const struct qms_hints *h)
{
    return atomic_load_explicit(&h->sessions, memory_order_relaxed) > 0;
}

static _Atomic int *score_of(struct qms_hints *h, unsigned number)
{
    return &h->scores[number % CONNECTIONS];
}

void qms_hints_connection(struct qms_hints *h, unsigned number)
{
    atomic_store_explicit(score_of(h, number), 0, memory_order_relaxed);
}

bool qms_hints_covers(struct qms_hints *h, unsigned number)
{
    return atomic_load_explicit(score_of(h, number), memory_order_relaxed) >=
           SCORE_COVERED;
}

/* Both leave lines alone, which others read, where nothing changes. */

static void has_met(struct qms_hints *h, unsigned number)
{
    _Atomic int *score = score_of(h, number);

    if (atomic_load_explicit(score, memory_order_relaxed) < SCORE_MOST)
        atomic_fetch_add_explicit(score, 1, memory_order_relaxed);
}

static void was_alone(struct qms_hints *h, unsigned number)
{
    _Atomic int *score = score_of(h, number);

    if (atomic_load_explicit(score, memory_order_relaxed) >= SCORE_ALONE)
        atomic_fetch_sub_explicit(score, SCORE_ALONE, memory_order_relaxed);
}

static struct stripe *stripe_of(struct qms_hints *h, uint64_t block)
{
    return &h->stripes[qm_hash(block) % STRIPES];
}

static struct waiter *at(struct ring *ring, unsigned number)
{
    return &ring->waiters[number % RING];
}

/* The oldest that waits, or NULL; those joined before it go. */
static struct waiter *oldest(struct ring *ring)
{
    while (ring->first != ring->end && !at(ring, ring->first)->waits)
        ring->first++;
    return ring->first != ring->end ? at(ring, ring->first) : NULL;
}

/* The oldest read, or hint, is left alone. */
static void drop_read(struct stripe *s, struct left *left)
{
    const struct waiter *w = at(&s->reads, s->reads.first++);

    left->reads[left->count++] = *w;
    s->unhinted++;
}

static void drop_hint(struct stripe *s)
{
    s->hints.first++;
    s->unread++;
}

static bool is_old(const struct waiter *w, uint64_t now, uint64_t front)
{
    return (front > w->since && front - w->since > QMS_HINT_WINDOW) ||
           (now > w->since && now - w->since > QMS_HINT_PATIENCE);
}

/* The stripe's lock is held. */
static void expire(struct qms_hints *h, struct stripe *s, uint64_t now,
                   struct left *left)
{
    uint64_t front = atomic_load_explicit(&h->front, memory_order_relaxed);
    struct waiter *w;

    while ((w = oldest(&s->reads)) && is_old(w, now, front))
        drop_read(s, left);
    while ((w = oldest(&s->hints)) && is_old(w, now, front))
        drop_hint(s);
}

/* Two have met.  The front is written seldom, since all processors read it; it is
 * behind by STEP at most, or by what another thread has just written over. */
static void advance(struct qms_hints *h, uint64_t hint, uint64_t read)
{
    uint64_t earlier = hint < read ? hint : read;

    if (earlier > atomic_load_explicit(&h->front, memory_order_relaxed) + STEP)
        atomic_store_explicit(&h->front, earlier, memory_order_relaxed);
}

/* Takes the oldest waiter for the block out of a ring; NULL: there is none.  Good until
 * the lock is released. */
static struct waiter *take(struct ring *ring, uint64_t block)
{
    for (unsigned i = ring->first; i != ring->end; i++) {
        struct waiter *w = at(ring, i);

        if (w->waits && w->block == block) {
            w->waits = false;
            return w;
        }
    }
    return NULL;
}

static void put(struct ring *ring, const struct waiter *w)
{
    *at(ring, ring->end++) = *w;
}

static bool full(const struct ring *ring)
{
    return ring->end - ring->first == RING;
}

static void hand_back(struct qms_hints *h, const struct left *left)
{
    for (unsigned i = 0; i < left->count; i++) {
        const struct waiter *w = &left->reads[i];

        was_alone(h, w->connection);
        if (!w->counted)
            h->alone(h->opaque, w->block, w->outcome);
    }
}

bool qms_hints_read(struct qms_hints *h, uint64_t now, unsigned connection,
                    uint64_t block, enum qm_outcome outcome, bool counted,
                    struct qms_hint *hint)
{
    struct stripe *s = stripe_of(h, block);
    struct waiter *found;
    struct left left;

    left.count = 0;

    pthread_mutex_lock(&s->lock);
    expire(h, s, now, &left);
    found = take(&s->hints, block);
    if (found) {
        *hint = found->hint;
        advance(h, found->since, now);
        s->joined++;
    } else {
        oldest(&s->reads);
        if (full(&s->reads))
            drop_read(s, &left);
        put(&s->reads, &(struct waiter){.block = block,
                                        .since = now,
                                        .connection = connection,
                                        .outcome = outcome,
                                        .counted = counted,
                                        .waits = true});
    }
    pthread_mutex_unlock(&s->lock);
    if (found)
        has_met(h, connection);
    hand_back(h, &left);
    return found != NULL;
}

bool qms_hints_said(struct qms_hints *h, uint64_t now, uint64_t block,
                    const struct qms_hint *hint, enum qm_outcome *outcome,
                    bool *counted)
{
    struct stripe *s = stripe_of(h, block);
    unsigned connection = 0;
    struct waiter *read;
    struct left left;

    left.count = 0;

    pthread_mutex_lock(&s->lock);
    expire(h, s, now, &left);
    s->said++;
    read = take(&s->reads, block);
    if (read) {
        *outcome = read->outcome;
        *counted = read->counted;
        connection = read->connection;
        advance(h, now, read->since);
        s->joined++;
    } else {
        oldest(&s->hints);
        if (full(&s->hints))
            drop_hint(s);
        put(&s->hints, &(struct waiter){
                           .block = block, .since = now, .hint = *hint, .waits = true});
    }
    pthread_mutex_unlock(&s->lock);
    if (read)
        has_met(h, connection);
    hand_back(h, &left);
    return read != NULL;
}

void qms_hints_expire(struct qms_hints *h, uint64_t now)
{
    for (unsigned i = 0; i < STRIPES; i++) {
        struct stripe *s = &h->stripes[i];
        struct left left;

        left.count = 0;
        pthread_mutex_lock(&s->lock);
        expire(h, s, now, &left);
        pthread_mutex_unlock(&s->lock);
        hand_back(h, &left);
    }
}

static unsigned count_waiting(struct ring *ring)
{
    unsigned n = 0;

    for (unsigned i = ring->first; i != ring->end; i++)
        n += at(ring, i)->waits;
    return n;
}

void qms_hints_get_stats(struct qms_hints *h, struct qms_hints_stats *stats)
{
    *stats = (struct qms_hints_stats){
        .sessions = (uint64_t)atomic_load_explicit(&h->sessions, memory_order_relaxed)};
    for (unsigned i = 0; i < STRIPES; i++) {
        struct stripe *s = &h->stripes[i];

        pthread_mutex_lock(&s->lock);
        stats->blocks += s->said;
        stats->joined += s->joined;
        stats->unread += s->unread;
        stats->unhinted += s->unhinted;
        stats->waiting += count_waiting(&s->hints) + count_waiting(&s->reads);
        pthread_mutex_unlock(&s->lock);
    }
}
