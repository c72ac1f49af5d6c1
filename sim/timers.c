/* SPDX-License-Identifier: BSD-3-Clause */
/* timers.c - see timers.h. */
#include "sim/timers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static bool before(const struct qm_timer *a, const struct qm_timer *b)
{
    return a->when != b->when ? a->when < b->when : a->number < b->number;
}

int qm_timers_set(struct qm_timers *t, int64_t when, qm_timer_call *call, void *what)
{
    struct qm_timer timer = {when, t->numbers, call, what};
    size_t at;

    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        struct qm_timer *heap = reallocarray(t->heap, room, sizeof *heap);

        if (!heap)
            return ENOMEM;
        t->heap = heap;
        t->room = room;
    }
    t->numbers++;
    for (at = t->count++; at > 0; at = (at - 1) / 2) {
        if (!before(&timer, &t->heap[(at - 1) / 2]))
            break;
        t->heap[at] = t->heap[(at - 1) / 2];
    }
    t->heap[at] = timer;
    return 0;
}

struct qm_timer qm_timers_take(struct qm_timers *t)
{
    struct qm_timer first = t->heap[0], last = t->heap[--t->count];
    size_t at = 0, child;

    for (; (child = 2 * at + 1) < t->count; at = child) {
        if (child + 1 < t->count && before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!before(&t->heap[child], &last))
            break;
        t->heap[at] = t->heap[child];
    }
    if (t->count > 0)
        t->heap[at] = last;
    return first;
}

void qm_timers_clear(struct qm_timers *t)
{
    free(t->heap);
    *t = (struct qm_timers){.heap = NULL};
}
