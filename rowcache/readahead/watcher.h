/* SPDX-License-Identifier: BSD-3-Clause */
/* watcher.h - judges arms (yield.h) by rows that they would have fetched, and did not.
 *
 * Not thread-safe, but for qm_watcher_may_have(). */
#ifndef QM_ROWCACHE_WATCHER_H
#define QM_ROWCACHE_WATCHER_H

#include "rowcache/readahead/watched.h"
#include "rowcache/readahead/yield.h"

struct qm_watcher;

struct qm_watcher_calls {
    void *opaque;
    /* A row was used, or was not in its time.  It is not told when that is not known.
     */
    void (*judged)(void *opaque, struct qm_item item, unsigned arm, bool used);
};

/* Bounds as of qm_watched_new(); rows are judged after judge_ms.  The yield and numbers
 * are the caller's, and outlive it. */
struct qm_watcher *qm_watcher_new(unsigned bound, unsigned judge_ms,
                                  struct qm_rule_yield *yield,
                                  struct qm_numbers *numbers,
                                  const struct qm_watcher_calls *calls);
void qm_watcher_free(struct qm_watcher *watcher);

/* As qm_watched_may_have(). */
bool qm_watcher_may_have(const struct qm_watcher *watcher, int64_t row);
/* At most that many rows of an arm would be watched, or allowed (qm_rule_yield_room()),
 * now: 0 for one that is watched while no more rows can be. */
unsigned qm_watcher_room(struct qm_watcher *watcher, uint64_t now_ms, unsigned arm);
/* Watches as many of these rows as the arm is to have watched. */
void qm_watcher_note(struct qm_watcher *watcher, uint64_t now_ms, unsigned arm,
                     uint32_t table, const int64_t *rows, unsigned n);
/* A client's read of a row. */
void qm_watcher_read(struct qm_watcher *watcher, uint64_t now_ms, struct qm_item item,
                     bool hit);
/* It has changed, or is dropped; all are. */
void qm_watcher_end(struct qm_watcher *watcher, uint64_t now_ms, struct qm_item item,
                    enum qm_rule_yield_outcome outcome);
void qm_watcher_end_all(struct qm_watcher *watcher);
/* To be called now and then. */
void qm_watcher_tick(struct qm_watcher *watcher, uint64_t now_ms);

#endif
