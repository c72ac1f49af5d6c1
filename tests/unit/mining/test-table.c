/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of pairs: what it holds, what gives way, and a naive model of a line. */
#include "mining/markov/table.h"
#include "testing.h"

enum { LINE = 64, WAYS = 8 };

/* The count of block after key; 0 if it is not known to follow. */
static unsigned count_of(struct qm_markov *p, uint64_t key, uint64_t block,
                         struct qm_markov_pair *pair)
{
    struct qm_markov_pair found[QM_MARKOV_FOUND_MAX];
    unsigned n = qm_markov_find(p, key, found), count = 0;

    assert_true(n <= QM_MARKOV_FOUND_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (found[i].block == block) {
            assert_int_equal(count, 0); /* each is there once */
            count = found[i].count;
            if (pair)
                *pair = found[i];
        }
    }
    return count;
}

static struct qm_markov_stats table_stats(struct qm_markov *p)
{
    struct qm_markov_stats stats;

    qm_markov_get_stats(p, &stats);
    return stats;
}

TEST(test_keys_differ)
{
    struct qm_markov *p = qm_markov_new(1 << 20);

    qm_markov_learn(p, 0, qm_markov_key1(2), 10);
    qm_markov_learn(p, 0, qm_markov_key2(1, 2), 11);
    qm_markov_learn(p, 0, qm_markov_key2(2, 1), 12);
    assert_int_equal(count_of(p, qm_markov_key1(2), 10, NULL), 1);
    assert_int_equal(count_of(p, qm_markov_key1(2), 11, NULL), 0);
    assert_int_equal(count_of(p, qm_markov_key2(1, 2), 11, NULL), 1);
    assert_int_equal(count_of(p, qm_markov_key2(1, 2), 12, NULL), 0);
    assert_int_equal(count_of(p, qm_markov_key2(2, 1), 12, NULL), 1);
    qm_markov_free(p);
}

TEST(test_bounds)
{
    struct qm_markov *p = qm_markov_new(1 << 16);
    struct rng rng = {1};

    qm_markov_learn(p, 0, qm_markov_key1(1), QM_MARKOV_BLOCKS);
    assert_int_equal(table_stats(p).held, 0);
    qm_markov_learn(p, 0, qm_markov_key1(1), QM_MARKOV_BLOCKS - 1);
    assert_int_equal(count_of(p, qm_markov_key1(1), QM_MARKOV_BLOCKS - 1, NULL), 1);
    for (int i = 0; i < 100000; i++) {
        qm_markov_learn(p, 0, qm_markov_key1(rng_below(&rng, UINT64_MAX)),
                        rng_below(&rng, 1000));
    }
    assert_true(table_stats(p).bytes <= 1 << 16);
    assert_true(table_stats(p).held <= (1 << 16) / 8);
    assert_true(table_stats(p).held > (1 << 16) / 8 * 9 / 10);
    assert_int_equal(table_stats(p).held + table_stats(p).evicted, 100001);
    qm_markov_free(p);
}

/* What follows often outlives a flood of what is seen once; and gives way in the end.
 */
TEST(test_worth)
{
    struct qm_markov *p = qm_markov_new(1); /* a line */
    uint64_t key = qm_markov_key1(1);

    for (int i = 0; i < 6; i++) {
        qm_markov_learn(p, 0, key, 5);
    }
    for (uint64_t b = 100; b < 100 + 3 * WAYS; b++) {
        if (b % 4 != 0) { /* those fade */
            qm_markov_learn(p, 0, qm_markov_key1(b), b);
        }
    }
    assert_int_equal(count_of(p, key, 5, NULL), 6);
    for (uint64_t b = 1000; b < 1200; b++) {
        qm_markov_learn(p, 0, qm_markov_key1(b), b);
    }
    assert_int_equal(count_of(p, key, 5, NULL), 0);
    qm_markov_free(p);
}

/* 64 lines, in which owner 1 has learned 100 pairs that were seen three times. */
enum { LINES = 64, LEARNED = 100 };

static struct qm_markov *make_owned(void)
{
    struct qm_markov *p = qm_markov_new((LINES + 1) * LINE);

