/* SPDX-License-Identifier: BSD-3-Clause */
/* Extents of files that were told: how they are kept, and streams that go on across
 * them. */
#include "testing.h"

#include "mining/core/registry.h"
#include "mining/readahead/extents.h"

enum { DEVICE = 1 << 16, PIECE = 16, PIECES = 40 };

/* A cache that keeps everything. */
struct world {
    struct qm_prefetcher *p;
    struct qm_stream *s;
    bool cached[DEVICE], ahead[DEVICE];
    unsigned asked, misses;
    bool strict; /* nothing is asked for that is cached */
};

static bool is_cached(void *opaque, uint64_t block)
{
    struct world *w = opaque;

    return block < DEVICE && w->cached[block];
}

static struct world *make(const struct qm_prefetcher_ops *ops, const char *preset)
{
    struct world *w = calloc(1, sizeof *w);
    struct qm_mining_config config;
    char err[256];

    assert_non_null(w);
    qm_mining_defaults(&config);
    config.cached = is_cached;
    config.opaque = w;
    config.block_size = 16384;
    config.cache_blocks = DEVICE;
    config.readahead_preset = preset;
    assert_int_equal(ops->create(&config, &w->p, err, sizeof err), 0);
    w->s = ops->begin(w->p, 0);
    w->strict = ops == &qm_prefetcher_readahead && !preset;
    assert_non_null(w->s);
    return w;
}

static void unmake(struct world *w)
{
    struct qm_work *work;

    w->p->ops->end(w->p, w->s, &work);
    w->p->ops->destroy(w->p);
    free(w);
}

static void fetch(struct world *w, const struct qm_candidate *c)
{
    for (uint64_t b = c->block; b < c->block + c->count && b < DEVICE; b++) {
        if (w->cached[b]) { /* others leave that to the caller */
            assert_false(w->strict);
            continue;
        }
        w->cached[b] = w->ahead[b] = true;
        w->asked++;
    }
}

/* The context reads a block. */
static void reads(struct world *w, uint64_t block)
{
    enum qm_access outcome = w->ahead[block]    ? QM_ACCESS_PREFETCH_HIT
                             : w->cached[block] ? QM_ACCESS_HIT
                                                : QM_ACCESS_MISS;
    struct qm_candidate c[QM_CANDIDATES_MAX];
    struct qm_work *work = NULL;
    unsigned n;

    w->misses += outcome == QM_ACCESS_MISS;
    w->cached[block] = true;
    if (w->ahead[block]) {
        w->ahead[block] = false;
        w->p->ops->ended(w->p, block, 0, 0, QM_FATE_USED);
    }
    w->p->ops->request(w->s, 1);
    w->p->ops->access(w->p, w->s, block, outcome, &work);
    if (work)
        w->p->ops->learn(w->p, work);
    n = w->p->ops->candidates(w->p, w->s, c, QM_CANDIDATES_MAX);
    for (unsigned i = 0; i < n; i++)
        fetch(w, &c[i]);
}

/* Where a piece of the file lies: apart from the others, in no order. */
static uint64_t piece(unsigned i)
{
    return 1000 + (uint64_t)(i * 17 % PIECES) * 4 * PIECE;
}

static void tell(struct world *w, unsigned pieces)
{
    struct qm_extent x[PIECES];

    for (unsigned i = 0; i < pieces; i++)
        x[i] = (struct qm_extent){piece(i), PIECE};
    w->p->ops->extents(w->p, x, pieces);
}

static void read_file(struct world *w, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        for (unsigned k = 0; k < PIECE; k++)
            reads(w, piece(i) + k);
}

/* A stream goes on across the extents, and ends where the file does. */
static void across(const struct qm_prefetcher_ops *ops, const char *preset)
{
    const struct qm_extent other[] = {{30000, 16}, {40000, 16}};
    struct world *w = make(ops, preset);
    unsigned untold;

    read_file(w, 0, PIECES);
    untold = w->misses;
    assert_true(untold >= PIECES);
    unmake(w);
    w = make(ops, preset);
    tell(w, PIECES);
    w->p->ops->extents(w->p, other, 2);
    read_file(w, 0, PIECES);
    assert_in_range(w->misses, 1, 3);
    assert_true(w->asked + w->misses <= PIECES * PIECE); /* nothing of others' */
    unmake(w);
}

TEST(test_across)
{
    across(&qm_prefetcher_readahead, NULL);
    across(&qm_prefetcher_auto, NULL);
    across(&qm_prefetcher_readahead, "linux");
    across(&qm_prefetcher_readahead, "device-aware");
}

