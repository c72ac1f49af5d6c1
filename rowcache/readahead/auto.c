/* SPDX-License-Identifier: BSD-3-Clause */
/* auto.c - read-ahead that learns which of its rules pays for which table; see auto.h.
 */
#include "rowcache/readahead/auto.h"

#include <stdlib.h>

#include "rowcache/readahead/auto-queue.h"
#include "rowcache/readahead/changes.h"
#include "rowcache/readahead/numbers.h"
#include "rowcache/readahead/lately.h"
#include "rowcache/readahead/watcher.h"

enum { CHANGED = 4096, CHANGED_AT_A_TIME = 64, FOLLOWING = 9, WATCHED = 16384 };
enum { TA_AT_ONCE, TA_TOGETHER };
/* When all arms of a read's table are off, or have as many rows watched as they may,
 * that many reads of the table ask none: to find out what a row references takes as
 * long as the read's own work.  Tables share those numbers. */
enum { PAUSE = 15, PAUSES = 1024 };

/* Where each band of SA begins and ends. */
static const int bands[QM_AUTO_BANDS][2] = {{1, 4},   {5, 16},   {17, 50},
                                            {-4, -1}, {-16, -5}, {-50, -17}};

struct qm_auto {
    struct qm_auto_settings settings;
    struct qm_auto_calls calls;
    struct qm_rule_yield *yield;
    /* Rows that were read ahead and not used; the arm, and when they came: */
    struct qm_items *fresh;     /* not judged */
    struct qm_items *old;       /* judged */
    struct qm_numbers *numbers; /* of those in the two, and others' */
    struct qm_watcher *watcher;
    struct qm_lately *recent; /* rows that were asked for or read */
    struct qm_items *changed; /* for TA: when */
    struct qm_changes *together;
    unsigned together_asked; /* rows that are not answered */
    bool room;               /* an arm that was asked has room, or will soon */
    uint8_t pause[PAUSES];   /* reads of a table, that ask no arm */
    struct qm_auto_queue queue;
    struct qm_auto_stats stats;
};

void qm_auto_settings_init(struct qm_auto_settings *settings)
{
    *settings = (struct qm_auto_settings){
        .rules = (1 << QM_AUTO_RULES) - 1,
        .t_ms = 3000,
        .judge_ms = 5000,
        .watches = true,
        .again_ms = 10000,
        .fresh = 32768,
        .old = 65536,
        .recent = 32768,
    };
}

static unsigned rule_of(const struct qm_auto *ra, unsigned arm)
{
    return qm_rule_yield_get(ra->yield, arm)->rule;
}

/* qm_watcher_calls.judged */
static void tell_ended(void *opaque, struct qm_item item, unsigned arm, bool used)
{
    const struct qm_auto *ra = opaque;

    if (ra->calls.ended && rule_of(ra, arm) == QM_AUTO_MINED)
        ra->calls.ended(ra->calls.opaque, item, used);
}

struct qm_auto *qm_auto_new(const struct qm_auto_settings *settings,
                            const struct qm_auto_calls *calls)
{
    struct qm_auto *ra = calloc(1, sizeof *ra);
    const struct qm_watcher_calls watcher_calls = {ra, tell_ended};

    if (!ra)
        return NULL;
    ra->settings = *settings;
    ra->calls = *calls;
    ra->yield = qm_rule_yield_new(settings->judge_ms, settings->watches);
    ra->numbers = calloc(1, sizeof *ra->numbers);
    if (ra->yield && ra->numbers) {
        ra->watcher = qm_watcher_new(WATCHED, settings->judge_ms, ra->yield,
                                     ra->numbers, &watcher_calls);
        ra->together = qm_changes_new(ra->numbers);
    }
    ra->fresh = qm_items_new(settings->fresh);
    ra->old = qm_items_new(settings->old);
    ra->recent = qm_lately_new(settings->recent, settings->again_ms);
    ra->changed = qm_items_new(CHANGED);
    if (!ra->yield || !ra->watcher || !ra->fresh || !ra->old || !ra->recent ||
        !ra->changed || !ra->together) {
        qm_auto_free(ra);
        return NULL;
    }
    return ra;
}

