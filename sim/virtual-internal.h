/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-internal.h - the parts of a simulation in virtual time, for the files that it
 * consists of: virtual.c (clock, clients, results), virtual-read.c (the way of a
 * request), virtual-wait.c (waiting for others'), virtual-ahead.c (the prefetch
 * workers), virtual-tier.c (the second tier).
 */
#ifndef QM_SIM_VIRTUAL_INTERNAL_H
#define QM_SIM_VIRTUAL_INTERNAL_H

#include <stdbool.h>
#include <urcu/list.h>

/* For struct vt_reader. */
#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

#include "engine/ahead.h"
#include "sim/deal.h"
#include "sim/internal.h"
#include "sim/timers.h"
#include "sim/virtual.h"

/* Bytes of one read of the device, as the server's MAX_READ. */
#define QM_VIRTUAL_READ_MAX (UINT32_C(4) << 20)

/* Who has the device read something, and is told when it has: one read at a time. */
struct vt_actor {
    struct qm_virtual *v;
    void (*done)(struct vt_actor *actor);
    void *owner;                       /* done()'s */
    struct qm_device_request *request; /* NULL: none */
    int64_t since;                     /* when it was submitted */
    unsigned others;                   /* reads that were on their way then */
    /* What is to be submitted, as soon as it is computed. */
    bool background;
    uint64_t block;
    unsigned n;
};

/* Blocks that are read from the second tier, all at once, each by a read of its device;
 * the owner is told when the last has come. */
struct vt_looking {
    struct vt_actor reads[QM_BATCH_MAX];
    unsigned pending;
    int64_t since;
    unsigned blocks; /* that were found, together */
    void (*done)(struct vt_looking *looking);
};

/* A block of a batch. */
struct vt_piece {
    uint64_t block;
    struct qm_fill *fill; /* its to read and to fill; or NULL */
    struct qm_fill *wait; /* what somebody reads; or NULL */
    bool past;            /* the cache has no room: to be read past it */
    bool read;            /* by this reader */
    bool queued;          /* `fill` was a prefetch's that waited to be read */
    bool late;            /* `wait` is a prefetch's that is being read, */
    int64_t since;        /* since when it waits, */
    unsigned others;      /* and other reads that were on their way then */
    bool tier;            /* it is being read from the second tier */
};

/* A request for a read, on its way. */
struct vt_reader {
    struct vt_actor actor;
    struct vt_looking looking;
    void (*ended)(struct vt_reader *reader); /* not if it ends at once */
    void *owner;
    struct vt_reader *another; /* of the open loop's; NULL: none */
    struct cds_list_head list; /* of the free ones; and see virtual-wait.c: */
    struct qm_fill *awaited;
    uint64_t awaited_from;          /* a number that rises with each that waits */
    struct cds_list_head followers; /* of a leader */
    bool lost;                      /* no memory for the hash table */
    UT_hash_handle hh;
    uint32_t slot;        /* of its context; 0: none */
    uint64_t generation;  /* of that slot */
    uint64_t block, last; /* what is still to be looked up */
    int64_t since;        /* what its latency counts from */
    bool counted;
    enum { VT_LOOK_UP, VT_TIER, VT_READ, VT_WAIT } phase;
    uint32_t klass;          /* of its context, for the counts of classes */
    unsigned n, at, reading; /* pieces: in the batch, done, being read */
    unsigned more;           /* prefetches that are read with them */
    struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX];
    struct vt_piece pieces[QM_BATCH_MAX];
};

/* Who reads ahead: a thread of the server. */
struct vt_worker {
    struct vt_actor actor;
    struct vt_looking looking;
    bool busy;
    struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX]; /* NULL: has come from the tier */
    bool tier[QM_AHEAD_JOIN_MAX];                 /* is being read from it */
    unsigned n, at, reading;
    unsigned looked; /* jobs up to this one were looked for in the tier */
};

/* A context that is open, by a number of ours: those of the trace's reader are used
 * again before a client has come to the end of the context that had them. */
struct vt_slot {
    uint32_t parent, child, sibling; /* child: the first; sibling: the next; 0: none */
    uint64_t generation;             /* how often it was given */
};

struct vt_client;

struct qm_virtual {
    struct qm_virtual_config config;
    struct qm_sim *sim;
    struct qm_device *device;
    struct qm_device *tier_device;  /* NULL: there is no second tier */
    struct vt_actor tier_writer;    /* one write at a time, as the tier's thread */
    uint64_t tier_at, tier_written; /* of its device; bytes that it was told of */
    double tier_busy_before;        /* as busy_before */
    struct qm_timers timers;
    int64_t now;
    int error; /* the first */

