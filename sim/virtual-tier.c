/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-tier.c - the second tier in virtual time: a device model of its own below
 * sim/tier.h (virtual.h).
 *
 * What a request or a prefetch finds in the tier is read by as many reads at once as
 * there are blocks; how many of these the device serves at a time, its model says.
 * What the tier writes goes to its device in the background, one write at a time with
 * all that has gathered, up to what the server's thread writes together.  The decisions
 * themselves take no time.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/virtual-internal.h"

#define WRITE_MAX (UINT64_C(1) << 20)

static void read_done(struct vt_actor *actor)
{
    struct vt_looking *l = actor->owner;
    struct qm_virtual *v = actor->v;

    if (--l->pending > 0)
        return;
    qm_latency_took(&v->sim->latency, QM_PLACE_TIER,
                    l->blocks * v->sim->config.block_size,
                    (uint64_t)(v->now - l->since));
    l->done(l);
}

void vt_tier_begin(struct qm_virtual *v, struct vt_looking *l)
{
    l->pending = l->blocks = 0;
    l->since = v->now;
}

bool vt_tier_look(struct qm_virtual *v, struct vt_looking *l, uint64_t block,
                  bool ahead)
{
    const uint64_t block_size = v->sim->config.block_size;
    struct vt_actor *actor = &l->reads[l->blocks];

    if (!v->sim->tier || !qm_sim_tier_read(v->sim->tier, block, ahead))
        return false;
    *actor = (struct vt_actor){.v = v, .owner = l, .done = read_done};
    l->pending++;
    l->blocks++;
    /* Where in the tier, an SSD does not mind. */
    vt_fail(v, qm_device_submit(v->tier_device, v->now, false, false,
                                block * block_size % v->sim->config.tier.size,
                                block_size, actor, &actor->request));
    return true;
}

void vt_tier_forget(struct vt_looking *l)
{
    for (unsigned i = 0; i < l->blocks; i++) {
        free(l->reads[i].request);
        l->reads[i].request = NULL;
    }
}

static void write_done(struct vt_actor *actor)
{
    vt_tier_write(actor->v);
}

void vt_tier_write(struct qm_virtual *v)
{
    struct qm_sim_tier_counts counts;
    uint64_t length;

    if (!v->tier_device || v->tier_writer.request || v->error)
        return;
    qm_sim_tier_counts(v->sim->tier, &counts);
    length = counts.bytes_written - v->tier_written;
    if (length == 0)
        return;
    if (length > WRITE_MAX)
        length = WRITE_MAX;
    v->tier_written += length;
    if (v->tier_at + length > v->sim->config.tier.size)
        v->tier_at = 0;
    vt_fail(v, qm_device_submit(v->tier_device, v->now, true, true, v->tier_at, length,
                                &v->tier_writer, &v->tier_writer.request));
    v->tier_at += length;
}

void vt_tier_time(struct qm_virtual *v)
{
    if (v->sim->tier)
        qm_sim_tier_time(v->sim->tier, (uint64_t)v->now);
}

int vt_tier_init(struct qm_virtual *v)
{
    const struct qm_sim_tier_config *c = &v->sim->config.tier;
    int error;

    v->tier_writer = (struct vt_actor){.v = v, .done = write_done};
    if (!v->sim->tier)
        return 0;
    if (!c->device)
        return EINVAL;
    error = qm_device_new(c->device, c->size + WRITE_MAX, &v->tier_device);
    if (!error)
        qm_device_on_change(v->tier_device, vt_device_changed);
    return error;
}

void vt_tier_destroy(struct qm_virtual *v)
{
    free(v->tier_writer.request);
    qm_device_free(v->tier_device);
}
