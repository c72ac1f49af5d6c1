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

#include "rowcache/server/readahead-internal.h"

enum {
    REMEMBERED = 65536,
    GIVEN = 4,
    TICKS_A_SECOND = 4,
    LIFE_MS = 600000 /* of a row that auto has read */
};

const char *const readahead_presets[] = {"off", "seer", "auto", NULL};

static void give(struct readahead *ra);

uint64_t readahead_clock_ms(void)
{
    return qm_rows_now() / 1000000;
}

static unsigned index_of(enum qm_seer_rule rule)
{
    return rule == QM_SEER_SA ? 0 : rule == QM_SEER_TA ? 1 : 2;
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

void readahead_waste_table(struct readahead *ra, const struct table *t)
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
        qm_auto_fetched(ra->learner, readahead_clock_ms(), &job->request.learner,
                        fill->there + fill->kept,
                        ra->preset == READAHEAD_AUTO ? fill->got : 0,
                        fill->failed ? 0 : fill->us, fill->work_us);
    give(ra);
    readahead_free_job(job);
    pthread_mutex_unlock(&ra->lock);
}

static bool give_job(struct readahead *ra, struct job *job)
{
    if (qm_fill_give_ahead(ra->server->fill, &job->fill)) {
        ra->given++;
        return true;
    }
    readahead_free_job(job);
    return false;
}

static bool give_seer(struct readahead *ra, const struct qm_seer_request *request)
{
    struct job *job =
        ra->preset == READAHEAD_SEER
            ? readahead_new_job(ra, ra->by_id[request->table], sizeof *job, fetched)
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
    struct job *job =
        ra->preset == READAHEAD_AUTO && qm_fill_may_give_ahead(ra->server->fill)
            ? readahead_new_job(ra, ra->by_id[request->table], sizeof *job, fetched)
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

/* While reads wait for the pool, auto's requests stay where more rows are added to
 * them. */
static bool may_take_auto(const struct readahead *ra)
{
    return ra->preset != READAHEAD_AUTO || qm_fill_may_give_ahead(ra->server->fill) ||
           qm_auto_is_late(ra->learner, readahead_clock_ms());
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
    while (ra->given < GIVEN && may_take_auto(ra) &&
           qm_auto_next(ra->learner, readahead_clock_ms(), ra->given > 0, &learner))
        if (!give_auto(ra, &learner)) {
            ra->stats.dropped += learner.count;
            qm_auto_not_asked(ra->learner, readahead_clock_ms(), &learner);
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
    return readahead_read_integer(colon + 1, length - *table - 1, row);
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
 * come by one SELECT.  Those that are sure are always tried. */
static double least_probability(const struct readahead *ra)
{
    double half = qm_rule_yield_price(qm_auto_yield(ra->learner)) / 2;

    return half < .9 ? half : .9;
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
    enum qm_auto_read read;
    unsigned n, busy;
    double work_us;

    if (!hit) {
        qm_fill_get_load(ra->server->fill, &busy, &work_us);
        qm_auto_busy(ra->learner,
                     (double)busy / (double)ra->server->config->connections);
        qm_auto_work(ra->learner, work_us);
    }
    read = qm_auto_read(ra->learner, ms, item, hit, us);
    if (read == QM_AUTO_HIT || !(ra->rules >> QM_AUTO_MINED & 1) ||
        (qm_rule_yield_is_scarce(qm_auto_yield(ra->learner)) &&
         qm_miner_rests(ra->miner)))
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
    ms = readahead_clock_ms();
    t = readahead_get_table(ra, ms, key, table);
    if (t && !t->known) {
        readahead_ask_of_table(ra, t, ms);
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
    if (!table) { /* the log was lost: that says nothing of what read them ahead */
        readahead_waste_table(ra, NULL);
        qm_auto_dropped_all(ra->learner);
    }
    for (unsigned i = 0; !table && i < ra->count; i++)
        forget_definition(ra->by_id[i]);
    t = n > 0 && (size_t)n < sizeof key ? readahead_find_table(ra, key, (size_t)n)
                                        : NULL;
    if (t && !row) {
        forget_definition(t);
        readahead_waste_table(ra, t);
        qm_auto_emptied(ra->learner, readahead_clock_ms(), t->id);
    } else if (t && t->known && readahead_read_integer(row, length, &item.row)) {
        item.table = t->id;
        if (item.row > t->info.last)
            t->info.last = item.row;
        if (item.row < t->info.first)
            t->info.first = item.row;
        waste(ra, item);
        if (ra->preset == READAHEAD_SEER)
            qm_seer_modified(ra->seer, readahead_clock_ms(), item);
        else if (ra->preset == READAHEAD_AUTO)
            qm_auto_modified(ra->learner, readahead_clock_ms(), item);
        give(ra);
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
        readahead_waste_table(ra, NULL);
        qm_auto_dropped_all(ra->learner);
    } else if (take_apart(key, length, &table, &item.row) &&
               (t = readahead_find_table(ra, key, table))) {
        item.table = t->id;
        waste(ra, item);
        qm_auto_dropped(ra->learner, item);
    }
    pthread_mutex_unlock(&ra->lock);
}

/* Each quarter of a second, so that auto soon knows of new load; the gates are of the
 * last whole second.  What is not measured lets through. */
static void tick(evutil_socket_t fd, short what, void *opaque)
{
    struct readahead *ra = opaque;
    struct qm_seer_load load = {.cpu = 0, .disk_idle = 1, .net = 0};
    bool whole = ++ra->ticks % TICKS_A_SECOND == 0, now_known, known = false;
    double now, second = 0;

    now_known = qm_cpu_read(&ra->cpu_now, &now);
    if (whole)
        known = qm_cpu_read(&ra->cpu, &second);
    pthread_mutex_lock(&ra->lock);
    if (now_known)
        qm_auto_processors(ra->learner, now);
    if (known)
        ra->stats.cpu = load.cpu = second;
    if (whole && ra->preset == READAHEAD_SEER)
        qm_seer_tick(ra->seer, readahead_clock_ms(), &load);
    else if (ra->preset == READAHEAD_AUTO)
        qm_auto_tick(ra->learner, readahead_clock_ms());
    give(ra);
    pthread_mutex_unlock(&ra->lock);
}

/* --- start, settings and end --- */

int readahead_start(struct server *s)
{
    struct readahead *ra = calloc(1, sizeof *ra);
    struct qm_seer_settings settings;
    struct qm_auto_settings learning;
    const struct qm_seer_calls calls = {ra, readahead_describe};
    const struct qm_auto_calls learner = {ra, readahead_describe, ended};
    const struct timeval often = {0, 1000000 / TICKS_A_SECOND};

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
    ra->ticking = event_new(s->base, -1, EV_PERSIST, tick, ra);
    if (!ra->seer || !ra->ahead || !ra->learner || !ra->miner || !ra->ticking ||
        event_add(ra->ticking, &often) == -1)
        return -1;
    readahead_set(s, s->config->readahead);
    qm_cpu_read(&ra->cpu, &ra->stats.cpu); /* from where the first second counts */
    ra->cpu_now = ra->cpu;
    qm_rows_watch(s->rows, changed, ra);
    return 0;
}

void readahead_end(struct server *s)
{
    struct readahead *ra = s->readahead;

    if (!ra)
        return;
    if (ra->ticking)
        event_free(ra->ticking);
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
