/* SPDX-License-Identifier: BSD-3-Clause */
/* device-retain.c - changes: their order, and which of them are not stable yet.
 *
 * The lock is the device's.  Copying data is done without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clients/libqmctx/device-internal.h"

static bool overlap(const struct change *a, const struct change *b)
{
    return a->offset < b->offset + b->count && b->offset < a->offset + a->count;
}

void qm_change_free(struct change *change)
{
    free(change->data);
    free(change);
}

/* --- order --- */

void qm_change_queue(struct qm_device *device, struct change *change)
{
    struct change *earlier;

    cds_list_for_each_entry(earlier, &device->queue, node) if (overlap(earlier, change))
        change->blockers++;
    cds_list_add_tail(&change->node, &device->queue);
}

/* Takes it out, and lets those go on that waited for nothing else. */
static void unqueue(struct qm_device *device, struct change *change)
{
    struct cds_list_head *node;

    for (node = change->node.next; node != &device->queue; node = node->next) {
        struct change *later = cds_list_entry(node, struct change, node);

        if (!overlap(later, change) || --later->blockers > 0)
            continue;
        if (later->waiter)
            pthread_cond_signal(later->waiter);
        else if (later->aio)
            qm_device_kick(device);
    }
    cds_list_del(&change->node);
}

/* --- how much is retained --- */

static void more_room(struct qm_device *device)
{
    if (device->starved == 0)
        return;
    pthread_cond_broadcast(&device->settled);
    qm_device_kick(device);
}

static void starve(struct qm_device *device, struct change *change, bool starving)
{
    if (change->starving == starving)
        return;
    change->starving = starving;
    device->starved += starving ? 1 : -1u;
}

static void give_back(struct qm_device *device, struct change *change)
{
    if (change->charge == 0)
        return;
    device->reserved -= change->charge;
    device->keeping--;
    change->charge = 0;
    if (device->keeping == 0)
        pthread_cond_broadcast(&device->settled);
    more_room(device);
}

void qm_change_remove(struct qm_device *device, struct change *change)
{
    starve(device, change, false);
    give_back(device, change);
    unqueue(device, change);
}

/* --- which regions of the device retained changes touch --- */

/* Calls for each region that the change touches, each hash once. */
static bool touches(struct qm_device *device, const struct change *change, int add)
{
    uint64_t first = change->offset >> QM_REGION_SHIFT,
             last = (change->offset + change->count - 1) >> QM_REGION_SHIFT, n;
    bool any = false;

    n = last - first + 1 < QM_REGIONS ? last - first + 1 : QM_REGIONS;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *count = &device->regions[(first + i) % QM_REGIONS];

        any = any || *count > 0;
        *count += (uint32_t)add;
    }
    return any;
}

/* --- how a change is sent --- */

bool qm_change_prepare(struct qm_device *device, struct change *change)
{
    uint64_t need = QM_CHANGE_BYTES;

    if (change->charge > 0)
        return true; /* it was prepared before a loss */
    starve(device, change, false);
    if (change->kind == CHANGE_TRIM) {
        change->way = WAY_ADVICE;
        return true;
    }
    if (change->kind == CHANGE_WRITE)
        need += change->count;
    if (change->stable || device->mode == QM_RETAIN_FUA) {
        /* Zeroing has no FUA here. */
        change->way =
            change->kind == CHANGE_WRITE && atomic_load(&device->direct->can_fua)
                ? WAY_FUA
                : WAY_THROUGH;
        return true;
    }
    if (device->mode == QM_RETAIN_OFF) {
        change->way = WAY_COUNT;
        return true;
    }
    /* While FLUSH fails nothing becomes free: the error is the writers', too. */
    if (need > device->limit || need < QM_CHANGE_BYTES || device->suspect) {
        change->way = WAY_THROUGH;
        return true;
    }
    if (device->retained_bytes + device->reserved > device->limit - need) {
        starve(device, change, true);
        pthread_cond_signal(&device->changed);
        return false;
    }
    change->way = WAY_RETAIN;
    change->charge = need;
    device->reserved += need;
    device->keeping++;
    return true;
}

void qm_change_copy(struct qm_device *device, struct change *change, const void *buf)
{
    if (change->way != WAY_RETAIN || change->kind != CHANGE_WRITE || change->data)
        return;
    change->data = malloc(change->count);
    if (change->data) {
        memcpy(change->data, buf, change->count);
        return;
    }
    pthread_mutex_lock(&device->lock);
    change->way = WAY_THROUGH;
    give_back(device, change);
    pthread_mutex_unlock(&device->lock);
}

