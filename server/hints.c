/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.c - see hints.h.
 *
 * A stripe's two rings hold what waits, oldest first.  Nearly always only what is in
 * flight waits, so a ring is short and is searched from its old end, which is what
 * makes it first in, first out.  What was joined stays in its place, with `waits`
 * false, until it is the oldest, or the ring is full.
 *
 * Sources do not stand still together, so what is behind the oldest may be old while
 * the oldest is not: nothing meets it then, and qms_hints_expire() takes it out.
 */
#include "server/hints.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cache/hash.h"

#define STRIPES 64  /* a power of two */
#define RING    128 /* a power of two */
#define ROOM    16  /* places of a ring that are made at once */
#define SOURCES QMS_HINTS_SHARED
#define STEP    (QMS_HINT_WINDOW / 64)

/* A connection's reads are taken for hinted if nearly all of the last ones were: one
 * that meets its hint adds 1, one that stays alone takes 4 away. */
#define SCORE_MOST    64
#define SCORE_COVERED 16
#define SCORE_ALONE   4

/* A connection, or a session. */
struct source {
    /* Of its newest that has met its other, when the earlier of the two came. */
    _Atomic uint64_t front;
    _Atomic int score; /* of a connection */
};

struct waiter {
    uint64_t block, since;
    unsigned source;
    struct qms_hint hint; /* of a hint; of a read: */
    enum qm_outcome outcome;
    bool early;
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
    pthread_mutex_t lock; /* of used */
    bool used[SOURCES];
    struct source sources[SOURCES + 1]; /* by number; the shared one stays as it is */
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
    pthread_mutex_init(&h->lock, NULL);
    memset(h->used, 0, sizeof h->used);
    for (unsigned i = 0; i <= SOURCES; i++) {
        atomic_init(&h->sources[i].front, 0);
        atomic_init(&h->sources[i].score, 0);
    }
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
    pthread_mutex_destroy(&h->lock);
    free(h);
}

unsigned qms_hints_enter(struct qms_hints *h)
{
    unsigned number = 0;

    pthread_mutex_lock(&h->lock);
    while (number < SOURCES && h->used[number])
        number++;
    if (number < SOURCES) {
        h->used[number] = true;
        atomic_store_explicit(&h->sources[number].front, 0, memory_order_relaxed);
        atomic_store_explicit(&h->sources[number].score, 0, memory_order_relaxed);
    }
    pthread_mutex_unlock(&h->lock);
    return number;
}

void qms_hints_leave(struct qms_hints *h, unsigned number)
{
    if (number == QMS_HINTS_SHARED)
        return;
    pthread_mutex_lock(&h->lock);
    h->used[number] = false;
    pthread_mutex_unlock(&h->lock);
}

unsigned qms_hints_session_enter(struct qms_hints *h)
{
    atomic_fetch_add_explicit(&h->sessions, 1, memory_order_relaxed);
    return qms_hints_enter(h);
}

void qms_hints_session_leave(struct qms_hints *h, unsigned number)
{
    qms_hints_leave(h, number);
    atomic_fetch_sub_explicit(&h->sessions, 1, memory_order_relaxed);
}

bool qms_hints_active(const struct qms_hints *h)
{
    return atomic_load_explicit(&h->sessions, memory_order_relaxed) > 0;
}

bool qms_hints_covers(const struct qms_hints *h, unsigned number)
{
    return atomic_load_explicit(&h->sources[number].score, memory_order_relaxed) >=
           SCORE_COVERED;
}

/* All of these leave lines alone, which others read, where nothing changes. */

static void has_met(struct qms_hints *h, unsigned number)
{
    _Atomic int *score = &h->sources[number].score;

    if (number != QMS_HINTS_SHARED &&
        atomic_load_explicit(score, memory_order_relaxed) < SCORE_MOST)
        atomic_fetch_add_explicit(score, 1, memory_order_relaxed);
}

static void was_alone(struct qms_hints *h, unsigned number)
{
    _Atomic int *score = &h->sources[number].score;

    if (atomic_load_explicit(score, memory_order_relaxed) >= SCORE_ALONE)
        atomic_fetch_sub_explicit(score, SCORE_ALONE, memory_order_relaxed);
}

/* One of a source has met its other.  The front is written seldom; it is behind by STEP
 * at most, or by what another thread has just written over. */
