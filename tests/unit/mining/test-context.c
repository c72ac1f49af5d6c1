/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds, levels and the tree of open contexts. */
#include "testing.h"

#include "mining/core/context.h"

TEST(test_names)
{
    const char *kinds[] = {"connection", "thread", "transaction", "query"};
    const char *levels[] = {"innermost",   "connection", "thread",
                            "transaction", "query",      "none"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(qm_kind_name((enum qm_kind)(i + 1)), kinds[i]);
        assert_int_equal(qm_kind_parse(kinds[i]), i + 1);
    }
    for (int i = 0; i < 6; i++) {
        assert_string_equal(qm_level_name((enum qm_level)i), levels[i]);
        assert_int_equal(qm_level_parse(levels[i]), i);
    }
    assert_null(qm_kind_name((enum qm_kind)0));
    assert_null(qm_kind_name((enum qm_kind)5));
    assert_null(qm_level_name((enum qm_level)6));
    assert_null(qm_level_name((enum qm_level) - 1));
    assert_int_equal(qm_kind_parse("none"), -1);
    assert_int_equal(qm_kind_parse(""), -1);
    assert_int_equal(qm_level_parse("Query"), -1);
}

struct ended {
    uint64_t ids[16];
    bool work[16];
    unsigned n;
    struct qm_prefetcher *p;
};

static void note_end(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct ended *ended = opaque;
    assert_true(ended->n < 16);
    ended->work[ended->n] = work != NULL;
    ended->ids[ended->n++] = context->id;
    if (work) {
        assert_int_equal(ended->p->ops->learn(ended->p, work), 0);
    }
}

static struct qm_prefetcher *quickmine(void)
{
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    return make_quickmine(&config);
}

static struct qm_context *open_in(struct qm_prefetcher *p, enum qm_level level,
                                  struct qm_context *parent, enum qm_kind kind,
                                  uint64_t id)
{
    struct qm_context *c = NULL;
    assert_int_equal(qm_context_begin(p, level, parent, kind, 7, id, NULL, &c), 0);
    assert_ptr_equal(c->parent, parent);
    assert_int_equal(c->kind, kind);
    assert_int_equal(c->klass, 7);
    return c;
}

/* connection 1 > thread 2 > transaction 3 > query 4, and query 5 in the thread. */
static void check_level(enum qm_level level, const uint64_t targets[5])
{
    struct qm_prefetcher *p = quickmine();
    struct qm_context *c[5];
    c[0] = open_in(p, level, NULL, QM_CONNECTION, 1);
    c[1] = open_in(p, level, c[0], QM_THREAD, 2);
    c[2] = open_in(p, level, c[1], QM_TRANSACTION, 3);
    c[3] = open_in(p, level, c[2], QM_QUERY, 4);
    c[4] = open_in(p, level, c[1], QM_QUERY, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(qm_context_target(level, c[i])->id, targets[i]);
        assert_int_equal(c[i]->stream != NULL, targets[i] == c[i]->id);
    }
    qm_context_end(p, c[0], NULL, NULL);
    p->ops->destroy(p);
}

