/* SPDX-License-Identifier: BSD-3-Clause */
/* model.c - a storage device as queues and service times (model.h).
 *
 * There are few kinds of events: a part enters its queue, or leaves its station.  Parts
 * come through the trip and the controller in the order of their arrival, so those that
 * have not entered yet are a list; and a station has one part.  So the next event is
 * found by looking at the head of that list and at each station.
 *
 * What happens at the same time: parts enter first, then stations end by their number.
 */
#include "plugins/device/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct station {
    struct qm_device_part *part; /* or NULL: idle */
    struct qm_disk disk;
};

/* Parts that wait, oldest first. */
struct queue {
    struct cds_list_head demand, background;
};

struct qm_device {
    struct qm_device_config config; /* scaled */
    struct qm_disk_model disk;
    void (*changed)(struct qm_device_request *request);
    uint64_t random;
    int64_t now;
    double controller_free, link_free;
    struct cds_list_head entering;
    struct queue *queues; /* one, or one a station */
    struct station *stations;
    struct qm_device_stats *stats;
};

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014): a number from 0 up to, but not 1. */
static double random_unit(struct qm_device *d)
{
    uint64_t z = d->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* By Box and Muller's method, of which one of the two numbers suffices. */
static double draw(struct qm_device *d, const struct qm_device_latency *latency)
{
    const double sigma = latency->sigma;
    double radius, angle;

    if (sigma == 0)
        return latency->mean_ns;
    radius = sqrt(-2 * log(1 - random_unit(d)));
    angle = 2 * M_PI * random_unit(d);
    return latency->mean_ns * exp(sigma * radius * cos(angle) - sigma * sigma / 2);
}

static void scale(struct qm_device_config *c)
{
    double *times[] = {
        &c->disk.single_ns, &c->disk.average_ns,  &c->disk.full_ns,
        &c->disk.write_ns,  &c->disk.overhead_ns, &c->disk.revolution_ns,
        &c->read.mean_ns,   &c->write.mean_ns,    &c->ns_per_byte,
        &c->trip_ns,        &c->controller_ns,    &c->link_ns_per_byte,
    };

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        *times[i] *= c->scale;
    c->scale = 1;
}

/* How much of the device lies on one disk, rounded up to whole stripes. */
static uint64_t on_disk(const struct qm_device_config *c, uint64_t size)
{
    uint64_t row = c->stripe ? c->stripe * c->stations : 0;

    if (!row)
        return size;
    return (size / row + (size % row != 0)) * c->stripe;
}

static bool makes_sense(const struct qm_device_config *c)
{
    return c->stations >= 1 && c->stations <= QM_DEVICE_STATIONS_MAX && c->scale > 0 &&
           (!c->disks || (c->disk.track > 0 && (c->stripe || c->stations == 1))) &&
           c->stripe <= UINT64_MAX / QM_DEVICE_STATIONS_MAX;
}

static int make(struct qm_device *d, uint64_t size)
{
    struct qm_device_config *c = &d->config;
    const unsigned queues = c->stripe ? c->stations : 1;

    scale(c);
    CDS_INIT_LIST_HEAD(&d->entering);
    d->random = c->seed;
    d->queues = calloc(queues, sizeof *d->queues);
    d->stations = calloc(c->stations, sizeof *d->stations);
    d->stats = calloc(1, sizeof *d->stats +
                             c->stations * sizeof(struct qm_device_station_stats));
    if (!d->queues || !d->stations || !d->stats)
        return ENOMEM;
    for (unsigned i = 0; i < queues; i++) {
        CDS_INIT_LIST_HEAD(&d->queues[i].demand);
        CDS_INIT_LIST_HEAD(&d->queues[i].background);
    }
    if (!c->disks)
        return 0;
    if (c->disk.span == 0)
        c->disk.span = on_disk(c, size);
    if (c->disk.span == 0) /* an empty device */
        c->disk.span = 1;
    if (qm_disk_model_init(&d->disk, &c->disk) == -1)
        return EINVAL;
    for (unsigned i = 0; i < c->stations; i++)
        qm_disk_init(&d->stations[i].disk, &d->disk, random_unit(d));
    return 0;
}

int qm_device_new(const struct qm_device_config *config, uint64_t size,
                  struct qm_device **device)
{
    struct qm_device *d;
    int error;

    if (!makes_sense(config))
        return EINVAL;
    d = calloc(1, sizeof *d);
    if (!d)
        return ENOMEM;
    d->config = *config;
    error = make(d, size);
    if (error) {
        qm_device_free(d);
        return error;
    }
    *device = d;
    return 0;
}

void qm_device_free(struct qm_device *d)
{
    if (!d)
        return;
    free(d->queues);
    free(d->stations);
    free(d->stats);
    free(d);
}

void qm_device_on_change(struct qm_device *d,
                         void (*changed)(struct qm_device_request *request))
{
    d->changed = changed;
}

/* The part of a list whose position is nearest to the head; the oldest, unless stations
 * are disks that look for it. */
static struct qm_device_part *nearest(const struct qm_device *d, unsigned station,
                                      struct cds_list_head *list)
{
    struct qm_device_part *best = NULL, *part;
    uint64_t least = UINT64_MAX, head, distance;

    if (cds_list_empty(list))
        return NULL;
    if (!d->config.disks || d->config.order == QM_DEVICE_FCFS)
        return cds_list_first_entry(list, struct qm_device_part, list);
    head = qm_disk_head(&d->stations[station].disk, &d->disk, (double)d->now);
    cds_list_for_each_entry(part, list, list)
    {
        distance =
            part->position > head ? part->position - head : head - part->position;
        if (!best || distance < least) {
            best = part;
            least = distance;
        }
    }
    return best;
}

static double service_ns(struct qm_device *d, unsigned station,
                         const struct qm_device_part *part)
{
    const struct qm_device_config *c = &d->config;
    const bool write = part->request->write;

    if (c->disks)
        return qm_disk_serve(&d->stations[station].disk, &d->disk, (double)d->now,
                             write, part->position, part->length) -
               (double)d->now;
    return draw(d, write ? &c->write : &c->read) +
           (double)part->length * c->ns_per_byte;
}

static void tell(const struct qm_device *d, struct qm_device_request *request)
{
    if (d->changed)
        d->changed(request);
}

/* A station that is idle takes a part from its queue, if there is one. */
static void start(struct qm_device *d, unsigned station)
{
    struct queue *queue = &d->queues[d->config.stripe ? station : 0];
    struct qm_device_station_stats *stats = &d->stats->stations[station];
    struct qm_device_part *part = nearest(d, station, &queue->demand);
    double service;

    if (!part)
        part = nearest(d, station, &queue->background);
    if (!part)
        return;
    cds_list_del(&part->list);
    service = service_ns(d, station, part);
    part->state = QM_PART_SERVED;
    part->station = station;
    /* Never sooner than the disk: its next sector would have to come round again. */
    part->when = d->now + (int64_t)ceil(service);
    d->stations[station].part = part;
    stats->served++;
    stats->busy_ns += (double)(part->when - d->now);
    stats->waited_ns += (double)(d->now - part->entered);
    qm_histogram_add(&d->stats->wait, (uint64_t)(d->now - part->entered));
    qm_histogram_add(&d->stats->service, (uint64_t)(part->when - d->now));
    tell(d, part->request);
}

static void enter(struct qm_device *d, struct qm_device_part *part)
{
    const struct qm_device_config *c = &d->config;
    struct queue *queue = &d->queues[c->stripe ? part->station : 0];

    cds_list_del(&part->list);
    part->state = QM_PART_WAITS;
    part->entered = d->now;
    cds_list_add_tail(&part->list, c->demand_first && part->request->background
                                       ? &queue->background
                                       : &queue->demand);
    if (c->stripe) {
        if (!d->stations[part->station].part)
            start(d, part->station);
        return;
    }
    for (unsigned i = 0; i < c->stations; i++) {
        if (!d->stations[i].part) {
            start(d, i);
            return;
        }
    }
}

static void account(struct qm_device *d, const struct qm_device_request *r)
{
    struct qm_device_stats *s = d->stats;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < r->count; i++)
        bytes += r->parts[i].length;
    if (s->reads + s->writes == 0 || r->arrived < s->first)
        s->first = r->arrived;
    if (r->done > s->last)
        s->last = r->done;
    *(r->write ? &s->writes : &s->reads) += 1;
    *(r->write ? &s->bytes_written : &s->bytes_read) += bytes;
    s->background += r->background;
    qm_histogram_add(r->background ? &s->background_response : &s->response,
                     (uint64_t)(r->done - r->arrived));
}