void qm_auto_free(struct qm_auto *ra)
{
    if (!ra)
        return;
    qm_watcher_free(ra->watcher);
    qm_rule_yield_free(ra->yield);
    qm_items_free(ra->fresh);
    qm_items_free(ra->old);
    qm_lately_free(ra->recent);
    qm_items_free(ra->changed);
    qm_changes_free(ra->together);
    free(ra->numbers);
    free(ra);
}

/* --- rows that were read ahead --- */

/* Reads of rows that are out, or watched, tell something. */
bool qm_auto_may_be_ahead(const struct qm_auto *ra, int64_t row)
{
    return qm_numbers_may_have(ra->numbers, QM_NUMBERS_OUT, row) ||
           qm_watcher_may_have(ra->watcher, row);
}

static uint64_t value_of(unsigned arm, uint64_t now_ms)
{
    return now_ms << 16 | arm;
}

static unsigned arm_of(uint64_t value)
{
    return value & 0xffff;
}

static void add_fresh(struct qm_auto *ra, struct qm_item item, uint64_t now_ms,
                      unsigned arm)
{
    *qm_items_add(ra->fresh, item) = value_of(arm, now_ms);
    qm_rule_yield_came(ra->yield, arm, now_ms);
    qm_numbers_add(ra->numbers, QM_NUMBERS_OUT, item.row);
}

/* It was there. */
static void remove_fresh(struct qm_auto *ra, struct qm_item item, uint64_t value)
{
    qm_items_remove(ra->fresh, item);
    qm_rule_yield_left(ra->yield, arm_of(value), value >> 16);
}

static void leave(struct qm_auto *ra, struct qm_items *from, struct qm_item item,
                  uint64_t value)
{
    if (from == ra->fresh)
        remove_fresh(ra, item, value);
    else
        qm_items_remove(from, item);
    qm_numbers_remove(ra->numbers, QM_NUMBERS_OUT, item.row);
}

/* One that is out. */
static void judge(struct qm_auto *ra, uint64_t now_ms, struct qm_item item,
                  unsigned arm, bool used)
{
    qm_rule_yield_judge(ra->yield, now_ms, arm, used);
    tell_ended(ra, item, arm, used);
}

/* It has gone without use. */
static void waste(struct qm_auto *ra, uint64_t now_ms, struct qm_item item)
{
    const uint64_t *fresh, *value;
    unsigned arm;

    if (!qm_numbers_may_have(ra->numbers, QM_NUMBERS_OUT,
                             item.row)) /* mostly; it spares the look */
        return;
    fresh = qm_items_find(ra->fresh, item);
    value = fresh ? fresh : qm_items_find(ra->old, item);
    if (!value)
        return;
    arm = arm_of(*value);
    ra->stats.wasted[rule_of(ra, arm)]++;
    leave(ra, fresh ? ra->fresh : ra->old, item, *value);
    if (fresh)
        judge(ra, now_ms, item, arm, false);
}

/* The oldest that is out has had its time. */
static void judge_oldest(struct qm_auto *ra, uint64_t now_ms)
{
    struct qm_item item, displaced;
    uint64_t value, other;

    if (!qm_items_oldest(ra->fresh, &item, &value))
        return;
    remove_fresh(ra, item, value);
    judge(ra, now_ms, item, arm_of(value), false);
    if (qm_items_count(ra->old) >= ra->settings.old &&
        qm_items_oldest(ra->old, &displaced, &other))
        waste(ra, now_ms, displaced);
    *qm_items_add(ra->old, item) = value;
}

/* Returns whether it was there. */
static bool use(struct qm_auto *ra, uint64_t now_ms, struct qm_item item)
{
    const uint64_t *fresh, *value;
    unsigned arm;

    if (!qm_numbers_may_have(ra->numbers, QM_NUMBERS_OUT, item.row))
        return false;
    fresh = qm_items_find(ra->fresh, item);
    value = fresh ? fresh : qm_items_find(ra->old, item);
    if (!value)
        return false;
    arm = arm_of(*value);
    ra->stats.used[rule_of(ra, arm)]++;
    qm_rule_yield_lead(ra->yield, arm, now_ms - (*value >> 16));
    leave(ra, fresh ? ra->fresh : ra->old, item, *value);
    if (fresh)
        judge(ra, now_ms, item, arm, true);
    else
        qm_rule_yield_late(ra->yield, now_ms, arm);
    return true;
}

/* --- what the arms want --- */

/* Asks for the first of these rows, as many as the arm is allowed, or has them watched.
 * Returns for how many it asks. */
