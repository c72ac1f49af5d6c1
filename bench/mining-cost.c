/* SPDX-License-Identifier: BSD-3-Clause */
/* mining-cost.c - CPU time of a policy a read, by how many rules there are; the program
 * of bench/mining-cost.
 *
 *   mining-cost POLICY PREFIXES
 *
 * Learns contexts of 30 reads until there should be PREFIXES prefixes of two blocks,
 * then measures while such contexts, drawn at random, are read again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mining/core/prefetcher.h"

enum { CONTEXT = 30, MEASURED = 30000 };

struct cost {
    const struct qm_prefetcher_ops *ops;
    struct qm_prefetcher *p;
    uint64_t random, asked;
};

static uint64_t next_random(struct cost *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The blocks of a context, without a pattern. */
static uint64_t block_of(uint64_t context, unsigned i)
{
    uint64_t x = (context * CONTEXT + i) * UINT64_C(0x9e3779b97f4a7c15);

    return (x ^ x >> 29) >> 33;
}

static void learn(struct cost *c, struct qm_work *work)
{
    if (work && c->ops->learn(c->p, work) != 0) {
        fprintf(stderr, "mining-cost: the rule cache failed\n");
        exit(1);
    }
}

static void read_context(struct cost *c, uint64_t context)
{
    struct qm_stream *s = c->ops->begin(c->p, 1);
    struct qm_candidate found[QM_CANDIDATES_MAX];
    struct qm_work *work;

    if (!s) {
        fprintf(stderr, "mining-cost: out of memory\n");
        exit(1);
    }
    for (unsigned i = 0; i < CONTEXT; i++) {
        unsigned n;

        c->ops->access(c->p, s, block_of(context, i), QM_ACCESS_MISS, &work);
        learn(c, work);
        n = c->ops->candidates(c->p, s, found, QM_CANDIDATES_MAX);
        for (unsigned k = 0; k < n; k++)
            for (unsigned j = 0; j < found[k].count; j++, c->asked++)
                c->ops->ended(c->p, found[k].block + j, 1, 1, QM_FATE_USED);
    }
    c->ops->end(c->p, s, &work);
    learn(c, work);
}

/* Each context of n blocks makes n - 1 prefixes of adjacent blocks. */
static void run(struct cost *c, uint64_t prefixes)
{
    uint64_t contexts = prefixes / (CONTEXT - 1) + 1;
    struct qm_mining_stats stats;
    double first, later;

    first = cpu_us();
    for (uint64_t i = 0; i < contexts; i++)
        read_context(c, i);
    first = cpu_us() - first;
    c->asked = 0;
    later = cpu_us();
    for (uint64_t i = 0; i < MEASURED; i++)
        read_context(c, next_random(c) % contexts);
    later = cpu_us() - later;
    c->ops->stats(c->p, &stats);
    printf(
        "%-10s %10llu prefixes: new %5.2f us, again %5.2f us a read; %.1f asked for; "
        "%llu rules in %.1f MiB\n",
        c->ops->name, (unsigned long long)prefixes,
        first / (double)(contexts * CONTEXT), later / (MEASURED * (double)CONTEXT),
        (double)c->asked / (MEASURED * (double)CONTEXT),
        (unsigned long long)stats.rules, (double)stats.rules_bytes / (1 << 20));
}

int main(int argc, char **argv)
{
    struct cost c = {.random = 0x9e3779b97f4a7c15};
    struct qm_mining_config config;
    char err[512] = "";
    uint64_t prefixes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

    if (prefixes == 0 || !(c.ops = qm_prefetcher_find(argv[1]))) {
        fprintf(stderr, "usage: mining-cost POLICY PREFIXES; policies: %s\n",
                qm_prefetcher_names());
        return 2;
    }
    qm_mining_defaults(&config);
    config.max_prefix = 0;
    config.rules_pool = UINT64_C(4) << 30;
    config.rules_memory = prefixes * 2 * 8 * 3 / 2 + (1 << 20); /* and some room */
    if (c.ops->create(&config, &c.p, err, sizeof err) != 0) {
        fprintf(stderr, "mining-cost: %s\n", err);
        return 1;
    }
    run(&c, prefixes);
    c.ops->destroy(c.p);
    return 0;
}