/* Of a long file policy auto mines as little as of one in one piece. */
TEST(test_not_mined)
{
    struct qm_mining_stats one, told;
    struct world *w = make(&qm_prefetcher_auto, NULL);

    for (unsigned k = 0; k < PIECES * PIECE; k++)
        reads(w, 1000 + k);
    w->p->ops->stats(w->p, &one);
    unmake(w);
    w = make(&qm_prefetcher_auto, NULL);
    tell(w, PIECES);
    read_file(w, 0, PIECES);
    w->p->ops->stats(w->p, &told);
    assert_in_range(told.rules, 1, one.rules + 4 * PIECE);
    unmake(w);
}

/* Backward, too. */
TEST(test_backward)
{
    struct world *w = make(&qm_prefetcher_readahead, NULL);

    tell(w, PIECES);
    for (unsigned i = PIECES; i-- > 0;)
        for (unsigned k = PIECE; k-- > 0;)
            reads(w, piece(i) + k);
    assert_in_range(w->misses, 1, 3);
    unmake(w);
}

/* A file in several calls: the first extent of each repeats the last one. */
TEST(test_goes_on)
{
    struct world *w = make(&qm_prefetcher_readahead, NULL);
    struct qm_extent x[2];

    for (unsigned i = 0; i + 1 < PIECES; i++) {
        x[0] = (struct qm_extent){piece(i), PIECE};
        x[1] = (struct qm_extent){piece(i + 1), PIECE};
        w->p->ops->extents(w->p, x, 2);
    }
    read_file(w, 0, PIECES);
    assert_in_range(w->misses, 1, 3);
    unmake(w);
}

/* A reader of the device is followed there, whatever was told: it costs a window. */
TEST(test_wrong)
{
    struct world *w = make(&qm_prefetcher_readahead, NULL);
    unsigned asked;

    tell(w, PIECES);
    for (uint64_t b = 1000 - 4; b < 1000 + PIECES * 4 * PIECE; b++)
        reads(w, b);
    assert_in_range(w->misses, 1, 3);
    unmake(w);

    /* All in pieces of some blocks, each of which is said to go on elsewhere. */
    for (unsigned blocks = 1; blocks < 5; blocks++) {
        w = make(&qm_prefetcher_readahead, NULL);
        for (unsigned i = 0; i < 500; i++) {
            struct qm_extent x[2] = {{1000 + (i * 37 % 500) * blocks, blocks},
                                     {1000 + ((i + 1) * 37 % 500) * blocks, blocks}};

            w->p->ops->extents(w->p, x, 2);
        }
        for (uint64_t b = 1000; b < 1000 + 500 * blocks; b++)
            reads(w, b);
        assert_in_range(w->misses, 1, 5);
        unmake(w);
    }

    /* A reader that stays in an extent, and does not go on as was told. */
    w = make(&qm_prefetcher_readahead, NULL);
    tell(w, PIECES);
    for (unsigned k = 0; k < PIECE; k++)
        reads(w, piece(0) + k);
    asked = w->asked;
    assert_true(asked > PIECE);
    for (unsigned k = PIECE; k < 8 * PIECE; k++)
        reads(w, piece(0) + k);
    assert_in_range(w->misses, 2, 5);
    unmake(w);
}

/* What is trimmed is not the file's any more. */
TEST(test_trimmed)
{
    struct world *w = make(&qm_prefetcher_auto, NULL);

    tell(w, PIECES);
    w->p->ops->forget(w->p, piece(5) + 3, 1);
    read_file(w, 0, 5);
    for (uint64_t b = piece(5); b < piece(5) + PIECE; b++)
        assert_false(w->cached[b]);
    w->misses = 0;
    read_file(w, 6, PIECES);
    assert_in_range(w->misses, 1, 3);
    unmake(w);
}

/* Rings are impossible: a block is of one extent. */
TEST(test_cycle)
{
    struct world *w = make(&qm_prefetcher_readahead, NULL);
    const struct qm_extent x[] = {{1000, 8}, {3000, 8}, {1000, 8}, {3000, 8},
                                  {5000, 8}, {1000, 8}, {3004, 8}};

    w->p->ops->extents(w->p, x, sizeof x / sizeof *x);
    for (unsigned i = 0; i < 7; i++)
        for (uint64_t b = x[i].block; b < x[i].block + 8; b++)
            reads(w, b);
    unmake(w);
}

