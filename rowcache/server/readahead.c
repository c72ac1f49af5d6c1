/* SPDX-License-Identifier: BSD-3-Clause */
/* readahead.c - read-ahead: the decisions of readahead/seer.h and readahead/auto.h,
 * carried out by the pool of fill.h.
 *
 * Rows that were read ahead go to the rows at once: seer's Pre-Cache is empty all the
 * time.  They are remembered until they are read, change or are too many, which tells
 * what was used from what was wasted; auto does that by itself.
 *
 * The reads come from the loop's thread, changes from the follower's, what was read
 * ahead from the pool's: all is under one lock.  It is taken before those of the pool
 * and of the rows, never after. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/readahead/cpu.h"
#include "rowcache/readahead/items.h"
#include "rowcache/readahead/miner.h"
#include "rowcache/server/server.h"

enum {
    TABLES = 1024,
    REMEMBERED = 65536,
    GIVEN = 4,
    RETRY_MS = 100,
    LIFE_MS = 600000, /* of a row that auto has read */
    SHOWN = 64        /* tables in INFO */
};

const char *const readahead_presets[] = {"off", "seer", "auto", NULL};

struct table {
    UT_hash_handle hh;
    uint32_t id;
    char schema[QM_NAME_LENGTH + 1], table[QM_NAME_LENGTH + 1];
    char key[2 * QM_NAME_LENGTH + 2]; /* schema.table */
    bool known, asked;
    uint64_t changes;  /* of its definition */
    uint64_t retry_at; /* ms */
    struct qm_fill_table info;
};

struct readahead {
    struct server *server;
    pthread_mutex_t lock;
    enum readahead_preset preset;
    unsigned rules, given;
    struct qm_seer *seer;
    struct qm_items *ahead; /* by seer, and not yet read: by which rule */
    struct qm_auto *learner;
    struct qm_miner *miner;
    struct table *tables, *by_id[TABLES];
    unsigned count;
    /* The row whose read is being told. */
    struct qm_item current;
    const char *row;
    size_t row_length;
    struct event *second; /* for the gates */
    struct qm_cpu cpu;
    struct readahead_stats stats;
};

struct job {
    struct qm_fill_ahead fill; /* first */
    struct readahead *ra;
    struct table *table;
    uint64_t changes;
    enum readahead_preset preset;
    union {
        struct qm_seer_request seer;
        struct qm_auto_request learner;
    } request;
    struct qm_fill_table info;
};

static void give(struct readahead *ra);

/* Under the lock, so that it never goes back for seer. */
static uint64_t clock_ms(void)
{
    return qm_rows_now() / 1000000;
}

static unsigned index_of(enum qm_seer_rule rule)
{
    return rule == QM_SEER_SA ? 0 : rule == QM_SEER_TA ? 1 : 2;
}

/* --- tables --- */

static struct table *find_table(struct readahead *ra, const char *key, size_t length)
{
    struct table *t;

    HASH_FIND(hh, ra->tables, key, length, t);
    return t;
}

/* NULL: there are too many, or it is no name. */
static struct table *get_table(struct readahead *ra, const char *key, size_t length)
{
    struct table *t = find_table(ra, key, length);
    const char *dot = memchr(key, '.', length);

    if (t || !dot || ra->count == TABLES || length >= sizeof t->key ||
        (size_t)(dot - key) > QM_NAME_LENGTH ||
        length - (size_t)(dot + 1 - key) > QM_NAME_LENGTH)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->id = ra->count;
    memcpy(t->key, key, length);
    memcpy(t->schema, key, (size_t)(dot - key));
    memcpy(t->table, dot + 1, length - (size_t)(dot + 1 - key));
    ra->by_id[ra->count++] = t;
    HASH_ADD_KEYPTR(hh, ra->tables, t->key, length, t);
    return t;
}

static struct job *new_job(struct readahead *ra, struct table *t,
                           void (*done)(struct qm_fill_ahead *fill))
{
    struct job *job = calloc(1, sizeof *job);

    if (!job)
        return NULL;
    job->ra = ra;
    job->table = t;
    job->changes = t->changes;
    memcpy(job->fill.schema, t->schema, sizeof t->schema);
    memcpy(job->fill.table, t->table, sizeof t->table);
    job->fill.done = done;
    return job;
}

