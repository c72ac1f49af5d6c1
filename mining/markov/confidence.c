/* SPDX-License-Identifier: BSD-3-Clause */
/* confidence.c - weights by feature, and a table of proposals whose end is not known
 * yet.
 *
 * A proposal in the table is two words: the block and what was decided, and where the
 * weights of its features are (FEATURES numbers of WEIGHT_BITS bits, and the age).  The
 * table has one place a hash, which the newer proposal takes, except that one that is
 * only watched never takes that of one that is being prefetched.  A proposal that was
 * watched and has to go was of no use.  When two threads write to one place at the same
 * time, weights of another proposal may move; they move back.
 */
#define XXH_INLINE_ALL
#include "mining/markov/confidence.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    FEATURES = 6,
    WEIGHT_BITS = 10,
    WEIGHTS = 1 << WEIGHT_BITS, /* of a feature; its values are hashed to that many */
    PLACES_LEAST = 64,
    REGION_BITS = 8, /* blocks of a region that are alike: 4 MiB of 16 KiB blocks */
};

#define AGE_AT (FEATURES * WEIGHT_BITS) /* bits below it */

_Static_assert(AGE_AT + 4 <= 64 && QM_AGES <= 1 << 4, "where they are is a word");

#define MULTIPLIER UINT64_C(0x9e3779b97f4a7c15) /* 2^64 by the golden ratio */

/* How far weights move: forgets in some tens of proposals.  Found by trying: of .005 to
 * .05, misses are fewest with .03 and more, by 1 %; but on a device that is hardly able
 * to serve its readers, the mean read of TPC-C takes 1.05 times as long with it, and
 * 1.01 to 1.03 with this. */
#define RATE 0.015f

#define ACCURACY      0.73f /* that is aimed at, if nobody says */
#define THRESHOLD     0.5f  /* at the start */
#define THRESHOLD_MIN 0.2f
#define THRESHOLD_MAX                                                                  \
    0.75f /* so that there are always some prefetches to learn from                    \
           */
#define STEP 0.002f

/* Beside the block's number in a place that is taken; one that is empty is 0. */
#define WATCHED  (UINT64_C(1) << 62)
#define ACCEPTED (UINT64_C(1) << 63)

struct place {
    atomic_uint_least64_t block; /* and what it is */
    atomic_uint_least64_t where; /* the weights */
};

struct qm_confidence {
    _Atomic float weights[FEATURES][WEIGHTS];
    _Atomic float ages[QM_AGES];
    _Atomic float threshold, accuracy;
    atomic_uint_least64_t mask; /* places in use less one */
    uint64_t most;              /* places */
    bool beside;                /* others prefetch, too */
    struct place places[];
};

/* How much the threshold moves with a used block that others brought.  Found by trying:
 * with all of it, the device is read more than 1.1 times as much as with LRU beside
 * scans; with none, few rules are followed there.  Blocks of others that are not used
 * would make it follow none, where there are many. */
#define OTHERS 0.5f

static uint64_t places_for(uint64_t bytes)
{
    uint64_t n = PLACES_LEAST;

    while (n * 2 * sizeof(struct place) <= bytes)
        n *= 2;
    return n;
}

struct qm_confidence *qm_confidence_new(uint64_t bytes)
{
    uint64_t n = places_for(bytes);
    struct qm_confidence *j;

    j = calloc(1, sizeof *j + n * sizeof(struct place));
    if (!j)
        return NULL;
    atomic_init(&j->threshold, THRESHOLD);
    atomic_init(&j->accuracy, ACCURACY);
    atomic_init(&j->mask, n - 1);
    j->most = n;
    return j;
}

static void clear(struct qm_confidence *j, uint64_t from, uint64_t to)
{
    for (; from < to; from++) {
        atomic_store_explicit(&j->places[from].block, 0, memory_order_relaxed);
        atomic_store_explicit(&j->places[from].where, 0, memory_order_relaxed);
    }
}

