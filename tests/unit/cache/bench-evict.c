/* SPDX-License-Identifier: BSD-3-Clause */
/* bench-evict.c - what each eviction policy costs; no test, run by hand.
 *
 *   bench_evict BLOCKS
 *
 * For caches of that many blocks, in nanoseconds of processor time an operation, the
 * best of five rounds.  First the policy alone: a touch of a random node, and the entry
 * of a block for which another leaves.  Then a new cache around it, one shard without
 * data: a hit on a random block; a miss; and a demand in a loop through a third more
 * blocks than fit, which some policies then have, and others know as ghosts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cache/cache.h"
#include "cache/eviction.h"

#define ROUNDS 5

static uint64_t random_state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *check(void *p)
{
    if (!p) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

struct costs {
    double touch, enter, hit, miss, loop;
};

static void least(double *cost, double begin, uint64_t ops)
{
    double ns = (cpu_ns() - begin) / (double)ops;

    if (*cost == 0 || ns < *cost)
        *cost = ns;
}

/* Nodes are spread as the cache's headers are. */
struct spread {
    struct qm_evict_node node;
    char rest[96];
};

static void policy_alone(const struct qm_evict_ops *ops, uint64_t blocks,
                         struct costs *costs)
{
    struct spread *s = check(calloc(blocks, sizeof(*s)));
    void *policy = check(ops->create(blocks));
    uint64_t n = blocks < 100000 ? 400000 : 4 * blocks, next = blocks;
    double begin;

    for (uint64_t i = 0; i < blocks; i++) {
        s[i].node.block = i;
        ops->insert(policy, &s[i].node);
    }
    for (int round = 0; round < ROUNDS; round++) {
        begin = cpu_ns();
        for (uint64_t i = 0; i < n; i++)
            ops->touch(policy, &s[next_random() % blocks].node);
        least(&costs->touch, begin, n);

        begin = cpu_ns();
        for (uint64_t i = 0; i < n; i++, next++) {
            struct qm_evict_node *node = ops->evict(policy, next);

            node->block = next;
            ops->insert(policy, node);
        }
        least(&costs->enter, begin, n);
    }
    ops->destroy(policy);
    free(s);
}

static void demand(struct qm_cache *cache, uint64_t block)
{
    struct qm_lookup found;

    if (qm_cache_demand(cache, block, NULL, 0, 1, &found) != 0)
        check(NULL);
    if (found.todo == QM_FETCH)
        qm_cache_fill(cache, found.fill, NULL);
}

static void within_cache(const char *name, uint64_t blocks, struct costs *costs)
{
    struct qm_cache_config config = {
        .block_size = 4096, .blocks = blocks, .shards = 1, .eviction = name};
    uint64_t n = blocks < 100000 ? 400000 : 4 * blocks;
    struct qm_cache *cache;
    double begin;

    for (int round = 0; round < ROUNDS; round++) {
        if (qm_cache_new(&config, &cache) != 0)
            check(NULL);
        for (uint64_t i = 0; i < blocks; i++)
            demand(cache, i);

        begin = cpu_ns();
        for (uint64_t i = 0; i < n; i++)
            demand(cache, next_random() % blocks);
        least(&costs->hit, begin, n);

        begin = cpu_ns();
        for (uint64_t i = 0; i < n; i++)
            demand(cache, blocks + i);
        least(&costs->miss, begin, n);

        begin = cpu_ns();
        for (uint64_t i = 0; i < n; i++)
            demand(cache, i % (blocks + blocks / 3));
        least(&costs->loop, begin, n);
        qm_cache_free(cache);
    }
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {"lru",    "lfu",      "mru",     "arc",
                                           "s3fifo", "wtinylfu", "adaptive"};
    uint64_t blocks = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;

    if (blocks < 1) {
        fprintf(stderr, "usage: bench_evict BLOCKS\n");
        return 2;
    }
    printf("%-10s %10s %10s | %10s %10s %10s   ns, %llu blocks\n", "", "touch", "enter",
           "hit", "miss", "loop", (unsigned long long)blocks);
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct costs costs = {0};

        policy_alone(qm_evict_find(policies[i]), blocks, &costs);
        within_cache(policies[i], blocks, &costs);
        printf("%-10s %10.1f %10.1f | %10.1f %10.1f %10.1f\n", policies[i], costs.touch,
               costs.enter, costs.hit, costs.miss, costs.loop);
    }
    return 0;
}
