/* SPDX-License-Identifier: BSD-3-Clause */
/* test-alike.c - the server and the simulator decide alike.
 *
 * Random reads in contexts, nested and not, are carried out by the whole server (but
 * for nbdkit, whose part the test plays) and by the simulator.  Each notes every block
 * that is looked up and how it was found, what the prefetcher is told and asked, what
 * it answers, what enters the cache for it, and what becomes of that.  Both lists must
 * be the same.  So that time plays no part, there is one reader; a prefetch has
 * arrived and its thread has left the cache, and a sequence has been learned from,
 * before the reader goes on.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"
#include "mining/baselines/cminer-file.h"
#include "server/server.h"
#include "alike.h"

#define DEVICE_SIZE (UINT64_C(1) << 40)

/* ---- the cache, and what the server does later */

static struct qms_server server;

int __real_qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf,
                           uint32_t offset, uint32_t count, struct qm_lookup *found);
int __wrap_qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf,
                           uint32_t offset, uint32_t count, struct qm_lookup *found);
int __real_qm_cache_prefetch(struct qm_cache *cache, uint64_t block, uint32_t issuer,
                             struct qm_fill **fill);
int __wrap_qm_cache_prefetch(struct qm_cache *cache, uint64_t block, uint32_t issuer,
                             struct qm_fill **load);
unsigned __real_qms_prefetch_issue(struct qms_prefetch *prefetch, uint64_t block,
                                   uint32_t count, unsigned client, uint32_t issuer);
unsigned __wrap_qms_prefetch_issue(struct qms_prefetch *prefetch, uint64_t block,
                                   uint32_t count, unsigned client, uint32_t issuer);
void __wrap_qms_miner_push(struct qms_miner *miner, unsigned client,
                           struct qm_work *work, uint64_t bytes);

int __wrap_qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf,
                           uint32_t offset, uint32_t count, struct qm_lookup *found)
{
    int error = __real_qm_cache_demand(cache, block, buf, offset, count, found);

    assert_int_equal(error, 0);
    note('d', block, found->outcome, 0, 0);
    return error;
}

int __wrap_qm_cache_prefetch(struct qm_cache *cache, uint64_t block, uint32_t issuer,
                             struct qm_fill **fill)
{
    int error = __real_qm_cache_prefetch(cache, block, issuer, fill);

    note('p', block, (uint32_t)error, 0, 0);
    return error;
}

/* Of the prefetch thread. */
static _Atomic uint64_t fills_begun, fills_ended;
static pthread_t reader;

bool __real_qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill,
                          const void *data);
bool __wrap_qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill,
                          const void *data);
int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
/* Visible: the linker takes the libraries' calls, too, for calls of it. */
__attribute__((visibility("default"))) int
__wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);

bool __wrap_qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill,
                          const void *data)
{
    bool kept = __real_qm_cache_fill(cache, fill, data);

    fills_ended += !pthread_equal(pthread_self(), reader);
    return kept;
}

/* Until the prefetch thread has filled the block in, and has left the shard for good:
 * after that it may yet free what is in limbo, under the shard's mutex.  Who hits
 * meanwhile and finds that taken, with its ring full, loses the next hit, and the order
 * of eviction is another. */
static void await_fill(void)
{
    fills_begun++;
    for (int i = 0; fills_ended != fills_begun; i++) {
        assert_true(i < 60000);
        if (i < 1000)
            sched_yield();
        else
            usleep(1000);
    }
}

/* What is only tried is given up when another thread has it: none may be there. */
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int error = __real_pthread_mutex_trylock(mutex);

    if (noting == &of_server && pthread_equal(pthread_self(), reader))
        assert_int_equal(error, 0);
    return error;
}

/* The budget's clock is how often it was asked: the threads' and the trace's differ. */
#define ASKED_NS UINT64_C(3000000)

static _Atomic uint64_t asked;
static _Atomic bool
    same_read; /* of the blocks that the server is made to read singly */

bool __real_qm_rate_take(struct qm_rate *rate, uint64_t now, bool dear);
bool __wrap_qm_rate_take(struct qm_rate *rate, uint64_t now, bool dear);
bool __real_qm_rate_read(struct qm_rate *rate, uint64_t now, unsigned promises);
bool __wrap_qm_rate_read(struct qm_rate *rate, uint64_t now, unsigned promises);

