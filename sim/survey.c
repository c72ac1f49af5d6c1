/* SPDX-License-Identifier: BSD-3-Clause */
/* survey.c - see survey.h.
 *
 * Roots that are active are in a list by the time of their last read, linked by slots,
 * so that those whose second is over are at its beginning.
 */
#include "sim/survey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ACTIVE_US UINT64_C(1000000)

struct qm_survey_root {
    uint64_t us; /* of its last read */
    uint32_t prev, next;
    bool active;
};

void qm_survey_init(struct qm_survey *s, uint64_t block_size)
{
    *s = (struct qm_survey){.block_size = block_size, .first_us = UINT64_MAX};
}

static int make_room(struct qm_survey *s, uint32_t slot)
{
    uint32_t room = s->room ? s->room : 64;
    struct qm_survey_root *roots;
    uint32_t *root_of;

    if (slot < s->room)
        return 0;
    while (room <= slot) {
        if (room > UINT32_MAX / 2)
            return ENOMEM;
        room *= 2;
    }
    root_of = reallocarray(s->root_of, room, sizeof *root_of);
    if (root_of)
        s->root_of = root_of;
    roots = reallocarray(s->roots, room, sizeof *roots);
    if (roots)
        s->roots = roots;
    if (!root_of || !roots)
        return ENOMEM;
    memset(s->root_of + s->room, 0, (room - s->room) * sizeof *root_of);
    memset(s->roots + s->room, 0, (room - s->room) * sizeof *roots);
    s->room = room;
    return 0;
}

static void deactivate(struct qm_survey *s, uint32_t root)
{
    struct qm_survey_root *r = &s->roots[root];

    if (!r->active)
        return;
    *(r->prev ? &s->roots[r->prev].next : &s->oldest) = r->next;
    *(r->next ? &s->roots[r->next].prev : &s->newest) = r->prev;
    r->active = false;
    s->active--;
}

static void activate(struct qm_survey *s, uint32_t root, uint64_t us)
{
    struct qm_survey_root *r = &s->roots[root];

    deactivate(s, root);
    *r = (struct qm_survey_root){.us = us, .prev = s->newest, .active = true};
    *(s->newest ? &s->roots[s->newest].next : &s->oldest) = root;
    s->newest = root;
    s->active++;
}

static int begin(struct qm_survey *s, const struct qm_event *event)
{
    int error = make_room(s, event->slot);

    if (error)
        return error;
    s->contexts[event->kind]++;
    deactivate(s, event->slot); /* a root whose number is used again */
    s->root_of[event->slot] =
        event->parent_slot ? s->root_of[event->parent_slot] : event->slot;
    return 0;
}

static int request(struct qm_survey *s, const struct qm_event *event)
{
    const bool write = event->type == QM_TRACE_WRITE;
    uint64_t block = event->offset / s->block_size;
    uint64_t last = (event->offset + event->length - 1) / s->block_size;
    int error = 0;

    *(write ? &s->writes : &s->reads) += 1;
    if (event->offset + event->length > s->end)
        s->end = event->offset + event->length;
    if (write)
        return 0;
    s->blocks += last - block + 1;
    if (last - block + 1 > s->most_blocks)
        s->most_blocks = last - block + 1;
    if (event->slot)
        activate(s, s->root_of[event->slot], event->us);
    else
        s->untagged++;
    while (s->oldest && s->roots[s->oldest].us + ACTIVE_US < event->us)
        deactivate(s, s->oldest);
    s->active_sum += s->active;
    for (; block <= last && !error; block++)
        error = qm_footprint_add(&s->footprint, block, false);
    return error;
}

int qm_survey_event(struct qm_survey *s, const struct qm_event *event)
{
    if (event->us < s->first_us)
        s->first_us = event->us;
    if (event->us > s->last_us)
        s->last_us = event->us;
    switch (event->type) {
    case QM_TRACE_BEGIN:
        return begin(s, event);
    case QM_TRACE_END:
        deactivate(s, event->slot);
        return 0;
    default:
        return request(s, event);
    }
}

unsigned qm_survey_clients(const struct qm_survey *s, unsigned most)
{
    uint64_t tagged = s->reads - s->untagged;
    double mean = tagged ? (double)s->active_sum / (double)s->reads : 1;

    if (mean >= most)
        return most;
    return mean < 1 ? 1 : (unsigned)(mean + 0.5);
}

double qm_survey_seconds(const struct qm_survey *s)
{
    return s->last_us > s->first_us ? (double)(s->last_us - s->first_us) / 1e6 : 0;
}

void qm_survey_clear(struct qm_survey *s)
{
    qm_footprint_clear(&s->footprint);
    free(s->root_of);
    free(s->roots);
    *s = (struct qm_survey){.root_of = NULL};
}