/* A station has done its part: the link carries it, and the next one has its turn. */
static void leave(struct qm_device *d, unsigned station)
{
    const struct qm_device_config *c = &d->config;
    struct qm_device_part *part = d->stations[station].part;
    struct qm_device_request *request = part->request;
    double end = (double)d->now;

    if (c->link_ns_per_byte > 0) {
        if (d->link_free > end)
            end = d->link_free;
        end += (double)part->length * c->link_ns_per_byte;
        d->link_free = end;
    }
    part->when = (int64_t)ceil(end + c->trip_ns / 2);
    part->state = QM_PART_LEFT;
    if (part->when > request->done)
        request->done = part->when;
    if (--request->pending == 0)
        account(d, request);
    d->stations[station].part = NULL;
    start(d, station);
    tell(d, request);
}

int64_t qm_device_next(struct qm_device *d)
{
    int64_t next = QM_DEVICE_NEVER;

    if (!cds_list_empty(&d->entering))
        next = cds_list_first_entry(&d->entering, struct qm_device_part, list)->when;
    for (unsigned i = 0; i < d->config.stations; i++)
        if (d->stations[i].part && d->stations[i].part->when < next)
            next = d->stations[i].part->when;
    return next;
}

void qm_device_advance(struct qm_device *d, int64_t now)
{
    struct qm_device_part *part, *after;
    int64_t next;

    while ((next = qm_device_next(d)) <= now && next != QM_DEVICE_NEVER) {
        d->now = next;
        cds_list_for_each_entry_safe(part, after, &d->entering, list)
        {
            if (part->when > next)
                break;
            enter(d, part);
        }
        for (unsigned i = 0; i < d->config.stations; i++)
            if (d->stations[i].part && d->stations[i].part->when <= next)
                leave(d, i);
    }
    if (now > d->now && now != QM_DEVICE_NEVER)
        d->now = now;
}

