/* Sequential readahead: windows, and a naive model of them. */
#include "baseline.h"

enum { KIB = 1024, MAX = 8, MIN = 2 };

/* Outcomes are as if nothing that was prefetched got lost. */
static void test_windows_double(void **state)
{
    struct qm_prefetcher *p = make("seq", 16 * KIB);
    struct qm_stream *s = begin(p);
    uint64_t b = 100, end_of_ahead;

    assert_asked_nothing(step(p, s, b++, QM_ACCESS_MISS));
    /* current 102-103, ahead 104-107 */
    assert_asked(step(p, s, b++, QM_ACCESS_MISS), 102, 107);
    assert_asked_nothing(step(p, s, b++, QM_ACCESS_PROMOTE));
    assert_asked_nothing(step(p, s, b++, QM_ACCESS_PROMOTE));
    /* 2 hits in the current window: 4 more */
    assert_asked(step(p, s, b++, QM_ACCESS_PROMOTE), 108, 111);
    while (b < 108) {
        assert_asked_nothing(step(p, s, b++, QM_ACCESS_HIT));
    }
    /* 4 hits: 8 more; from now on always 8, of 128 KiB */
    assert_asked(step(p, s, b++, QM_ACCESS_HIT), 112, 119);
    while (b < 112) {
        assert_asked_nothing(step(p, s, b++, QM_ACCESS_PROMOTE));
    }
    for (end_of_ahead = 119; end_of_ahead < 1000; end_of_ahead += MAX) {
        assert_asked(step(p, s, b++, QM_ACCESS_PROMOTE), end_of_ahead + 1,
                     end_of_ahead + MAX);
        while (b <= end_of_ahead) {
            assert_asked_nothing(step(p, s, b++, QM_ACCESS_PROMOTE));
        }
    }
    end(p, s);
    p->ops->destroy(p);
}

static void test_windows_shrink(void **state)
{
    struct qm_prefetcher *p = make("seq", 16 * KIB);
    struct qm_stream *s = begin(p);
    uint64_t b = 1;

    /* Windows 3-4, 5-8, 9-12, 13-20: the last is of 4 hits in 5-8. */
    for (; b < 9; b++) {
        step(p, s, b, QM_ACCESS_PROMOTE);
    }
    assert_asked(step(p, s, b++, QM_ACCESS_PROMOTE), 13, 20);
    /* One more hit in 9-12, the others are lost: 4 after it. */
    step(p, s, b++, QM_ACCESS_PROMOTE);
    step(p, s, b++, QM_ACCESS_MISS);
    step(p, s, b++, QM_ACCESS_MISS);
    assert_asked(step(p, s, b++, QM_ACCESS_MISS), 21, 24);
    /* No hit in 13-20: the least. */
    for (; b < 21; b++) {
        assert_asked_nothing(step(p, s, b, QM_ACCESS_MISS));
    }
    assert_asked(step(p, s, b, QM_ACCESS_MISS), 25, 26);
    end(p, s);
    p->ops->destroy(p);
}

static void test_strictly_sequential(void **state)
{
    static const int64_t breaks[] = {2, 3, 0, -1, -2, 100};
    struct qm_prefetcher *p = make("seq", 16 * KIB);

    for (unsigned i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        struct qm_stream *s = begin(p);
        uint64_t b = 501;

        step(p, s, 500, QM_ACCESS_MISS);
        assert_asked(step(p, s, 501, QM_ACCESS_MISS), 502, 507);
        b = (uint64_t)((int64_t)b + breaks[i]);
        assert_asked_nothing(step(p, s, b, QM_ACCESS_MISS));
        if (breaks[i] != 0) {
            /* It has begun again. */
            b++;
            assert_asked(step(p, s, b, QM_ACCESS_MISS), b + 1, b + 6);
        } else {
            /* A repeat does not count. */
            assert_asked_nothing(step(p, s, ++b, QM_ACCESS_PROMOTE));
            assert_asked_nothing(step(p, s, ++b, QM_ACCESS_PROMOTE));
            assert_asked(step(p, s, ++b, QM_ACCESS_PROMOTE), 508, 511);
        }
        end(p, s);
    }
    p->ops->destroy(p);
}

/* Interleaved, two sequential readers make no sequence; apart, they do. */
static void test_streams_are_apart(void **state)
{
    struct qm_prefetcher *p = make("seq", 16 * KIB);
    struct qm_stream *one = begin(p), *two = begin(p), *both = begin(p);
    unsigned n = 0;

    for (uint64_t b = 1; b < 50; b++) {
        n += step(p, one, b, QM_ACCESS_PROMOTE).n;
        n += step(p, two, 1000 + b, QM_ACCESS_PROMOTE).n;
        assert_asked_nothing(step(p, both, b, QM_ACCESS_MISS));
        assert_asked_nothing(step(p, both, 1000 + b, QM_ACCESS_MISS));
    }
    assert_true(n > 2 * 48);
    end(p, one);
    end(p, two);
    end(p, both);
    p->ops->destroy(p);
}

static void test_block_sizes(void **state)
{
    static const struct {
        uint64_t block_size;
        unsigned max;
    } cases[] = {{0, 8},         {4 * KIB, 32},  {64 * KIB, 2},
                 {128 * KIB, 1}, {256 * KIB, 1}, {1024 * KIB, 1}};

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_prefetcher *p = make("seq", cases[i].block_size);
        struct qm_stream *s = begin(p);
        uint64_t asked = 2; /* the last block asked for */
        unsigned largest = 0;

        for (uint64_t b = 1; b < 1000; b++) {
            struct asked a = step(p, s, b, b > 2 ? QM_ACCESS_PROMOTE : QM_ACCESS_MISS);

            assert_asked(a, asked + 1, asked + a.n);
            asked += a.n;
            assert_true(b < 2 || asked > b); /* all but the start is prefetched */
            if (b > 2 && a.n > largest) {
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
    unsigned before, from, size, next = 2 * MIN, wanted, now;

    if (m->n > 0 && block == m->first + m->n - 1) {
        return asked;
    }
    if (m->n == 0 || block != m->first + m->n) {
        m->first = block;
        m->n = 0;
    }
    now = m->n++;
    m->hit[now] = outcome != QM_ACCESS_MISS;
    if (m->n == 2) {
        for (unsigned i = 0; i < MIN + 2 * MIN; i++) {
            asked.blocks[asked.n++] = block + 1 + i;
        }
        return asked;
    }
    /* Windows are places in hit[]: [from, from + size), and the next behind. */
    for (from = 2, size = MIN; from <= now;
         from += before, size = next, next = wanted) {
        before = size;
        wanted = 2 * hits_in(m, from, size);
        wanted = wanted < MIN ? MIN : wanted > MAX ? MAX : wanted;
        if (from + size == now) {
            for (unsigned i = 0; i < wanted; i++) {
                asked.blocks[asked.n++] = m->first + from + size + next + i;
            }
        }
    }
    return asked;
}

static void test_naive_model(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_double),
        cmocka_unit_test(test_windows_shrink),
        cmocka_unit_test(test_strictly_sequential),
        cmocka_unit_test(test_streams_are_apart),
        cmocka_unit_test(test_block_sizes),
        cmocka_unit_test(test_naive_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