static void described(struct qm_fill_ahead *fill)
{
    struct job *job = (struct job *)fill;
    struct table *t = job->table;

    pthread_mutex_lock(&job->ra->lock);
    t->asked = false;
    if (!fill->failed && job->changes == t->changes) {
        t->known = true;
        t->info = job->info;
    }
    pthread_mutex_unlock(&job->ra->lock);
    free(job);
}

static void ask_of_table(struct readahead *ra, struct table *t, uint64_t ms)
{
    struct job *job;

    if (t->asked || ms < t->retry_at)
        return;
    t->retry_at = ms + RETRY_MS;
    job = new_job(ra, t, described);
    if (!job)
        return;
    job->fill.describe = &job->info;
    t->asked = true;
    if (qm_fill_give_ahead(ra->server->fill, &job->fill))
        return;
    t->asked = false;
    free(job);
}

/* --- what the rules ask of a row --- */

/* As it is printed: no zeros before it, no other sign than -. */
static bool read_integer(const char *text, size_t length, int64_t *value)
{
    bool negative = length > 0 && *text == '-';
    int64_t v = 0;

    text += negative;
    length -= negative;
    if (length == 0 || (*text == '0' && (length > 1 || negative)))
        return false;
    for (size_t i = 0; i < length; i++) {
        int digit = text[i] - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return false;
    }
    *value = v;
    return true;
}

static void add_foreign(struct readahead *ra, const struct qm_fill_foreign *f,
                        const struct qm_member *m, struct qm_seer_row *row)
{
    struct qm_item *to = &row->foreign[row->foreign_count];
    char key[2 * QM_NAME_LENGTH + 2];
    struct table *t;
    int n = snprintf(key, sizeof key, "%s.%s", f->schema, f->table);

    /* A key of such a table would be taken for one of another. */
    if (strpbrk(f->schema, ".:") || strpbrk(f->table, ".:"))
        return;
    if (m->null || !read_integer(m->value.bytes, m->value.length, &to->row))
        return;
    t = get_table(ra, key, (size_t)n);
    if (!t)
        return;
    to->table = t->id;
    row->foreign_count++;
}

static void find_foreign(struct readahead *ra, const struct table *t, const char *text,
                         size_t length, struct qm_seer_row *row)
{
    struct qm_member m = {0};
    const char *at = text;

    while (qm_json_next(&at, text + length, &m) == 1)
        for (unsigned i = 0; i < t->info.foreign_count; i++) {
            const struct qm_fill_foreign *f = &t->info.foreign[i];

            if (row->foreign_count < QM_SEER_FOREIGN &&
                strlen(f->column) == m.name.length &&
                memcmp(f->column, m.name.bytes, m.name.length) == 0)
                add_foreign(ra, f, &m, row);
        }
    qm_member_free(&m);
}

/* qm_seer_calls.describe */
static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    struct readahead *ra = opaque;
    const struct table *t = ra->by_id[item.table];
    struct qm_reader reader = {0};
    char key[2 * QM_NAME_LENGTH + 26];
    const char *text;
    size_t length;
    void *value;
    int n;

    if (!t->known || t->info.last < t->info.first)
        return false;
    *row = (struct qm_seer_row){.first = t->info.first, .last = t->info.last};
    if (t->info.foreign_count == 0)
        return true;
    if (ra->row && item.table == ra->current.table && item.row == ra->current.row) {
        find_foreign(ra, t, ra->row, ra->row_length, row);
        return true;
    }
    n = snprintf(key, sizeof key, "%s:%" PRId64, t->key, item.row);
    if (qm_rows_get(ra->server->rows, &reader, qm_rows_now(), key, (size_t)n, &value,
                    &text, &length) == QM_ROWS_NONE)
        return true;
    find_foreign(ra, t, text, length, row);
    free(value);
    return true;
}

/* --- rows that were read ahead --- */

static void waste(struct readahead *ra, struct qm_item item)
{
    const uint64_t *rule = qm_items_find(ra->ahead, item);

    if (!rule)
        return;
    ra->stats.wasted[*rule]++;
    qm_items_remove(ra->ahead, item);
}

/* Those of a table; NULL: all. */
static void waste_table(struct readahead *ra, const struct table *t)
{
    struct qm_item item;
    uint64_t rule;
    size_t at = 0;

    while (qm_items_each(ra->ahead, &at, &item, &rule))
        if (!t || item.table == t->id)
            waste(ra, item);
}