/* --- what is retained --- */

static void keep(struct qm_device *device, struct change *change)
{
    struct qm_device_stat *stat = &device->stat;

    touches(device, change, 1);
    if (device->retained_count == 0)
        clock_gettime(CLOCK_MONOTONIC, &device->retained_since);
    cds_list_add_tail(&change->node, &device->retained);
    device->retained_bytes += change->charge;
    device->retained_count++;
    if (device->retained_bytes > stat->retained_most)
        stat->retained_most = device->retained_bytes;
    if (device->retained_bytes > device->limit / 2 || device->starved > 0)
        pthread_cond_signal(&device->changed);
}

static void drop(struct qm_device *device, struct change *change)
{
    touches(device, change, -1);
    cds_list_del(&change->node);
    device->retained_bytes -= change->charge;
    device->retained_count--;
    qm_change_free(change);
}

static bool covers(const struct change *a, const struct change *b)
{
    return a->offset <= b->offset && b->offset + b->count <= a->offset + a->count;
}

/* Drops the masks that a stable change makes superfluous.  Whether it hides anything
 * itself. */
static bool supersede(struct qm_device *device, const struct change *change)
{
    struct change *older, *next;
    bool hides = false;

    cds_list_for_each_entry_safe(older, next, &device->retained, node)
    {
        if (!overlap(older, change))
            continue;
        if (older->kind != CHANGE_MASK)
            hides = true;
        else if (covers(change, older))
            drop(device, older);
    }
    return hides;
}

void qm_change_answered(struct qm_device *device, struct change *change)
{
    unqueue(device, change);
    switch (change->way) {
    case WAY_RETAIN:
        device->reserved -= change->charge;
        device->keeping--;
        change->seq = ++device->answered;
        keep(device, change);
        if (device->keeping == 0)
            pthread_cond_broadcast(&device->settled);
        return;
    case WAY_COUNT:
        device->answered++;
        break;
    case WAY_ADVICE:
        /* An older write that is sent again over it does no harm: nobody may rely on
         * what trimming leaves. */
        break;
    default:
        /* Nothing that is older may ever come back over it. */
        if (!touches(device, change, 0))
            break;
        /* Else a FLUSH will soon drop them all; it would take long to look at each. */
        if (device->suspect && !supersede(device, change))
            break;
        change->kind = CHANGE_MASK;
        change->seq = device->answered;
        change->charge = QM_CHANGE_BYTES;
        keep(device, change);
        return;
    }
    qm_change_free(change);
}

void qm_retain_flushed(struct qm_device *device, uint64_t upto)
{
    struct change *change, *next;

    if (device->suspect)
        return;
    if (upto > device->flushed)
        device->flushed = upto;
    cds_list_for_each_entry_safe(change, next, &device->retained, node)
    {
        if (change->seq > upto)
            break;
        drop(device, change);
    }
    more_room(device);
}

void qm_retain_flush_failed(struct qm_device *device)
{
    atomic_fetch_add(&device->losses, 1);
    if (device->retained_count > 0)
        device->suspect = true;
    more_room(device);
}

void qm_retain_give_up(struct qm_device *device)
{
    if (device->answered > device->flushed) {
        device->flushed = device->answered;
        atomic_fetch_add(&device->losses, 1);
    }
}

/* --- sending again --- */

