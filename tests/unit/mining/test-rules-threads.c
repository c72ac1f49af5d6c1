/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules looked up by several threads while others learn, purge, list and save. */
#include "testing.h"

#include <db.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

enum { LEARNERS = 2, READERS = 2, SEQUENCES = 300, LENGTH = 30 };

struct shared {
    struct qm_prefetcher *p;
    atomic_int learning; /* learners that are not done */
    atomic_int wrong;
};

/* Block b is followed by b + 1, ..., so whatever is found is known to be right or not.
 */
static void *learner(void *opaque)
{
    struct shared *shared = opaque;
    struct rng rng = {20};
    for (int s = 0; s < SEQUENCES; s++) {
        uint64_t blocks[LENGTH], first = rng_below(&rng, 2000);
        for (uint64_t i = 0; i < LENGTH; i++) {
            blocks[i] = first + i;
        }
        if (read_blocks(shared->p, blocks, LENGTH) != 0) {
            atomic_fetch_add(&shared->wrong, 1);
        }
    }
    atomic_fetch_sub(&shared->learning, 1);
    return NULL;
}

static void *reader(void *opaque)
{
    struct shared *shared = opaque;
    struct rng rng = {21};
    do {
        for (int i = 0; i < 50; i++) {
            uint64_t a = rng_below(&rng, 2000), found[4];
            unsigned n = look_up(shared->p, a, a + 1, found, 4);
            for (unsigned f = 0; f < n; f++) {
                if (found[f] < a + 2 || found[f] > a + 4) {
                    atomic_fetch_add(&shared->wrong, 1);
                }
            }
        }
    } while (atomic_load(&shared->learning) > 0);
    return NULL;
}

static int check_rule(void *opaque, const struct qm_rule *rule)
{
    struct qm_rule *last = opaque;
    bool sorted = last->a < rule->a ||
                  (last->a == rule->a &&
                   (last->b < rule->b || (last->b == rule->b && last->c < rule->c)));
    *last = *rule;
    return sorted && rule->support > 0 ? 0 : 1;
}

static void *housekeeper(void *opaque)
{
    struct shared *shared = opaque;
    uint64_t now = 1;
    do {
        struct qm_rule last = {0};
        struct qm_mining_stats stats;
        if (shared->p->ops->rules(shared->p, check_rule, &last) != 0 ||
            shared->p->ops->purge(shared->p, now++) != 0) {
            atomic_fetch_add(&shared->wrong, 1);
        }
        shared->p->ops->stats(shared->p, &stats);
        if (stats.prefixes > 1000) {
            atomic_fetch_add(&shared->wrong, 1);
        }
    } while (atomic_load(&shared->learning) > 0);
    return NULL;
}

TEST(test_threads)
{
    char dir[] = "/tmp/quickmine.XXXXXX", file[64];
    assert_non_null(mkdtemp(dir));
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    config.max_prefix = 1000;
    config.purge_after = 3;
    config.segment = 10;
    config.rules_dir = dir;
    struct shared shared = {.p = make_quickmine(&config), .learning = LEARNERS};
    pthread_t threads[LEARNERS + READERS + 1];
    int n = 0;
    for (int i = 0; i < LEARNERS; i++) {
        assert_int_equal(pthread_create(&threads[n++], NULL, learner, &shared), 0);
    }
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&threads[n++], NULL, reader, &shared), 0);
    }
    assert_int_equal(pthread_create(&threads[n++], NULL, housekeeper, &shared), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&shared.wrong), 0);
    struct qm_mining_stats stats = stats_of(shared.p);
    /* Each sequence has 3 segments and nothing after. */
    assert_int_equal(stats.sequences, LEARNERS * SEQUENCES * 3);
    assert_int_equal(stats.failed, 0);
    struct rule_list list = all_rules(shared.p);
    assert_int_equal(stats.rules, list.n);
    free(list.v);
    shared.p->ops->destroy(shared.p);
    snprintf(file, sizeof file, "%s/rules.db", dir);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Supports add up, whoever adds them. */
TEST(test_no_update_lost)
{
    struct qm_mining_config config;
    qm_mining_paper(&config);
    struct shared shared = {.p = make_quickmine(&config), .learning = 3};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, learner, &shared), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    struct rule_list list = all_rules(shared.p);
    uint64_t sum = 0;
    for (size_t i = 0; i < list.n; i++) {
        assert_int_equal(list.v[i].support % 3, 0);
        sum += list.v[i].support;
    }
    assert_int_equal(sum, 3 * SEQUENCES * (6 * (LENGTH - 4) + 3 + 1));
    assert_int_equal(stats_of(shared.p).updates, sum);
    free(list.v);
    shared.p->ops->destroy(shared.p);
}

static sem_t asleep, wake_up;
static atomic_bool slept;

/* Berkeley DB's, called with the rule cache locked. */
static int sleep_until_told(unsigned long seconds, unsigned long microseconds)
{
    if (seconds > 0 && !atomic_exchange(&slept, true)) {
        sem_post(&asleep);
        sem_wait(&wake_up);
    }
    return 0;
}

static void *learn_until_it_fails(void *opaque)
{
    struct rng rng = {22};
    int r = 0;
    for (int s = 0; s < 10000 && r == 0; s++) {
        uint64_t blocks[100];
        for (int i = 0; i < 100; i++) {
            blocks[i] = rng_below(&rng, 1000000);
        }
        r = read_blocks(opaque, blocks, 100);
    }
    return NULL;
}

/* While Berkeley DB sleeps, because it cannot write, a look-up does not wait for it. */
TEST(test_look_up_gives_up)
{
    char dir[] = "/tmp/quickmine.XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(sem_init(&asleep, 0, 0), 0);
    assert_int_equal(sem_init(&wake_up, 0, 0), 0);
    assert_int_equal(db_env_set_func_yield(sleep_until_told), 0);
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    config.rules_pool = 64 << 10;
    struct qm_prefetcher *p = make_quickmine(&config);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(rmdir(dir), 0);
    const uint64_t first[] = {1, 2, 3};
    uint64_t found[4];
    assert_int_equal(read_blocks(p, first, 3), 0);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, learn_until_it_fails, p), 0);
    assert_int_equal(sem_wait(&asleep), 0);
    assert_int_equal(look_up(p, 1, 2, found, 4), 0);
    assert_int_equal(sem_post(&wake_up), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    struct qm_mining_stats stats = stats_of(p);
    assert_int_equal(stats.busy, 1);
    assert_int_equal(stats.lookups, 1);
    assert_int_equal(stats.failed, 1);
    p->ops->destroy(p);
    sem_destroy(&asleep);
    sem_destroy(&wake_up);
}
