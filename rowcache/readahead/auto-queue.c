/* SPDX-License-Identifier: BSD-3-Clause */
/* auto-queue.c - see auto-queue.h. */
#include "rowcache/readahead/auto-queue.h"

struct qm_auto_request *qm_auto_queue_add(struct qm_auto_queue *queue, uint64_t now_ms,
                                          uint32_t table)
{
    struct qm_auto_request *request;

    for (unsigned i = 0; i < queue->count; i++) {
        request = &queue->request[(queue->first + i) % QM_AUTO_QUEUE];
        if (request->table == table && request->count < QM_AUTO_ROWS)
            return request;
    }
    if (queue->count == QM_AUTO_QUEUE)
        return NULL;
    request = &queue->request[(queue->first + queue->count++) % QM_AUTO_QUEUE];
    request->table = table;
    request->count = 0;
    request->since = now_ms;
    return request;
}

bool qm_auto_queue_is_late(const struct qm_auto_queue *queue, uint64_t now_ms)
{
    return queue->count > 0 &&
           now_ms - queue->request[queue->first].since >= QM_AUTO_PATIENCE_MS;
}

bool qm_auto_queue_take(struct qm_auto_queue *queue, struct qm_auto_request *request)
{
    if (queue->count == 0)
        return false;
    *request = queue->request[queue->first];
    queue->first = (queue->first + 1) % QM_AUTO_QUEUE;
    queue->count--;
    return true;
}
