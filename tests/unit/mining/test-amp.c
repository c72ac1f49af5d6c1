/* SPDX-License-Identifier: BSD-3-Clause */
/* AMP: a naive model, and how far p and g go. */
#include "baseline.h"

enum { KIB = 1024, APT = 4, DEGREE_MAX = 64, TRACKS = 64 };

static struct qm_prefetcher *p;
static struct qm_stream *s;

static int set_up(void **state)
{
    p = make("amp", 16 * KIB);
    s = begin(p);
    return 0;
}

static int tear_down(void **state)
{
    end(p, s);
    return p->ops->destroy(p);
}

static void fate(uint64_t block, enum qm_fate what)
{
    p->ops->ended(p, block, 0, 0, what);
}

/* The reader goes on to, but not to, `until`, and nothing is asked for. */
static void go_on(uint64_t *b, uint64_t until)
{
    while (*b < until) {
        assert_asked_nothing(step(p, s, (*b)++, QM_ACCESS_PREFETCH_HIT));
    }
}

/* Blocks 1 to 18: p is 5 and g is 2, 17-21 are prefetched, and 19 is the trigger. */
static void start(void)
{
    uint64_t b = 1;

    assert_asked_nothing(step(p, s, b++, QM_ACCESS_MISS));
    for (uint64_t degree = 1; degree <= APT + 1; degree++) {
        assert_asked(step(p, s, b, QM_ACCESS_MISS), b + 1, b + degree);
        b++;
        if (degree <= APT) {
            go_on(&b, b + degree); /* its last block makes the degree grow */
        }
    }
    assert_int_equal(b, 17);
    go_on(&b, 19);
}

/* g grows past p, and takes p along. */
TEST_WITH(test_distance_pushes_degree, set_up, tear_down)
{
    uint64_t b = 20, ends = 21;
    struct asked a;

    start();
    a = step(p, s, 19, QM_ACCESS_PREFETCH_HIT);
    for (unsigned i = 0; i < 100; i++) {
        ends += a.n;
        fate(a.blocks[0], QM_FATE_LATE);
        if (i < 3) {
            fate(a.blocks[a.n - 1], QM_FATE_UNUSED); /* undoes it, and p - 1 */
            fate(a.blocks[a.n - 2], QM_FATE_USED);
        }
        do {
            a = step(p, s, b++, QM_ACCESS_PREFETCH_HIT);
        } while (a.n == 0);
        assert_asked(a, ends + 1, ends + a.n);
        assert_true(b <= ends + 1); /* it never ran dry */
    }
    assert_int_equal(a.n, DEGREE_MAX);
    assert_int_equal(b - 1, ends - (DEGREE_MAX - 1)); /* the set's first block */
}

/* Readers wait for each set, but no set is read to its end: g grows alone, until p must
 * follow it; and when p shrinks, g stays below it. */
TEST_WITH(test_distance_catches_up, set_up, tear_down)
{
    uint64_t b = 19, g = 2, degree = 5;

    start();
    for (int round = 0; round < 6; round++) {
        struct asked a = step(p, s, b, QM_ACCESS_PREFETCH_HIT); /* the trigger */

        assert_int_equal(a.n, degree);
        fate(a.blocks[0], QM_FATE_LATE);
        g++;
        degree = degree > g + 1 ? degree : g + 1;
        b++;
        assert_asked(step(p, s, b, QM_ACCESS_MISS), b + 1, b + degree);
        b++;
        go_on(&b, b + degree - g - 1);
    }
    assert_int_equal(degree, 9); /* and g 8 */
    struct asked a = step(p, s, b++, QM_ACCESS_PREFETCH_HIT);
    fate(a.blocks[0], QM_FATE_LATE);   /* g 9 */
    fate(a.blocks[1], QM_FATE_UNUSED); /* p 8, g 7 */
    assert_asked(step(p, s, b, QM_ACCESS_MISS), b + 1, b + 8);
}

/* A stream that has ended is told of its blocks all the same. */
TEST_WITH(test_stream_ends_first, set_up, tear_down)
{
    start();
    end(p, s);
    for (uint64_t b = 1; b < 22; b++) {
        fate(b, b % 2 ? QM_FATE_UNUSED : QM_FATE_LATE);
    }
    s = begin(p);
    start();
}

/* The model: every track ever begun, and where the ledger has its places. */
enum { LENGTH = 2000, PLACES = 8192 };

struct naive_track {
    unsigned used; /* when */
    uint64_t last;
    int p, g;                 /* p 0: none yet */
    uint64_t ends, next_ends; /* of sets; 0: no set */
    uint64_t trigger;         /* 0: none */
};

static struct naive_track tracks[LENGTH];
static unsigned n_tracks;
static struct {
    uint64_t block; /* 0: free */
    struct naive_track *track;
    bool first;
} places[PLACES];

static unsigned place_of(uint64_t block)
{
    return (unsigned)(block * 0x9e3779b97f4a7c15u >> 51);
}