static unsigned ask_for(struct qm_auto *ra, uint64_t now_ms, unsigned arm,
                        uint32_t table, const int64_t *rows, unsigned n)
{
    unsigned allowed;

    if (n == 0)
        return 0;
    qm_watcher_note(ra->watcher, now_ms, arm, table, rows, n);
    allowed = qm_rule_yield_allow(ra->yield, now_ms, arm, n);
    for (unsigned i = 0; i < allowed; i++) {
        struct qm_auto_request *request = qm_auto_queue_add(&ra->queue, now_ms, table);

        if (!request) {
            ra->stats.dropped += allowed - i;
            qm_rule_yield_give_back(ra->yield, arm, allowed - i);
            return i;
        }
        request->row[request->count] = rows[i];
        request->arm[request->count++] = (uint16_t)arm;
        request->soon |= qm_rule_yield_is_soon(ra->yield, arm);
        ra->stats.asked[rule_of(ra, arm)]++;
        qm_lately_note(ra->recent, now_ms, (struct qm_item){table, rows[i]});
    }
    return allowed;
}

/* Whether it is allowed rows, or will be when those come that are on their way. */
static bool is_fetching(const struct qm_auto *ra, unsigned arm)
{
    const struct qm_rule_yield_arm *a = qm_rule_yield_get(ra->yield, arm);

    return a && (a->state == QM_RULE_YIELD_TRIAL || a->state == QM_RULE_YIELD_ON);
}

/* The rows from first to last, as far as the arm is allowed, the nearest first; none if
 * there are fewer than least that were not asked for lately. */
static unsigned want(struct qm_auto *ra, uint64_t now_ms, unsigned arm, uint32_t table,
                     int64_t first, int64_t last, bool down, unsigned least)
{
    /* Looking for each of them takes longer than all else here. */
    unsigned most = qm_watcher_room(ra->watcher, now_ms, arm);
    int64_t rows[64];
    unsigned n;

    ra->room |= most > 0 || is_fetching(ra, arm);
    if (most == 0)
        return 0;
    n = qm_lately_others(ra->recent, now_ms, table, first, last, down, rows,
                         most < 64 ? most : 64);
    return n < least ? 0 : ask_for(ra, now_ms, arm, table, rows, n);
}

/* Where a scan finds what was read ahead, one more row is wanted at each read: not
 * before they are half of a band, so that they come by few SELECTs. */
static void spatial(struct qm_auto *ra, uint64_t now_ms, struct qm_item item,
                    const struct qm_seer_row *row, bool ahead)
{
    int64_t first, last;

    if (item.row < row->first || item.row > row->last)
        return;
    for (unsigned i = 0; i < QM_AUTO_BANDS; i++)
        if (qm_seer_range(row, item.row, bands[i][0], bands[i][1], &first, &last))
            want(ra, now_ms, qm_rule_yield_find(ra->yield, item.table, QM_AUTO_SA, i),
                 item.table, first, last, bands[i][1] < 0,
                 ahead ? (unsigned)(last - first) / 2 + 1 : 1);
}

static void temporal(struct qm_auto *ra, uint64_t now_ms)
{
    struct qm_item item;
    uint64_t when;

    for (unsigned i = 0; i < CHANGED_AT_A_TIME; i++) {
        if (!qm_items_oldest(ra->changed, &item, &when))
            return;
        qm_items_remove(ra->changed, item);
        if (now_ms - when <= ra->settings.t_ms &&
            want(ra, now_ms,
                 qm_rule_yield_find(ra->yield, item.table, QM_AUTO_TA, TA_AT_ONCE),
                 item.table, item.row, item.row, false, 1) > 0)
            qm_changes_forget(ra->together, item);
    }
}

/* Of a table whose rows have waited long enough.  They may wait longer: one SELECT at a
 * time leaves the processors to clients' reads and writes. */
