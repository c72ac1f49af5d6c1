/* SPDX-License-Identifier: BSD-3-Clause */
/* auto-queue.h - auto's requests, each of one table, oldest first: rows are added to
 * them until they are taken. */
#ifndef QM_ROWCACHE_AUTO_QUEUE_H
#define QM_ROWCACHE_AUTO_QUEUE_H

#include "rowcache/readahead/auto.h"

/* Zero: it is empty. */
struct qm_auto_queue {
    unsigned first, count;
    struct qm_auto_request request[QM_AUTO_QUEUE];
};

/* The request of that table that has room for a row, a new one if there is none.  NULL:
 * there are too many. */
struct qm_auto_request *qm_auto_queue_add(struct qm_auto_queue *queue, uint64_t now_ms,
                                          uint32_t table);
/* qm_auto_is_late(), qm_auto_next() */
bool qm_auto_queue_is_late(const struct qm_auto_queue *queue, uint64_t now_ms);
/* The oldest of those that have waited that long, or have rows that are read soon. */
bool qm_auto_queue_take(struct qm_auto_queue *queue, uint64_t now_ms,
                        unsigned waited_ms, struct qm_auto_request *request);
bool qm_auto_queue_has(const struct qm_auto_queue *queue, struct qm_item item);
/* Removes the rows for which goes() says so, which is asked once for each. */
void qm_auto_queue_remove(struct qm_auto_queue *queue,
                          bool (*goes)(void *opaque, struct qm_item item, unsigned arm),
                          void *opaque);

#endif
