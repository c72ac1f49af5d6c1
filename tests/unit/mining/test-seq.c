/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequential readahead: windows, and a naive model of them. */
#include "baseline.h"

enum { KIB = 1024, MAX = 8, K = 3 };

/* Interleaved, two sequential readers make no sequence; apart, they do. */
TEST(test_streams_are_apart)
{
    struct qm_prefetcher *p = make("seq", 16 * KIB);
    struct qm_stream *one = begin(p), *two = begin(p), *both = begin(p);
    unsigned n = 0;

    for (uint64_t b = 1; b < 50; b++) {
        n += step(p, one, b, QM_ACCESS_PREFETCH_HIT).n;
        n += step(p, two, 1000 + b, QM_ACCESS_PREFETCH_HIT).n;
        assert_asked_nothing(step(p, both, b, QM_ACCESS_MISS));
        assert_asked_nothing(step(p, both, 1000 + b, QM_ACCESS_MISS));
    }
    assert_true(n > 2 * 47);
    end(p, one);
    end(p, two);
    end(p, both);
    p->ops->destroy(p);
}

TEST(test_block_sizes)
{
    static const struct {
        uint64_t block_size;
        unsigned max;
    } cases[] = {{0, 8},         {4 * KIB, 32},  {64 * KIB, 2},
                 {128 * KIB, 1}, {256 * KIB, 1}, {1024 * KIB, 1}};

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_prefetcher *p = make("seq", cases[i].block_size);
        struct qm_stream *s = begin(p);
        uint64_t asked = K; /* the last block asked for */
        unsigned largest = 0;

        for (uint64_t b = 1; b < 1000; b++) {
            struct asked a =
                step(p, s, b, b > K ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);

            assert_asked(a, asked + 1, asked + a.n);
            asked += a.n;
            assert_true(b < K || asked > b); /* all but the start is prefetched */
            if (b > K && a.n > largest) {
                largest = a.n;
            }
        }
        assert_int_equal(largest, cases[i].max);
        end(p, s);
        p->ops->destroy(p);
    }
}

/* The model: what was read since the last break, window by window from the start. */
struct naive {
    uint64_t first; /* of the contiguous blocks */
    unsigned n;
    bool hit[4000];
};

static unsigned hits_in(const struct naive *m, unsigned from, unsigned size)
{
    unsigned hits = 0;

    for (unsigned i = from; i < from + size && i < m->n; i++) {
        hits += m->hit[i];
    }
    return hits;
}

static struct asked naive_step(struct naive *m, uint64_t block, enum qm_access outcome)
{
    struct asked asked = {0};
    unsigned before, from, size, next = 2 * K, wanted, now;

    if (m->n > 0 && block == m->first + m->n - 1) {
        return asked;
    }
    if (m->n == 0 || block != m->first + m->n) {
        m->first = block;
        m->n = 0;
    }
    now = m->n++;
    m->hit[now] = outcome != QM_ACCESS_MISS;
    if (m->n == K) {
        for (unsigned i = 0; i < K + 2 * K; i++) {
            asked.blocks[asked.n++] = block + 1 + i;
        }
        return asked;
    }
    /* Windows are places in hit[]: [from, from + size), and the next behind. */
    for (from = K, size = K; from <= now; from += before, size = next, next = wanted) {
        before = size;
        wanted = 2 * hits_in(m, from, size);
        wanted = wanted < K ? K : wanted > MAX ? MAX : wanted;
        if (from + size == now) {
            for (unsigned i = 0; i < wanted; i++) {
                asked.blocks[asked.n++] = m->first + from + size + next + i;
            }
        }
    }
    return asked;
}

TEST(test_naive_model)
{
    static struct naive m;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct qm_prefetcher *p = make("seq", 16 * KIB);
        struct qm_stream *s = begin(p);
        struct walk walk;

        walk_init(&walk, seed, 1 + seed % 2, 60 + (unsigned)(seed % 40));
        m.n = 0;
        for (int i = 0; i < 3000; i++) {
            enum qm_access outcome;
            uint64_t block = walk_next(&walk, &outcome);
            struct asked real = step(p, s, block, outcome);
            struct asked naive = naive_step(&m, block, outcome);

            assert_int_equal(real.n, naive.n);
            assert_memory_equal(real.blocks, naive.blocks, real.n * sizeof(uint64_t));
        }
        end(p, s);
        p->ops->destroy(p);
    }
}