static void temporal_together(struct qm_auto *ra, uint64_t now_ms)
{
    int64_t rows[QM_AUTO_ROWS];
    uint32_t table;

    while (ra->together_asked == 0 && ra->queue.count < QM_AUTO_QUEUE &&
           qm_changes_due(ra->together, now_ms, &table)) {
        unsigned n = qm_changes_take(ra->together, now_ms, table, rows, QM_AUTO_ROWS);
        double share = qm_changes_share(ra->together, now_ms, table);
        unsigned left = 0, arm;

        for (unsigned i = 0; i < n; i++) /* another arm may have asked for some */
            if (!qm_lately_has(ra->recent, now_ms, (struct qm_item){table, rows[i]}))
                rows[left++] = rows[i];
        if (left == 0 || share <= 0)
            continue;
        arm = qm_rule_yield_find(ra->yield, table, QM_AUTO_TA, TA_TOGETHER);
        qm_rule_yield_foresee(ra->yield, arm, share);
        ra->together_asked = ask_for(ra, now_ms, arm, table, rows, left);
    }
}

static void foreign(struct qm_auto *ra, uint64_t now_ms, struct qm_item item,
                    const struct qm_seer_row *row)
{
    for (unsigned i = 0; i < row->foreign_count && i < QM_AUTO_FOREIGN; i++) {
        struct qm_item to = row->foreign[i];

        want(ra, now_ms, qm_rule_yield_find(ra->yield, item.table, QM_AUTO_FA, i),
             to.table, to.row, to.row, false, 1);
        if (to.row <= INT64_MAX - FOLLOWING)
            want(ra, now_ms,
                 qm_rule_yield_find(ra->yield, item.table, QM_AUTO_FA,
                                    QM_AUTO_FOREIGN + i),
                 to.table, to.row + 1, to.row + FOLLOWING, false, 1);
    }
}

/* --- what is asked for no more --- */

static bool has_rule(const struct qm_auto *ra, enum qm_auto_rule rule)
{
    return ra->settings.rules >> rule & 1;
}

static bool is_together(const struct qm_auto *ra, unsigned arm)
{
    const struct qm_rule_yield_arm *a = qm_rule_yield_get(ra->yield, arm);

    return a->rule == QM_AUTO_TA && a->slot == TA_TOGETHER;
}

/* A row that an arm asked for, and that will not be read. */
static void unask(struct qm_auto *ra, struct qm_item item, unsigned arm)
{
    qm_rule_yield_give_back(ra->yield, arm, 1);
    ra->together_asked -= is_together(ra, arm);
    qm_lately_forget(ra->recent, item);
}

/* The same of one that waits. */
static void drop(struct qm_auto *ra, struct qm_item item, unsigned arm)
{
    unask(ra, item, arm);
    ra->stats.dropped++;
}

struct leaving {
    struct qm_auto *ra;
    bool all;
    uint32_t table;
};

/* For qm_auto_queue_remove(): all rows, or those of a table. */
static bool is_leaving(void *opaque, struct qm_item item, unsigned arm)
{
    const struct leaving *leaving = opaque;

    if (!leaving->all && item.table != leaving->table)
        return false;
    drop(leaving->ra, item, arm);
    return true;
}

/* The same: those of rules that are off. */
static bool is_off(void *opaque, struct qm_item item, unsigned arm)
{
    struct qm_auto *ra = opaque;

    if (has_rule(ra, rule_of(ra, arm)))
        return false;
    drop(ra, item, arm);
    return true;
}

static void unask_table(struct qm_auto *ra, uint32_t table)
{
    struct leaving leaving = {ra, false, table};

    qm_auto_queue_remove(&ra->queue, is_leaving, &leaving);
}

static void unask_all(struct qm_auto *ra)
{
    struct leaving leaving = {ra, true, 0};

    qm_auto_queue_remove(&ra->queue, is_leaving, &leaving);
}

/* A row that waits to be read is not asked for again. */
static void may_be_asked_again(struct qm_auto *ra, struct qm_item item)
{
    if (!qm_auto_queue_has(&ra->queue, item))
        qm_lately_forget(ra->recent, item);
}

void qm_auto_set_rules(struct qm_auto *ra, unsigned rules)
{
    ra->settings.rules = rules;
    qm_auto_queue_remove(&ra->queue, is_off, ra);
}

/* --- what it is told --- */