/* Restarted at any level, from any other, contexts are as if they had begun at it. */
TEST(test_restart)
{
    static const enum qm_level levels[] = {QM_LEVEL_INNERMOST,   QM_LEVEL_CONNECTION,
                                           QM_LEVEL_THREAD,      QM_LEVEL_QUERY,
                                           QM_LEVEL_TRANSACTION, QM_LEVEL_NONE};
    static const uint64_t targets[][5] = {{1, 2, 3, 4, 5}, {1, 1, 1, 1, 1},
                                          {1, 2, 2, 2, 2}, {1, 2, 3, 4, 5},
                                          {1, 2, 3, 3, 5}, {1, 2, 3, 4, 5}};
    struct qm_prefetcher *p = quickmine(), *other = quickmine();
    struct ended had = {.p = p};
    struct qm_context *c[5];
    struct qm_work *work;

    c[0] = open_in(p, QM_LEVEL_THREAD, NULL, QM_CONNECTION, 1);
    c[1] = open_in(p, QM_LEVEL_THREAD, c[0], QM_THREAD, 2);
    c[2] = open_in(p, QM_LEVEL_THREAD, c[1], QM_TRANSACTION, 3);
    c[3] = open_in(p, QM_LEVEL_THREAD, c[2], QM_QUERY, 4);
    c[4] = open_in(p, QM_LEVEL_THREAD, c[1], QM_QUERY, 5);
    for (int n = 0; n < 3; n++) {
        p->ops->access(p, c[1]->stream, (uint64_t)n, QM_ACCESS_MISS, &work);
        assert_null(work);
    }
    qm_context_restart(p, other, QM_LEVEL_THREAD, c[0], note_end, &had);
    assert_int_equal(had.n, 2); /* those that have a sequence at this level */
    assert_false(had.work[0]);
    assert_int_equal(had.ids[1], 2);
    assert_true(had.work[1]);
    for (int round = 0; round < 36; round++) {
        /* Each level comes after each other. */
        int at = round % 2 ? round / 2 % 6 : round / 6;

        had.n = 0;
        qm_context_restart(other, other, levels[at], c[0], note_end, &had);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(c[i]->target->id, targets[at][i]);
            assert_int_equal(c[i]->stream != NULL, targets[at][i] == c[i]->id);
        }
    }
    qm_context_end(other, c[0], NULL, NULL);
    p->ops->destroy(p);
    other->ops->destroy(other);
}

TEST(test_levels)
{
    check_level(QM_LEVEL_INNERMOST, (uint64_t[]){1, 2, 3, 4, 5});
    check_level(QM_LEVEL_NONE, (uint64_t[]){1, 2, 3, 4, 5});
    check_level(QM_LEVEL_CONNECTION, (uint64_t[]){1, 1, 1, 1, 1});
    check_level(QM_LEVEL_THREAD, (uint64_t[]){1, 2, 2, 2, 2});
    check_level(QM_LEVEL_TRANSACTION, (uint64_t[]){1, 2, 3, 3, 5});
    check_level(QM_LEVEL_QUERY, (uint64_t[]){1, 2, 3, 4, 5});
}

FIXTURE(quick, quickmine(), it->ops->destroy(it))

/* Of several enclosing ones of that kind it is the innermost. */
TEST_ON(test_same_kind_nested, quick, struct qm_prefetcher *p)
{
    enum qm_level level = QM_LEVEL_TRANSACTION;
    struct qm_context *outer = open_in(p, level, NULL, QM_TRANSACTION, 1);
    struct qm_context *query = open_in(p, level, outer, QM_QUERY, 2);
    struct qm_context *inner = open_in(p, level, query, QM_TRANSACTION, 3);
    struct qm_context *leaf = open_in(p, level, inner, QM_QUERY, 4);
    assert_ptr_equal(qm_context_target(level, outer), outer);
    assert_ptr_equal(qm_context_target(level, query), outer);
    assert_ptr_equal(qm_context_target(level, inner), inner);
    assert_ptr_equal(qm_context_target(level, leaf), inner);
    qm_context_end(p, outer, NULL, NULL);
}

TEST_ON(test_end_order, quick, struct qm_prefetcher *p)
{
    struct ended ended = {.p = p};
    enum qm_level level = QM_LEVEL_INNERMOST;
    struct qm_context *root = open_in(p, level, NULL, QM_CONNECTION, 1);
    struct qm_context *a = open_in(p, level, root, QM_TRANSACTION, 2);
    struct qm_context *b = open_in(p, level, root, QM_TRANSACTION, 3);
    struct qm_context *c = open_in(p, level, root, QM_TRANSACTION, 4);
    (void)open_in(p, level, a, QM_QUERY, 5);
    struct qm_context *b1 = open_in(p, level, b, QM_QUERY, 6);
    (void)open_in(p, level, b, QM_QUERY, 7);
    (void)c;

    /* One in the middle, alone. */
    qm_context_end(p, b1, note_end, &ended);
    assert_int_equal(ended.n, 1);
    assert_int_equal(ended.ids[0], 6);

    ended.n = 0;
    qm_context_end(p, b, note_end, &ended);
    assert_int_equal(ended.n, 2);
    assert_int_equal(ended.ids[0], 7);
    assert_int_equal(ended.ids[1], 3);

    ended.n = 0;
    qm_context_end(p, root, note_end, &ended);
    const uint64_t order[] = {4, 5, 2, 1};
    assert_int_equal(ended.n, 4);
    assert_memory_equal(ended.ids, order, sizeof order);
}

