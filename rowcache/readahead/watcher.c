/* SPDX-License-Identifier: BSD-3-Clause */
/* watcher.c - see watcher.h. */
#include "rowcache/readahead/watcher.h"

#include <stdlib.h>

struct qm_watcher {
    struct qm_watcher_calls calls;
    struct qm_rule_yield *yield;
    struct qm_watched *rows;
    unsigned judge_ms;
};

struct qm_watcher *qm_watcher_new(unsigned bound, unsigned judge_ms,
                                  struct qm_rule_yield *yield,
                                  struct qm_numbers *numbers,
                                  const struct qm_watcher_calls *calls)
{
    struct qm_watcher *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->calls = *calls;
    w->yield = yield;
    w->judge_ms = judge_ms;
    w->rows = qm_watched_new(bound, numbers);
    if (!w->rows) {
        free(w);
        return NULL;
    }
    return w;
}

void qm_watcher_free(struct qm_watcher *w)
{
    if (!w)
        return;
    qm_watched_free(w->rows);
    free(w);
}

bool qm_watcher_may_have(const struct qm_watcher *w, int64_t row)
{
    return qm_watched_may_have(w->rows, row);
}

static void judge(struct qm_watcher *w, uint64_t now_ms,
                  const struct qm_watched_row *row, enum qm_rule_yield_outcome outcome)
{
    qm_rule_yield_judge_watched(w->yield, now_ms, row->arm, row->since_ms, outcome);
    if (outcome != QM_RULE_YIELD_UNKNOWN)
        w->calls.judged(w->calls.opaque, row->item, row->arm,
                        outcome == QM_RULE_YIELD_USED);
}

unsigned qm_watcher_room(struct qm_watcher *w, uint64_t now_ms, unsigned arm)
{
    unsigned room = qm_rule_yield_room(w->yield, now_ms, arm);

    if (room > 0 && qm_watched_is_full(w->rows) &&
        qm_rule_yield_get(w->yield, arm)->state == QM_RULE_YIELD_WATCHED)
        return 0;
    return room;
}

void qm_watcher_note(struct qm_watcher *w, uint64_t now_ms, unsigned arm,
                     uint32_t table, const int64_t *rows, unsigned n)
{
    n = qm_rule_yield_to_watch(w->yield, now_ms, arm, n);
    for (unsigned i = 0; i < n; i++)
        if (qm_watched_add(w->rows, (struct qm_item){table, rows[i]}, arm, now_ms))
            qm_rule_yield_watch(w->yield, now_ms, arm);
}

/* It would have missed the row all the same if it came before the database would have
 * answered; and where it is a hit, nothing would have been fetched. */
void qm_watcher_read(struct qm_watcher *w, uint64_t now_ms, struct qm_item item,
                     bool hit)
{
    struct qm_watched_row row;
    bool early;

    if (!qm_watched_take(w->rows, item, &row))
        return;
    if (!hit)
        qm_rule_yield_lead(w->yield, row.arm, now_ms - row.since_ms);
    early = (double)(now_ms - row.since_ms) * 1000 < qm_rule_yield_read_us(w->yield);
    if (!row.judged)
        judge(w, now_ms, &row,
              hit || early ? QM_RULE_YIELD_UNKNOWN : QM_RULE_YIELD_USED);
    else if (!hit)
        qm_rule_yield_late_watched(w->yield, now_ms, row.arm);
}

void qm_watcher_end(struct qm_watcher *w, uint64_t now_ms, struct qm_item item,
                    enum qm_rule_yield_outcome outcome)
{
    struct qm_watched_row row;

    if (qm_watched_take(w->rows, item, &row) && !row.judged)
        judge(w, now_ms, &row, outcome);
}

void qm_watcher_end_all(struct qm_watcher *w)
{
    struct qm_watched_row row;

    while (qm_watched_take_any(w->rows, &row))
        if (!row.judged)
            judge(w, row.since_ms, &row, QM_RULE_YIELD_UNKNOWN);
}

void qm_watcher_tick(struct qm_watcher *w, uint64_t now_ms)
{
    struct qm_watched_row row;

    while (now_ms >= w->judge_ms &&
           qm_watched_expire(w->rows, now_ms - w->judge_ms, &row))
        judge(w, now_ms, &row, QM_RULE_YIELD_UNUSED);
}
