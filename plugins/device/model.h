/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - a storage device as queues and service times, without threads or a clock.
 *
 * A request takes this way; what a kind of device does not have takes no time:
 *
 *   half the trip, one controller that takes requests in order, a queue, a station that
 *   works on it, one link that carries its bytes, half the trip back
 *
 * Stations are what works on one request at a time: disks, an SSD's channels, a store's
 * servers.  Either they are striped (RAID 0) and each has a queue of its own: a request
 * is split into parts, one for each disk that it touches, and ends with the last; or
 * they share one queue.  Stations never wait while there is something in their queue,
 * and never work on two parts.
 *
 * The caller says what time it is, and time never goes back: a time before the last one
 * counts as the last one.  When to come again qm_device_due() and qm_device_next() say.
 * What happens at a time happens in the model at exactly that time, however late the
 * caller comes: so lateness does not add up, and the result depends on nothing but the
 * configuration (its seed included) and the requests with their arrival times.
 *
 * Times are nanoseconds from any start.  One thread at a time.
 */
#ifndef QM_DEVICE_MODEL_H
#define QM_DEVICE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "plugins/device/disk.h"
#include "plugins/device/histogram.h"

#define QM_DEVICE_NEVER INT64_MAX

enum qm_device_order {
    QM_DEVICE_FCFS, /* first come, first served */
    QM_DEVICE_SSTF, /* the one whose position is nearest to the head; then the oldest */
};

/* A lognormal distribution; sigma 0: always the mean. */
struct qm_device_latency {
    double mean_ns, sigma;
};

struct qm_device_config {
    unsigned stations; /* 1 to QM_DEVICE_STATIONS_MAX */
    uint64_t stripe;   /* bytes in a row on one station; 0: they share one queue */
    enum qm_device_order order;
    bool demand_first; /* background requests only when no other is in the queue */

    bool disks; /* stations are disks */
    struct qm_disk_config disk;
    struct qm_device_latency read, write; /* otherwise */
    double ns_per_byte;                   /* and this */

    double trip_ns, controller_ns;
    double link_ns_per_byte;
    double scale; /* of all times */
    uint64_t seed;
};

enum { QM_DEVICE_STATIONS_MAX = 1024 };

struct qm_device;

/* What of a request goes to one station. */
struct qm_device_part {
    struct cds_list_head list; /* of those that are to enter, or of a queue */
    struct qm_device_request *request;
    enum { QM_PART_ENTERS, QM_PART_WAITS, QM_PART_SERVED, QM_PART_LEFT } state;
    unsigned station; /* by the stripe; if the queue is shared, by whose turn it was */
    uint64_t position, length;
    int64_t entered, when; /* when: of the next event, unless it waits */
};

struct qm_device_request {
    void *opaque; /* the caller's */
    bool write, background;
    int64_t arrived, done; /* done: final when `pending` is 0 */
    unsigned pending;      /* parts that have not left their station */
    unsigned count;
    struct qm_device_part parts[];
};

struct qm_device_station_stats {
    uint64_t served;
    double busy_ns;
    double waited_ns; /* sum of the waits of all that it served */
};

/* Of all that has left its station. */
struct qm_device_stats {
    uint64_t reads, writes, bytes_read, bytes_written, background;
    int64_t first, last;          /* arrival, and end; of requests */
    struct qm_histogram response; /* ns from arrival to end; but of: */
    struct qm_histogram background_response;
    struct qm_histogram wait, service; /* ns of parts, in the queue and in a station */
    struct qm_device_station_stats stations[];
};

/* Returns 0, EINVAL if the configuration has no sense, or ENOMEM.  size: of the device
 * in bytes; if disk.span is 0, what lies on a disk takes its full stroke. */
int qm_device_new(const struct qm_device_config *config, uint64_t size,
                  struct qm_device **device);
void qm_device_free(struct qm_device *device); /* not before its requests */

/* A request arrives.  Returns 0, or ENOMEM.  To be freed by free(), when `pending` is
 * 0.
 */
int qm_device_submit(struct qm_device *device, int64_t now, bool write, bool background,
                     uint64_t offset, uint64_t length, void *opaque,
                     struct qm_device_request **request);

/* Does all that happens until now, now included.  After this and after a submit, due
 * times of other requests may have changed: `changed`, if not NULL, is told of them. */
void qm_device_advance(struct qm_device *device, int64_t now);
void qm_device_on_change(struct qm_device *device,
                         void (*changed)(struct qm_device_request *request));

/* When something happens next to a request, or, if it has left all stations, when it
 * ends.  QM_DEVICE_NEVER: it waits for others. */
int64_t qm_device_due(const struct qm_device_request *request);

/* When something happens next to any. */
int64_t qm_device_next(struct qm_device *device);

const struct qm_device_stats *qm_device_stats(const struct qm_device *device);

/* The mean time of a random read at depth 1, from the configuration alone: of less than
 * a stripe, with positions all over the span. */
double qm_device_expected_ns(const struct qm_device_config *config, uint64_t length);

#endif
