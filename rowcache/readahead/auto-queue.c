/* SPDX-License-Identifier: BSD-3-Clause */
/* auto-queue.c - see auto-queue.h. */
#include "rowcache/readahead/auto-queue.h"

static struct qm_auto_request *at(struct qm_auto_queue *queue, unsigned i)
{
    return &queue->request[(queue->first + i) % QM_AUTO_QUEUE];
}

struct qm_auto_request *qm_auto_queue_add(struct qm_auto_queue *queue, uint64_t now_ms,
                                          uint32_t table)
{
    struct qm_auto_request *request;

    for (unsigned i = 0; i < queue->count; i++) {
        request = at(queue, i);
        if (request->table == table && request->count < QM_AUTO_ROWS)
            return request;
    }
    if (queue->count == QM_AUTO_QUEUE)
        return NULL;
    request = at(queue, queue->count++);
    request->table = table;
    request->count = 0;
    request->soon = false;
    request->since = now_ms;
    return request;
}

bool qm_auto_queue_is_late(const struct qm_auto_queue *queue, uint64_t now_ms)
{
    return queue->count > 0 &&
           now_ms - queue->request[queue->first].since >= QM_AUTO_PATIENCE_MS;
}

bool qm_auto_queue_take(struct qm_auto_queue *queue, uint64_t now_ms,
                        unsigned waited_ms, struct qm_auto_request *request)
{
    unsigned i = 0;

    while (i < queue->count && !at(queue, i)->soon &&
           now_ms - at(queue, i)->since < waited_ms)
        i++;
    if (i == queue->count)
        return false;
    *request = *at(queue, i);
    for (; i > 0; i--)
        *at(queue, i) = *at(queue, i - 1);
    queue->first = (queue->first + 1) % QM_AUTO_QUEUE;
    queue->count--;
    return true;
}

bool qm_auto_queue_has(const struct qm_auto_queue *queue, struct qm_item item)
{
    for (unsigned i = 0; i < queue->count; i++) {
        const struct qm_auto_request *request =
            &queue->request[(queue->first + i) % QM_AUTO_QUEUE];

        for (unsigned j = 0; request->table == item.table && j < request->count; j++)
            if (request->row[j] == item.row)
                return true;
    }
    return false;
}

/* The same of one request. */
static void remove_rows(struct qm_auto_request *request,
                        bool (*goes)(void *opaque, struct qm_item item, unsigned arm),
                        void *opaque)
{
    unsigned stay = 0;

    for (unsigned i = 0; i < request->count; i++) {
        const struct qm_item item = {request->table, request->row[i]};

        if (goes(opaque, item, request->arm[i]))
            continue;
        request->row[stay] = request->row[i];
        request->arm[stay++] = request->arm[i];
    }
    request->count = stay;
}

void qm_auto_queue_remove(struct qm_auto_queue *queue,
                          bool (*goes)(void *opaque, struct qm_item item, unsigned arm),
                          void *opaque)
{
    unsigned stay = 0;

    for (unsigned i = 0; i < queue->count; i++) {
        remove_rows(at(queue, i), goes, opaque);
        if (at(queue, i)->count == 0)
            continue;
        if (stay != i)
            *at(queue, stay) = *at(queue, i);
        stay++;
    }
    queue->count = stay;
}