/* Their whole pages are the system's again. */
static void forget_weights(struct qm_confidence *j, uintptr_t page)
{
    uintptr_t from = ((uintptr_t)j->weights + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)j->weights + sizeof j->weights) / page * page;

    for (unsigned i = 0; i < FEATURES; i++)
        for (unsigned k = 0; k < WEIGHTS; k++)
            atomic_store_explicit(&j->weights[i][k], 0, memory_order_relaxed);
    for (unsigned i = 0; i < QM_AGES; i++)
        atomic_store_explicit(&j->ages[i], 0, memory_order_relaxed);
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

bool qm_confidence_sleeps(const struct qm_confidence *j)
{
    return atomic_load_explicit(&j->mask, memory_order_relaxed) == 0;
}

/* The memory of places that are not in use any more is the system's, but for that of a
 * proposal that another thread writes at this moment.  All of these places are empty
 * when they are used again, wherever the pages begin: else what is learned would depend
 * on addresses. */
void qm_confidence_set_bytes(struct qm_confidence *j, uint64_t bytes)
{
    uint64_t n = bytes > 0 ? places_for(bytes) : 1;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), places, from, to;

    if (n > j->most)
        n = j->most;
    if (n - 1 == atomic_load_explicit(&j->mask, memory_order_relaxed))
        return;
    atomic_store_explicit(&j->mask, n - 1, memory_order_relaxed);
    if (n == 1)
        forget_weights(j, page);
    places = (uintptr_t)j->places;
    from = (uintptr_t)&j->places[n] + page - 1;
    to = (uintptr_t)&j->places[j->most];
    from -= from % page;
    to -= to % page;
    if (to > from && madvise((void *)from, to - from, MADV_DONTNEED) == 0) {
        /* A page may begin or end within a place. */
        clear(j, n, (from - places) / sizeof(struct place) + 1);
        clear(j, (to - places) / sizeof(struct place), j->most);
    } else {
        clear(j, n, j->most);
    }
}

void qm_confidence_beside(struct qm_confidence *j)
{
    j->beside = true;
}

void qm_confidence_free(struct qm_confidence *j)
{
    free(j);
}

uint64_t qm_confidence_bytes(const struct qm_confidence *j)
{
    if (qm_confidence_sleeps(j))
        return sizeof(struct place);
    return sizeof *j + (atomic_load_explicit(&j->mask, memory_order_relaxed) + 1) *
                           sizeof(struct place);
}

uint64_t qm_confidence_least(void)
{
    return sizeof(struct qm_confidence) + PLACES_LEAST * sizeof(struct place);
}

/* A multiplication (Knuth, vol. 3, 6.4): features are hashed for each proposal, and all
 * that hangs on it is that few of the usual values meet. */
static unsigned hash(uint64_t value)
{
    return (value * MULTIPLIER) >> (64 - WEIGHT_BITS);
}

/* 0, 1, 2, 3-4, 5-8, 9-16, 17-32, more. */
static unsigned steps(unsigned n)
{
    if (n < 3)
        return n;
    return n > 32 ? 7 : 33 - (unsigned)__builtin_clz(n - 1);
}

/* Tables and indexes lie in parts of the device of their own, so what the step from one
 * to another is worth holds for blocks of which little is known as well. */
static uint64_t region(uint64_t block)
{
    return block >> REGION_BITS;
}

/* What such a rule is worth to that class of readers. */
static uint64_t rule_of_class(const struct qm_features *c)
{
    unsigned count = c->count < 7 ? c->count : 7, depth = c->depth < 3 ? c->depth : 3;

    return (uint64_t)c->klass << 8 | c->after_two << 7 | count << 4 | depth << 2 |
           c->both << 1 | c->promoted;
}

uint64_t qm_confidence_weights(const struct qm_features *c)
{
    unsigned depth = c->depth < 7 ? c->depth : 7;
    uint64_t where = c->age;

    where = where << WEIGHT_BITS | hash(rule_of_class(c));
    where = where << WEIGHT_BITS | hash(region(c->previous) << 32 ^ region(c->block));
    where = where << WEIGHT_BITS | hash(c->block - c->previous);
    where = where << WEIGHT_BITS | hash((uint64_t)c->klass << 1 | c->after_two);
    where = where << WEIGHT_BITS | c->after_two << 9 | c->both << 8 | c->promoted << 7 |
            depth << 4 | (unsigned)(c->path * 15.99f);
    return where << WEIGHT_BITS | c->after_two << 9 | c->count << 5 |
           steps(c->rest) << 2 | c->since;
}

