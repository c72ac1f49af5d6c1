/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-cminer.c - C-Miner* (Li et al., FAST'04 and ToS'05; ATC'08 §5.1, §6.2).
 *
 * cminer prefetches by rules that were mined off-line, and never learns.  cminer+ mines
 * again now and then, as the paper's C-Miner+ does every ten minutes of figure 9: after
 * retrain accesses the rules of what was read since the last time replace those in use.
 * Until the first time it has those of the file, or none.
 *
 * A stream of cminer+ hands out each segment as work when it is complete; learn() puts
 * them into the sequence database.  The call that completes what there is to be mined
 * takes the database away, so that others can fill the next one, mines it, and replaces
 * the rules.  Look-ups hold a lock that they share; only the replacement of the rules
 * waits for it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/baselines/cminer-file.h"
#include "mining/baselines/cminer-rules.h"
#include "mining/baselines/cminer.h"
#include "mining/core/parameters.h"
#include "mining/core/trimmed.h"
#include "mining/core/idle.h"
#include "mining/core/registry.h"
#include "mining/core/sequence.h"

/* The paper's ten minutes are not given in accesses.  Half a million take about a
 * second of mining. */
#define RETRAIN_DEFAULT UINT64_C(500000)
/* It shares the memory with a server. */
#define RETRAIN_MEMORY ((size_t)16 << 20)

struct cminer {
    struct qm_prefetcher base;
    unsigned degree;
    struct qm_cminer_config config;
    uint64_t retrain; /* accesses; 0: never */

    pthread_rwlock_t lock;         /* protects the next one, not what it points to */
    struct qm_cminer_rules *rules; /* NULL: none yet */

    pthread_mutex_t gathering; /* protects the next one */
    struct qm_cminer_db db;    /* since the last training began */
    pthread_mutex_t training;  /* held while mining: one at a time, in order */

    struct qm_trimmed forgotten;

    atomic_uint_least64_t sequences, failed, lookups, matches;
};

struct qm_stream {
    uint64_t last[2];           /* the last blocks read; immediate repeats count once */
    unsigned seen;              /* how many of them there are: 0, 1, 2 */
    struct qm_sequence segment; /* of cminer+: since the last whole one */
};

static struct cminer *of(struct qm_prefetcher *p)
{
    return (struct cminer *)p;
}

/* Reads config->trained, if any; with its rules come the parameters that they were
 * mined with. */
static int read_trained(struct cminer *c, const struct qm_mining_config *config,
                        char *err, size_t len)
{
    struct qm_cminer_info info;
    if (!config->trained) {
        err[0] = '\0';
        return 0;
    }
    int r = qm_cminer_read(config->trained, config->block_size, config->degree,
                           &c->rules, &info, err, len);
    if (r == 0) {
        c->config = info.config;
        c->config.memory = RETRAIN_MEMORY;
    }
    return r;
}

static int make(const struct qm_prefetcher_ops *ops, uint64_t retrain,
                const struct qm_mining_config *config, struct qm_prefetcher **p,
                char *err, size_t len)
{
    struct cminer *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    c->base.ops = ops;
    c->degree = config->degree;
    c->retrain = retrain;
    qm_cminer_defaults(&c->config);
    c->config.memory = RETRAIN_MEMORY;
    int r = read_trained(c, config, err, len);
    if (r != 0) {
        free(c);
        return r;
    }
    pthread_rwlock_init(&c->lock, NULL);
    qm_trimmed_init(&c->forgotten);
    pthread_mutex_init(&c->gathering, NULL);
    pthread_mutex_init(&c->training, NULL);
    *p = &c->base;
    return 0;
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    int r = qm_mining_check(config, err, len);
    if (r == 0 && !config->trained) {
        snprintf(
            err, len,
            "cminer needs a file of rules that were mined off-line (trained); make "
            "it with: quickmine mine --cminer TRACE -o FILE");
        return EINVAL;
    }
    return r != 0 ? r : make(&qm_prefetcher_cminer, 0, config, p, err, len);
}

static int create_plus(const struct qm_mining_config *config, struct qm_prefetcher **p,
                       char *err, size_t len)
{
    uint64_t retrain = config->retrain > 0 ? config->retrain : RETRAIN_DEFAULT;
    int r = qm_mining_check(config, err, len);
    return r != 0 ? r : make(&qm_prefetcher_cminer_plus, retrain, config, p, err, len);
}

static int destroy(struct qm_prefetcher *p)
{
    struct cminer *c = of(p);
    qm_cminer_rules_free(c->rules);
    qm_cminer_db_free(&c->db);
    pthread_mutex_destroy(&c->training);
    pthread_mutex_destroy(&c->gathering);
    pthread_rwlock_destroy(&c->lock);
    qm_trimmed_destroy(&c->forgotten);
    free(c);
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *stream = calloc(1, sizeof *stream);
    if (stream) {
        qm_sequence_init(&stream->segment);
    }
    return stream;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    struct cminer *c = of(p);
    *work = NULL;
    qm_trimmed_revive(&c->forgotten, block);
    if (stream->seen > 0 && stream->last[1] == block) {
        return;
    }
    stream->last[0] = stream->last[1];
    stream->last[1] = block;
    stream->seen += stream->seen < 2;
    if (c->retrain > 0) {
        qm_sequence_append(&stream->segment, block);
        if (qm_sequence_fresh(&stream->segment) >= c->config.segment) {
            *work = qm_sequence_take(&stream->segment);
        }
    }
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    struct cminer *c = of(p);
    uint64_t blocks[QM_CANDIDATES_MAX];
    bool found = false;
    unsigned n = 0;
    if (stream->seen == 0) {
        return 0;
    }
    atomic_fetch_add_explicit(&c->lookups, 1, memory_order_relaxed);
    pthread_rwlock_rdlock(&c->lock);
    if (c->rules) {
        n = qm_cminer_rules_lookup(c->rules, stream->last, stream->seen, blocks, max,
                                   &found);
    }
    pthread_rwlock_unlock(&c->lock);
    if (found) {
        atomic_fetch_add_explicit(&c->matches, 1, memory_order_relaxed);
    }
    for (unsigned i = 0; i < n; i++)
        out[i] = qm_candidate_of(blocks[i]);
    return qm_trimmed_filter(&c->forgotten, out, n);
}

static void end(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work)
{
    *work = qm_sequence_take(&stream->segment);
    free(stream);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_trimmed_add(&of(p)->forgotten, block, count);
}

static int add_prefix(void *opaque, const struct qm_cminer_prefix *prefix)
{
    return qm_cminer_rules_add(opaque, prefix);
}

/* Mines db and replaces the rules. */
static int train(struct cminer *c, struct qm_cminer_db *db)
{
    struct qm_cminer_counts counts;
    int r = qm_cminer_number(db);
    if (r != 0) {
        return r;
    }
    struct qm_cminer_rules *rules =
        qm_cminer_rules_new(db->blocks, db->distinct, c->degree);
    r = rules ? qm_cminer_mine(&c->config, db, add_prefix, rules, &counts) : ENOMEM;
    if (r != 0) {
        qm_cminer_rules_free(rules);
        return r;
    }
    qm_cminer_rules_finish(rules);
    pthread_rwlock_wrlock(&c->lock);
    struct qm_cminer_rules *old = c->rules;
    c->rules = rules;
    pthread_rwlock_unlock(&c->lock);
    qm_cminer_rules_free(old);
    return 0;
}

static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    struct cminer *c = of(p);
    struct qm_cminer_db db = {0};
    pthread_mutex_lock(&c->gathering);
    int r = qm_cminer_add(&c->db, work->blocks, work->n);
    bool due = r == 0 && c->db.n >= c->retrain;
    if (due) {
        db = c->db;
        c->db = (struct qm_cminer_db){0};
        /* Before another thread can take the next one. */
        pthread_mutex_lock(&c->training);
    }
    pthread_mutex_unlock(&c->gathering);
    free(work);
    if (due) {
        r = train(c, &db);
        pthread_mutex_unlock(&c->training);
        qm_cminer_db_free(&db);
    }
    atomic_fetch_add(r == 0 ? &c->sequences : &c->failed, 1);
    return r;
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    free(work);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *stats_out)
{
    struct cminer *c = of(p);
    struct qm_cminer_rules_size size = {0};
    pthread_rwlock_rdlock(&c->lock);
    if (c->rules) {
        qm_cminer_rules_size(c->rules, &size);
    }
    pthread_rwlock_unlock(&c->lock);
    *stats_out = (struct qm_mining_stats){
        .rules = size.rules,
        .prefixes = size.prefixes,
        .rules_bytes = size.bytes,
        .sequences = atomic_load(&c->sequences),
        .lookups = atomic_load(&c->lookups),
        .matches = atomic_load(&c->matches),
        .failed = atomic_load(&c->failed),
    };
}

/* rules() is NULL: struct qm_rule has no room for a rule a -> c. */
const struct qm_prefetcher_ops qm_prefetcher_cminer = {
    .name = "cminer",
    .summary = "frequent sequences mined off-line (C-Miner*, FAST'04)",
    .flags = QM_BLOCK_BY_BLOCK,
    .parameters = QM_HEEDS(QM_DEGREE) | QM_HEEDS(QM_TRAINED),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .forget = forget,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};

const struct qm_prefetcher_ops qm_prefetcher_cminer_plus = {
    .name = "cminer+",
    .summary = "C-Miner*, mined again periodically",
    .flags = QM_BLOCK_BY_BLOCK,
    .parameters = QM_HEEDS(QM_DEGREE) | QM_HEEDS(QM_TRAINED) | QM_HEEDS(QM_RETRAIN),
    .create = create_plus,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = learn,
    .discard = discard,
    .forget = forget,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};
