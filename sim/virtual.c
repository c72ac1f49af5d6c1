/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual.c - clock, clients and results of a simulation in virtual time (virtual.h).
 *
 * The trace's events are dealt to clients that keep them until they come to them, in
 * the order of the trace; a client that is QM_VIRTUAL_AHEAD events behind makes the
 * trace wait, as in sim/replay.c.  Time goes on only while it does, or at the end:
 * until then all clients have as much to do as the trace gives them.
 */
#include "sim/virtual.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/virtual-internal.h"

/* The clock does not begin at 0, which is no time for engine/load.h. */
#define BEGINNING INT64_C(1000000000)

/* An event on its way to a client. */
struct item {
    char type;
    enum qm_kind kind;
    uint32_t slot, parent_slot; /* ours */
    uint64_t generation;
    uint32_t sequence; /* of what begins, with policy perfect */
    uint64_t us;
    union {
        struct {
            uint64_t offset, length;
        };
        char *klass; /* freed by the thread that takes the item */
    };
};

struct vt_client {
    struct qm_virtual *v;
    struct item *queue;
    unsigned first, count;
    bool busy; /* with a request, or waiting for the time of `item` or of the next */
    struct item item;
    struct vt_reader reader;
};

/* ---- the clock */

void vt_at(struct qm_virtual *v, int64_t when, qm_timer_call *call, void *what)
{
    vt_fail(v, qm_timers_set(&v->timers, when > v->now ? when : v->now, call, what));
}

/* What happens next, if that is not after `until`.  False: nothing does. */
static bool step(struct qm_virtual *v, int64_t until)
{
    int64_t device = qm_device_next(v->device), timer = qm_timers_next(&v->timers);
    int64_t tier = v->tier_device ? qm_device_next(v->tier_device) : QM_DEVICE_NEVER;
    int64_t next = device < tier ? device : tier;
    struct qm_timer due;

    if (v->error || (next > until && timer > until) ||
        (next == QM_DEVICE_NEVER && timer == QM_TIMER_NEVER))
        return false;
    v->now = next <= timer ? next : timer;
    vt_tier_time(v);
    if (device <= timer && device <= tier) {
        qm_device_advance(v->device, device);
    } else if (tier <= timer) {
        qm_device_advance(v->tier_device, tier);
    } else {
        due = qm_timers_take(&v->timers);
        due.call(v, due.what);
        vt_tier_write(v);
    }
    return true;
}

/* ---- slots */

static struct vt_slot *slot_of(struct qm_virtual *v, uint32_t slot)
{
    return &v->slots[slot];
}

/* A slot within parent's.  Returns 0 if memory is out. */
static uint32_t slot_take(struct qm_virtual *v, uint32_t parent)
{
    uint32_t slot = v->slot_free;
    uint64_t generation;

    if (slot) {
        v->slot_free = slot_of(v, slot)->sibling;
    } else {
        if (v->slot_count >= v->slot_room) {
            uint32_t room = v->slot_room ? 2 * v->slot_room : 64;
            struct vt_slot *slots = reallocarray(v->slots, room, sizeof *slots);

            if (!slots)
                return 0;
            memset(slots + v->slot_room, 0, (room - v->slot_room) * sizeof *slots);
            v->slots = slots;
            v->slot_room = room;
        }
        slot = v->slot_count++;
    }
    generation = slot_of(v, slot)->generation;
    *slot_of(v, slot) = (struct vt_slot){.parent = parent, .generation = generation};
    if (parent) {
        slot_of(v, slot)->sibling = slot_of(v, parent)->child;
        slot_of(v, parent)->child = slot;
    }
    return slot;
}

/* The slot and those within it are free; its parent's do not name it any more. */
static void slot_give(struct qm_virtual *v, uint32_t slot)
{
    uint32_t child;

    while ((child = slot_of(v, slot)->child)) {
        slot_of(v, slot)->child = slot_of(v, child)->sibling;
        slot_of(v, child)->parent = 0;
        slot_give(v, child);
    }
    slot_of(v, slot)->generation++;
    slot_of(v, slot)->sibling = v->slot_free;
    v->slot_free = slot;
}