    int64_t processors[QM_VIRTUAL_PROCESSORS_MAX]; /* until when each is taken */
    uint64_t computed, computed_before;            /* ns; as busy_before */

    unsigned batch, run_most;     /* blocks of a batch, of a demand's read */
    struct cds_list_head waiting; /* readers: the leaders */
    struct vt_reader *leaders;    /* by what they wait for */
    uint64_t waits;               /* so far */

    struct qm_ahead ahead;
    unsigned queued; /* in ahead */
    struct vt_worker *workers;
    unsigned threads; /* workers, at most */
    unsigned busy;    /* of them */
    bool kick;        /* something was queued, or more may be in flight */

    struct qm_deal deal;
    struct qm_prefetcher *order; /* with policy perfect; else NULL */
    struct qm_feed ordered;      /* for it: the trace's contexts */
    struct vt_client *clients;
    struct cds_list_head readers;  /* of the open loop, that are free */
    struct vt_reader *all_readers; /* of the open loop */
    uint32_t *given;               /* by the trace's slot: ours */
    uint32_t given_room;
    struct vt_slot *slots; /* by ours; the first is not used */
    uint32_t slot_count, slot_room, slot_free;

    bool begun;                      /* the first event was seen */
    uint64_t base_us;                /* its time */
    int64_t started, ended;          /* the first request that counts, the last reply */
    double busy_before;              /* of the device's stations, at `started` */
    struct qm_histogram latency;     /* ns */
    struct qm_virtual_result counts; /* what is counted as it happens */
};

/* Keeps the first error. */
static inline void vt_fail(struct qm_virtual *v, int error)
{
    if (error && !v->error)
        v->error = error;
}

/* Of the device that an actor's request has gone to: it will be told. */
void vt_device_changed(struct qm_device_request *request);

/* The second tier's device, if there is a tier.  Returns 0 or an errno value. */
int vt_tier_init(struct qm_virtual *v);
void vt_tier_destroy(struct qm_virtual *v);
/* It is v->now. */
void vt_tier_time(struct qm_virtual *v);
/* Begins; without a tier nothing will be found. */
void vt_tier_begin(struct qm_virtual *v, struct vt_looking *looking);
/* Whether the tier holds block.  If so it is read. */
bool vt_tier_look(struct qm_virtual *v, struct vt_looking *looking, uint64_t block,
                  bool ahead);
/* What was evicted meanwhile is written to its device. */
void vt_tier_write(struct qm_virtual *v);
/* Reads that are given up. */
void vt_tier_forget(struct vt_looking *looking);

/* Has a processor compute for so long from now on, or as soon as one is free.  Returns
 * until when. */
int64_t vt_compute(struct qm_virtual *v, uint64_t ns);

/* Has n adjacent blocks read; the actor is told. */
void vt_device_read(struct vt_actor *actor, bool background, uint64_t block,
                    unsigned n);

/* Has call(v, what) happen at a time. */
void vt_at(struct qm_virtual *v, int64_t when, qm_timer_call *call, void *what);

/* The reader, whose slot, blocks and times are set, begins.  Returns whether it ended
 * at once; else ended() will be called. */
bool vt_read(struct vt_reader *reader);

/* The run is given up: fails what the reader was to read, and then, when all have done
 * that, takes leave of what it waits for. */
void vt_reader_fail(struct vt_reader *reader);
void vt_reader_forget(struct vt_reader *reader);

/* After an event: goes on with a request. */
void vt_resume(struct vt_reader *reader);
/* Until that read is settled: the reader goes on after the vt_wake() that finds it so.
 */
void vt_wait(struct vt_reader *reader, struct qm_fill *fill);
/* Readers whose waiting is over go on, at this time but later. */
void vt_wake(struct qm_virtual *v);

int vt_ahead_init(struct qm_virtual *v);
/* As engine's issue(); issuer as the cache is to remember it. */
unsigned vt_ahead_issue(struct qm_virtual *v, uint64_t block, uint32_t count,
                        uint32_t issuer);
/* As qms_prefetch_take(). */
bool vt_ahead_take(struct qm_virtual *v, uint64_t block, struct qm_fill *fill);
/* As qms_prefetch_follow(). */
unsigned vt_ahead_follow(struct qm_virtual *v, uint64_t block, unsigned max,
                         struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX]);
/* Idle prefetch workers take queued jobs. */
void vt_ahead_kick(struct qm_virtual *v);
void vt_ahead_destroy(struct qm_virtual *v);

#endif