static void remember(struct readahead *ra, struct qm_item item, unsigned rule)
{
    struct qm_item oldest;
    uint64_t of;

    waste(ra, item); /* it was there before, and is there no more */
    if (qm_items_count(ra->ahead) >= REMEMBERED &&
        qm_items_oldest(ra->ahead, &oldest, &of))
        waste(ra, oldest);
    *qm_items_add(ra->ahead, item) = rule;
}

static void seer_fetched(struct readahead *ra, const struct qm_seer_request *request,
                         const struct qm_fill_ahead *fill)
{
    unsigned rule = index_of(request->rule);
    struct qm_item pushed;

    ra->stats.fetched[rule] += fill->got;
    for (unsigned i = fill->kept;
         ra->preset == READAHEAD_SEER && i < fill->kept + fill->got; i++)
        remember(ra, (struct qm_item){request->table, fill->there[i]}, rule);
    qm_seer_fetched(ra->seer, request, fill->there, fill->kept + fill->got);
    while (qm_seer_push(ra->seer, &pushed))
        ;
}

static void fetched(struct qm_fill_ahead *fill)
{
    struct job *job = (struct job *)fill;
    struct readahead *ra = job->ra;

    pthread_mutex_lock(&ra->lock);
    ra->given--;
    ra->stats.failed += fill->failed;
    ra->stats.kept += fill->kept;
    if (job->preset == READAHEAD_SEER)
        seer_fetched(ra, &job->request.seer, fill);
    else /* what came after it was switched off is not remembered */
        qm_auto_fetched(ra->learner, clock_ms(), &job->request.learner,
                        fill->there + fill->kept,
                        ra->preset == READAHEAD_AUTO ? fill->got : 0, fill->us);
    give(ra);
    pthread_mutex_unlock(&ra->lock);
    free(job);
}

static bool give_job(struct readahead *ra, struct job *job)
{
    if (qm_fill_give_ahead(ra->server->fill, &job->fill)) {
        ra->given++;
        return true;
    }
    free(job);
    return false;
}

static bool give_seer(struct readahead *ra, const struct qm_seer_request *request)
{
    struct job *job = ra->preset == READAHEAD_SEER
                          ? new_job(ra, ra->by_id[request->table], fetched)
                          : NULL;

    if (!job)
        return false;
    job->preset = READAHEAD_SEER;
    job->request.seer = *request;
    job->fill.count = request->count;
    for (unsigned i = 0; i < request->count; i++) {
        job->fill.row[i] = request->row[i];
        job->fill.source[i] = (uint8_t)(index_of(request->rule) + 1);
        job->fill.life_ms[i] =
            qm_seer_life(ra->seer, (struct qm_item){request->table, request->row[i]});
    }
    return give_job(ra, job);
}

static bool give_auto(struct readahead *ra, const struct qm_auto_request *request)
{
    const struct qm_rule_yield *yield = qm_auto_yield(ra->learner);
    struct job *job = ra->preset == READAHEAD_AUTO
                          ? new_job(ra, ra->by_id[request->table], fetched)
                          : NULL;

    if (!job)
        return false;
    job->preset = READAHEAD_AUTO;
    job->request.learner = *request;
    job->fill.count = request->count;
    for (unsigned i = 0; i < request->count; i++) {
        job->fill.row[i] = request->row[i];
        job->fill.source[i] =
            (uint8_t)(qm_rule_yield_get(yield, request->arm[i])->rule + 1);
        job->fill.life_ms[i] = LIFE_MS;
    }
    return give_job(ra, job);
}

/* A few at a time; those that the pool has no time for are dropped. */
static void give(struct readahead *ra)
{
    struct qm_seer_request seer;
    struct qm_auto_request learner;

    while (ra->given < GIVEN && qm_seer_next(ra->seer, &seer))
        if (!give_seer(ra, &seer)) {
            ra->stats.dropped += seer.count;
            qm_seer_fetched(ra->seer, &seer, NULL, 0);
        }
    while (ra->given < GIVEN && qm_auto_next(ra->learner, &learner))
        if (!give_auto(ra, &learner)) {
            ra->stats.dropped += learner.count;
            qm_auto_fetched(ra->learner, clock_ms(), &learner, NULL, 0, 0);
        }
}

/* --- what it is told --- */

/* The key's table and row; false: it is not one of a table with one integer. */
static bool take_apart(const char *key, size_t length, size_t *table, int64_t *row)
{
    const char *colon = memchr(key, ':', length);

    if (!colon)
        return false;
    *table = (size_t)(colon - key);
    return read_integer(colon + 1, length - *table - 1, row);
}