/* Whatever is told and read. */
TEST(test_wild)
{
    struct rng rng = {7};

    for (unsigned round = 0; round < qm_rounds(30); round++) {
        struct world *w =
            make(round % 2 ? &qm_prefetcher_readahead : &qm_prefetcher_auto,
                 round % 4 == 1 ? "device-aware" : NULL);
        uint64_t at = 100;

        w->strict = false; /* extents may share a block */

        for (unsigned i = 0; i < 4000; i++) {
            struct qm_extent x[8];
            unsigned n = 1 + (unsigned)rng_below(&rng, 8);

            for (unsigned k = 0; k < n; k++)
                x[k] = (struct qm_extent){
                    rng_below(&rng, 50) == 0 ? UINT64_MAX - rng_below(&rng, 99)
                                             : rng_below(&rng, DEVICE),
                    rng_below(&rng, 50) == 0 ? UINT64_MAX : rng_below(&rng, 60)};
            w->p->ops->extents(w->p, x, n);
            if (rng_below(&rng, 9) == 0)
                w->p->ops->forget(w->p, rng_below(&rng, DEVICE), rng_below(&rng, 300));
            if (rng_below(&rng, 3) == 0)
                at = rng_below(&rng, 2) ? x[0].block % DEVICE : rng_below(&rng, DEVICE);
            for (unsigned k = 0; k < 8; k++) {
                if (at >= DEVICE)
                    at = 0;
                if (rng_below(&rng, 40) == 0) {
                    w->cached[at] = w->ahead[at] = false;
                    w->p->ops->ended(w->p, at, 0, 0, QM_FATE_UNUSED);
                }
                if (rng_below(&rng, 40) == 0)
                    w->p->ops->refused(w->p, at, 4);
                reads(w, at++);
            }
        }
        unmake(w);
    }
}

/* The table against a list that is searched from its end. */
struct model {
    struct qm_extent list[4 * QM_EXTENTS_MAX];
    bool dead[4 * QM_EXTENTS_MAX];
    unsigned n;
};

static bool overlaps(struct qm_extent a, struct qm_extent b)
{
    uint64_t from = a.block > b.block ? a.block : b.block;
    uint64_t a_end = a.block + a.count, b_end = b.block + b.count;
    uint64_t to = a_end < b_end ? a_end : b_end;

    if (from >= to)
        return false;
    return !(to - from == 1 && a.count > 1 && b.count > 1);
}

TEST(test_table)
{
    struct qm_extents *e = qm_extents_new();
    struct model *m = calloc(1, sizeof *m);
    struct rng rng = {3};

    assert_non_null(e);
    assert_non_null(m);
    while (m->n < 3 * QM_EXTENTS_MAX) {
        struct qm_extent x = {rng_below(&rng, 200000), 1 + rng_below(&rng, 30)};

        for (unsigned i = 0; i < m->n; i++)
            m->dead[i] |= overlaps(m->list[i], x);
        m->list[m->n++] = x;
        if (m->n > QM_EXTENTS_MAX)
            m->dead[m->n - QM_EXTENTS_MAX - 1] = true;
        qm_extents_tell(e, &x, 1);
        if (m->n % 3000 != 0)
            continue;
        for (uint64_t b = 0; b < 200100; b += 1 + rng_below(&rng, 80)) {
            const struct qm_extents_place *p = qm_extents_at_block(e, b);
            const struct qm_extent *best = NULL;

            for (unsigned i = 0; i < m->n; i++)
                if (!m->dead[i] && b >= m->list[i].block &&
                    b - m->list[i].block < m->list[i].count &&
                    (!best || m->list[i].block > best->block))
                    best = &m->list[i];
            assert_int_equal(p != NULL, best != NULL);
            if (!p)
                continue;
            assert_int_equal(p->block, best->block);
            assert_int_equal(p->count, best->count);
            assert_ptr_equal(qm_extents_at_file(e, p->file), p);
            assert_ptr_equal(qm_extents_at_file(e, p->file + p->count - 1), p);
        }
    }
    assert_int_equal(e->n, QM_EXTENTS_MAX);
    qm_extents_free(e);
    free(m);
}

/* What adjoins, or shares a block, is one extent. */
TEST(test_adjoining)
{
    struct qm_extents *e = qm_extents_new();
    const struct qm_extent x[] = {{10, 4}, {13, 5}, {18, 2}, {0, 0}, {QM_BLOCKS_MAX, 1},
                                  {50, 1}, {50, 2}};

    assert_non_null(e);
    qm_extents_tell(e, x, sizeof x / sizeof *x);
    assert_int_equal(e->known, 2);
    assert_int_equal(qm_extents_at_block(e, 19)->block, 10);
    assert_int_equal(qm_extents_at_block(e, 19)->count, 10);
    assert_int_equal(qm_extents_at_block(e, 51)->block, 50);
    assert_null(qm_extents_at_block(e, 20));
    assert_int_equal(qm_extents_at_block(e, 50)->file,
                     qm_extents_at_block(e, 10)->file + 10);
    qm_extents_free(e);
}
