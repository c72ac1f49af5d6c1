/* SPDX-License-Identifier: BSD-3-Clause */
/* throttle.c - counts that fade, sets made by union-find over them, and three states.
 *
 * The counts of a class are halved together when they have come to PERIOD prefetches,
 * so they are of its last few hundred, however often it runs.  Each class remembers
 * those PARTNERS that use most of what is prefetched for it.
 *
 * Prefetches are counted when they are issued, not when it is known what became of
 * them: one that is used ends soon, one that is not ends when it is evicted, which is
 * late where little is prefetched.  Counting ends would make a class that is off look
 * good.
 */
#include "mining/core/throttle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    PERIOD = 512,       /* prefetches of a class after which its counts fade */
    PARTNERS = 8,       /* classes that a class is known to feed */
    JUDGE_EVERY = 64,   /* prefetches of all classes between two judgements */
    ENOUGH = 128,       /* prefetches of a set before it is judged */
    ENOUGH_PROBES = 16, /* of one that is off */
    PROBE_EVERY = 256,  /* accesses of a class that is off between two probes */
    PROBE_DEGREE = 2,   /* blocks of a probe */
};

/* Percent of a set's prefetches that must be used: two bounds for each change, so that
 * a set at the border does not go to and fro. */
enum { STOP_BELOW = 10, RESUME_FROM = 20, REDUCE_BELOW = 20, RESTORE_FROM = 30 };

/* B is fed by A if it uses that share of what is prefetched for A. */
enum { FEEDS = 10, FEEDS_LEAST = 4 };

struct partner {
    uint32_t user;
    uint32_t used;
};

struct klass {
    _Atomic uint8_t state;     /* enum qm_throttle_state */
    _Atomic uint32_t accesses; /* of one that is off, for its probes */
    uint32_t used, issued;     /* recent; used: by any class */
    uint32_t set;              /* the lowest number of a class in its set */
    struct partner partners[PARTNERS];
};

struct qm_throttle {
    pthread_mutex_t lock; /* of all but the atomic fields */
    uint32_t since;       /* issued since the last judgement */
    uint32_t top;         /* classes from here on have never prefetched */
    struct klass classes[QM_THROTTLE_CLASSES];
};

struct qm_throttle *qm_throttle_new(void)
{
    struct qm_throttle *t = calloc(1, sizeof *t);

    if (t) {
        pthread_mutex_init(&t->lock, NULL);
        qm_throttle_reset(t);
    }
    return t;
}

void qm_throttle_reset(struct qm_throttle *t)
{
    pthread_mutex_lock(&t->lock);
    t->since = t->top = 0;
    for (uint32_t i = 0; i < QM_THROTTLE_CLASSES; i++) {
        struct klass *c = &t->classes[i];

        atomic_store_explicit(&c->state, QM_THROTTLE_ON, memory_order_relaxed);
        atomic_store_explicit(&c->accesses, 0, memory_order_relaxed);
        c->used = c->issued = 0;
        c->set = i;
        memset(c->partners, 0, sizeof c->partners);
    }
    pthread_mutex_unlock(&t->lock);
}

void qm_throttle_free(struct qm_throttle *t)
{
    if (t)
        pthread_mutex_destroy(&t->lock);
    free(t);
}

static uint32_t index_of(uint32_t klass)
{
    return klass < QM_THROTTLE_CLASSES ? klass : QM_THROTTLE_CLASSES - 1;
}

unsigned qm_throttle_allow(struct qm_throttle *t, uint32_t klass, unsigned most)
{
    struct klass *c = &t->classes[index_of(klass)];
    uint32_t accesses;

    switch (atomic_load_explicit(&c->state, memory_order_relaxed)) {
    case QM_THROTTLE_ON:
        return most;
    case QM_THROTTLE_REDUCED:
        return most < 1 ? most : 1;
    default:
        accesses = atomic_fetch_add_explicit(&c->accesses, 1, memory_order_relaxed);
        if (accesses % PROBE_EVERY != PROBE_EVERY - 1)
            return 0;
        return most < PROBE_DEGREE ? most : PROBE_DEGREE;
    }
}

static uint32_t find(struct qm_throttle *t, uint32_t c)
{
    while (t->classes[c].set != c) {
        t->classes[c].set = t->classes[t->classes[c].set].set;
        c = t->classes[c].set;
    }
    return c;
}

static void join(struct qm_throttle *t, uint32_t a, uint32_t b)
{
    a = find(t, a);
    b = find(t, b);
    if (a < b)
        t->classes[b].set = a;
    else
        t->classes[a].set = b;
}