static struct naive_track *naive_find(unsigned now, uint64_t block)
{
    for (unsigned seen = 0, before = now; seen < TRACKS; seen++) {
        struct naive_track *latest = NULL;

        for (unsigned i = 0; i < n_tracks; i++) {
            if (tracks[i].used < before && (!latest || tracks[i].used > latest->used)) {
                latest = &tracks[i];
            }
        }
        if (!latest || latest->last == block || latest->last + 1 == block) {
            return latest;
        }
        before = latest->used;
    }
    return NULL;
}

static struct asked naive_set(struct naive_track *t, uint64_t from, bool triggered)
{
    struct asked asked = {0};

    t->p = t->p > t->g + 1 ? t->p : t->g + 1;
    for (int i = 0; i < t->p; i++) {
        uint64_t block = asked.blocks[asked.n++] = from + (uint64_t)i;

        places[place_of(block)].block = block;
        places[place_of(block)].track = t;
        places[place_of(block)].first = triggered && i == 0;
    }
    if (t->ends) {
        t->next_ends = from + asked.n - 1;
    } else {
        t->ends = from + asked.n - 1;
    }
    t->trigger = t->p > APT ? from + asked.n - 1 - (uint64_t)t->g : 0;
    return asked;
}

static struct asked naive_step(unsigned now, uint64_t block, enum qm_access outcome)
{
    struct naive_track *t = naive_find(now, block);

    if (!t) {
        tracks[n_tracks++] = (struct naive_track){.used = now, .last = block};
        return (struct asked){0};
    }
    t->used = now;
    if (block == t->last) {
        return (struct asked){0};
    }
    t->last = block;
    if (outcome == QM_ACCESS_MISS) {
        t->p = t->p ? t->p : 1;
        t->ends = t->next_ends = 0;
        return naive_set(t, block + 1, false);
    }
    uint64_t newest = t->next_ends ? t->next_ends : t->ends;
    if (block == t->ends) {
        t->p = t->p < DEGREE_MAX ? t->p + 1 : t->p;
        t->g = t->p == APT + 1 && t->g < APT / 2 ? APT / 2 : t->g;
        t->ends = t->next_ends;
        t->next_ends = 0;
    }
    if (block == t->trigger) {
        t->trigger = 0;
        return naive_set(t, newest + 1, true);
    }
    return (struct asked){0};
}

static void naive_fate(uint64_t block, enum qm_fate what)
{
    unsigned i = place_of(block);
    struct naive_track *t = places[i].track;

    if (places[i].block != block) {
        return;
    }
    if (what == QM_FATE_UNUSED) {
        t->p = t->p > 1 ? t->p - 1 : 1;
        t->g = t->g - 1 < t->p - 1 ? t->g - 1 : t->p - 1;
        t->g = t->g > 0 ? t->g : 0;
    } else if (what == QM_FATE_LATE && places[i].first && t->g < DEGREE_MAX - 1) {
        t->g++;
    }
    places[i].block = 0;
}

TEST(test_naive_model)
{
    for (uint64_t seed = 1; seed <= qm_rounds(200); seed++) {
        struct walk walk;
        uint64_t recent[64] = {0}; /* asked for, some of them still in the ledger */
        unsigned n = 0, spare = (unsigned)(seed % 4);

        set_up(NULL);
        walk_init(&walk, seed, seed % 3 == 0 ? 80 : 1 + seed % 10, 95);
        n_tracks = 0;
        memset(places, 0, sizeof places);
        for (unsigned i = 0; i < LENGTH; i++) {
            enum qm_access outcome;
            uint64_t block = walk_next(&walk, &outcome), told;

            if (outcome == QM_ACCESS_MISS && rng_below(&walk.rng, 10) < 8) {
                outcome = QM_ACCESS_PREFETCH_HIT; /* sets are read to their ends, too */
            }
            struct asked real = step(p, s, block, outcome);
            struct asked naive = naive_step(i + 1, block, outcome);

            assert_int_equal(real.n, naive.n);
            assert_memory_equal(real.blocks, naive.blocks, real.n * sizeof(uint64_t));
            for (unsigned k = 0; k < real.n && k < 2; k++) {
                recent[n++ % 64] = real.blocks[k * (real.n - 1)];
            }
            if (real.n > 0 && seed % 5 == 0) { /* the reader is always just behind */
                fate(real.blocks[0], QM_FATE_LATE);
                naive_fate(real.blocks[0], QM_FATE_LATE);
            }
            told = recent[rng_below(&walk.rng, 64)];
            if (told && rng_below(&walk.rng, 4) < spare) {
                enum qm_fate what =
                    seed % 2 ? QM_FATE_LATE : (enum qm_fate)rng_below(&walk.rng, 3);

                fate(told, what);
                naive_fate(told, what);
            }
        }
        tear_down(NULL);
    }
}
