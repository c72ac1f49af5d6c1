/* SPDX-License-Identifier: BSD-3-Clause */
/* device-internal.h - what the files of the device share.
 *
 *   device.c          its life, what it is, waiting for the server
 *   device-keeper.c   the thread that connects again, and sends again what is retained
 *   device-retain.c   changes: their order, and which of them are not stable yet
 *   device-owner.c    the file by which a successor is known, and what it asks for
 *   device-request.c  synchronous requests
 *   device-async.c    asynchronous ones
 *
 * State.  Requests are sent in DEVICE_UP only.  A request enters (qm_device_enter())
 * and is counted in `active` until it has been answered and that has been noted, or has
 * failed.  A thread that finds a connection lost sets DEVICE_LOST and closes all
 * connections; the keeper then waits for `active` to become 0, and from there on it is
 * alone with the server until it sets DEVICE_UP.  Nothing from before a loss is
 * therefore noted after it, and no request overtakes those that are sent again.
 *
 * A change is in `queue` from its arrival until it is over.  It is sent when none that
 * came before it overlaps it.  When it is answered, it gets the next number, and unless
 * it is stable, it is in `retained` until a FLUSH that was sent later succeeds.
 *
 * After a loss the newest retained value of each byte is sent again, in pieces that do
 * not overlap, so that neither their order nor an interruption matters.  A change that
 * is stable when it is answered (FUA) and overlaps an older retained one hides that
 * from then on: it is retained as well, without its data (CHANGE_MASK).
 */
#ifndef QMCTX_DEVICE_INTERNAL_H
#define QMCTX_DEVICE_INTERNAL_H

#include <pthread.h>
#include <time.h>
#include <urcu/list.h>

#include "clients/libqmctx/device.h"
#include "clients/libqmctx/direct.h"

enum {
    DEVICE_UP,
    DEVICE_PAUSED, /* connected; the keeper sends again what a FLUSH has failed for */
    DEVICE_LOST,
    DEVICE_DEAD, /* it gave up, or it ends */
};

enum { QM_REGIONS = 4096, QM_REGION_SHIFT = 20 };

/* The memory of a retained change without its data. */
enum { QM_CHANGE_BYTES = 256 };

enum change_kind { CHANGE_WRITE, CHANGE_ZERO, CHANGE_TRIM, CHANGE_MASK };

/* How a change is sent, and what its answer means. */
enum change_way {
    WAY_RETAIN,  /* as it is; then it is retained */
    WAY_COUNT,   /* as it is; then it is not stable, and its loss is told */
    WAY_FUA,     /* with FUA: it is stable */
    WAY_THROUGH, /* and a FLUSH after it, before it is answered: it is stable */
    WAY_ADVICE,  /* as it is; what it leaves may be lost: it is trimmed */
};

struct aio;

/* Everything but what its comment says otherwise: device.lock. */
struct change {
    struct cds_list_head node; /* in queue, then in retained */
    enum change_kind kind;     /* constant until it is answered */
    uint64_t offset, count;    /* constant; count > 0 */
    bool stable;               /* constant; FUA was asked for */
    enum change_way way;       /* since it was last prepared; its sender's */
    uint64_t seq;              /* when it was answered */
    uint64_t charge;           /* bytes that it takes of `retain`; 0: none yet */
    bool starving;             /* it waits until less is retained */
    unsigned blockers;         /* earlier ones in queue that overlap it */
    pthread_cond_t *waiter;    /* of its thread, if that waits */
    struct aio *aio;           /* constant; NULL: it is synchronous */
    char *data;                /* a copy, if it is to be retained */
};

struct qm_device {
    struct qmctx *server; /* constant, and so are these */
    struct direct *direct;
    struct qm_device_options options;
    uint64_t limit; /* bytes, of retained and reserved */

    _Atomic int state; /* changed under lock */
    _Atomic unsigned active;
    _Atomic unsigned losses;

    pthread_mutex_t lock;   /* outside those of qmctx; none is taken inside it */
    pthread_cond_t changed; /* for the keeper */
    pthread_cond_t settled; /* for requests: the state, or what may be retained */
    bool stopping;
    bool ended;                 /* the keeper has flushed what it could */
    pthread_cond_t sentry_wake; /* for the sentry: it is being closed */
    pthread_t keeper, poller, sentry;
    bool has_keeper, has_poller, has_sentry;

    struct cds_list_head queue, retained; /* oldest first */
    uint64_t answered, flushed;
    uint64_t retained_bytes, reserved;
    uint64_t retained_count;
    struct timespec retained_since; /* if there are any: no older than the oldest */
    unsigned keeping;               /* in queue, to be retained */
    unsigned starved;  /* threads and requests that wait until less is retained */
    uint32_t *regions; /* how many retained changes touch one that hashes there */
    enum qm_retain mode;