bool __wrap_qm_rate_take(struct qm_rate *rate, uint64_t now, bool dear)
{
    bool taken;

    if (!qm_rate_is_on(rate))
        return true;
    assert_true(now > 0);
    taken = __real_qm_rate_take(rate, ++asked * ASKED_NS, dear);
    note('t', 0, taken, dear, 0);
    return taken;
}

bool __wrap_qm_rate_read(struct qm_rate *rate, uint64_t now, unsigned promises)
{
    assert_true(now > 0);
    return same_read || __real_qm_rate_read(rate, asked * ASKED_NS, promises);
}

/* The prefetch thread fills a block in before the next one is issued. */
unsigned __wrap_qms_prefetch_issue(struct qms_prefetch *prefetch, uint64_t block,
                                   uint32_t count, unsigned client, uint32_t issuer)
{
    unsigned issued = 0;

    for (; count > 0; block++, count--) {
        if (__real_qms_prefetch_issue(prefetch, block, 1, client, issuer) == 0)
            continue;
        await_fill();
        issued++;
        same_read = true;
    }
    same_read = false;
    return issued;
}

void __wrap_qms_miner_push(struct qms_miner *miner, unsigned client,
                           struct qm_work *work, uint64_t bytes)
{
    struct qm_prefetcher *p = server.engine.prefetcher;

    assert_int_equal(p->ops->learn(p, work), 0);
}

/* ---- nbdkit, and the layer below */

static nbdkit_next below;
static char last_error[512];

/* nbdkit's, which finds them in the program that loads the filter. */
#pragma GCC diagnostic ignored "-Wredundant-decls"

void nbdkit_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
}

char *nbdkit_absolute_path(const char *path)
{
    return strdup(path);
}

int nbdkit_nanosleep(unsigned sec, unsigned nsec)
{
    const struct timespec time = {sec, nsec};

    nanosleep(&time, NULL);
    return 0;
}

nbdkit_next *nbdkit_next_context_open(nbdkit_backend *backend, int readonly,
                                      const char *exportname, int shared)
{
    return &below;
}

void nbdkit_next_context_close(nbdkit_next *next)
{
}

static int below_prepare(nbdkit_next *next)
{
    return 0;
}

static int64_t below_get_size(nbdkit_next *next)
{
    return (int64_t)DEVICE_SIZE;
}

static int below_block_size(nbdkit_next *next, uint32_t *minimum, uint32_t *preferred,
                            uint32_t *maximum)
{
    *minimum = *preferred = *maximum = 0;
    return 0;
}

static int below_pread(nbdkit_next *next, void *buf, uint32_t count, uint64_t offset,
                       uint32_t flags, int *err)
{
    memset(buf, (int)(offset / BLOCK), count);
    return 0;
}

/* ---- what both are told */

struct setup {
    const char *policy, *level;
    bool paper;
    const char *more[3][2]; /* key and value, as the server's */
    uint64_t blocks;
    unsigned seed;
};

static char trained[64];

static bool is_cminer(const struct setup *setup)
{
    return strncmp(setup->policy, "cminer", 6) == 0;
}

static void configure_server(const struct setup *setup)
{
    static const char *const all[] = {"preset",       "policy",     "level",
                                      "degree",       "retrain",    "prefetch-on",
                                      "trained",      "throttle",   "segment",
                                      "cache-blocks", "cache-size", "prefetch-rate"};
    static char blocks[24];

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        qms_config_set(all[i], NULL);
    snprintf(blocks, sizeof blocks, "%" PRIu64, setup->blocks);
    qms_config_set("cache-blocks", blocks);
    qms_config_set("block-size", "4096");
    qms_config_set("shards", "1");
    qms_config_set("prefetch-threads", "1");
    qms_config_set("admission", "off"); /* the simulator has no time to measure by */
    qms_config_set("policy", setup->policy);
    qms_config_set("level", setup->level);
    if (setup->paper)
        qms_config_set("preset", "paper");
    if (is_cminer(setup))
        qms_config_set("trained", trained);
    for (unsigned i = 0; i < 3 && setup->more[i][0]; i++)
        assert_int_equal(qms_config_set(setup->more[i][0], setup->more[i][1]), 0);
    memset(&server, 0, sizeof server);
    last_error[0] = '\0';
    if (qms_config_complete(&server.config) != 0)
        fail_msg("%s", last_error);
}

