/* SPDX-License-Identifier: BSD-3-Clause */
/* seer.c - the read-ahead of SEER-MCache; see seer.h. */
#include "rowcache/readahead/seer.h"

#include <stdlib.h>

#define QUEUE   512   /* requests in Mes-Queue */
#define CHANGED 16384 /* rows that TA remembers */
#define LIVES   10    /* steps that a life can grow */

struct qm_seer {
    struct qm_seer_settings settings;
    struct qm_seer_calls calls;
    struct qm_items *precache;
    struct qm_items *counters; /* reads << 32 | order of the last read */
    struct qm_items *changed;  /* when, in order */
    struct qm_items *buffer;   /* Cache-Buffer */
    uint64_t random;
    uint64_t passive_at, th_at; /* when the last one started; when T_h began */
    bool had_passive, started;
    uint32_t order;
    bool proactive;       /* algorithm 1 is going on */
    unsigned outstanding; /* its requests that were not answered */
    uint64_t now;
    unsigned first, count;
    struct qm_seer_request queue[QUEUE];
    struct qm_seer_stats stats;
};

void qm_seer_settings_init(struct qm_seer_settings *settings)
{
    *settings = (struct qm_seer_settings){
        .rules = QM_SEER_ALL,
        .proactive = true,
        .n = 50,
        .t_ms = 3000,
        .x = 5,
        .y = 10,
        .w_ms = 500,
        .th_ms = 180000,
        .cpu = .5,
        .disk_idle = .5,
        .net = .75,
        .life_ms = 180000,
        .life_step_ms = 60000,
        .seed = 1,
        .precache = 65536,
        .counters = 65536,
    };
}

struct qm_seer *qm_seer_new(const struct qm_seer_settings *settings,
                            const struct qm_seer_calls *calls)
{
    struct qm_seer *seer = calloc(1, sizeof *seer);

    if (!seer)
        return NULL;
    seer->settings = *settings;
    seer->calls = *calls;
    seer->random = settings->seed;
    seer->precache = qm_items_new(settings->precache);
    seer->counters = qm_items_new(settings->counters);
    seer->changed = qm_items_new(CHANGED);
    seer->buffer = qm_items_new(3 * QM_SEER_ROWS);
    if (!seer->precache || !seer->counters || !seer->changed || !seer->buffer) {
        qm_seer_free(seer);
        return NULL;
    }
    return seer;
}

void qm_seer_free(struct qm_seer *seer)
{
    if (!seer)
        return;
    qm_items_free(seer->precache);
    qm_items_free(seer->counters);
    qm_items_free(seer->changed);
    qm_items_free(seer->buffer);
    free(seer);
}

/* 0 to most, all as probable (splitmix64). */
static unsigned draw(struct qm_seer *seer, unsigned most)
{
    uint64_t z = seer->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ z >> 31) % (most + UINT64_C(1)));
}

static unsigned index_of(enum qm_seer_rule rule)
{
    return rule == QM_SEER_SA ? 0 : rule == QM_SEER_TA ? 1 : 2;
}

static void enqueue(struct qm_seer *seer, const struct qm_seer_request *request)
{
    if (request->count == 0)
        return;
    if (seer->count == QUEUE) {
        seer->stats.overflowed++;
        return;
    }
    seer->queue[(seer->first + seer->count++) % QUEUE] = *request;
    seer->stats.requested[index_of(request->rule)] += request->count;
    if (request->level > 0)
        seer->outstanding++;
}

bool qm_seer_range(const struct qm_seer_row *row, int64_t number, int from, int to,
                   int64_t *first, int64_t *last)
{
    /* Beyond the last number there is none; before the first one the table's begin. */
    if (__builtin_add_overflow(number, from, first)) {
        if (from > 0)
            return false;
        *first = INT64_MIN;
    }
    if (__builtin_add_overflow(number, to, last)) {
        if (to < 0)
            return false;
        *last = INT64_MAX;
    }
    if (*first < row->first)
        *first = row->first;
    if (*last > row->last)
        *last = row->last;
    return *first <= *last;
}

