/* SPDX-License-Identifier: BSD-3-Clause */
/* ppm, when one owner reads so that what is prefetched for it is never what comes: it
 * is not believed for long, whatever classes it says that its reads are of, and what
 * another is worth is judged as before. */
#include "testing.h"

enum {
    ROOM = 1000,   /* prefetched blocks that there is room for */
    PATH = 4000,   /* blocks that the victim reads in order, again and again ... */
    NOISE = 20,    /* ... but for this percentage */
    WILD = 50000,  /* blocks that the other has read in order, from PATH on */
    ROUNDS = 20000 /* reads of the victim, after as many to learn */
};

struct world {
    struct qm_prefetcher *p;
    struct rng rng;
    unsigned char whose[PATH + WILD]; /* who a block is prefetched for; 0: it is not */
    uint64_t queue[ROOM];             /* what was prefetched, in order */
    uint64_t issued;
    uint64_t by[3], used[3]; /* since it was last looked at; by owner */
};

static bool cached(void *opaque, uint64_t block)
{
    const struct world *w = opaque;

    return w->whose[block] != 0;
}

static void prefetch(struct world *w, uint64_t block, unsigned owner)
{
    uint64_t *place = &w->queue[w->issued++ % ROOM];

    if (w->issued > ROOM && w->whose[*place] != 0) {
        w->whose[*place] = 0;
        w->p->ops->ended(w->p, *place, 0, 0, QM_FATE_UNUSED);
    }
    *place = block;
    w->whose[block] = (unsigned char)owner;
    w->by[owner]++;
}

static void read_block(struct world *w, struct qm_stream *s, uint64_t block,
                       unsigned owner)
{
    enum qm_access outcome = QM_ACCESS_MISS;
    struct qm_work *work;
    uint64_t blocks[4];
    unsigned n;

    if (w->whose[block] != 0) {
        outcome = QM_ACCESS_PREFETCH_HIT;
        w->used[w->whose[block]]++;
        w->whose[block] = 0;
        w->p->ops->ended(w->p, block, 0, 0, QM_FATE_USED);
    }
    w->p->ops->access(w->p, s, block, outcome, &work);
    assert_null(work);
    n = candidate_blocks(w->p, s, 4, blocks);
    for (unsigned i = 0; i < n; i++)
        if (w->whose[blocks[i]] == 0)
            prefetch(w, blocks[i], owner);
}

static struct qm_stream *begin(struct world *w, uint32_t klass, unsigned owner)
{
    struct qm_stream *s = w->p->ops->begin(w->p, klass);

    assert_non_null(s);
    w->p->ops->own(s, owner);
    return s;
}

static void end(struct world *w, struct qm_stream *s)
{
    struct qm_work *work;

    w->p->ops->end(w->p, s, &work);
    assert_null(work);
}

/* Numbers from 0 on, in the same order each time. */
static uint64_t shuffled(uint64_t i, uint64_t n)
{
    return i * 2654435761u % n;
}

/* The victim reads its path, from *at on; beside it, for each of its reads, the other
 * reads `reads` blocks at random, each time of a class that is new. */
static void run(struct world *w, struct qm_stream *victim, uint64_t *at, unsigned reads)
{
    memset(w->by, 0, sizeof w->by);
    memset(w->used, 0, sizeof w->used);
    for (unsigned i = 0; i < ROUNDS; i++) {
        bool lost = rng_below(&w->rng, 100) < NOISE;

        read_block(w, victim, lost ? rng_below(&w->rng, PATH) : shuffled(*at, PATH), 1);
        *at += !lost;
        if (reads == 0)
            continue;
        struct qm_stream *other = begin(w, 10 + i % 4000, 2);
        for (unsigned k = 0; k < reads; k++)
            read_block(w, other, PATH + rng_below(&w->rng, WILD), 2);
        end(w, other);
    }
}

TEST(test_wild)
{
    static const struct {
        unsigned reads; /* of the other, for each of the victim's */
        unsigned vain;  /* of its prefetches, for a hundred of the victim's reads */
    } cases[] = {{1, 8}, {5, 28}, {25, 37}};
    static struct world world;
    struct world *w = &world;
    struct qm_mining_config config;
    struct qm_stream *s, *victim;
    uint64_t at = 0, used;
    char err[256];

    qm_mining_defaults(&config);
    config.cached = cached;
    config.opaque = w;
    assert_int_equal(qm_prefetcher_find("ppm")->create(&config, &w->p, err, sizeof err),
                     0);
    w->rng.state = 5;
    w->p->ops->owners(w->p, 1 << 1 | 1 << 2);
    s = begin(w, 3, 2);
    for (unsigned i = 0; i < 2 * WILD; i++) {
        struct qm_work *work;

        w->p->ops->access(w->p, s, PATH + shuffled(i, WILD), QM_ACCESS_MISS, &work);
    }
    end(w, s);
    victim = begin(w, 2, 1);
    run(w, victim, &at, 0);
    run(w, victim, &at, 0);
    used = w->used[1];
    assert_true(used > ROUNDS * 7 / 10);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run(w, victim, &at, cases[i].reads);
        assert_true(w->used[1] > used * 9 / 10);
        assert_true(w->by[2] - w->used[2] < (uint64_t)ROUNDS * cases[i].vain / 100);
    }
    end(w, victim);
    w->p->ops->destroy(w->p);
}