    assert_int_equal(qm_markov_lines(p), LINES);
    qm_markov_owners(p, 1 << 1 | 1 << 2 | 1 << 3);
    for (uint64_t b = 0; b < 3 * LEARNED; b++) {
        qm_markov_learn(p, 1, qm_markov_key1(b % LEARNED), b % LEARNED);
    }
    return p;
}

/* Owner learns so much that is seen once; every fourth lets others fade. */
static void flood(struct qm_markov *p, unsigned owner, unsigned n)
{
    for (uint64_t b = 1000; b < 1000 + n; b++) {
        qm_markov_learn(p, owner, qm_markov_key1(b), b);
    }
}

static unsigned line_of_key1(uint64_t block)
{
    return (unsigned)((unsigned __int128)qm_markov_key1(block) * LINES >> 64);
}

/* How many of the first's pairs there are, of those that it can be sure of if `owners`
 * owners have pairs everywhere; *all: of all. */
static unsigned left(struct qm_markov *p, unsigned owners, unsigned *all)
{
    unsigned in_line[LINES] = {0}, sure = 0;

    *all = 0;
    for (uint64_t b = 0; b < LEARNED; b++) {
        *all += count_of(p, qm_markov_key1(b), b, NULL) >= 1;
        in_line[line_of_key1(b)]++;
    }
    for (uint64_t b = 0; b < LEARNED && owners > 1; b++) {
        if (in_line[line_of_key1(b)] <= WAYS / owners) { /* as good as before */
            assert_true(count_of(p, qm_markov_key1(b), b, NULL) >= 3);
        }
    }
    for (unsigned i = 0; i < LINES; i++) {
        sure += in_line[i] < WAYS / owners ? in_line[i] : WAYS / owners;
    }
    return sure;
}

TEST(test_owners_share)
{
    struct qm_markov *p = make_owned();
    unsigned all, sure = left(p, 1, &all);

    assert_int_equal(all, LEARNED);
    assert_int_equal(sure, LEARNED); /* they were all there */
    sure = left(p, 2, &all);
    assert_true(sure < LEARNED); /* some lines have more than half */
    flood(p, 2, 100000);
    left(p, 2, &all);
    assert_int_equal(all, sure); /* no less than that, and no more */
    flood(p, 3, 100000);
    sure = left(p, 3, &all);
    assert_in_range(all, sure, LEARNED);
    assert_true(sure > 0);
    qm_markov_free(p);
}

/* An owner has as much as there is where others have little; and who was nobody, or has
 * left, is spared by none. */
TEST(test_owners_who_are_gone)
{
    struct qm_markov *p = make_owned();
    unsigned all;

    flood(p, 1, 100000);
    left(p, 1, &all);
    assert_int_equal(all, 0);
    qm_markov_free(p);

    p = make_owned();
    qm_markov_owners(p, 1 << 2);
    flood(p, 2, 100000);
    left(p, 1, &all);
    assert_int_equal(all, 0);
    assert_int_equal(table_stats(p).held, LINES * WAYS);
    qm_markov_free(p);

    p = make_owned();
    flood(p, 0, 100000); /* nobody's reads wash out nobody's */
    left(p, 1, &all);
    assert_true(all > LEARNED / 2);
    qm_markov_free(p);
}