static void tell_seer(struct readahead *ra, struct qm_item item, uint64_t ms, bool hit)
{
    const uint64_t *rule = qm_items_find(ra->ahead, item);

    if (rule && hit) {
        ra->stats.used[*rule]++;
        qm_items_remove(ra->ahead, item);
    } else if (rule) {
        waste(ra, item);
    }
    qm_seer_read(ra->seer, ms, item, hit);
}

/* qm_auto_calls.ended */
static void ended(void *opaque, struct qm_item item, bool used)
{
    const struct readahead *ra = opaque;

    qm_miner_ended(ra->miner, item, used);
}

/* How probable the use of a mined row must be, so that it may earn its price: several
 * come by one SELECT. */
static double least_probability(const struct readahead *ra)
{
    return qm_rule_yield_price(qm_auto_yield(ra->learner)) / 2;
}

static void tell_auto(struct readahead *ra, uint64_t client, struct qm_item item,
                      uint64_t ms, bool hit, double us)
{
    static const enum qm_miner_outcome outcomes[] = {
        [QM_AUTO_MISS] = QM_MINER_MISS,
        [QM_AUTO_AHEAD] = QM_MINER_AHEAD,
        [QM_AUTO_HIT] = QM_MINER_HIT,
    };
    struct qm_item predicted[QM_MINER_PREDICTED];
    struct qm_fill_stats fill;
    enum qm_auto_read read;
    unsigned n;

    if (!hit) {
        qm_fill_get_stats(ra->server->fill, &fill);
        qm_auto_busy(ra->learner,
                     (double)fill.busy / (double)ra->server->config->connections);
    }
    read = qm_auto_read(ra->learner, ms, item, hit, us);
    if (!(ra->rules >> QM_AUTO_MINED & 1))
        return;
    n = qm_miner_read(ra->miner, client, item, outcomes[read], least_probability(ra),
                      predicted);
    for (unsigned i = 0; i < n; i++)
        qm_auto_predicted(ra->learner, ms, predicted[i]);
}

void readahead_read(struct client *c, const char *key, size_t length, const char *row,
                    size_t row_length, bool hit, uint64_t since)
{
    struct server *s = c->server;
    struct readahead *ra = s->readahead;
    uint64_t ms;
    struct qm_item item;
    struct table *t;
    size_t table;

    if (ra->preset == READAHEAD_OFF || !take_apart(key, length, &table, &item.row))
        return;
    /* Most hits: then auto has nothing to learn, and takes no lock. */
    if (hit && ra->preset == READAHEAD_AUTO &&
        !qm_auto_may_be_ahead(ra->learner, item.row))
        return;
    pthread_mutex_lock(&ra->lock);
    ms = clock_ms();
    t = get_table(ra, key, table);
    if (t && !t->known) {
        ask_of_table(ra, t, ms);
    } else if (t) {
        item.table = t->id;
        ra->current = item;
        ra->row = row;
        ra->row_length = row_length;
        if (ra->preset == READAHEAD_SEER)
            tell_seer(ra, item, ms, hit);
        else
            tell_auto(ra, c->id, item, ms, hit,
                      hit ? 0 : (double)(qm_rows_now() - since) / 1000);
        give(ra);
        ra->row = NULL;
    }
    pthread_mutex_unlock(&ra->lock);
}

static void forget_definition(struct table *t)
{
    t->known = false;
    t->changes++;
}

/* qm_rows_watch() */
static void changed(void *opaque, const char *schema, const char *table,
                    const char *row, size_t length)
{
    struct readahead *ra = opaque;
    char key[2 * QM_NAME_LENGTH + 2];
    struct qm_item item;
    struct table *t;
    int n = table ? snprintf(key, sizeof key, "%s.%s", schema, table) : 0;

    pthread_mutex_lock(&ra->lock);
    if (!table)
        waste_table(ra, NULL);
    for (unsigned i = 0; !table && i < ra->count; i++) {
        forget_definition(ra->by_id[i]);
        qm_auto_emptied(ra->learner, clock_ms(), i);
    }
    t = n > 0 && (size_t)n < sizeof key ? find_table(ra, key, (size_t)n) : NULL;
    if (t && !row) {
        forget_definition(t);
        waste_table(ra, t);
        qm_auto_emptied(ra->learner, clock_ms(), t->id);
    } else if (t && t->known && read_integer(row, length, &item.row)) {
        item.table = t->id;
        if (item.row > t->info.last)
            t->info.last = item.row;
        waste(ra, item);
        if (ra->preset == READAHEAD_SEER)
            qm_seer_modified(ra->seer, clock_ms(), item);
        else if (ra->preset == READAHEAD_AUTO)
            qm_auto_modified(ra->learner, clock_ms(), item);
    }
    pthread_mutex_unlock(&ra->lock);
}

