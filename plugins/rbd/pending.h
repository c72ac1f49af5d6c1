/* SPDX-License-Identifier: BSD-3-Clause */
/* pending.h - the requests that Ceph has not answered, oldest first.
 *
 * Ceph does not fail a request because an OSD is down or a pool is full: it waits until
 * it can be carried out.  So that an operator learns why a database stands still, a
 * line is logged when the oldest request has waited for a while, and another when all
 * such requests have ended.
 *
 * Threads: all functions may be called by any thread.
 */
#ifndef QM_RBD_PENDING_H
#define QM_RBD_PENDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct qmr_request {
    TAILQ_ENTRY(qmr_request) link;
    uint64_t began; /* ns, CLOCK_MONOTONIC */
    const char *what;
};

struct qmr_pending {
    pthread_mutex_t lock; /* of all others */
    pthread_cond_t stop;
    pthread_t thread;
    TAILQ_HEAD(, qmr_request) requests;
    unsigned slow_after; /* s */
    bool slow;           /* so the log says */
    bool stopping;
    void (*say)(const char *text);
};

/* slow_after: seconds, 0: there are no lines.  Returns 0 or an errno. */
int qmr_pending_init(struct qmr_pending *p, unsigned slow_after,
                     void (*say)(const char *text));
void qmr_pending_destroy(struct qmr_pending *p);

/* The request is the caller's and stays until qmr_pending_end(); what: "read", ... */
void qmr_pending_begin(struct qmr_pending *p, struct qmr_request *request,
                       const char *what);
void qmr_pending_end(struct qmr_pending *p, struct qmr_request *request);

#endif