static void slot_end(struct qm_virtual *v, uint32_t slot)
{
    uint32_t parent = slot_of(v, slot)->parent, *link;

    if (parent) {
        link = &slot_of(v, parent)->child;
        while (*link != slot)
            link = &slot_of(v, *link)->sibling;
        *link = slot_of(v, slot)->sibling;
    }
    slot_give(v, slot);
}

/* Makes given[slot] exist. */
static int make_given(struct qm_virtual *v, uint32_t slot)
{
    uint32_t room = v->given_room ? v->given_room : 64, *given;

    while (room <= slot)
        room *= 2;
    if (room == v->given_room)
        return 0;
    given = reallocarray(v->given, room, sizeof *given);
    if (!given)
        return ENOMEM;
    memset(given + v->given_room, 0, (room - v->given_room) * sizeof *given);
    v->given = given;
    v->given_room = room;
    return 0;
}

/* ---- events */

static int make_item(struct qm_virtual *v, const struct qm_event *event,
                     struct item *item)
{
    *item = (struct item){.type = event->type, .us = event->us};
    /* Perhaps a sequence begins. */
    if (v->order && (event->type == QM_TRACE_BEGIN || event->type == QM_TRACE_END))
        item->sequence = qm_perfect_order_begun(v->order);
    if (event->type == QM_TRACE_BEGIN) {
        if (make_given(v, event->slot) != 0)
            return ENOMEM;
        item->kind = event->kind;
        item->parent_slot = event->parent_slot ? v->given[event->parent_slot] : 0;
        item->slot = slot_take(v, item->parent_slot);
        item->klass = item->slot ? strdup(event->klass) : NULL;
        v->given[event->slot] = item->slot;
        return item->klass ? 0 : ENOMEM;
    }
    item->slot = event->slot ? v->given[event->slot] : 0;
    if (item->slot)
        item->generation = slot_of(v, item->slot)->generation;
    if (event->type != QM_TRACE_END) {
        item->offset = event->offset;
        item->length = event->length;
    }
    return 0;
}

/* A context begins or ends; or a write is made, at once. */
static void context(struct qm_virtual *v, const struct item *item)
{
    struct qm_event event = {.type = item->type, .slot = item->slot};

    if (item->type == QM_TRACE_WRITE) {
        qm_sim_tier_changed(v->sim->tier, item->offset, item->length);
        return;
    }
    if (item->type == QM_TRACE_BEGIN) {
        event.kind = item->kind;
        event.parent_slot = item->parent_slot;
        event.klass = item->klass;
    }
    if (v->order)
        qm_perfect_next(v->sim->engine.prefetcher, item->sequence);
    vt_fail(v, qm_feed_context(&v->sim->feed, &event));
    if (item->type == QM_TRACE_END)
        slot_end(v, item->slot);
    else
        free(item->klass);
}

static double busy_ns(const struct qm_device *device,
                      const struct qm_device_config *config)
{
    double busy = 0;

    for (unsigned i = 0; i < config->stations; i++)
        busy += qm_device_stats(device)->stations[i].busy_ns;
    return busy;
}

/* As the server, whenever the capacity may have changed. */
static void set_sizes(struct qm_virtual *v)
{
    uint64_t blocks = v->sim->blocks;
    uint64_t most = qm_params_prefetch_most(&v->sim->config.params, blocks);

    v->batch = v->config.batch ? v->config.batch : qm_params_batch(blocks, most);
    v->ahead.limit = qm_ahead_limit(
        v->config.queue ? v->config.queue : QM_INFLIGHT_QUEUE_MOST, most);
}

static void computed_request(void *opaque, void *what)
{
    struct vt_reader *r = what;

    (void)opaque;
    if (vt_read(r))
        r->ended(r);
}

/* Begins a request; since: what its latency counts from.  Returns whether it ended at
 * once. */