/* Those of row on, both ways, that the table has. */
static void spatial(struct qm_seer *seer, struct qm_item item,
                    const struct qm_seer_row *row, unsigned level)
{
    struct qm_seer_request request = {QM_SEER_SA, level, item.table, 0, {0}};
    int n = (int)seer->settings.n;
    int64_t first, last;

    if (!qm_seer_range(row, item.row, -n, n, &first, &last))
        return;
    for (int64_t i = 0; i <= last - first; i++) {
        if (first + i == item.row)
            continue;
        request.row[request.count++] = first + i;
        if (request.count == QM_SEER_ROWS) {
            enqueue(seer, &request);
            request.count = 0;
        }
    }
    enqueue(seer, &request);
}

static void forget_changes(struct qm_seer *seer)
{
    struct qm_item item;
    uint64_t when;

    while (qm_items_oldest(seer->changed, &item, &when) &&
           seer->now - when > seer->settings.t_ms)
        qm_items_remove(seer->changed, item);
}

/* What changed lately, a request for each run of one table. */
static void temporal(struct qm_seer *seer, unsigned level)
{
    struct qm_seer_request request = {QM_SEER_TA, level, 0, 0, {0}};
    struct qm_item item;
    uint64_t when;
    size_t at = 0;

    forget_changes(seer);
    while (qm_items_each(seer->changed, &at, &item, &when)) {
        if (request.count == QM_SEER_ROWS || item.table != request.table) {
            enqueue(seer, &request);
            request.count = 0;
        }
        request.table = item.table;
        request.row[request.count++] = item.row;
    }
    enqueue(seer, &request);
}

static void foreign(struct qm_seer *seer, const struct qm_seer_row *row, unsigned level)
{
    unsigned tables = draw(seer, seer->settings.x);
    unsigned at = row->foreign_count ? draw(seer, row->foreign_count - 1) : 0;

    for (unsigned i = 0; i < tables && i < row->foreign_count; i++) {
        struct qm_item from = row->foreign[(at + i) % row->foreign_count];
        struct qm_seer_request request = {QM_SEER_FA, level, from.table, 0, {0}};
        unsigned rows = draw(seer, seer->settings.y);

        while (request.count < rows && request.count < QM_SEER_ROWS &&
               from.row <= INT64_MAX - request.count) {
            request.row[request.count] = from.row + request.count;
            request.count++;
        }
        enqueue(seer, &request);
    }
}

/* Readahead(): one invocation of the active rules. */
static void read_ahead(struct qm_seer *seer, struct qm_item item, unsigned level)
{
    struct qm_seer_row row;
    unsigned rules = seer->settings.rules;

    if (!seer->calls.describe(seer->calls.opaque, item, &row))
        return;
    if (rules & QM_SEER_SA)
        spatial(seer, item, &row, level);
    if (rules & QM_SEER_TA)
        temporal(seer, level);
    if (rules & QM_SEER_FA)
        foreign(seer, &row, level);
}

static void passive(struct qm_seer *seer, struct qm_item item)
{
    if (seer->proactive || seer->settings.rules == 0)
        return;
    if (seer->had_passive && seer->now - seer->passive_at < seer->settings.w_ms) {
        seer->stats.in_window++;
        return;
    }
    seer->had_passive = true;
    seer->passive_at = seer->now;
    seer->stats.passive++;
    read_ahead(seer, item, 0);
}

static void start_th(struct qm_seer *seer)
{
    seer->started = true;
    seer->th_at = seer->now;
}

bool qm_seer_read(struct qm_seer *seer, uint64_t now_ms, struct qm_item item, bool hit)
{
    uint64_t *counter;
    bool there;

    seer->now = now_ms;
    if (!seer->started)
        start_th(seer);
    if (!seer->proactive) { /* T_h's counting stops meanwhile */
        counter = qm_items_add(seer->counters, item);
        *counter = ((*counter >> 32) + 1) << 32 | seer->order++;
    }
    if (hit)
        return false;
    there = qm_items_remove(seer->precache, item);
    seer->stats.claimed += there;
    passive(seer, item);
    return there;
}

void qm_seer_modified(struct qm_seer *seer, uint64_t now_ms, struct qm_item item)
{
    seer->now = now_ms;
    qm_items_remove(seer->precache, item);
    qm_items_remove(seer->changed, item); /* it becomes the newest */
    *qm_items_add(seer->changed, item) = now_ms;
}

bool qm_seer_next(struct qm_seer *seer, struct qm_seer_request *request)
{
    if (seer->count == 0)
        return false;
    *request = seer->queue[seer->first];
    seer->first = (seer->first + 1) % QUEUE;
    seer->count--;
    return true;
}