static void read_in(struct qm_prefetcher *p, enum qm_level level,
                    struct qm_context *context, uint64_t block)
{
    struct qm_work *work;
    p->ops->access(p, qm_context_target(level, context)->stream, block, QM_ACCESS_MISS,
                   &work);
    assert_null(work);
}

/* Reads of two queries of a transaction are one sequence at its level, two at their
 * own. */
TEST(test_work)
{
    const enum qm_level levels[] = {QM_LEVEL_TRANSACTION, QM_LEVEL_QUERY};
    for (int i = 0; i < 2; i++) {
        enum qm_level level = levels[i];
        struct qm_prefetcher *p = quickmine();
        struct ended ended = {.p = p};
        struct qm_context *t = open_in(p, level, NULL, QM_TRANSACTION, 1);
        struct qm_context *q = open_in(p, level, t, QM_QUERY, 2);
        read_in(p, level, q, 10);
        read_in(p, level, q, 11);
        qm_context_end(p, q, note_end, &ended);
        q = open_in(p, level, t, QM_QUERY, 3);
        read_in(p, level, q, 12);
        qm_context_end(p, q, note_end, &ended);
        qm_context_end(p, t, note_end, &ended);
        assert_int_equal(ended.n, 3);
        assert_false(ended.work[0]);
        assert_false(ended.work[1]);
        assert_int_equal(ended.work[2], level == QM_LEVEL_TRANSACTION);
        assert_int_equal(stats_of(p).rules, level == QM_LEVEL_TRANSACTION);
        p->ops->destroy(p);
    }
}

/* Without ended(), what there was to learn is discarded. */
TEST_ON(test_discard, quick, struct qm_prefetcher *p)
{
    struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);
    for (uint64_t b = 0; b < 100; b++) {
        read_in(p, QM_LEVEL_INNERMOST, t, b);
    }
    qm_context_end(p, t, NULL, NULL);
    assert_int_equal(stats_of(p).rules, 0);
}

/* A client decides how deep it nests: neither time nor stack may depend on it badly. */
TEST_ON(test_deep, quick, struct qm_prefetcher *p)
{
    enum qm_level level = QM_LEVEL_CONNECTION;
    struct qm_context *root = open_in(p, level, NULL, QM_CONNECTION, 0), *c = root;
    for (uint64_t i = 1; i <= 300000; i++) {
        c = open_in(p, level, c, QM_QUERY, i);
    }
    assert_ptr_equal(qm_context_target(level, c), root);
    qm_context_end(p, root, NULL, NULL);
}

TEST(test_prefetcher_none)
{
    char err[256];
    struct qm_prefetcher *p;
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    assert_int_equal(qm_prefetcher_find("none")->create(&config, &p, err, sizeof err),
                     0);
    struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);
    for (uint64_t b = 0; b < 100; b++) {
        read_in(p, QM_LEVEL_INNERMOST, t, b);
        uint64_t blocks[4];
        assert_int_equal(candidate_blocks(p, t->stream, 4, blocks), 0);
    }
    struct ended ended = {.p = p};
    qm_context_end(p, t, note_end, &ended);
    assert_false(ended.work[0]);
    assert_int_equal(p->ops->purge(p, 1), 0);
    p->ops->ended(p, 1, 2, 3, true);
    assert_null(p->ops->rules);
    assert_int_equal(stats_of(p).sequences, 0);
    p->ops->destroy(p);
}

static struct qm_prefetcher *make_ppm(unsigned ablate)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    char err[256];

    qm_mining_defaults(&config);
    config.ablate = ablate;
    assert_int_equal(qm_prefetcher_find("ppm")->create(&config, &p, err, sizeof err),
                     0);
    return p;
}