static bool begin_request(struct vt_reader *r, const struct item *item, int64_t since)
{
    struct qm_virtual *v = r->actor.v;
    const uint64_t block_size = v->sim->config.block_size;

    if (v->sim->requests == v->sim->config.warmup) {
        qm_sim_measure(v->sim);
        v->started = since;
        v->busy_before = busy_ns(v->device, &v->config.device);
        if (v->tier_device)
            v->tier_busy_before = busy_ns(v->tier_device, v->sim->config.tier.device);
        v->computed_before = v->computed;
    }
    v->sim->requests++;
    qm_sim_tick(v->sim);
    set_sizes(v);
    r->slot = item->slot;
    r->generation = item->generation;
    r->block = item->offset / block_size;
    r->last = (item->offset + item->length - 1) / block_size;
    r->since = since;
    r->counted = v->sim->measuring;
    if (v->config.processor.request_ns == 0)
        return vt_read(r);
    vt_at(v, vt_compute(v, v->config.processor.request_ns), computed_request, r);
    return false;
}

static void end_request(struct vt_reader *r)
{
    struct qm_virtual *v = r->actor.v;
    struct qm_sim_class *c;

    if (!r->counted || v->error)
        return;
    qm_histogram_add(&v->latency, (uint64_t)(v->now - r->since));
    c = qm_sim_class_at(v->sim, r->klass);
    if (c) {
        c->requests++;
        c->us += (double)(v->now - r->since) / 1e3;
    }
    v->ended = v->now;
}

static bool lies_within(const struct qm_virtual *v, const struct qm_event *event)
{
    return event->length <= v->config.size &&
           event->offset <= v->config.size - event->length;
}

/* When an item is due, with a speed. */
static int64_t due(const struct qm_virtual *v, uint64_t us)
{
    uint64_t after = us > v->base_us ? us - v->base_us : 0;

    return BEGINNING + (int64_t)((double)after * 1000 / v->config.speed);
}

/* ---- clients */

static void run_client(struct vt_client *c);

static void client_next(void *opaque, void *what)
{
    struct vt_client *c = what;

    (void)opaque;
    c->busy = false;
    run_client(c);
}

/* Its request has ended.  Returns whether it makes the next one now. */
static bool after_request(struct vt_client *c)
{
    struct qm_virtual *v = c->v;

    end_request(&c->reader);
    c->busy = v->config.think_ns > 0 && v->config.speed == 0;
    if (c->busy)
        vt_at(v, v->now + (int64_t)v->config.think_ns, client_next, c);
    return !c->busy;
}

static void client_ended(struct vt_reader *r)
{
    struct vt_client *c = r->owner;

    if (after_request(c))
        run_client(c);
}

/* Carries out c->item. */
static void handle(struct vt_client *c)
{
    struct qm_virtual *v = c->v;

    if (c->item.type == QM_TRACE_READ) {
        c->busy = true;
        if (begin_request(&c->reader, &c->item,
                          v->config.speed > 0 ? due(v, c->item.us) : v->now))
            after_request(c);
    } else {
        context(v, &c->item);
    }
}

static void client_due(void *opaque, void *what)
{
    struct vt_client *c = what;

    (void)opaque;
    c->busy = false;
    handle(c);
    run_client(c);
}

static void run_client(struct vt_client *c)
{
    struct qm_virtual *v = c->v;

    while (c->count > 0 && !c->busy && !v->error) {
        c->item = c->queue[c->first];
        c->first = (c->first + 1) % QM_VIRTUAL_AHEAD;
        c->count--;
        if (v->config.speed > 0 && c->item.type != QM_TRACE_BEGIN &&
            due(v, c->item.us) > v->now) {
            c->busy = true;
            vt_at(v, due(v, c->item.us), client_due, c);
        } else {
            handle(c);
        }
    }
}

static int give_client(struct qm_virtual *v, const struct qm_event *event)
{
    struct vt_client *c;
    unsigned number;
    int error = qm_deal(&v->deal, event, &number);

    if (error)
        return error;
    c = &v->clients[number];
    while (c->count == QM_VIRTUAL_AHEAD && step(v, INT64_MAX - 1))
        ;
    if (v->error)
        return v->error;
    error = make_item(v, event, &c->queue[(c->first + c->count) % QM_VIRTUAL_AHEAD]);
    if (!error) {
        c->count++;
        run_client(c);
    }
    return error ? error : v->error;
}

