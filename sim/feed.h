/* SPDX-License-Identifier: BSD-3-Clause */
/* feed.h - hands a trace's contexts and accesses to one prefetcher, at one level.
 *
 * It does what the server does with contexts, without threads: each access extends its
 * context's sequence, and the prefetcher learns at once.
 */
#ifndef QM_SIM_FEED_H
#define QM_SIM_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/classes.h"
#include "mining/core/context.h"
#include "mining/core/prefetcher.h"
#include "trace/trace.h"

struct qm_feed {
    struct qm_prefetcher *prefetcher;
    enum qm_level level;
    struct qm_context **open; /* the context in each slot of the trace's reader; NULL */
    uint32_t room;            /* of open[] */
    struct qm_context *all;   /* at level none: the context of every read */
    struct qm_classes classes;
    int error; /* the first error of learn(); 0: none */
};

/* Prepares *feed for a prefetcher, which must outlive it.  Returns 0 or ENOMEM. */
int qm_feed_init(struct qm_feed *feed, struct qm_prefetcher *prefetcher,
                 enum qm_level level);

/* A context begins or ends (event's type is B or E).  Returns 0, or an errno value:
 * ENOMEM, or that of learn(). */
int qm_feed_context(struct qm_feed *feed, const struct qm_event *event);

/* The context whose sequence a read extends; NULL if it has no context. */
struct qm_context *qm_feed_target(struct qm_feed *feed, const struct qm_event *event);

/* The class of the read's own context, whichever sequence it extends: a number above 0;
 * 0 without a context, and at level none. */
uint32_t qm_feed_class(struct qm_feed *feed, const struct qm_event *event);

/* Learns from work (NULL: nothing), and consumes it; opaque is the feed, which keeps
 * the first error. */
void qm_feed_learn(void *opaque, struct qm_work *work);

/* A block was read, for target (NULL: nothing happens).  Returns as above. */
int qm_feed_access(struct qm_feed *feed, struct qm_context *target, uint64_t block,
                   enum qm_access outcome);

/* No more events; frees all contexts.  A context that is open at the end of the trace
 * has not ended, so its last reads are not learned.  all_ends: whether the single
 * sequence of level none ends, and is learned.  Returns as above.  Must be called
 * before the prefetcher is destroyed; may be called again. */
int qm_feed_finish(struct qm_feed *feed, bool all_ends);

#endif