/* Whose a pair is: of the first who has learned it, while he is there. */
TEST(test_whose)
{
    struct qm_markov *p = make_owned();
    struct qm_markov_pair pair;
    unsigned all, sure;

    for (uint64_t b = 0; b < LEARNED; b++) {
        qm_markov_learn(p, 2, qm_markov_key1(b), b);
    }
    sure = left(p, 2, &all);
    flood(p, 2, 100000);
    left(p, 2, &all);
    assert_int_equal(all, sure);
    /* Others see something else follow: that is told, and costs nothing. */
    assert_int_equal(count_of(p, qm_markov_key1(1), 1, &pair), 4);
    assert_int_equal(pair.since, 0);
    for (uint64_t b = 0; b < 100; b++) {
        qm_markov_learn(p, 2, qm_markov_key1(1), 2000 + b);
    }
    assert_int_equal(count_of(p, qm_markov_key1(1), 1, &pair), 4);
    assert_int_equal(pair.since, 3);
    qm_markov_learn(p, 1, qm_markov_key1(1), 1);
    assert_int_equal(count_of(p, qm_markov_key1(1), 1, &pair), 5);
    assert_int_equal(pair.since, 0);
    qm_markov_learn(p, 1, qm_markov_key1(1), 3001);
    assert_int_equal(count_of(p, qm_markov_key1(1), 1, &pair), 4);
    qm_markov_free(p);

    /* He has left: it is of who learns it next. */
    p = make_owned();
    qm_markov_owners(p, 1 << 2 | 1 << 3);
    for (uint64_t b = 0; b < LEARNED; b++) {
        qm_markov_learn(p, 2, qm_markov_key1(b), b);
    }
    flood(p, 3, 100000);
    sure = left(p, 2, &all);
    assert_true(all >= sure);
    qm_markov_free(p);
}

/* A line as table.c describes it: eight pairs at most, in an array. */
struct model {
    unsigned n;
    struct entry {
        uint64_t key, block;
        unsigned count, since, age;
    } e[WAYS];
};

static void model_enter(struct model *m, uint64_t key, uint64_t block)
{
    unsigned least = m->n;

    if (m->n == WAYS) {
        least = 0;
        for (unsigned i = 1; i < WAYS; i++) {
            if (m->e[i].count < m->e[least].count ||
                (m->e[i].count == m->e[least].count && m->e[i].age > m->e[least].age))
                least = i;
        }
    } else {
        m->n++;
    }
    for (unsigned i = 0; i < m->n; i++) {
        if (i != least) {
            m->e[i].age += m->e[i].age < 15;
            m->e[i].count -= block % 4 == 0 && m->e[i].count > 1;
        }
    }
    m->e[least] = (struct entry){key, block, 1, 0, 0};
}

static void model_learn(struct model *m, uint64_t key, uint64_t block)
{
    bool found = false;

    for (unsigned i = 0; i < m->n; i++) {
        struct entry *e = &m->e[i];

        if (e->key != key)
            continue;
        if (e->block == block) {
            found = true;
            e->count += e->count < 15;
            e->since = e->age = 0;
        } else {
            e->since += e->since < 3;
            e->count -= e->count >= 13 ? 2 : e->count >= 5 ? 1 : 0;
        }
    }
    if (!found)
        model_enter(m, key, block);
}

static void check_key(struct qm_markov *p, const struct model *m, uint64_t key)
{
    struct qm_markov_pair found[QM_MARKOV_FOUND_MAX];
    unsigned n = qm_markov_find(p, key, found), in_model = 0, sum = 0;

    for (unsigned i = 0; i < m->n; i++) {
        in_model += m->e[i].key == key;
        sum += m->e[i].key == key ? m->e[i].count : 0;
    }
    assert_int_equal(n, in_model);
    for (unsigned i = 0; i < m->n; i++) {
        struct qm_markov_pair pair;

        if (m->e[i].key != key)
            continue;
        assert_int_equal(count_of(p, key, m->e[i].block, &pair), m->e[i].count);
        assert_int_equal(pair.since, m->e[i].since);
        assert_int_equal(pair.rest, sum - m->e[i].count);
    }
}

TEST(test_model)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct qm_markov *p = qm_markov_new(LINE);
        struct rng rng = {seed};
        struct model m = {0};
        unsigned keys = 1 + (unsigned)seed / 4, blocks = 3 + (unsigned)seed % 9;

        for (int i = 0; i < 3000; i++) {
            uint64_t block = rng_below(&rng, blocks) * 3 % blocks;

            block = block < rng_below(&rng, blocks) ? block : block / 2; /* some more */
            uint64_t key = qm_markov_key1(rng_below(&rng, keys));
            qm_markov_learn(p, 0, key, block);
            model_learn(&m, key, block);
            for (unsigned k = 0; k < keys; k++) {
                check_key(p, &m, qm_markov_key1(k));
            }
        }
        qm_markov_free(p);
    }
}