static unsigned index_of(uint64_t where, unsigned feature)
{
    return where >> feature * WEIGHT_BITS & (WEIGHTS - 1);
}

static unsigned age_of(uint64_t where)
{
    return where >> AGE_AT;
}

float qm_confidence_probability(const struct qm_confidence *j, uint64_t weights)
{
    float sum = atomic_load_explicit(&j->ages[age_of(weights)], memory_order_relaxed);

#pragma GCC unroll 6 /* so that shifts are by constants */
    for (unsigned i = 0; i < FEATURES; i++)
        sum += atomic_load_explicit(&j->weights[i][index_of(weights, i)],
                                    memory_order_relaxed);
    return 1 / (1 + expf(-sum));
}

float qm_confidence_threshold(const struct qm_confidence *j)
{
    return atomic_load_explicit(&j->threshold, memory_order_relaxed);
}

static void move(_Atomic float *weight, float by)
{
    float was = atomic_load_explicit(weight, memory_order_relaxed);

    atomic_store_explicit(weight, was + by, memory_order_relaxed);
}

/* Moves what was thought of a proposal towards how it ended. */
static void learn(struct qm_confidence *j, uint64_t where, bool used)
{
    float by = RATE * ((used ? 1 : 0) - qm_confidence_probability(j, where));

    if (qm_confidence_sleeps(j))
        return;
    move(&j->ages[age_of(where)], by);
#pragma GCC unroll 6
    for (unsigned i = 0; i < FEATURES; i++)
        move(&j->weights[i][index_of(where, i)], by);
}

static struct place *place_of(struct qm_confidence *j, uint64_t block)
{
    return &j->places[XXH3_64bits(&block, sizeof block) &
                      atomic_load_explicit(&j->mask, memory_order_relaxed)];
}

static uint64_t load(const atomic_uint_least64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(atomic_uint_least64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

void qm_confidence_propose(struct qm_confidence *j, uint64_t block, uint64_t weights,
                           bool accepted)
{
    struct place *p = place_of(j, block);
    uint64_t there = load(&p->block);

    /* What is watched already stays as it was proposed first. */
    if (!accepted && (there & ACCEPTED || there == (block | WATCHED)))
        return;
    if (there & WATCHED && there != (block | WATCHED))
        learn(j, load(&p->where), false);
    store(&p->where, weights);
    store(&p->block, block | (accepted ? ACCEPTED : WATCHED));
}

void qm_confidence_missed(struct qm_confidence *j, uint64_t block)
{
    struct place *p = place_of(j, block);

    if (load(&p->block) != (block | WATCHED))
        return;
    learn(j, load(&p->where), true);
    store(&p->block, 0);
}

void qm_confidence_set_accuracy(struct qm_confidence *j, float accuracy)
{
    atomic_store_explicit(&j->accuracy, accuracy, memory_order_relaxed);
}

/* With the accuracy that is aimed at, the threshold goes up as much as down. */
static void move_threshold(struct qm_confidence *j, bool used, float by)
{
    float accuracy = atomic_load_explicit(&j->accuracy, memory_order_relaxed);
    float threshold = qm_confidence_threshold(j) + by * (accuracy - (used ? 1 : 0));

    if (threshold < THRESHOLD_MIN)
        threshold = THRESHOLD_MIN;
    if (threshold > THRESHOLD_MAX)
        threshold = THRESHOLD_MAX;
    atomic_store_explicit(&j->threshold, threshold, memory_order_relaxed);
}

void qm_confidence_ended(struct qm_confidence *j, uint64_t block, bool used)
{
    struct place *p = place_of(j, block);
    const bool own = load(&p->block) == (block | ACCEPTED);

    if (own || !j->beside)
        move_threshold(j, used, STEP);
    else if (used)
        move_threshold(j, used, STEP * OTHERS);
    if (!own)
        return;
    learn(j, load(&p->where), used);
    store(&p->block, 0);
}