/* Two queries in the parent, one after the other; whether what the second one read
 * first last time is asked for when the first one has read its last. */
static bool second_is_foreseen(struct qm_prefetcher *p, struct qm_context *parent)
{
    static const uint64_t reads[2][2] = {{10, 25}, {13, 99}};
    uint64_t asked[8];
    unsigned n;
    bool found = false;

    for (unsigned q = 0; q < 2; q++) {
        struct qm_context *query =
            open_in(p, QM_LEVEL_INNERMOST, parent, QM_QUERY, 10 + q);

        for (unsigned i = 0; i < 2; i++) {
            read_in(p, QM_LEVEL_INNERMOST, query, reads[q][i]);
            n = candidate_blocks(p, query->stream, 8, asked);
            for (unsigned k = 0; q == 0 && i == 1 && k < n; k++)
                found |= asked[k] == 13;
        }
        qm_context_end(p, query, NULL, NULL);
    }
    return found;
}

/* The statements of a transaction go on where the one before them was, those of a
 * connection and of another transaction do not. */
TEST(test_statements)
{
    static const char *const policies[] = {"ppm", "auto"};
    static const enum qm_kind kinds[] = {QM_TRANSACTION, QM_CONNECTION, QM_THREAD};

    for (unsigned i = 0; i < 2; i++) {
        for (unsigned k = 0; k < 3; k++) {
            struct qm_prefetcher *p;
            struct qm_mining_config config;
            struct qm_context *root, *parent;
            char err[256];

            qm_mining_defaults(&config);
            assert_int_equal(
                qm_prefetcher_find(policies[i])->create(&config, &p, err, sizeof err),
                0);
            root = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_CONNECTION, 1);
            for (unsigned n = 0; n < 2; n++) {
                parent = open_in(p, QM_LEVEL_INNERMOST, root, kinds[k], 2);
                assert_int_equal(second_is_foreseen(p, parent),
                                 n > 0 && kinds[k] == QM_TRANSACTION);
                qm_context_end(p, parent, NULL, NULL);
            }
            /* What one transaction read first does not follow what the last one read.
             */
            parent = open_in(p, QM_LEVEL_INNERMOST, root, QM_TRANSACTION, 3);
            struct qm_context *query =
                open_in(p, QM_LEVEL_INNERMOST, parent, QM_QUERY, 4);
            uint64_t asked[8];

            read_in(p, QM_LEVEL_INNERMOST, query, 99);
            assert_int_equal(candidate_blocks(p, query->stream, 8, asked), 0);
            qm_context_end(p, root, NULL, NULL);
            p->ops->destroy(p);
        }
    }
}

/* What a transaction reads between its statements is of the same sequence. */
TEST(test_between_statements)
{
    struct qm_prefetcher *p = make_ppm(0);
    uint64_t asked[8];

    for (unsigned n = 0; n < 2; n++) {
        struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);
        struct qm_context *query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 2);
        struct qm_context *idle[2];

        idle[0] = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 3);
        read_in(p, QM_LEVEL_INNERMOST, query, 10);
        qm_context_end(p, query, NULL, NULL);
        idle[1] = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 4);
        qm_context_end(p, idle[0], NULL, NULL); /* it has read nothing, */
        read_in(p, QM_LEVEL_INNERMOST, t, 25);
        qm_context_end(p, idle[1], NULL, NULL); /* nor has this */
        query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 5);
        read_in(p, QM_LEVEL_INNERMOST, query, 13);
        qm_context_end(p, t, NULL, NULL);
    }
    struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);

    read_in(p, QM_LEVEL_INNERMOST, t, 10);
    assert_int_equal(candidate_blocks(p, t->stream, 8, asked), 2);
    assert_int_equal(asked[0], 25);
    assert_int_equal(asked[1], 13);
    read_in(p, QM_LEVEL_INNERMOST, t, 25);
    assert_int_equal(candidate_blocks(p, t->stream, 8, asked), 1);
    assert_int_equal(asked[0], 13);
    qm_context_end(p, t, NULL, NULL);
    p->ops->destroy(p);
}