/* ---- the open loop */

static void free_reader(struct vt_reader *r)
{
    end_request(r);
    cds_list_add(&r->list, &r->actor.v->readers);
}

static int give_open(struct qm_virtual *v, const struct qm_event *event)
{
    struct vt_reader *r;
    struct item item;
    int error;

    while (step(v, due(v, event->us)))
        ;
    if (due(v, event->us) > v->now)
        v->now = due(v, event->us);
    error = v->error ? v->error : make_item(v, event, &item);
    if (error)
        return error;
    if (event->type != QM_TRACE_READ) {
        context(v, &item);
        return v->error;
    }
    if (cds_list_empty(&v->readers)) {
        r = calloc(1, sizeof *r);
        if (!r)
            return ENOMEM;
        r->actor.v = v;
        r->ended = free_reader;
        r->another = v->all_readers;
        v->all_readers = r;
    } else {
        r = cds_list_first_entry(&v->readers, struct vt_reader, list);
        cds_list_del(&r->list);
    }
    if (begin_request(r, &item, due(v, event->us)))
        free_reader(r);
    return v->error;
}

/* Counts the sequences of the trace's contexts, in its order. */
static int count_order(struct qm_virtual *v, const struct qm_event *event)
{
    if (!v->order || event->type == QM_TRACE_READ || event->type == QM_TRACE_WRITE)
        return 0;
    return qm_feed_context(&v->ordered, event);
}

int qm_virtual_event(struct qm_virtual *v, const struct qm_event *event)
{
    int error;

    if (v->error)
        return v->error;
    if (event->type == QM_TRACE_WRITE) {
        v->sim->writes++;
        /* Without a tier nothing comes of it.  Without a context, it is nobody's. */
        if (!v->sim->tier)
            return 0;
        if (!event->slot) {
            qm_sim_tier_changed(v->sim->tier, event->offset, event->length);
            return 0;
        }
    }
    if (event->type == QM_TRACE_READ && !lies_within(v, event))
        return ERANGE;
    if (!v->begun) {
        v->begun = true;
        v->base_us = event->us;
    }
    error = v->config.clients > 0 ? give_client(v, event) : give_open(v, event);
    return error ? error : count_order(v, event);
}

uint64_t qm_virtual_now(const struct qm_virtual *v)
{
    return (uint64_t)v->now;
}

int qm_virtual_finish(struct qm_virtual *v)
{
    while (step(v, INT64_MAX - 1))
        ;
    return v->error;
}

/* ---- the whole */

void qm_virtual_result(const struct qm_virtual *v, struct qm_virtual_result *result)
{
    const struct qm_histogram *h = &v->latency;
    double stations = v->config.device.stations;

    *result = v->counts;
    result->aim = v->config.threads ? v->config.threads
                                    : atomic_load(&v->sim->admission.inflight.aim);
    result->mean = qm_histogram_mean(h) / 1e3;
    result->p50 = (double)qm_histogram_percentile(h, 50) / 1e3;
    result->p99 = (double)qm_histogram_percentile(h, 99) / 1e3;
    result->p999 = (double)qm_histogram_percentile(h, 99.9) / 1e3;
    result->most = (double)h->max / 1e3;
    result->computed = (double)(v->computed - v->computed_before) / 1e9;
    result->seconds = (double)(v->ended - v->started) / 1e9;
    if (v->ended <= v->started)
        return;
    result->reads_per_second = (double)h->count / result->seconds;
    result->utilisation = (busy_ns(v->device, &v->config.device) - v->busy_before) /
                          stations / (double)(v->ended - v->started);
    if (v->tier_device)
        result->tier_utilisation =
            (busy_ns(v->tier_device, v->sim->config.tier.device) -
             v->tier_busy_before) /
            v->sim->config.tier.device->stations / (double)(v->ended - v->started);
}