static void precache(struct qm_seer *seer, struct qm_item item)
{
    /* An older one of the same row is substituted. */
    if (qm_items_remove(seer->precache, item))
        seer->stats.redundant++;
    qm_items_add(seer->precache, item);
}

static void end_proactive(struct qm_seer *seer)
{
    seer->proactive = false;
    qm_items_clear(seer->buffer);
    qm_items_clear(seer->counters);
    /* W is set again. */
    seer->had_passive = true;
    seer->passive_at = seer->now;
    start_th(seer);
}

/* The first read-ahead is complete: one for each row in Cache-Buffer. */
static void second_level(struct qm_seer *seer)
{
    struct qm_item item;
    uint64_t value;

    while (qm_items_oldest(seer->buffer, &item, &value) && seer->count < QUEUE) {
        qm_items_remove(seer->buffer, item);
        read_ahead(seer, item, 2);
    }
}

void qm_seer_fetched(struct qm_seer *seer, const struct qm_seer_request *request,
                     const int64_t *rows, unsigned count)
{
    seer->stats.fetched[index_of(request->rule)] += count;
    for (unsigned i = 0; i < count; i++) {
        struct qm_item item = {request->table, rows[i]};

        if (request->level == 1)
            qm_items_add(seer->buffer, item);
        precache(seer, item);
    }
    if (request->level == 0 || !seer->proactive)
        return;
    if (--seer->outstanding > 0 && request->level == 1)
        return;
    /* More of them as Mes-Queue has room again. */
    second_level(seer);
    if (seer->outstanding == 0)
        end_proactive(seer);
}

bool qm_seer_push(struct qm_seer *seer, struct qm_item *item)
{
    uint64_t value;

    if (!qm_items_oldest(seer->precache, item, &value))
        return false;
    qm_items_remove(seer->precache, *item);
    seer->stats.pushed++;
    return true;
}

static bool is_open(const struct qm_seer_settings *settings,
                    const struct qm_seer_load *load)
{
    return load->cpu < settings->cpu && load->disk_idle > settings->disk_idle &&
           load->net < settings->net;
}

/* The highest count; of equals the latest read. */
static bool hottest(const struct qm_seer *seer, struct qm_item *hot)
{
    struct qm_item item;
    uint64_t value, most = 0;
    size_t at = 0;

    while (qm_items_each(seer->counters, &at, &item, &value))
        if (value > most) {
            most = value;
            *hot = item;
        }
    return most > 0;
}

void qm_seer_tick(struct qm_seer *seer, uint64_t now_ms,
                  const struct qm_seer_load *load)
{
    struct qm_item hot;

    seer->now = now_ms;
    if (!seer->started)
        start_th(seer);
    if (seer->proactive || now_ms - seer->th_at < seer->settings.th_ms)
        return;
    if (!seer->settings.proactive || !is_open(&seer->settings, load) ||
        !hottest(seer, &hot)) {
        if (seer->settings.proactive && !is_open(&seer->settings, load))
            seer->stats.closed++;
        qm_items_clear(seer->counters);
        start_th(seer);
        return;
    }
    seer->stats.proactive++;
    seer->proactive = true;
    seer->outstanding = 0;
    qm_items_clear(seer->buffer); /* of one that was cut off */
    read_ahead(seer, hot, 1);
    if (seer->outstanding == 0)
        end_proactive(seer);
}

unsigned qm_seer_life(const struct qm_seer *seer, struct qm_item item)
{
    const uint64_t *counter = qm_items_find(seer->counters, item);
    uint64_t reads = counter ? *counter >> 32 : 0;

    if (reads == 0)
        return seer->settings.life_ms > seer->settings.life_step_ms
                   ? seer->settings.life_ms - seer->settings.life_step_ms
                   : 0;
    if (reads > LIVES)
        reads = LIVES;
    return seer->settings.life_ms + (unsigned)(reads - 1) * seer->settings.life_step_ms;
}

void qm_seer_set_rules(struct qm_seer *seer, unsigned rules, bool proactive)
{
    seer->settings.rules = rules;
    seer->settings.proactive = proactive;
}

bool qm_seer_is_proactive(const struct qm_seer *seer)
{
    return seer->proactive;
}

void qm_seer_get_stats(const struct qm_seer *seer, struct qm_seer_stats *stats)
{
    *stats = seer->stats;
}