void readahead_dropped(struct server *s, const char *key, size_t length)
{
    struct readahead *ra = s->readahead;
    struct qm_item item;
    struct table *t;
    size_t table;

    pthread_mutex_lock(&ra->lock);
    if (!key) {
        waste_table(ra, NULL);
        qm_auto_dropped_all(ra->learner);
    } else if (take_apart(key, length, &table, &item.row) &&
               (t = find_table(ra, key, table))) {
        item.table = t->id;
        waste(ra, item);
        qm_auto_dropped(ra->learner, item);
    }
    pthread_mutex_unlock(&ra->lock);
}

/* Once a second.  What is not measured lets through. */
static void tick(evutil_socket_t fd, short what, void *opaque)
{
    struct readahead *ra = opaque;
    struct qm_seer_load load = {.cpu = 0, .disk_idle = 1, .net = 0};
    double busy;
    bool measured = qm_cpu_read(&ra->cpu, &busy);

    pthread_mutex_lock(&ra->lock);
    if (measured)
        ra->stats.cpu = load.cpu = busy;
    if (ra->preset == READAHEAD_SEER)
        qm_seer_tick(ra->seer, clock_ms(), &load);
    else if (ra->preset == READAHEAD_AUTO)
        qm_auto_tick(ra->learner, clock_ms());
    give(ra);
    pthread_mutex_unlock(&ra->lock);
}

/* --- start, settings and end --- */

int readahead_start(struct server *s)
{
    struct readahead *ra = calloc(1, sizeof *ra);
    struct qm_seer_settings settings;
    struct qm_auto_settings learning;
    const struct qm_seer_calls calls = {ra, describe};
    const struct qm_auto_calls learner = {ra, describe, ended};
    const struct timeval second = {1, 0};

    if (!ra)
        return -1;
    s->readahead = ra;
    ra->server = s;
    pthread_mutex_init(&ra->lock, NULL);
    qm_config_rules(s->config->rules, &ra->rules);
    qm_seer_settings_init(&settings);
    settings.rules = ra->rules & QM_SEER_ALL;
    ra->seer = qm_seer_new(&settings, &calls);
    ra->ahead = qm_items_new(REMEMBERED);
    qm_auto_settings_init(&learning);
    learning.rules = ra->rules;
    ra->learner = qm_auto_new(&learning, &learner);
    ra->miner = qm_miner_new();
    ra->second = event_new(s->base, -1, EV_PERSIST, tick, ra);
    if (!ra->seer || !ra->ahead || !ra->learner || !ra->miner || !ra->second ||
        event_add(ra->second, &second) == -1)
        return -1;
    readahead_set(s, s->config->readahead);
    qm_rows_watch(s->rows, changed, ra);
    return 0;
}

void readahead_end(struct server *s)
{
    struct readahead *ra = s->readahead;

    if (!ra)
        return;
    if (ra->second)
        event_free(ra->second);
    HASH_CLEAR(hh, ra->tables);
    for (unsigned i = 0; i < ra->count; i++)
        free(ra->by_id[i]);
    qm_items_free(ra->ahead);
    qm_seer_free(ra->seer);
    qm_auto_free(ra->learner);
    qm_miner_free(ra->miner);
    pthread_mutex_destroy(&ra->lock);
    free(ra);
}

/* Drops what was to be read: its preset is another. */
static void drop_queued(struct readahead *ra)
{
    unsigned given = ra->given;

    ra->given = 0;
    give(ra);
    ra->given += given;
}

bool readahead_set(struct server *s, const char *name)
{
    struct readahead *ra = s->readahead;
    unsigned preset = READAHEAD_OFF;

    while (readahead_presets[preset] && strcmp(readahead_presets[preset], name) != 0)
        preset++;
    if (!readahead_presets[preset])
        return false;
    pthread_mutex_lock(&ra->lock);
    if (ra->preset != preset) {
        ra->preset = preset;
        qm_items_clear(ra->ahead);
        qm_auto_forget(ra->learner);
        drop_queued(ra);
    }
    pthread_mutex_unlock(&ra->lock);
    return true;
}

