/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.h - the threads that read what waits: made, called, and ended.
 *
 * For each job one idle thread is called, and not one more: it is counted how many have
 * been called and have not looked for jobs yet, and each calls another in turn when it
 * has taken its own.  A thread waits on a semaphore of its own; the last one that
 * became idle is called first, so that those which are not needed end.
 *
 * Where threads are made as needed, those that have nothing to do for IDLE_SECONDS end,
 * but for the last.  If one cannot be made, those that there are do the work.
 *
 * The queue is the owner's, and so is the lock: a job enters it and a thread is called
 * for it in one step, or a thread becomes idle between the two, and nobody comes.
 */
#ifndef QMS_WORKERS_H
#define QMS_WORKERS_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/ahead.h"
#include "server/priority.h"

struct qms_workers;
struct qms_worker;

struct qms_workers_config {
    unsigned threads;           /* at most */
    bool follows;               /* threads are made as needed; else all are made */
    enum qms_priority priority; /* of their reads */
    pthread_mutex_t *lock;      /* the owner's */
    void *owner;
    /* How many jobs wait, about.  The lock is held. */
    unsigned (*waiting)(void *owner);
    /* Whether take() has any.  The lock is held. */
    bool (*any)(void *owner);
    /* How many threads may read at a time, at most `threads`.  The lock is held. */
    unsigned (*allowed)(void *owner);
    /* A job waits because no more threads may read.  The lock is held. */
    void (*held)(void *owner);
    /* n threads may read: returns how many the layer below takes at present, at
     * least 1. The lock is held. NULL: any number. */
    unsigned (*lanes)(void *opaque, unsigned n);
    void *opaque;
    /* Takes the next run of jobs; returns how many.  The lock is held. */
    unsigned (*take)(void *owner, struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX]);
    /* Reads them, and frees them.  lane: 0 to threads - 1, of which each reads one run
     * at a time. */
    void (*carry_out)(void *owner, unsigned lane, struct qm_ahead_job **jobs,
                      unsigned n);
};

/* Starts the threads, or the first of them.  NULL if memory or threads are out.  The
 * owner's functions are called from now on; its queue is empty until this has returned.
 */
struct qms_workers *qms_workers_start(const struct qms_workers_config *config);

/* Who is to read what waits: a thread that is idle, or a new one. */
struct qms_call {
    struct qms_worker *idle, *new; /* at most one of them */
};

/* If something waits that may be read now, and those who are on their way will not do:
 * whom to call for that.  The lock is held, and qms_workers_make() is for without it: a
 * thread that is woken meanwhile would wait for it, and be woken twice. */
struct qms_call qms_workers_call(struct qms_workers *workers);
void qms_workers_make(struct qms_workers *workers, struct qms_call call);

/* A demand's read has ended: perhaps there may be more that read.  Any thread, without
 * the lock; costs nothing where none waits for that. */
void qms_workers_kick(struct qms_workers *workers);

struct qms_workers_stats {
    unsigned threads; /* that there are */
    unsigned busy;    /* that read */
    unsigned most;    /* of these, at a time, ever */
};

/* The lock is held. */
struct qms_workers_stats qms_workers_get_stats(const struct qms_workers *workers);

/* Ends the threads, and frees the workers; NULL: there are none.  What waits is not
 * taken.  No other thread may be calling. */
void qms_workers_stop(struct qms_workers *workers);

#endif
