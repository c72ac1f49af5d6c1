/* SPDX-License-Identifier: BSD-3-Clause */
/* bench-rules.c - what learning and looking up rules costs; no test, run by hand.
 *
 *   bench_rules PREFIXES POOL-MB [DIR]
 *
 * First Berkeley DB alone, as hash table and as B-tree: reading, changing and writing
 * random records of a rule's size.  Then the prefetcher: contexts of 30 blocks, drawn
 * at random from as many different ones as give that many prefixes; processor time of
 * learn() an access and of access() and candidates() a call.  DIR: also what saving and
 * loading there costs.
 */
#include <db.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mining/core/prefetcher.h"

#define CONTEXT 30
#define PER_CONTEXT                                                                    \
    ((CONTEXT - 2) + (CONTEXT - 3) + (CONTEXT - 4)) /* prefixes, G = 5 */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void check(int r, const char *what)
{
    if (r != 0) {
        fprintf(stderr, "%s: %s\n", what, r < 0 ? db_strerror(r) : strerror(r));
        exit(1);
    }
}

static void bare(const char *name, DBTYPE type, uint64_t prefixes, uint64_t pool)
{
    DB_ENV *env;
    DB *db;
    check(db_env_create(&env, 0), "environment");
    check(env->set_cachesize(env, (u_int32_t)(pool >> 30),
                             (u_int32_t)(pool & 0x3fffffff), 1),
          "pool");
    check(env->open(env, NULL, DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL, 0), "open");
    check(db_create(&db, env, 0), "database");
    check(db->set_pagesize(db, 4096), "page size");
    check(db->open(db, NULL, NULL, NULL, type, DB_CREATE, 0), "open");
    uint64_t key;
    char buf[64] = {0};
    DBT k = {.data = &key, .size = sizeof key};
    DBT d = {.data = buf, .size = 28, .ulen = sizeof buf, .flags = DB_DBT_USERMEM};
    double begin = cpu_us();
    for (uint64_t i = 0; i < prefixes; i++) {
        key = i * UINT64_C(0x9e3779b97f4a7c15);
        check(db->put(db, NULL, &k, &d, 0), "put");
    }
    double inserted = cpu_us();
    uint64_t updates = 300000;
    for (uint64_t i = 0; i < updates; i++) {
        key = next_random() % prefixes * UINT64_C(0x9e3779b97f4a7c15);
        check(db->get(db, NULL, &k, &d, 0), "get");
        buf[0]++;
        check(db->put(db, NULL, &k, &d, 0), "put");
    }
    double updated = cpu_us();
    printf("%-28s insert %5.2f us, read-modify-write %5.2f us\n", name,
           (inserted - begin) / (double)prefixes,
           (updated - inserted) / (double)updates);
    db->close(db, 0);
    env->close(env, 0);
}

static const struct qm_prefetcher_ops *ops;

/* Context number c always reads the same blocks. */
static uint64_t block_of(uint64_t c, unsigned i)
{
    uint64_t x = (c * CONTEXT + i + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    return (x ^ x >> 31) % 4000000;
}

static struct qm_work *read_context(struct qm_prefetcher *p, uint64_t c)
{
    struct qm_work *work;
    struct qm_stream *stream = ops->begin(p, 0);
    for (unsigned i = 0; i < CONTEXT; i++) {
        ops->access(p, stream, block_of(c, i), QM_ACCESS_MISS, &work);
    }
    ops->end(p, stream, &work);
    return work;
}

static double learn(struct qm_prefetcher *p, uint64_t c)
{
    struct qm_work *work = read_context(p, c);
    double begin = cpu_us();
    check(ops->learn(p, work), "learn");
    return cpu_us() - begin;
}

static double look_up(struct qm_prefetcher *p, uint64_t c)
{
    struct qm_work *work;
    struct qm_stream *stream = ops->begin(p, 0);
    struct qm_candidate found[4];
    double begin = cpu_us();
    for (unsigned i = 0; i < CONTEXT; i++) {
        ops->access(p, stream, block_of(c, i), QM_ACCESS_MISS, &work);
        ops->candidates(p, stream, found, 4);
    }
    double spent = cpu_us() - begin;
    ops->end(p, stream, &work);
    ops->discard(p, work);
    return spent;
}

static void whole(uint64_t prefixes, uint64_t max_prefix, uint64_t pool,
                  const char *dir)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    struct qm_mining_stats stats;
    char err[512];
    qm_mining_defaults(&config);
    config.max_prefix = max_prefix;
    config.rules_pool = pool;
    config.rules_dir = dir;
    check(ops->create(&config, &p, err, sizeof err), err);
    uint64_t contexts = prefixes / PER_CONTEXT + 1, again = 10000;
    double first = 0, later = 0, found = 0, absent = 0;
    for (uint64_t c = 0; c < contexts; c++) {
        first += learn(p, c);
    }
    for (uint64_t i = 0; i < again; i++) {
        later += learn(p, next_random() % contexts);
    }
    for (uint64_t i = 0; i < again; i++) {
        found += look_up(p, next_random() % contexts);
        absent += look_up(p, contexts + next_random() % contexts);
    }
    ops->stats(p, &stats);
    printf("max-prefix %-8llu learn: new %5.2f us, again %5.2f us an access; look-up "
           "%5.2f us, of nothing %5.2f us; %llu prefixes, %llu rules, %.1f MB\n",
           (unsigned long long)max_prefix, first / (double)(contexts * CONTEXT),
           later / (double)(again * CONTEXT), found / (double)(again * CONTEXT),
           absent / (double)(again * CONTEXT), (unsigned long long)stats.prefixes,
           (unsigned long long)stats.rules, (double)stats.rules_bytes / 1e6);
    double begin = cpu_us();
    ops->destroy(p);
    if (dir) {
        double saved = cpu_us();
        check(ops->create(&config, &p, err, sizeof err), err);
        double loaded = cpu_us();
        printf("save %.0f ms, load %.0f ms of processor time\n", (saved - begin) / 1e3,
               (loaded - saved) / 1e3);
        ops->destroy(p);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_rules PREFIXES POOL-MB [DIR]\n");
        return 2;
    }
    uint64_t prefixes = strtoull(argv[1], NULL, 10);
    uint64_t pool = strtoull(argv[2], NULL, 10) << 20;
    if (prefixes == 0 || pool == 0) {
        fprintf(stderr, "both numbers must be at least 1\n");
        return 2;
    }
    ops = qm_prefetcher_find("quickmine");
    printf("%llu prefixes, pool of %llu MB\n", (unsigned long long)prefixes,
           (unsigned long long)(pool >> 20));
    bare("Berkeley DB, hash table:", DB_HASH, prefixes, pool);
    bare("Berkeley DB, B-tree:", DB_BTREE, prefixes, pool);
    whole(prefixes, 0, pool, argc > 3 ? argv[3] : NULL);
    whole(prefixes, prefixes / 4, pool, NULL);
    return 0;
}
