/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual.h - a simulation that takes time: clients, cache and engine over the device
 * model, by a clock of its own.
 *
 * What the server does with threads happens here in virtual time, one thing after the
 * other, so that the same trace and configuration always give the same figures:
 *
 * - Clients make requests one by one.  Either each makes its next one when the last was
 *   answered, after a pause (closed loop); or when the trace says so, at a factor of
 *   its time, and a client that is late makes it at once (as quickmine replay
 *   --speed); or, without clients, each request comes when it is due, whatever became
 *   of the others (open loop).  sim/deal.h says whose a request is.
 * - A request is looked up and read in batches as server/io.c does it: what is missing
 *   is read by runs of adjacent blocks, one after the other; then it waits for what
 *   others read; a prefetch that still waits for its turn is taken over.
 * - Prefetches wait in engine/ahead.h until one more may be in flight: `threads` at a
 *   time, or as engine/inflight.h decides; reads of the
 *   device load and of the throttle are told to the engine as by the server, by the
 *   virtual clock.
 *
 * - With a second tier (sim/tier.h), a request's missing blocks that it holds are read
 *   from its device first, all at once, and then the others, as server/io.c does it.
 *   Writes of the trace drop the tier's copies when their client comes to them, in no
 *   time.
 *
 * - Client and server compute on processors that they share, if that is to take time: a
 *   request before it is looked up (in one piece: what the client computes to send it
 *   and to take the reply, and what the server does), a read of the device before it is
 *   submitted.  With a number of
 *   processors, what is to be computed waits for one, in order; else it never waits.
 *
 * Without that a hit is answered at once.  What is to be learned is learned at once in
 * either case; the server has a thread for that, which may be late.  All contexts are
 * of one client of the server, as a replay's are, so that none has to share the
 * prefetch queue, and none waits for a connection.
 */
#ifndef QM_SIM_VIRTUAL_H
#define QM_SIM_VIRTUAL_H

#include <stdint.h>

#include "plugins/device/model.h"
#include "trace/trace.h"

enum {
    QM_VIRTUAL_CLIENTS_MAX = 1024,
    QM_VIRTUAL_AHEAD = 1024,
    QM_VIRTUAL_PROCESSORS_MAX = 256
};

struct qm_sim;
struct qm_virtual;

/* What is computed.  All zeros: it takes no time. */
struct qm_virtual_processor {
    unsigned count;      /* 0: there is always one that is free */
    uint64_t request_ns; /* for a request of a read, by client and server */
    uint64_t read_ns;    /* and for each read of the device, a prefetch's, too */
    uint64_t block_ns;   /* with prefetching: for each block, beside its request */
};

struct qm_virtual_config {
    struct qm_device_config device;
    uint64_t size;           /* of the device, in bytes */
    unsigned clients;        /* 0: open loop, with a speed */
    double speed;            /* of the trace's own; 0: closed loop */
    uint64_t think_ns;       /* between a client's requests, in the closed loop */
    unsigned threads, queue; /* the server's prefetch-threads and -queue; 0: auto */
    unsigned batch;          /* blocks of a request looked up at a time, at most
                                QM_BATCH_MAX; 0: as the server by the cache's size */
    struct qm_virtual_processor processor;
};

/* Of requests that were made after the warm-up.  Times are in microseconds; with a
 * speed since the request was due. */
struct qm_virtual_result {
    double mean, p50, p99, p999, most;
    double seconds; /* from the first request to the last reply */
    double reads_per_second;
    double utilisation; /* busy time of the device's stations, a part of all */
    /* Reads of the device, and their blocks. */
    uint64_t demand_reads, demand_blocks, prefetch_reads, prefetch_blocks;
    uint64_t bridged;        /* of demand_blocks: those that were read over */
    uint64_t late;           /* prefetch hits that had to wait for their block */
    uint64_t cancelled;      /* prefetches that were not worth reading any more */
    uint64_t dropped;        /* candidates: the queue was full */
    uint64_t throttled;      /* candidates: the device was busy, or it did not pay */
    uint64_t watched;        /* candidates: it was not known yet whether it pays */
    unsigned aim;            /* reads in flight that were aimed at in the end; */
    unsigned in_flight;      /* prefetches in flight at a time, at most */
    double tier_utilisation; /* as utilisation, of that device */
    double computed;         /* time of processors, in seconds */
};

/* Makes the part of a simulation that takes time; the rest of sim is made.  Returns
 * NULL with a sentence in err. */
struct qm_virtual *qm_virtual_new(struct qm_sim *sim,
                                  const struct qm_virtual_config *config, char *err,
                                  size_t len);

/* The trace's events, in its order.  Returns 0, or an errno value: no memory, an error
 * of the rule cache, or ERANGE: a request lies beyond the device's end. */
int qm_virtual_event(struct qm_virtual *v, const struct qm_event *event);
/* No more events: until the last reply.  Returns as above. */
int qm_virtual_finish(struct qm_virtual *v);
/* The time, ns; never 0. */
uint64_t qm_virtual_now(const struct qm_virtual *v);

/* So far. */
void qm_virtual_result(const struct qm_virtual *v, struct qm_virtual_result *result);
/* Fails what is being read, for the cache to be freed.  NULL is fine. */
void qm_virtual_free(struct qm_virtual *v);

#endif