enum qm_auto_read qm_auto_read(struct qm_auto *ra, uint64_t now_ms, struct qm_item item,
                               bool hit, double us)
{
    uint8_t *pause = &ra->pause[item.table % PAUSES];
    struct qm_seer_row row;
    bool ahead;

    qm_watcher_read(ra->watcher, now_ms, item, hit);
    if (!hit) {
        qm_rule_yield_read(ra->yield, us);
        waste(ra, now_ms, item);
    }
    ahead = hit && use(ra, now_ms, item);
    if (hit && !ahead)
        return QM_AUTO_HIT;
    qm_lately_note(ra->recent, now_ms, item);
    qm_changes_read(ra->together, now_ms, item);
    if (has_rule(ra, QM_AUTO_TA)) {
        temporal(ra, now_ms);
        temporal_together(ra, now_ms);
    }
    if (*pause > 0) {
        --*pause;
        return ahead ? QM_AUTO_AHEAD : QM_AUTO_MISS;
    }
    if (!(has_rule(ra, QM_AUTO_SA) || has_rule(ra, QM_AUTO_FA)) ||
        !ra->calls.describe(ra->calls.opaque, item, &row))
        return ahead ? QM_AUTO_AHEAD : QM_AUTO_MISS;
    ra->room = false;
    if (has_rule(ra, QM_AUTO_FA))
        foreign(ra, now_ms, item, &row);
    if (has_rule(ra, QM_AUTO_SA))
        spatial(ra, now_ms, item, &row, ahead);
    *pause = ra->room ? 0 : PAUSE;
    return ahead ? QM_AUTO_AHEAD : QM_AUTO_MISS;
}

void qm_auto_predicted(struct qm_auto *ra, uint64_t now_ms, struct qm_item item)
{
    if (has_rule(ra, QM_AUTO_MINED))
        want(ra, now_ms, qm_rule_yield_find(ra->yield, item.table, QM_AUTO_MINED, 0),
             item.table, item.row, item.row, false, 1);
}

void qm_auto_modified(struct qm_auto *ra, uint64_t now_ms, struct qm_item item)
{
    waste(ra, now_ms, item);
    qm_watcher_end(ra->watcher, now_ms, item, QM_RULE_YIELD_UNUSED);
    may_be_asked_again(ra, item);
    qm_items_remove(ra->changed, item); /* it becomes the newest */
    *qm_items_add(ra->changed, item) = now_ms;
    if (!has_rule(ra, QM_AUTO_TA))
        return;
    qm_changes_note(ra->together, now_ms, item);
    temporal_together(ra, now_ms);
}

void qm_auto_dropped(struct qm_auto *ra, struct qm_item item)
{
    struct qm_items *all[] = {ra->fresh, ra->old};

    for (unsigned i = 0; i < 2; i++) {
        const uint64_t *value = qm_items_find(all[i], item);

        if (!value)
            continue;
        ra->stats.wasted[rule_of(ra, arm_of(*value))]++;
        if (all[i] == ra->fresh) /* it is not judged */
            qm_rule_yield_give_back(ra->yield, arm_of(*value), 1);
        leave(ra, all[i], item, *value);
    }
    qm_watcher_end(ra->watcher, 0, item, QM_RULE_YIELD_UNKNOWN);
    may_be_asked_again(ra, item);
}

void qm_auto_dropped_all(struct qm_auto *ra)
{
    struct qm_items *all[] = {ra->fresh, ra->old};
    struct qm_item item;
    uint64_t value;

    unask_all(ra); /* first, so that nothing is looked for in the queue */
    for (unsigned i = 0; i < 2; i++)
        while (qm_items_oldest(all[i], &item, &value))
            qm_auto_dropped(ra, item);
    qm_watcher_end_all(ra->watcher);
    qm_lately_clear(ra->recent);
}

void qm_auto_emptied(struct qm_auto *ra, uint64_t now_ms, uint32_t table)
{
    struct qm_items *all[] = {ra->fresh, ra->old};
    struct qm_item item;
    uint64_t value;

    for (unsigned i = 0; i < 2; i++)
        for (size_t at = 0; qm_items_each(all[i], &at, &item, &value);)
            if (item.table == table)
                waste(ra, now_ms, item);
    unask_table(ra, table);
    qm_lately_forget_table(ra->recent, table);
}

void qm_auto_tick(struct qm_auto *ra, uint64_t now_ms)
{
    struct qm_item item;
    uint64_t value;

    while (qm_items_oldest(ra->fresh, &item, &value) &&
           now_ms - (value >> 16) >= ra->settings.judge_ms)
        judge_oldest(ra, now_ms);
    qm_watcher_tick(ra->watcher, now_ms);
    if (has_rule(ra, QM_AUTO_TA))
        temporal_together(ra, now_ms);
}