static void configure_sim(const struct setup *setup, struct qm_sim_config *config)
{
    (setup->paper ? qm_sim_paper : qm_sim_defaults)(config);
    config->block_size = BLOCK;
    config->cache_blocks = setup->blocks;
    config->params.policy = setup->policy;
    config->params.level = (enum qm_level)qm_level_parse(setup->level);
    config->params.admission = false;
    if (is_cminer(setup))
        config->params.mining.trained = trained;
    for (unsigned i = 0; i < 3 && setup->more[i][0]; i++) {
        const char *key = setup->more[i][0], *value = setup->more[i][1];

        if (strcmp(key, "degree") == 0)
            config->params.mining.degree = (unsigned)atoi(value);
        else if (strcmp(key, "retrain") == 0)
            config->params.mining.retrain = (uint64_t)atoi(value);
        else if (strcmp(key, "prefetch-on") == 0)
            config->params.on_prefetch_hit = strcmp(value, "promote") == 0;
        else if (strcmp(key, "throttle") == 0)
            config->params.throttle = strcmp(value, "on") == 0;
        else if (strcmp(key, "prefetch-rate") == 0)
            assert_true(qm_budget_parse(value, &config->params.budget));
        else
            fail_msg("%s", key);
    }
}

static void compare_params(const struct qm_params *s, const struct qm_params *t)
{
    const struct qm_mining_config *m = &s->mining, *n = &t->mining;

    assert_string_equal(s->policy, t->policy);
    assert_string_equal(s->eviction, t->eviction);
    assert_int_equal(s->level, t->level);
    assert_int_equal(s->on_prefetch_hit, t->on_prefetch_hit);
    assert_int_equal(s->throttle, t->throttle);
    assert_int_equal(s->admission, t->admission);
    assert_int_equal(s->share_adapts, t->share_adapts);
    assert_int_equal(s->prefetch_share, t->prefetch_share);
    assert_int_equal(s->budget.reads, t->budget.reads);
    assert_int_equal(s->budget.period, t->budget.period);
    assert_int_equal(m->lookahead, n->lookahead);
    assert_int_equal(m->max_prefix, n->max_prefix);
    assert_int_equal(m->max_suffix, n->max_suffix);
    assert_int_equal(m->grace, n->grace);
    assert_int_equal(m->degree, n->degree);
    assert_int_equal(m->segment, n->segment);
    assert_int_equal(m->skip_hits, n->skip_hits);
    assert_int_equal(m->rules_pool, n->rules_pool);
    assert_int_equal(m->rules_memory, n->rules_memory);
    assert_int_equal(m->block_size, n->block_size);
    assert_int_equal(m->purge_after, n->purge_after);
    assert_int_equal(m->retrain, n->retrain);
    assert_int_equal(m->ablate, n->ablate);
}

/* ---- each reads */

static struct qms_slot slots[SLOTS + 1];

static void server_event(const struct qm_event *event)
{
    static char buf[REQUEST_MAX * BLOCK];
    static struct qms_connection connection = {.cached = true, .size = DEVICE_SIZE};
    int err = 0;

    switch (event->type) {
    case QM_TRACE_BEGIN:
        assert_int_equal(
            qms_context_begin(&server.contexts, &slots[event->slot],
                              event->parent_slot ? &slots[event->parent_slot] : NULL,
                              event->kind,
                              qms_class_find(server.classes, event->kind,
                                             (uint64_t)event->klass[0], "", 0)),
            0);
        break;
    case QM_TRACE_END:
        qms_context_end(&server.contexts, &slots[event->slot]);
        break;
    default:
        assert_int_equal(qms_read(&server, &connection, &below,
                                  event->slot ? &slots[event->slot] : NULL, buf,
                                  (uint32_t)event->length, event->offset, &err),
                         0);
    }
}