/* Splits a request into parts.  Stripes of a request that lie on one disk follow one
 * another there, so a disk gets one part.  Returns how many parts there are; with parts
 * NULL it only counts. */
static unsigned split(const struct qm_device_config *c, uint64_t offset,
                      uint64_t length, struct qm_device_part *parts)
{
    unsigned count = 0;

    if (!c->stripe) {
        if (parts)
            parts[0] = (struct qm_device_part){.position = offset, .length = length};
        return 1;
    }
    do {
        const uint64_t stripe = offset / c->stripe, within = offset % c->stripe;
        const uint64_t left = c->stripe - within, bytes = length < left ? length : left;

        if (count < c->stations) {
            if (parts)
                parts[count] = (struct qm_device_part){
                    .station = (unsigned)(stripe % c->stations),
                    .position = stripe / c->stations * c->stripe + within,
                    .length = bytes,
                };
            count++;
        } else if (parts) { /* from here on the disks' turns repeat */
            for (unsigned i = 0; i < count; i++)
                if (parts[i].station == stripe % c->stations)
                    parts[i].length += bytes;
        } else {
            break;
        }
        offset += bytes;
        length -= bytes;
    } while (length > 0);
    return count;
}

int qm_device_submit(struct qm_device *d, int64_t now, bool write, bool background,
                     uint64_t offset, uint64_t length, void *opaque,
                     struct qm_device_request **request)
{
    const struct qm_device_config *c = &d->config;
    const unsigned count = split(c, offset, length, NULL);
    struct qm_device_request *r = malloc(sizeof *r + count * sizeof r->parts[0]);
    double enters;

    if (!r)
        return ENOMEM;
    qm_device_advance(d, now);
    now = d->now;
    *r = (struct qm_device_request){.opaque = opaque,
                                    .write = write,
                                    .background = background,
                                    .arrived = now,
                                    .pending = count,
                                    .count = count};
    split(c, offset, length, r->parts);
    enters = (double)now + c->trip_ns / 2;
    if (c->controller_ns > 0) {
        if (d->controller_free > enters)
            enters = d->controller_free;
        enters += c->controller_ns;
        d->controller_free = enters;
    }
    for (unsigned i = 0; i < count; i++) {
        struct qm_device_part *part = &r->parts[i];

        part->request = r;
        part->state = QM_PART_ENTERS;
        part->when = (int64_t)ceil(enters);
        cds_list_add_tail(&part->list, &d->entering);
    }
    qm_device_advance(d, now);
    *request = r;
    return 0;
}

int64_t qm_device_due(const struct qm_device_request *r)
{
    int64_t due = QM_DEVICE_NEVER;

    if (r->pending == 0)
        return r->done;
    for (unsigned i = 0; i < r->count; i++)
        if ((r->parts[i].state == QM_PART_ENTERS ||
             r->parts[i].state == QM_PART_SERVED) &&
            r->parts[i].when < due)
            due = r->parts[i].when;
    return due;
}

const struct qm_device_stats *qm_device_stats(const struct qm_device *d)
{
    return d->stats;
}

double qm_device_expected_ns(const struct qm_device_config *c, uint64_t length)
{
    const double bytes = (double)length;
    double ns = c->trip_ns + c->controller_ns + bytes * c->link_ns_per_byte;

    if (c->disks)
        ns += c->disk.overhead_ns + c->disk.average_ns + c->disk.revolution_ns / 2 +
              bytes * c->disk.revolution_ns / (double)c->disk.track;
    else
        ns += c->read.mean_ns + bytes * c->ns_per_byte;
    return ns * c->scale;
}