static void advance(struct qms_hints *h, unsigned number, uint64_t earlier)
{
    _Atomic uint64_t *front = &h->sources[number].front;

    if (number != QMS_HINTS_SHARED &&
        earlier > atomic_load_explicit(front, memory_order_relaxed) + STEP)
        atomic_store_explicit(front, earlier, memory_order_relaxed);
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

static bool is_old(const struct qms_hints *h, const struct waiter *w, uint64_t now)
{
    uint64_t front =
        atomic_load_explicit(&h->sources[w->source].front, memory_order_relaxed);

    return (front > w->since && front - w->since > QMS_HINT_WINDOW) ||
           (now > w->since && now - w->since > QMS_HINT_PATIENCE);
}

/* A read, or a hint, is left alone; its place in the ring is another's then. */
static void drop(struct stripe *s, const struct waiter *w, struct left *left)
{
    if (left) {
        left->reads[left->count++] = *w;
        s->unhinted++;
    } else {
        s->unread++;
    }
}

/* The stripe's lock is held in what follows.  left: the ring is of reads; NULL: it is
 * of hints. */

/* Leaves alone the oldest ones, as far as they have waited for long enough. */
static void expire_oldest(struct qms_hints *h, struct stripe *s, struct ring *ring,
                          uint64_t now, struct left *left)
{
    const struct waiter *w;

    while ((w = oldest(ring)) && is_old(h, w, now)) {
        ring->first++;
        drop(s, w, left);
    }
}

static void expire(struct qms_hints *h, struct stripe *s, uint64_t now,
                   struct left *left)
{
    expire_oldest(h, s, &s->reads, now, left);
    expire_oldest(h, s, &s->hints, now, NULL);
}

/* Leaves alone what has waited for long enough, and up to `most` of a source (SOURCES +
 * 1: of none), the oldest; what is left moves together. */
static void squeeze(struct qms_hints *h, struct stripe *s, struct ring *ring,
                    uint64_t now, unsigned source, unsigned most, struct left *left)
{
    unsigned to = ring->first;

    for (unsigned i = ring->first; i != ring->end; i++) {
        const struct waiter *w = at(ring, i);
        bool driven_out = w->waits && w->source == source && most > 0;

        if (driven_out || (w->waits && is_old(h, w, now)))
            drop(s, w, left);
        else if (w->waits)
            *at(ring, to++) = *w;
        most -= driven_out;
    }
    ring->end = to;
}

/* The source that has most in the ring. */
static unsigned fullest(struct ring *ring)
{
    unsigned char counts[SOURCES + 1] = {0};
    unsigned most = at(ring, ring->first)->source;

    for (unsigned i = ring->first; i != ring->end; i++) {
        unsigned source = at(ring, i)->source;

        if (++counts[source] > counts[most])
            most = source;
    }
    return most;
}

/* Makes place for one more. */
static void make_room(struct qms_hints *h, struct stripe *s, struct ring *ring,
                      uint64_t now, struct left *left)
{
    if (ring->end - ring->first < RING)
        return;
    squeeze(h, s, ring, now, SOURCES + 1, 0, left);
    if (ring->end - ring->first > RING - ROOM)
        squeeze(h, s, ring, now, fullest(ring), ROOM, left);
}

/* Takes the oldest waiter for the block out of a ring; NULL: there is none.  Good until
 * the lock is released. */
static struct waiter *take(const struct qms_hints *h, struct ring *ring, uint64_t block,
                           uint64_t now)
{
    for (unsigned i = ring->first; i != ring->end; i++) {
        struct waiter *w = at(ring, i);

        if (w->waits && w->block == block && !is_old(h, w, now)) {
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

static void hand_back(struct qms_hints *h, const struct left *left)
{
    for (unsigned i = 0; i < left->count; i++) {
        const struct waiter *w = &left->reads[i];

        was_alone(h, w->source);
        if (!w->counted)
            h->alone(h->opaque, w->block, w->outcome);
    }
}

bool qms_hints_read(struct qms_hints *h, uint64_t now, unsigned connection,
                    uint64_t block, const struct qm_lookup *lookup, bool counted,
                    struct qms_hint *hint)
{
    struct stripe *s = stripe_of(h, block);
    struct waiter *found;
    struct left left;

    left.count = 0;

    pthread_mutex_lock(&s->lock);
    expire(h, s, now, &left);
    found = take(h, &s->hints, block, now);
    if (found) {
        uint64_t earlier = found->since < now ? found->since : now;

        *hint = found->hint;
        advance(h, found->source, earlier);
        advance(h, connection, earlier);
        s->joined++;
    } else {
        make_room(h, s, &s->reads, now, &left);
        put(&s->reads, &(struct waiter){.block = block,
                                        .since = now,
                                        .source = connection,
                                        .outcome = lookup->outcome,
                                        .early = lookup->early,
                                        .counted = counted,
                                        .waits = true});
    }
    pthread_mutex_unlock(&s->lock);
    if (found)
        has_met(h, connection);
    hand_back(h, &left);
    return found != NULL;
}

bool qms_hints_said(struct qms_hints *h, uint64_t now, unsigned session, uint64_t block,
                    const struct qms_hint *hint, struct qm_lookup *found, bool *counted)
{
    struct stripe *s = stripe_of(h, block);
    unsigned connection = 0;
    struct waiter *read;
    struct left left;

    left.count = 0;

    pthread_mutex_lock(&s->lock);
    expire(h, s, now, &left);
    s->said++;
    read = take(h, &s->reads, block, now);
    if (read) {
        uint64_t earlier = read->since < now ? read->since : now;

        *found = (struct qm_lookup){.outcome = read->outcome, .early = read->early};
        *counted = read->counted;
        connection = read->source;
        advance(h, connection, earlier);
        advance(h, session, earlier);
        s->joined++;
    } else {
        make_room(h, s, &s->hints, now, NULL);
        put(&s->hints, &(struct waiter){.block = block,
                                        .since = now,
                                        .source = session,
                                        .hint = *hint,
                                        .waits = true});
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
        squeeze(h, s, &s->reads, now, SOURCES + 1, 0, &left);
        squeeze(h, s, &s->hints, now, SOURCES + 1, 0, NULL);
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