/* Returns whether the throttle held a class back in the end. */
static bool run_server(void)
{
    bool throttled = false;
    uint32_t set;

    below = (nbdkit_next){.prepare = below_prepare,
                          .finalize = below_prepare,
                          .get_size = below_get_size,
                          .block_size = below_block_size,
                          .pread = below_pread};
    if (qms_server_ready(&server, NBDKIT_THREAD_MODEL_PARALLEL) != 0 ||
        qms_server_start(&server, NULL) != 0)
        fail_msg("%s", last_error);
    for (unsigned i = 0; i <= SLOTS; i++)
        qms_slot_init(&slots[i], QMS_CLIENT_NONE);
    reader = pthread_self();
    fills_begun = fills_ended = 0;
    noting = &of_server;
    for (size_t i = 0; i < event_count; i++)
        server_event(&events[i]);
    noting = NULL;
    for (uint32_t k = 0; server.engine.throttle && k < CLASSES + 2; k++)
        throttled |= qm_throttle_get(server.engine.throttle, k, &set) != QM_THROTTLE_ON;
    for (unsigned i = 0; i <= SLOTS; i++) {
        qms_context_end(&server.contexts, &slots[i]);
        qms_slot_destroy(&slots[i]);
    }
    return throttled;
}

static void run_sim(const struct setup *setup)
{
    struct qm_sim_config config;
    struct qm_sim *sim;
    char err[256];

    configure_sim(setup, &config);
    sim = qm_sim_new(&config, err, sizeof err);
    if (!sim)
        fail_msg("%s", err);
    compare_params(&server.config.params, &qm_sim_config(sim)->params);
    noting = &of_sim;
    for (size_t i = 0; i < event_count; i++)
        assert_int_equal(qm_sim_event(sim, &events[i]), 0);
    noting = NULL;
    qm_sim_free(sim);
}

/* Of what was compared since reset_seen(), in all. */
static const char whats[] = "dacpel";
#define WHATS (sizeof whats - 1)
static unsigned seen[WHATS];

static void reset_seen(void)
{
    memset(seen, 0, sizeof seen);
}

/* Else nothing was compared. */
static void check_seen(const char *policy)
{
    print_message("%s:", policy);
    for (unsigned i = 0; i < WHATS; i++)
        print_message(" %c %u", whats[i], seen[i]);
    print_message("\n");
    for (unsigned i = 0; i < WHATS && strcmp(policy, "none") != 0; i++)
        assert_true(seen[i] > 100 || whats[i] == 'l');
}

/* Returns whether the throttle had something to do. */
static bool compare(const struct setup *setup)
{
    bool throttled;

    level_none = strcmp(setup->level, "none") == 0;
    make_events(setup->seed);
    of_server.count = of_sim.count = 0;
    configure_server(setup);
    asked = 0;
    throttled = run_server();
    asked = 0;
    run_sim(setup);
    qms_server_stop(&server);
    qms_config_free(&server.config);
    compare_notes();
    for (unsigned i = 0; i < WHATS; i++)
        seen[i] += count_of(&of_server, whats[i]);
    return throttled;
}

/* ---- the tests */

static const char *const policies[] = {"ppm", "quickmine", "cminer",  "cminer+", "seq",
                                       "run", "amp",       "mithril", "none"};
#define POLICIES (sizeof policies / sizeof policies[0])

static void compare_all(const struct setup *of)
{
    static const char *const levels[] = {"innermost", "transaction", "none"};
    unsigned throttled = 0;

    for (size_t i = 0; i < POLICIES; i++) {
        reset_seen();
        for (unsigned k = 0; k < 3; k++)
            for (unsigned n = 0; n < 2; n++) {
                struct setup setup = *of;

                setup.policy = policies[i];
                setup.level = levels[k];
                setup.blocks = n == 0 ? 40 : 300;
                setup.seed = 100 + (unsigned)i * 10 + k * 2 + n;
                if (strcmp(setup.policy, "mithril") == 0) /* else it learns too late */
                    memcpy(setup.more[0], (const char *[]){"retrain", "200"},
                           sizeof setup.more[0]);
                throttled += compare(&setup);
            }
        check_seen(policies[i]);
    }
    assert_true(of->paper || throttled > 0);
}

TEST(test_defaults)
{
    compare_all(&(struct setup){.paper = false});
}

TEST(test_paper)
{
    compare_all(&(struct setup){.paper = true});
}