static int make_clients(struct qm_virtual *v)
{
    qm_deal_init(&v->deal, v->config.clients);
    if (v->config.clients == 0)
        return 0;
    v->clients = calloc(v->config.clients, sizeof *v->clients);
    if (!v->clients)
        return ENOMEM;
    for (unsigned i = 0; i < v->config.clients; i++) {
        struct vt_client *c = &v->clients[i];

        c->v = c->reader.actor.v = v;
        c->reader.owner = c;
        c->reader.ended = client_ended;
        c->queue = calloc(QM_VIRTUAL_AHEAD, sizeof *c->queue);
        if (!c->queue)
            return ENOMEM;
    }
    return 0;
}

static int make_order(struct qm_virtual *v)
{
    const struct qm_params *p = &v->sim->config.params;

    if (strcmp(p->policy, QM_PERFECT) != 0)
        return 0;
    v->order = qm_perfect_order_new();
    return v->order ? qm_feed_init(&v->ordered, v->order, p->level) : ENOMEM;
}

static int make(struct qm_virtual *v)
{
    uint64_t most = QM_VIRTUAL_READ_MAX / v->sim->config.block_size;
    int error = qm_device_new(&v->config.device, v->config.size, &v->device);

    if (error)
        return error;
    qm_device_on_change(v->device, vt_device_changed);
    v->run_most = most > 0 ? (unsigned)most : 1;
    v->sim->engine.device_blocks = (v->config.size - 1) / v->sim->config.block_size + 1;
    v->slot_count = 1; /* 0 is none */
    error = vt_ahead_init(v);
    set_sizes(v);
    if (!error)
        error = vt_tier_init(v);
    if (!error)
        error = make_order(v);
    return error ? error : make_clients(v);
}

struct qm_virtual *qm_virtual_new(struct qm_sim *sim,
                                  const struct qm_virtual_config *config, char *err,
                                  size_t len)
{
    struct qm_virtual *v = calloc(1, sizeof *v);
    int error;

    if (!v) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    v->config = *config;
    v->sim = sim;
    v->now = v->started = v->ended = BEGINNING;
    CDS_INIT_LIST_HEAD(&v->waiting);
    CDS_INIT_LIST_HEAD(&v->readers);
    error = make(v);
    if (!error)
        return v;
    snprintf(err, len, "%s",
             error == ENOMEM ? "out of memory" : "such a device cannot be");
    qm_virtual_free(v);
    return NULL;
}

/* Of a run that was given up, the cache's fills: first all are failed, then the
 * readers that wait for one give it up. */
static void give_up(struct qm_virtual *v)
{
    for (unsigned i = 0; v->clients && i < v->config.clients; i++)
        vt_reader_fail(&v->clients[i].reader);
    for (struct vt_reader *r = v->all_readers; r; r = r->another)
        vt_reader_fail(r);
    vt_ahead_destroy(v);
    for (unsigned i = 0; v->clients && i < v->config.clients; i++)
        vt_reader_forget(&v->clients[i].reader);
    for (struct vt_reader *r = v->all_readers; r; r = r->another)
        vt_reader_forget(r);
}

static void free_client(struct vt_client *c)
{
    for (; c->queue && c->count > 0; c->count--) {
        struct item *item = &c->queue[c->first];

        if (item->type == QM_TRACE_BEGIN)
            free(item->klass);
        c->first = (c->first + 1) % QM_VIRTUAL_AHEAD;
    }
    free(c->queue);
    free(c->reader.actor.request);
    vt_tier_forget(&c->reader.looking);
}

void qm_virtual_free(struct qm_virtual *v)
{
    struct vt_reader *r;

    if (!v)
        return;
    give_up(v);
    HASH_CLEAR(hh, v->leaders);
    for (unsigned i = 0; v->clients && i < v->config.clients; i++)
        free_client(&v->clients[i]);
    while ((r = v->all_readers)) {
        v->all_readers = r->another;
        free(r->actor.request);
        vt_tier_forget(&r->looking);
        free(r);
    }
    free(v->clients);
    qm_timers_clear(&v->timers);
    qm_deal_clear(&v->deal);
    if (v->order)
        qm_feed_finish(&v->ordered, false);
    qm_perfect_order_free(v->order);
    vt_tier_destroy(v);
    qm_device_free(v->device);
    free(v->given);
    free(v->slots);
    free(v);
}