/* Whether three blocks are read by one statement or by two: the rules are the same. */
TEST(test_divided)
{
    static const uint64_t reads[] = {10, 25, 13};
    struct qm_mining_stats stats;
    struct qm_prefetcher *p = make_ppm(0);

    for (unsigned first = 1; first <= 3; first++) {
        struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);
        struct qm_context *query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 2);

        for (unsigned i = 0; i < 3; i++) {
            if (i == first) {
                qm_context_end(p, query, NULL, NULL);
                query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 3);
            }
            read_in(p, QM_LEVEL_INNERMOST, query, reads[i]);
        }
        qm_context_end(p, t, NULL, NULL);
        p->ops->stats(p, &stats);
        assert_int_equal(stats.rules, 3);
    }
    p->ops->destroy(p);
}

/* A transaction of two statements, which read two blocks each: the i-th of its kind. */
static void run_transaction(struct qm_prefetcher *p, uint64_t i)
{
    struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);

    for (uint64_t q = 0; q < 2; q++) {
        struct qm_context *query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 2);

        read_in(p, QM_LEVEL_INNERMOST, query, 4 * i + 2 * q);
        read_in(p, QM_LEVEL_INNERMOST, query, 4 * i + 2 * q + 1);
        qm_context_end(p, query, NULL, NULL);
    }
    qm_context_end(p, t, NULL, NULL);
}

/* Where what a statement reads first never comes again, it is soon learned behind few
 * blocks only; where it does, behind all, those of other transactions, too. */
TEST(test_beginnings)
{
    enum { TIMES = 4000, RULES = 5, WITHIN = 2 }; /* of a transaction; of statements */

    for (unsigned again = 0; again < 2; again++) {
        struct qm_mining_stats before, after;
        struct qm_prefetcher *p = make_ppm(0);

        for (uint64_t i = 0; i < TIMES; i++)
            run_transaction(p, again ? i % 100 : i);
        p->ops->stats(p, &before);
        for (uint64_t i = TIMES; i < 2 * TIMES; i++)
            run_transaction(p, again ? TIMES + i % 500 : i);
        p->ops->stats(p, &after);
        if (again) {
            assert_int_equal(before.rules, 100 * RULES);
            assert_int_equal(after.rules, (100 + 500) * RULES);
        } else {
            assert_in_range(after.rules - before.rules, TIMES * (WITHIN + .2),
                            TIMES * (WITHIN + .6));
        }
        p->ops->destroy(p);
    }
}

/* A statement that begins with the block that was read last, as an update does behind a
 * select, says nothing of whether rules know beginnings: it always goes on. */
TEST(test_same_block)
{
    enum { TIMES = 4000, RULES = 3 };
    struct qm_mining_stats stats;
    struct qm_prefetcher *p = make_ppm(0);

    for (uint64_t i = 0; i < TIMES; i++) {
        struct qm_context *t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);

        for (uint64_t q = 0; q < 2; q++) {
            struct qm_context *query = open_in(p, QM_LEVEL_INNERMOST, t, QM_QUERY, 2);

            read_in(p, QM_LEVEL_INNERMOST, query, 3 * i + q);
            read_in(p, QM_LEVEL_INNERMOST, query, 3 * i + q + 1);
            qm_context_end(p, query, NULL, NULL);
        }
        qm_context_end(p, t, NULL, NULL);
    }
    p->ops->stats(p, &stats);
    assert_int_equal(stats.rules, TIMES * RULES);
    p->ops->destroy(p);
}

/* Of a transaction whose statements are left out, each begins anew. */
TEST(test_without)
{
    struct qm_context *t;
    struct qm_prefetcher *p = make_ppm(QM_ABLATE_STATEMENTS);

    t = open_in(p, QM_LEVEL_INNERMOST, NULL, QM_TRANSACTION, 1);
    for (unsigned n = 0; n < 3; n++)
        assert_false(second_is_foreseen(p, t));
    qm_context_end(p, t, NULL, NULL);
    p->ops->destroy(p);
}
