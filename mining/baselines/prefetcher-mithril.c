/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-mithril.c - MITHRIL, which mines sporadic associations (Yang et al.,
 * SoCC'17).
 *
 * It looks for blocks that are read now and then, and then close to each other: neither
 * those that are read once nor those that are read all the time, which the cache keeps
 * anyway.  All it goes by is when a block was missed.
 *
 * - Time is logical: each access of the device, of whatever context, is a tick.
 * - Recording table: each missed block with the times of its misses.  When a block has
 *   been missed min_support times, its row moves to the mining table.  It is a ring: a
 *   new block takes the place of the oldest.
 * - Mining table: such blocks with up to max_support times.  One that is missed more
 *   often is too frequent, and its row is dropped.
 * - When the mining table is full, it is mined, and recording goes on with an empty
 * one. Its rows are sorted by their first times.  Two blocks are associated weakly if
 * they have equally many times, and each time of one is at most the lookahead range
 * from the same time of the other; strongly if one of these distances is 1 as well.  A
 * row is associated to those behind it: all strong ones, and the nearest if it is weak.
 * - Prefetching table: a block with the last few that it was associated to, first in,
 *   first out.  After each access, hit or not, the blocks in the row of the block that
 *   was read are prefetched.
 *
 * Parameters are the defaults of its authors' implementation in libCacheSim: a
 * lookahead range of 20, supports from 2 to 8, 2 blocks a row, a mining table of 5120 /
 * min_support rows, recording of misses only.  That one also has a tolerance
 * ("confidence", by default 1) by which one time more or less and one distance above
 * the range do not matter; with a min_support of 2 that would be half of the evidence,
 * so here, as in the paper's definition, there is none.  Its tables are sized by
 * the cache, which is not known here: the recording table has 65,536 rows, and the
 * prefetching table max_prefix, at most 2^24, or 262,144 if that is 0; then the row
 * made first goes.  Nor is there a second chance for prefetched blocks that leave the
 * cache unused: what leaves is the cache's to decide.  The degree is a limit, too.
 *
 * It knows no contexts: which level it runs at only matters in that reads which belong
 * to no context are not seen but at level none, which is what its authors had.
 *
 * Threads.  Two locks, never both: one for recording, taken on a miss, the other for
 * the prefetching table, taken for a look-up.  What is done with them held is short: a
 * full mining table changes hands as a whole, and learn() takes the second for a row at
 * a time.  There are two mining tables.  If one fills while the other is with learn(),
 * it takes no more blocks until that is back.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "mining/baselines/block-index.h"
#include "mining/core/parameters.h"
#include "mining/core/trimmed.h"
#include "mining/core/idle.h"
#include "mining/core/registry.h"

#define LOOKAHEAD   20 /* ticks */
#define MIN_SUPPORT 2
#define MAX_SUPPORT 8
#define LIST        2 /* blocks in a row of the prefetching table */
#define RECORD_ROWS 65536
#define MINING_ROWS (5120 / MIN_SUPPORT)
#define PERIOD      16384 /* ticks */
#define RULES_ROWS  262144
#define RULES_MAX   (UINT32_C(1) << 24)

struct record {
    uint64_t block;
    uint64_t times[MIN_SUPPORT - 1];
    uint32_t n; /* times; 0: the row is free */
};

struct sporadic {
    uint64_t block;
    uint64_t times[MAX_SUPPORT];
    uint32_t n; /* times */
};

/* A mining table. */
struct qm_work {
    struct qm_block_index index;
    uint32_t n; /* rows */
    struct sporadic rows[MINING_ROWS];
};

/* A row of the prefetching table. */
struct rule {
    uint64_t block;
    uint64_t list[LIST]; /* the newest last */
    uint32_t n;
};

struct qm_stream {
    bool any;
    uint64_t last; /* the block read last, if any */
};

struct mithril {
    struct qm_prefetcher base;
    unsigned degree;
    uint64_t period; /* in which a table is mined at the latest */
    atomic_uint_least64_t now;

    pthread_mutex_t recording; /* guards: */
    struct record *records;
    struct qm_block_index record_index;
    uint32_t next_record;   /* the row that the next new block takes */
    uint64_t mined;         /* when recording began to fill mining */
    struct qm_work *mining; /* being filled */
    struct qm_work *spare;  /* an empty one; NULL: it is with learn() */

    pthread_mutex_t looking_up; /* guards: */
    struct rule *rules;
    uint32_t max_rules;
    struct qm_block_index rule_index;
    uint32_t n_rules;   /* rows that are in use */
    uint32_t next_rule; /* the row that goes when all are */
    struct qm_mining_stats stats;

    struct qm_trimmed forgotten;
    size_t tables_bytes; /* of all tables but rules */
};

static struct mithril *of(struct qm_prefetcher *p)
{
    return (struct mithril *)p;
}

static void free_table(struct qm_work *table)
{
    if (table) {
        qm_block_index_fini(&table->index);
        free(table);
    }
}

static struct qm_work *make_table(uint64_t seed)
{
    struct qm_work *table = calloc(1, sizeof *table);

    if (table && qm_block_index_init(&table->index, table->rows, sizeof table->rows[0],
                                     MINING_ROWS, seed) != 0) {
        free(table);
        table = NULL;
    }
    return table;
}

static int destroy(struct qm_prefetcher *p)
{
    struct mithril *m = of(p);

    free_table(m->mining);
    free_table(m->spare);
    qm_block_index_fini(&m->record_index);
    qm_block_index_fini(&m->rule_index);
    free(m->records);
    free(m->rules);
    pthread_mutex_destroy(&m->recording);
    pthread_mutex_destroy(&m->looking_up);
    qm_trimmed_destroy(&m->forgotten);
    free(m);
    return 0;
}

static int make_tables(struct mithril *m)
{
    uint64_t seed = 0;

    (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    m->records = calloc(RECORD_ROWS, sizeof *m->records);
    m->rules = calloc(m->max_rules, sizeof *m->rules);
    m->mining = make_table(seed);
    m->spare = make_table(seed);
    if (!m->records || !m->rules || !m->mining || !m->spare ||
        qm_block_index_init(&m->record_index, m->records, sizeof *m->records,
                            RECORD_ROWS, seed) != 0 ||
        qm_block_index_init(&m->rule_index, m->rules, sizeof *m->rules, m->max_rules,
                            seed) != 0) {
        return ENOMEM;
    }
    m->tables_bytes = RECORD_ROWS * sizeof *m->records + 2 * sizeof *m->mining +
                      2 * qm_block_index_bytes(&m->mining->index) +
                      qm_block_index_bytes(&m->record_index) +
                      qm_block_index_bytes(&m->rule_index);
    return 0;
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    int r = qm_mining_check(config, err, len);
    if (r != 0) {
        return r;
    }
    struct mithril *m = calloc(1, sizeof *m);
    if (!m) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    m->base.ops = &qm_prefetcher_mithril;
    m->degree = config->degree < LIST ? config->degree : LIST;
    m->period = config->retrain > 0 ? config->retrain : PERIOD;
    m->max_rules = config->max_prefix == 0          ? RULES_ROWS
                   : config->max_prefix < RULES_MAX ? (uint32_t)config->max_prefix
                                                    : RULES_MAX;
    pthread_mutex_init(&m->recording, NULL);
    pthread_mutex_init(&m->looking_up, NULL);
    qm_trimmed_init(&m->forgotten);
    r = make_tables(m);
    if (r != 0) {
        snprintf(err, len, "%s", strerror(r));
        destroy(&m->base);
        return r;
    }
    *p = &m->base;
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return calloc(1, sizeof(struct qm_stream));
}

/* A block that is in the mining table was missed once more. */
static void add_time(struct qm_work *table, uint32_t row, uint64_t now)
{
    struct sporadic *s = &table->rows[row];

    if (s->n < MAX_SUPPORT) {
        s->times[s->n++] = now;
        return;
    }
    qm_block_index_remove(&table->index, row);
    if (row != --table->n) {
        qm_block_index_remove(&table->index, table->n);
        *s = table->rows[table->n];
        qm_block_index_insert(&table->index, row);
    }
}

/* A block that has been recorded was missed once more. */
static void support(struct mithril *m, uint32_t row, uint64_t now)
{
    struct record *record = &m->records[row];
    struct qm_work *table = m->mining;
    struct sporadic *s;

    if (record->n < MIN_SUPPORT - 1) {
        record->times[record->n++] = now;
    } else if (table->n < MINING_ROWS) {
        s = &table->rows[table->n];
        s->block = record->block;
        memcpy(s->times, record->times, sizeof record->times);
        s->times[MIN_SUPPORT - 1] = now;
        s->n = MIN_SUPPORT;
        qm_block_index_insert(&table->index, table->n++);
        qm_block_index_remove(&m->record_index, row);
        record->n = 0;
    }
}

static void record_first(struct mithril *m, uint64_t block, uint64_t now)
{
    struct record *record = &m->records[m->next_record];

    if (record->n > 0) {
        qm_block_index_remove(&m->record_index, m->next_record);
    }
    *record = (struct record){.block = block, .times = {now}, .n = 1};
    qm_block_index_insert(&m->record_index, m->next_record);
    m->next_record = (m->next_record + 1) % RECORD_ROWS;
}

/* Block was missed; the lock is held. */
static void record_miss(struct mithril *m, uint64_t block, uint64_t now)
{
    uint32_t row = qm_block_index_find(&m->mining->index, block);

    if (row != QM_NO_ROW) {
        add_time(m->mining, row, now);
        return;
    }
    row = qm_block_index_find(&m->record_index, block);
    if (row != QM_NO_ROW) {
        support(m, row, now);
    } else {
        record_first(m, block, now);
    }
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    struct mithril *m = of(p);
    uint64_t now = atomic_fetch_add_explicit(&m->now, 1, memory_order_relaxed);

    *work = NULL;
    s->any = true;
    s->last = block;
    qm_trimmed_revive(&m->forgotten, block);
    if (outcome != QM_ACCESS_MISS) {
        return;
    }
    pthread_mutex_lock(&m->recording);
    record_miss(m, block, now);
    if (m->spare && (m->mining->n == MINING_ROWS || now - m->mined >= m->period)) {
        m->mined = now;
        *work = m->mining;
        m->mining = m->spare;
        m->spare = NULL;
    }
    pthread_mutex_unlock(&m->recording);
}

static void set_degree(struct qm_prefetcher *p, unsigned degree)
{
    of(p)->degree = degree < LIST ? degree : LIST;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    struct mithril *m = of(p);
    unsigned n = 0;
    uint32_t row;

    if (!s->any) {
        return 0;
    }
    pthread_mutex_lock(&m->looking_up);
    m->stats.lookups++;
    row = qm_block_index_find(&m->rule_index, s->last);
    if (row != QM_NO_ROW) {
        const struct rule *rule = &m->rules[row];

        m->stats.matches++;
        while (n < rule->n && n < m->degree && n < max) {
            out[n] = qm_candidate_of(rule->list[rule->n - 1 - n]);
            n++;
        }
    }
    pthread_mutex_unlock(&m->looking_up);
    return qm_trimmed_filter(&m->forgotten, out, n);
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    *work = NULL;
    free(s);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_trimmed_add(&of(p)->forgotten, block, count);
}

static int by_first_time(const void *one, const void *other)
{
    const struct sporadic *a = one, *b = other;

    return (a->times[0] > b->times[0]) - (a->times[0] < b->times[0]);
}

enum association { NONE, WEAK, STRONG };

static enum association associated(const struct sporadic *a, const struct sporadic *b)
{
    enum association result = WEAK;

    if (a->n != b->n) {
        return NONE;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t apart = a->times[i] < b->times[i] ? b->times[i] - a->times[i]
                                                   : a->times[i] - b->times[i];

        if (apart > LOOKAHEAD) {
            return NONE;
        }
        if (apart == 1) {
            result = STRONG;
        }
    }
    return result;
}

/* The row of block in the prefetching table, which it gets if it had none; the lock is
 * held. */
static struct rule *rule_of(struct mithril *m, uint64_t block)
{
    uint32_t row = qm_block_index_find(&m->rule_index, block);

    if (row != QM_NO_ROW) {
        return &m->rules[row];
    }
    if (m->n_rules < m->max_rules) {
        row = m->n_rules++;
    } else {
        row = m->next_rule;
        m->next_rule = (m->next_rule + 1) % m->max_rules;
        qm_block_index_remove(&m->rule_index, row);
        m->stats.rules -= m->rules[row].n;
        m->stats.evicted++;
    }
    m->rules[row] = (struct rule){.block = block};
    qm_block_index_insert(&m->rule_index, row);
    return &m->rules[row];
}

/* Block is associated to next; the lock is held. */
static void associate(struct mithril *m, uint64_t block, uint64_t next)
{
    struct rule *rule = rule_of(m, block);

    m->stats.updates++;
    for (uint32_t i = 0; i < rule->n; i++) {
        if (rule->list[i] == next) {
            return;
        }
    }
    if (rule->n == LIST) {
        memmove(&rule->list[0], &rule->list[1], (LIST - 1) * sizeof rule->list[0]);
    } else {
        rule->n++;
        m->stats.rules++;
    }
    rule->list[rule->n - 1] = next;
}

/* Associates row i to those behind it. */
static void mine_row(struct mithril *m, const struct qm_work *table, uint32_t i)
{
    const struct sporadic *a = &table->rows[i];
    bool nearest = true;

    pthread_mutex_lock(&m->looking_up);
    for (uint32_t j = i + 1; j < table->n; j++) {
        const struct sporadic *b = &table->rows[j];
        enum association found;

        if (b->times[0] - a->times[0] > LOOKAHEAD) {
            break;
        }
        found = associated(a, b);
        if (found == STRONG || (found == WEAK && nearest)) {
            associate(m, a->block, b->block);
        }
        nearest = nearest && found == NONE;
    }
    pthread_mutex_unlock(&m->looking_up);
}

static void give_back(struct mithril *m, struct qm_work *table)
{
    table->n = 0;
    qm_block_index_clear(&table->index);
    pthread_mutex_lock(&m->recording);
    m->spare = table;
    pthread_mutex_unlock(&m->recording);
}

static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    struct mithril *m = of(p);

    qsort(work->rows, work->n, sizeof work->rows[0], by_first_time);
    for (uint32_t i = 0; i < work->n; i++) {
        mine_row(m, work, i);
    }
    give_back(m, work);
    pthread_mutex_lock(&m->looking_up);
    m->stats.sequences++;
    pthread_mutex_unlock(&m->looking_up);
    return 0;
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    give_back(of(p), work);
}

/* rules_bytes is all that there is: the tables of recording and mining as well, and as
 * much of the prefetching table as is in use. */
static void stats(struct qm_prefetcher *p, struct qm_mining_stats *stats_out)
{
    struct mithril *m = of(p);

    pthread_mutex_lock(&m->looking_up);
    *stats_out = m->stats;
    stats_out->prefixes = m->n_rules;
    stats_out->rules_bytes = m->tables_bytes + m->n_rules * sizeof *m->rules;
    pthread_mutex_unlock(&m->looking_up);
}

const struct qm_prefetcher_ops qm_prefetcher_mithril = {
    .name = "mithril",
    .summary = "sporadic associations of blocks, of all reads together (SoCC'17)",
    .flags = QM_ASK_ALWAYS | QM_BLOCK_BY_BLOCK,
    .parameters = QM_HEEDS(QM_DEGREE) | QM_HEEDS(QM_MAX_PREFIX) | QM_HEEDS(QM_RETRAIN),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .set_degree = set_degree,
    .end = end,
    .learn = learn,
    .discard = discard,
    .forget = forget,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};