/* Makes the sets anew from which class uses prefetches of which other. */
static void make_sets(struct qm_throttle *t)
{
    for (uint32_t i = 0; i < t->top; i++)
        t->classes[i].set = i;
    for (uint32_t i = 0; i < t->top; i++) {
        struct klass *c = &t->classes[i];

        for (unsigned k = 0; k < PARTNERS; k++) {
            const struct partner *p = &c->partners[k];

            if (p->used >= FEEDS_LEAST &&
                (uint64_t)p->used * 100 >= (uint64_t)FEEDS * c->issued)
                join(t, i, p->user);
        }
    }
    for (uint32_t i = 0; i < t->top; i++)
        t->classes[i].set = find(t, i);
}

static uint8_t judgement(uint8_t state, uint64_t used, uint64_t issued)
{
    uint64_t percent;

    if (issued < (state == QM_THROTTLE_OFF ? ENOUGH_PROBES : ENOUGH))
        return state;
    percent = used * 100 / issued;
    if (percent < STOP_BELOW)
        return QM_THROTTLE_OFF;
    if (state == QM_THROTTLE_OFF && percent < RESUME_FROM)
        return QM_THROTTLE_OFF;
    if (percent < REDUCE_BELOW)
        return QM_THROTTLE_REDUCED;
    if (percent < RESTORE_FROM)
        return state == QM_THROTTLE_ON ? QM_THROTTLE_ON : QM_THROTTLE_REDUCED;
    return QM_THROTTLE_ON;
}

static void judge(struct qm_throttle *t)
{
    struct sum {
        uint64_t used, issued;
    } *sums = calloc(t->top, sizeof *sums);

    if (!sums)
        return; /* the next time, then */
    make_sets(t);
    for (uint32_t i = 0; i < t->top; i++) {
        sums[t->classes[i].set].used += t->classes[i].used;
        sums[t->classes[i].set].issued += t->classes[i].issued;
    }
    for (uint32_t i = 0; i < t->top; i++) {
        struct klass *c = &t->classes[i];
        const struct sum *s = &sums[c->set];
        uint8_t was = atomic_load_explicit(&c->state, memory_order_relaxed);
        uint8_t is = judgement(was, s->used, s->issued);

        atomic_store_explicit(&c->state, is, memory_order_relaxed);
        /* What probes bring is judged by itself, each time. */
        if (is == QM_THROTTLE_OFF && (was != is || c->issued > ENOUGH_PROBES)) {
            c->used = c->issued = 0;
            memset(c->partners, 0, sizeof c->partners);
        }
    }
    free(sums);
}

/* user used what was prefetched for c: the partner with the fewest uses gives way, one
 * use at a time. */
static void note_use(struct klass *c, uint32_t user)
{
    struct partner *least = &c->partners[0];

    for (unsigned k = 0; k < PARTNERS; k++) {
        struct partner *p = &c->partners[k];

        if (p->used > 0 && p->user == user) {
            p->used++;
            return;
        }
        if (p->used < least->used)
            least = p;
    }
    if (least->used > 0)
        least->used--;
    else
        *least = (struct partner){user, 1};
}

static void fade(struct klass *c)
{
    c->used /= 2;
    c->issued /= 2;
    for (unsigned k = 0; k < PARTNERS; k++)
        c->partners[k].used /= 2;
}

/* The class of that number, which counts from now on; the lock is held. */
static struct klass *at(struct qm_throttle *t, uint32_t klass)
{
    if (klass >= t->top)
        t->top = klass + 1;
    return &t->classes[klass];
}

/* The lock is held. */
static void issue_one(struct qm_throttle *t, struct klass *c)
{
    bool off = atomic_load_explicit(&c->state, memory_order_relaxed) == QM_THROTTLE_OFF;
    if (++c->issued >= PERIOD)
        fade(c);
    if (++t->since >= JUDGE_EVERY || (off && c->issued > ENOUGH_PROBES)) {
        t->since = 0;
        judge(t);
    }
}

void qm_throttle_issued(struct qm_throttle *t, uint32_t issuer, unsigned blocks)
{
    struct klass *c;

    pthread_mutex_lock(&t->lock);
    c = at(t, index_of(issuer));
    while (blocks-- > 0)
        issue_one(t, c);
    pthread_mutex_unlock(&t->lock);
}

void qm_throttle_used(struct qm_throttle *t, uint32_t issuer, uint32_t user)
{
    struct klass *c;

    pthread_mutex_lock(&t->lock);
    at(t, index_of(user));
    c = at(t, index_of(issuer));
    c->used++;
    if (index_of(user) != index_of(issuer))
        note_use(c, index_of(user));
    pthread_mutex_unlock(&t->lock);
}

enum qm_throttle_state qm_throttle_get(struct qm_throttle *t, uint32_t klass,
                                       uint32_t *set)
{
    struct klass *c = &t->classes[index_of(klass)];

    pthread_mutex_lock(&t->lock);
    *set = c->set;
    pthread_mutex_unlock(&t->lock);
    return atomic_load_explicit(&c->state, memory_order_relaxed);
}

const char *qm_throttle_state_name(enum qm_throttle_state state)
{
    static const char *const names[] = {"on", "reduced", "off"};

    return names[state];
}