struct piece {
    uint64_t offset, count;
    const struct change *change;
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The index of value, which is there. */
static size_t find(const uint64_t *at, size_t n, uint64_t value)
{
    return (size_t)((const uint64_t *)bsearch(&value, at, n, sizeof *at, by_value) -
                    at);
}

/* The first segment from i on that has no owner; next[] leads there. */
static size_t unowned(size_t *next, size_t i)
{
    size_t last = i, n;

    while (next[last] != last)
        last = next[last];
    for (; next[i] != last; i = n) {
        n = next[i];
        next[i] = last;
    }
    return last;
}

/* Gives each segment between two of at[] the newest change that covers it. */
static void own(struct qm_device *device, const uint64_t *at, size_t n,
                const struct change **owner, size_t *next)
{
    const struct change *change;
    size_t i, end;

    for (i = 0; i < n; i++) {
        owner[i] = NULL;
        next[i] = i;
    }
    cds_list_for_each_entry_reverse(change, &device->retained, node)
    {
        end = find(at, n, change->offset + change->count);
        for (i = unowned(next, find(at, n, change->offset)); i < end;
             i = unowned(next, i)) {
            owner[i] = change;
            next[i] = i + 1;
        }
    }
}

/* The parts of what is retained that are to be sent again, in the device's order; they
 * do not overlap.  *pieces is the caller's.  ENOMEM or 0. */
static int cut(struct qm_device *device, struct piece **pieces, size_t *count)
{
    size_t most = 2 * device->retained_count, n = 0, k = 0;
    uint64_t *at = malloc(most * sizeof *at);
    const struct change **owner = malloc(most * sizeof(struct change *)), *change;
    size_t *next = malloc(most * sizeof *next);
    struct piece *p = malloc(most * sizeof *p);

    *pieces = p;
    *count = 0;
    if (!at || !owner || !next || !p) {
        free(at);
        free(owner);
        free(next);
        return ENOMEM;
    }
    cds_list_for_each_entry(change, &device->retained, node)
    {
        at[n++] = change->offset;
        at[n++] = change->offset + change->count;
    }
    qsort(at, n, sizeof *at, by_value);
    for (size_t i = 1; i < n; i++)
        if (at[i] != at[k])
            at[++k] = at[i];
    n = k + 1;
    own(device, at, n, owner, next);
    for (size_t i = 0; i + 1 < n; i++) {
        if (!owner[i] || owner[i]->kind == CHANGE_MASK)
            continue;
        if (*count > 0 && i > 0 && owner[i] == owner[i - 1])
            p[*count - 1].count += at[i + 1] - at[i];
        else
            p[(*count)++] = (struct piece){at[i], at[i + 1] - at[i], owner[i]};
    }
    free(at);
    free(owner);
    free(next);
    return 0;
}

/* What is being sent again. */
struct flight {
    _Atomic unsigned count;
    _Atomic int error; /* the first */
};

enum { IN_FLIGHT = 32 };

static void piece_done(void *opaque, int error)
{
    struct flight *flight = opaque;
    int none = 0;

    if (error)
        atomic_compare_exchange_strong(&flight->error, &none, error);
    atomic_fetch_sub(&flight->count, 1);
}

static int send_piece(struct qm_device *device, const struct piece *piece,
                      struct flight *flight)
{
    const struct change *change = piece->change;

    if (change->kind == CHANGE_ZERO)
        return qmctx_zero(device->server, piece->count, piece->offset) == 0 ? 0 : errno;
    atomic_fetch_add(&flight->count, 1);
    if (qmctx_aio_pwrite(device->server, 0,
                         change->data + (piece->offset - change->offset), piece->count,
                         piece->offset, false, piece_done, flight) == 0)
        return 0;
    atomic_fetch_sub(&flight->count, 1);
    return errno;
}

static int send_pieces(struct qm_device *device, const struct piece *pieces,
                       size_t count)
{
    struct flight flight = {.count = 0};
    int err = 0;

    for (size_t i = 0; i < count && !err; i++) {
        while (atomic_load(&flight.count) >= IN_FLIGHT)
            qmctx_poll(device->server, -1);
        err = send_piece(device, &pieces[i], &flight);
        if (!err)
            err = atomic_load(&flight.error);
    }
    while (atomic_load(&flight.count) > 0)
        qmctx_poll(device->server, -1);
    if (!err)
        err = atomic_load(&flight.error);
    if (err && atomic_load(&flight.error) == err)
        qm_fail(err, "what was written before cannot be sent again: %s", strerror(err));
    return err;
}

int qm_retain_resend(struct qm_device *device)
{
    uint64_t bytes = 0, changes = 0;
    const struct change *change;
    struct piece *pieces;
    size_t count;
    int err;

    if (device->retained_count == 0) {
        pthread_mutex_lock(&device->lock);
        device->suspect = false;
        pthread_mutex_unlock(&device->lock);
        return 0;
    }
    err = cut(device, &pieces, &count);
    if (err) {
        qm_fail(err, "out of memory for what is to be sent again");
    } else {
        for (size_t i = 0; i < count; i++)
            bytes += pieces[i].change->kind == CHANGE_WRITE ? pieces[i].count : 0;
        err = send_pieces(device, pieces, count);
    }
    if (!err && qmctx_flush(device->server) == -1)
        err = errno;
    free(pieces);
    if (err)
        return err;
    pthread_mutex_lock(&device->lock);
    cds_list_for_each_entry(change, &device->retained, node) changes +=
        change->kind != CHANGE_MASK;
    device->stat.resent_changes += changes;
    device->stat.resent_bytes += bytes;
    device->suspect = false;
    qm_retain_flushed(device, device->answered);
    pthread_mutex_unlock(&device->lock);
    return 0;
}
