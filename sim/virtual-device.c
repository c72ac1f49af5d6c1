/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-device.c - reads of the device in virtual time, and the processors that
 * compute before them (virtual.h).
 *
 * A read is computed, if that is to take time, then submitted to the device model,
 * which says when it ends; its actor is told then.
 */
#include <stdlib.h>

#include "sim/virtual-internal.h"

static void device_done(void *opaque, void *what)
{
    struct vt_actor *actor = what;

    (void)opaque;
    free(actor->request);
    actor->request = NULL;
    actor->done(actor);
}

/* The device model has no more to do for a request, which ends when it says. */
void vt_device_changed(struct qm_device_request *request)
{
    struct vt_actor *actor = request->opaque;

    if (request->pending == 0)
        vt_at(actor->v, request->done, device_done, actor);
}

int64_t vt_compute(struct qm_virtual *v, uint64_t ns)
{
    int64_t *first = v->processors;

    v->computed += ns;
    if (v->config.processor.count == 0)
        return v->now + (int64_t)ns;
    for (unsigned i = 1; i < v->config.processor.count; i++)
        if (v->processors[i] < *first)
            first = &v->processors[i];
    *first = (*first > v->now ? *first : v->now) + (int64_t)ns;
    return *first;
}

static void submit(struct vt_actor *actor)
{
    struct qm_virtual *v = actor->v;
    const uint64_t block_size = v->sim->config.block_size;
    const uint64_t at = actor->block * block_size;
    uint64_t length = actor->n * block_size;

    if (length > v->config.size - at) /* the device's last block need not be whole */
        length = v->config.size - at;
    actor->since = v->now;
    actor->others = qm_admission_begin(&v->sim->admission, actor->background);
    if (v->sim->measuring) {
        *(actor->background ? &v->counts.prefetch_reads : &v->counts.demand_reads) += 1;
        *(actor->background ? &v->counts.prefetch_blocks : &v->counts.demand_blocks) +=
            actor->n;
    }
    vt_fail(v, qm_device_submit(v->device, v->now, false, actor->background, at, length,
                                actor, &actor->request));
}

static void computed_read(void *opaque, void *what)
{
    (void)opaque;
    submit(what);
}

void vt_device_read(struct vt_actor *actor, bool background, uint64_t block, unsigned n)
{
    struct qm_virtual *v = actor->v;
    const uint64_t ns = v->config.processor.read_ns;

    actor->background = background;
    actor->block = block;
    actor->n = n;
    if (ns > 0)
        vt_at(v, vt_compute(v, ns), computed_read, actor);
    else
        submit(actor);
}