void qm_auto_forget_table(struct qm_auto *ra, uint32_t table)
{
    unask_table(ra, table);
    qm_rule_yield_forget(ra->yield, table);
}

void qm_auto_work(struct qm_auto *ra, double us)
{
    qm_rule_yield_work(ra->yield, us);
}

void qm_auto_busy(struct qm_auto *ra, double busy)
{
    qm_rule_yield_busy(ra->yield, busy);
}

void qm_auto_processors(struct qm_auto *ra, double busy)
{
    qm_rule_yield_processors(ra->yield, busy);
}

bool qm_auto_is_late(const struct qm_auto *ra, uint64_t now_ms)
{
    return qm_auto_queue_is_late(&ra->queue, now_ms);
}

bool qm_auto_next(struct qm_auto *ra, uint64_t now_ms, bool out,
                  struct qm_auto_request *request)
{
    return qm_auto_queue_take(&ra->queue, now_ms, out ? QM_AUTO_GATHER_MS : 0, request);
}

static bool has(const int64_t *rows, unsigned count, int64_t row)
{
    for (unsigned i = 0; i < count; i++)
        if (rows[i] == row)
            return true;
    return false;
}

void qm_auto_not_asked(struct qm_auto *ra, uint64_t now_ms,
                       const struct qm_auto_request *request)
{
    for (unsigned i = 0; i < request->count; i++) {
        struct qm_item item = {request->table, request->row[i]};

        unask(ra, item, request->arm[i]);
        if (is_together(ra, request->arm[i]))
            qm_changes_wait_again(ra->together, now_ms, item);
    }
    if (has_rule(ra, QM_AUTO_TA))
        temporal_together(ra, now_ms);
}

void qm_auto_fetched(struct qm_auto *ra, uint64_t now_ms,
                     const struct qm_auto_request *request, const int64_t *rows,
                     unsigned count, double us, double work_us)
{
    unsigned together = 0, arm_together = 0;

    for (unsigned i = 0; i < request->count; i++) {
        struct qm_item item = {request->table, request->row[i]};
        unsigned arm = request->arm[i];

        ra->stats.us[rule_of(ra, arm)] += us / request->count;
        if (is_together(ra, arm)) {
            ra->together_asked--;
            arm_together = arm;
            together++;
        }
        if (!has(rows, count, item.row)) {
            qm_rule_yield_give_back(ra->yield, arm, 1);
            if (us == 0 && is_together(ra, arm)) {
                qm_lately_forget(ra->recent, item);
                qm_changes_wait_again(ra->together, now_ms, item);
            }
            continue;
        }
        waste(ra, now_ms, item); /* it was there before, and is there no more */
        ra->stats.fetched[rule_of(ra, arm)]++;
        if (!is_together(ra, arm))
            qm_rule_yield_paid(ra->yield, arm, 1, us / count, work_us / count);
        if (qm_items_count(ra->fresh) >= ra->settings.fresh)
            judge_oldest(ra, now_ms);
        add_fresh(ra, item, now_ms, arm);
    }
    /* Their SELECT is one sample of what they cost, however many came: their share is
     * of those that are asked for, too. */
    if (together > 0 && us > 0)
        qm_rule_yield_paid(ra->yield, arm_together, together,
                           us / request->count * together,
                           work_us / request->count * together);
    if (has_rule(ra, QM_AUTO_TA))
        temporal_together(ra, now_ms);
}

void qm_auto_forget(struct qm_auto *ra)
{
    struct qm_item item;
    uint64_t value;

    while (qm_items_oldest(ra->fresh, &item, &value)) {
        qm_rule_yield_give_back(ra->yield, arm_of(value), 1);
        leave(ra, ra->fresh, item, value);
    }
    while (qm_items_oldest(ra->old, &item, &value))
        leave(ra, ra->old, item, value);
    unask_all(ra);
    qm_watcher_end_all(ra->watcher);
    qm_lately_clear(ra->recent);
    qm_items_clear(ra->changed);
    qm_changes_clear(ra->together);
}

void qm_auto_get_stats(const struct qm_auto *ra, struct qm_auto_stats *stats)
{
    *stats = ra->stats;
}

const struct qm_rule_yield *qm_auto_yield(const struct qm_auto *ra)
{
    return ra->yield;
}