TEST(test_other_parameters)
{
    const struct setup some[] = {
        {.policy = "quickmine", .more = {{"degree", "9"}, {"prefetch-on", "miss"}}},
        {.policy = "ppm", .more = {{"throttle", "off"}}},
        {.policy = "ppm", .more = {{"prefetch-on", "miss"}}},
        {.policy = "mithril", .more = {{"retrain", "100"}}},
        {.policy = "cminer+", .more = {{"retrain", "500"}, {"degree", "2"}}},
        {.policy = "quickmine", .paper = true, .more = {{"prefetch-on", "promote"}}},
        {.policy = "seq", .paper = true, .more = {{"throttle", "on"}}},
    };

    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        for (unsigned seed = 1; seed <= 3; seed++) {
            struct setup setup = some[i];

            setup.level = seed == 3 ? "none" : "innermost";
            setup.blocks = 60 * seed;
            setup.seed = seed;
            compare(&setup);
        }
}

/* With a budget, which is asked for each run, and does not always have a read for it.
 */
TEST(test_budget)
{
    static const char *const some[] = {"ppm", "quickmine", "amp", "auto"};
    uint64_t refused = 0, taken = 0;

    for (size_t i = 0; i < 4; i++)
        for (unsigned seed = 1; seed <= 2; seed++) {
            compare(&(struct setup){.policy = some[i],
                                    .level = "innermost",
                                    .blocks = 60 * seed,
                                    .seed = seed,
                                    .more = {{"prefetch-rate", "100/s"}}});
            for (size_t k = 0; k < of_server.count; k++)
                if (of_server.notes[k].what == 't')
                    (*(of_server.notes[k].a ? &taken : &refused))++;
        }
    print_message("%" PRIu64 " taken, %" PRIu64 " refused\n", taken, refused);
    assert_true(taken > 100 && refused > 100);
}

/* A cache that is given as a size has as many blocks, and rules as much memory. */
TEST(test_sizes)
{
    static const char *const sizes[] = {"1M", "64M", "256M"};

    for (unsigned i = 0; i < 3; i++) {
        struct setup setup = {.policy = "ppm", .level = "innermost", .blocks = 1};
        struct qm_sim_config config;
        struct qm_sim_result result;
        struct qm_sim *sim;
        char err[256];

        configure_server(
            &(struct setup){.policy = "ppm", .level = "innermost", .blocks = 100});
        qms_config_set("cache-blocks", NULL);
        qms_config_set("cache-size", sizes[i]);
        qms_config_set("admission", NULL);
        assert_int_equal(qms_config_complete(&server.config), 0);
        configure_sim(&setup, &config);
        config.params.admission = true; /* the default */
        config.cache_blocks = 0;
        config.cache_size = (uint64_t)atoi(sizes[i]) << 20;
        sim = qm_sim_new(&config, err, sizeof err);
        assert_non_null(sim);
        compare_params(&server.config.params, &qm_sim_config(sim)->params);
        qm_sim_result(sim, &result);
        assert_int_equal(server.config.blocks, result.cache_blocks);
        assert_int_equal(server.config.prefetch_blocks, result.prefetch_blocks);
        qm_sim_free(sim);
    }
}

/* Rules of the scripts, for cminer. */
static int make_trained(void **unused)
{
    struct qm_cminer_info info = {.block_size = BLOCK};
    struct qm_cminer_db db = {0};
    struct qm_cminer_writer *writer;
    struct qm_cminer_counts counts;
    char err[256];
    int file;

    snprintf(trained, sizeof trained, "%s/quickmine.XXXXXX", P_tmpdir);
    file = mkstemp(trained);
    assert_int_not_equal(file, -1);
    close(file);
    qm_cminer_defaults(&info.config);
    for (unsigned seed = 100; seed < 200; seed++) {
        make_scripts(seed);
        for (unsigned i = 0; i < SCRIPTS; i++)
            assert_int_equal(qm_cminer_add(&db, scripts[i], LENGTH), 0);
    }
    assert_int_equal(qm_cminer_number(&db), 0);
    assert_int_equal(qm_cminer_write(trained, &info, &db, &writer, err, sizeof err), 0);
    assert_int_equal(
        qm_cminer_mine(&info.config, &db, qm_cminer_write_prefix, writer, &counts), 0);
    assert_int_equal(qm_cminer_write_end(writer, true, err, sizeof err), 0);
    qm_cminer_db_free(&db);
    return 0;
}

static int remove_trained(void **unused)
{
    unlink(trained);
    free(of_server.notes);
    free(of_sim.notes);
    return 0;
}

int main(void)
{
    return run_listed(make_trained, remove_trained);
}
