/* SPDX-License-Identifier: BSD-3-Clause */
/* Run-based prefetching: the threshold of each block size, and a naive model. */
#include "baseline.h"

enum { KIB = 1024, BACKWARD = 4, FORWARD = 8, PREFETCH = 16, REFILL = 8, RUNS = 64 };

TEST(test_block_sizes)
{
    static const struct {
        uint64_t block_size;
        unsigned blocks; /* with which a run is more than 32 KiB */
    } cases[] = {{0, 3},        {4 * KIB, 9},  {8 * KIB, 5},
                 {32 * KIB, 2}, {64 * KIB, 2}, {1024 * KIB, 2}};

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_prefetcher *p = make("run", cases[i].block_size);
        struct qm_stream *s = begin(p);

        for (unsigned b = 1; b <= cases[i].blocks; b++) {
            assert_int_equal(step(p, s, b, QM_ACCESS_MISS).n,
                             b == cases[i].blocks ? PREFETCH : 0);
        }
        end(p, s);
        p->ops->destroy(p);
    }
}

/* The model: each run keeps every block that it read, and every one it asked for. */
enum { LENGTH = 2000 };

struct naive_run {
    unsigned used; /* when */
    unsigned n;
    uint64_t max;
    uint64_t read[LENGTH];
    uint64_t to; /* the largest block asked for, 0: none is */
};

static struct naive_run runs[RUNS];
static unsigned n_runs;

static struct asked naive_step(unsigned now, uint64_t block)
{
    struct asked asked = {0};
    struct naive_run *r = NULL, *oldest = NULL;
    bool again = false;

    for (unsigned i = 0; i < n_runs; i++) {
        if (block + BACKWARD >= runs[i].max && block <= runs[i].max + FORWARD &&
            (!r || runs[i].used > r->used)) {
            r = &runs[i];
        }
        if (!oldest || runs[i].used < oldest->used) {
            oldest = &runs[i];
        }
    }
    if (!r) {
        r = n_runs < RUNS ? &runs[n_runs++] : oldest;
        r->used = now;
        r->n = 1;
        r->read[0] = r->max = block;
        r->to = 0;
        return asked;
    }
    r->used = now;
    for (unsigned i = 0; i < r->n; i++) {
        again = again || r->read[i] == block;
    }
    if (!again) {
        r->read[r->n++] = block;
    }
    r->max = block > r->max ? block : r->max;
    if (r->n > 2 && r->to <= r->max + PREFETCH - REFILL) {
        for (uint64_t b = r->max + 1; b <= r->max + PREFETCH; b++) {
            asked.blocks[asked.n++] = b;
        }
        r->to = r->max + PREFETCH;
    }
    return asked;
}

TEST(test_naive_model)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct qm_prefetcher *p = make("run", 16 * KIB);
        struct qm_stream *s = begin(p);
        struct walk walk;

        walk_init(&walk, seed, seed % 3 == 0 ? 80 : 1 + seed % 10, 50);
        n_runs = 0;
        for (unsigned i = 0; i < LENGTH; i++) {
            enum qm_access outcome;
            uint64_t block = walk_next(&walk, &outcome);
            struct asked real = step(p, s, block, outcome);
            struct asked naive = naive_step(i, block);

            assert_int_equal(real.n, naive.n);
            assert_memory_equal(real.blocks, naive.blocks, real.n * sizeof(uint64_t));
        }
        end(p, s);
        p->ops->destroy(p);
    }
}