    /* A FLUSH has failed: what is retained has to be sent again before the next. */
    bool suspect;
    uint64_t passes_wanted, passes_begun, passes_done;
    int pass_error; /* of the last */

    /* The keeper's, under lock where others look. */
    struct qm_peer_id peer;
    uint64_t unfenced;     /* the session in which changes were sent; 0: none */
    bool must_resend;      /* to an instance that has not got all of it */
    struct timespec since; /* when it was lost */
    bool unsettled;       /* by a server that cannot say when its requests have ended */
    struct timespec back; /* when it was back last */
    uint64_t pause;       /* ms, before the first attempt, if it is lost soon again */

    struct cds_list_head parked; /* asynchronous requests that cannot be sent yet */
    _Atomic unsigned pending;    /* asynchronous requests, parked or not */
    pthread_cond_t poll;         /* for the poller: there are some */
    bool kicked;                 /* look at parked again */
    bool sent;                   /* something may be in flight */

    struct qm_device_stat stat; /* what is not above */
};

/* device.c */

static inline bool qm_device_is_parents(const struct qm_device *device)
{
    return qm_is_parents(device->server);
}

void qm_device_log(struct qm_device *device, int priority, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How long a request waits, and for whom. */
struct patience {
    const struct qm_requester *requester;
    struct timespec until; /* while it waits for the server; else 0 */
};

/* Waits a little for cond, or for something else to change.  lock is held, and let go
 * of meanwhile.  0, or EIO if patience has ended. */
int qm_device_wait(struct qm_device *device, struct patience *patience,
                   pthread_cond_t *cond);
bool qm_requester_gone(const struct patience *patience);
/* Counts a request in, when it can be sent; waits for that.  0 or EIO. */
int qm_device_enter(struct qm_device *device, struct patience *patience);
/* The same without waiting. */
bool qm_device_try_enter(struct qm_device *device);
void qm_device_leave(struct qm_device *device);
/* Nothing of a predecessor is carried out from now on; before the first request over
 * new connections.  0, or an errno value with qmctx_error(). */
int qm_device_own(struct qm_device *device);
/* What a failure means, for a request that is counted in: whether the connection is
 * lost.  If so, the device knows. */
bool qm_device_lost(struct qm_device *device, int error, const char *why);
/* The server says that new connections find a device of that size; 0: it has not. */
void qm_device_found(struct qm_device *device, uint64_t size);

/* Starts a thread without signals: those are for the program. */
int qm_device_thread(pthread_t *thread, void *(*function)(void *), void *opaque);

/* Adds ms to a time. */
void qm_time_add(struct timespec *t, uint64_t ms);
uint64_t qm_time_since(const struct timespec *t); /* ms */
bool qm_time_before(const struct timespec *a, const struct timespec *b);

/* device-keeper.c */

void *qm_device_keeper(void *device);

/* device-sentry.c; of a device with several URIs */

void *qm_device_sentry(void *device);

/* device-retain.c; lock is held, but where it says otherwise */

/* Puts a change at the end of the queue. */
void qm_change_queue(struct qm_device *device, struct change *change);
/* Takes it out. Its reservation is given back. */
void qm_change_remove(struct qm_device *device, struct change *change);
/* Decides how a change that has no blockers is sent, and reserves what that needs.
 * false: too much is retained now.  If the way is WAY_RETAIN and it is a write without
 * data, qm_change_copy() comes next. */
bool qm_change_prepare(struct qm_device *device, struct change *change);
/* Without the lock: keeps a copy of buf; without memory, the way becomes another. */
void qm_change_copy(struct qm_device *device, struct change *change, const void *buf);
/* It has been carried out, the way it was sent: takes it out of the queue; it is the
 * device's from now on, or freed. */
void qm_change_answered(struct qm_device *device, struct change *change);
void qm_change_free(struct change *change);

/* A FLUSH has succeeded, which covers the changes up to number upto; or has failed. */
void qm_retain_flushed(struct qm_device *device, uint64_t upto);
void qm_retain_flush_failed(struct qm_device *device);
/* All is lost that is not stable. */
void qm_retain_give_up(struct qm_device *device);
/* Without the lock, by the keeper, when nothing else is being sent: sends again what is
 * retained, and flushes.  0, or an errno value with qmctx_error(). */
int qm_retain_resend(struct qm_device *device);

/* device-request.c */

/* Sends a FLUSH and notes what it says, for a request that is counted in.  0 or an
 * errno value. */
int qm_device_flush_now(struct qm_device *device);

/* device-async.c */

/* Something has changed that a parked request may wait for.  lock is held. */
void qm_device_kick(struct qm_device *device);

#endif