void readahead_set_rules(struct server *s, unsigned rules)
{
    struct readahead *ra = s->readahead;

    pthread_mutex_lock(&ra->lock);
    ra->rules = rules;
    qm_seer_set_rules(ra->seer, rules & QM_SEER_ALL, true);
    qm_auto_set_rules(ra->learner, rules);
    pthread_mutex_unlock(&ra->lock);
}

void readahead_get(struct server *s, struct readahead_stats *stats)
{
    struct readahead *ra = s->readahead;
    struct qm_seer_stats seer;
    struct qm_auto_stats learner;

    pthread_mutex_lock(&ra->lock);
    *stats = ra->stats;
    stats->preset = ra->preset;
    stats->rules = ra->rules;
    qm_seer_get_stats(ra->seer, &seer);
    qm_auto_get_stats(ra->learner, &learner);
    stats->price = qm_rule_yield_price(qm_auto_yield(ra->learner));
    stats->read_us = qm_rule_yield_read_us(qm_auto_yield(ra->learner));
    pthread_mutex_unlock(&ra->lock);
    for (unsigned i = 0; i < QM_AUTO_RULES; i++) {
        stats->asked[i] = learner.asked[i] + (i < 3 ? seer.requested[i] : 0);
        stats->fetched[i] += learner.fetched[i];
        stats->used[i] += learner.used[i];
        stats->wasted[i] += learner.wasted[i];
    }
    stats->dropped += learner.overflowed;
    stats->passive = seer.passive;
    stats->proactive = seer.proactive;
    stats->closed = seer.closed;
}

/* --- what INFO says of tables --- */

struct sum {
    unsigned arms[QM_RULE_YIELD_OFF + 1];
    double used, judged;
};

static void add_rule(struct qm_text *text, const char *name, const struct sum *sum,
                     bool *first)
{
    static const char *const states[] = {"trial", "on", "off"};
    enum qm_rule_yield_state state = sum->arms[QM_RULE_YIELD_ON] ? QM_RULE_YIELD_ON
                                     : sum->arms[QM_RULE_YIELD_TRIAL]
                                         ? QM_RULE_YIELD_TRIAL
                                         : QM_RULE_YIELD_OFF;
    char line[64];
    int n;

    if (sum->arms[0] + sum->arms[1] + sum->arms[2] == 0)
        return;
    n = snprintf(line, sizeof line, "%s%s=%s,%s_used=%.2f", *first ? "" : ",", name,
                 states[state], name, sum->judged > 0 ? sum->used / sum->judged : 0);
    *first = false;
    qm_text_add(text, line, (size_t)n);
}

/* Of the first tables, each rule's state, and which share of its rows is used. */
void readahead_add_tables(struct server *s, struct qm_text *text)
{
    struct readahead *ra = s->readahead;
    struct sum sum[SHOWN][QM_AUTO_RULES] = {0};
    const struct qm_rule_yield_arm *arm;
    const struct qm_rule_yield *yield;

    pthread_mutex_lock(&ra->lock);
    yield = qm_auto_yield(ra->learner);
    for (unsigned i = 1; (arm = qm_rule_yield_get(yield, i)); i++)
        if (arm->table < SHOWN) {
            struct sum *to = &sum[arm->table][arm->rule];

            to->arms[arm->state]++;
            to->used += arm->used;
            to->judged += arm->judged;
        }
    for (unsigned i = 0; i < SHOWN && i < ra->count; i++) {
        bool first = true;

        for (unsigned rule = 0; rule < QM_AUTO_RULES; rule++) {
            if (first &&
                sum[i][rule].arms[0] + sum[i][rule].arms[1] + sum[i][rule].arms[2] >
                    0) {
                qm_text_add(text, "readahead_of_", 13);
                qm_text_add(text, ra->by_id[i]->key, strlen(ra->by_id[i]->key));
                qm_text_add(text, ":", 1);
            }
            add_rule(text, qm_config_rule_names[rule], &sum[i][rule], &first);
        }
        if (!first)
            qm_text_add(text, "\r\n", 2);
    }
    pthread_mutex_unlock(&ra->lock);
}
