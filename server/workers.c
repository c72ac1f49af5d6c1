/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.c - which threads there are, which are idle, and whom a job calls. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <urcu/list.h>

#include "server/stats.h"
#include "server/workers.h"

/* Threads that are made as needed end when they have had nothing to do for so long; and
 * after one could not be made, the next is tried so much later. */
#define IDLE_SECONDS 5
#define AGAIN_NS     (UINT64_C(1) * 1000000000)

/* What a plugin below may need; of addresses. */
#define STACK (UINT64_C(2) << 20)

enum state { NONE, BEGINS, RUNS, HAS_ENDED };

struct qms_worker {
    struct qms_workers *workers;
    enum state state;
    pthread_t thread;          /* to be joined, unless there is none */
    struct cds_list_head idle; /* among those that wait */
    bool called; /* taken out of these since it waited last, and `wake` posted for it */
    sem_t wake;
};

struct qms_workers {
    struct qms_workers_config config;
    _Atomic bool held; /* jobs wait for fewer threads to read */
    /* The owner's lock, of all that follows: */
    bool stop;
    struct cds_list_head idle; /* threads that wait, the last one first */
    unsigned alive;            /* threads */
    unsigned called; /* of these, those that are to look for jobs, and have not yet */
    unsigned busy;   /* threads that read */
    unsigned most;   /* of these, ever */
    unsigned lanes;  /* that the layer below takes, as it said last */
    uint64_t next;   /* ns: no thread is made before */
    bool *taken;     /* by lane: somebody reads there */
    struct qms_worker all[];
};

static unsigned allowed(const struct qms_workers *ws)
{
    return ws->config.allowed(ws->config.owner);
}

static bool any(const struct qms_workers *ws)
{
    return ws->config.any(ws->config.owner);
}

/* As many of n as the layer below takes, which opens what it needs for n. */
static unsigned within_lanes(struct qms_workers *ws, unsigned n)
{
    if (ws->config.lanes && n > ws->lanes)
        ws->lanes = ws->config.lanes(ws->config.opaque, n);
    return ws->config.lanes && n > ws->lanes ? ws->lanes : n;
}

/* Whether one more may be in flight; takes note if not.  The lock is held. */
static bool may_read(struct qms_workers *ws)
{
    if (ws->busy < allowed(ws) && ws->busy < within_lanes(ws, ws->busy + 1))
        return true;
    atomic_store(&ws->held, true);
    ws->config.held(ws->config.owner);
    return false;
}

/* w waits no more; its `wake` is to be posted.  The lock is held. */
static void call_idle(struct qms_workers *ws, struct qms_worker *w)
{
    cds_list_del(&w->idle);
    w->called = true;
    ws->called++;
}

/* w is to be started.  The lock is held. */
static void begin(struct qms_workers *ws, struct qms_worker *w)
{
    w->state = BEGINS;
    ws->alive++;
    ws->called++;
}

/* Whether there are as many threads on their way as jobs, or as may read.  Each
 * calls another one in turn when it has taken its own. */
static bool will_do(struct qms_workers *ws)
{
    return ws->called > 0 && (ws->called >= ws->config.waiting(ws->config.owner) ||
                              ws->busy + ws->called >= allowed(ws));
}

struct qms_call qms_workers_call(struct qms_workers *ws)
{
    const struct qms_call none = {NULL, NULL};
    const bool idle = !cds_list_empty(&ws->idle);

    if (ws->stop || !any(ws) || will_do(ws) || (!idle && !ws->config.follows) ||
        !may_read(ws)) /* which makes each demand that ends come here */
        return none;
    if (idle) { /* the last one, so that those which are not needed end */
        struct qms_worker *w = cds_list_first_entry(&ws->idle, struct qms_worker, idle);

        call_idle(ws, w);
        return (struct qms_call){w, NULL};
    }
    if (ws->alive >= ws->config.threads || ws->alive >= allowed(ws) ||
        ws->alive >= within_lanes(ws, ws->alive + 1) || qms_now() < ws->next)
        return none;
    for (unsigned i = 0; i < ws->config.threads; i++) {
        struct qms_worker *w = &ws->all[i];

        if (w->state == BEGINS || w->state == RUNS)
            continue;
        if (w->state == HAS_ENDED) /* it does nothing more but return */
            pthread_join(w->thread, NULL);
        begin(ws, w);
        return (struct qms_call){NULL, w};
    }
    return none;
}

static void *worker_thread(void *opaque);

/* Returns 0 or an errno value. */
static int start(struct qms_workers *ws, struct qms_worker *w)
{
    struct qms_call call = {NULL, NULL};
    pthread_attr_t attr;
    sigset_t all, before;
    int error;

    pthread_attr_init(&attr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (ws->config.follows)
        (void)pthread_attr_setstacksize(&attr, STACK);
#endif
    sigfillset(&all); /* signals are for nbdkit's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* The lock, so that the stopping thread knows this one. */
    pthread_mutex_lock(ws->config.lock);
    error = ws->stop ? ECANCELED : pthread_create(&w->thread, &attr, worker_thread, w);
    w->state = RUNS;
    if (error != 0) {
        w->state = NONE;
        ws->alive--;
        ws->called--;
        ws->next = qms_now() + AGAIN_NS;
        /* One may have gone idle, as this one was on its way. */
        call = qms_workers_call(ws);
    }
    pthread_mutex_unlock(ws->config.lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    qms_workers_make(ws, call);
    return error;
}

void qms_workers_make(struct qms_workers *ws, struct qms_call call)
{
    if (call.idle)
        sem_post(&call.idle->wake);
    if (call.new)
        (void)start(ws, call.new);
}

/* Waits until w's `wake` is posted: 0; or, if threads are made as needed, for long: -1.
 */
static int await_call(struct qms_workers *ws, struct qms_worker *w)
{
    struct timespec until;
    int r;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    do
        r = ws->config.follows ? sem_clockwait(&w->wake, CLOCK_MONOTONIC, &until)
                               : sem_wait(&w->wake);
    while (r == -1 && errno == EINTR);
    return r;
}

/* Waits for something to do; the lock is held.  False: there was nothing for long, and
 * the thread is to end. */
static bool await(struct qms_workers *ws, struct qms_worker *w)
{
    int r;

    w->called = false;
    cds_list_add(&w->idle, &ws->idle);
    do { /* who called it while its patience ended is about to post */
        pthread_mutex_unlock(ws->config.lock);
        r = await_call(ws, w);
        pthread_mutex_lock(ws->config.lock);
    } while (r == -1 && w->called);
    if (!w->called) {
        cds_list_del(&w->idle);
        return ws->stop || any(ws) || ws->alive == 1;
    }
    ws->called--;
    return true;
}

static unsigned take_lane(struct qms_workers *ws)
{
    unsigned lane = 0;

    while (ws->taken[lane])
        lane++;
    ws->taken[lane] = true;
    if (++ws->busy > ws->most)
        ws->most = ws->busy;
    return lane;
}

static void *worker_thread(void *opaque)
{
    struct qms_worker *worker = opaque;
    struct qms_workers *ws = worker->workers;
    struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX];
    unsigned n, lane;
    struct qms_call call;

    /* Where that is not allowed, they are read like all others. */
    (void)qms_priority_lower(ws->config.priority);
    pthread_mutex_lock(ws->config.lock);
    ws->called--;
    while (!ws->stop) {
        n = any(ws) && may_read(ws) ? ws->config.take(ws->config.owner, jobs) : 0;
        if (n == 0) {
            if (!await(ws, worker))
                break;
            continue;
        }
        lane = take_lane(ws);
        call = qms_workers_call(ws);
        pthread_mutex_unlock(ws->config.lock);
        qms_workers_make(ws, call);
        ws->config.carry_out(ws->config.owner, lane, jobs, n);
        pthread_mutex_lock(ws->config.lock);
        ws->taken[lane] = false;
        ws->busy--;
    }
    worker->state = HAS_ENDED;
    ws->alive--;
    pthread_mutex_unlock(ws->config.lock);
    return NULL;
}

void qms_workers_kick(struct qms_workers *ws)
{
    struct qms_call call;

    if (!atomic_load_explicit(&ws->held, memory_order_relaxed))
        return;
    pthread_mutex_lock(ws->config.lock);
    atomic_store(&ws->held, false);
    call = qms_workers_call(ws);
    pthread_mutex_unlock(ws->config.lock);
    qms_workers_make(ws, call);
}

struct qms_workers_stats qms_workers_get_stats(const struct qms_workers *ws)
{
    return (struct qms_workers_stats){ws->alive, ws->busy, ws->most};
}

struct qms_workers *qms_workers_start(const struct qms_workers_config *config)
{
    const unsigned first = config->follows ? 1 : config->threads;
    struct qms_workers *ws =
        calloc(1, sizeof *ws + config->threads * sizeof ws->all[0]);

    if (!ws)
        return NULL;
    ws->config = *config;
    ws->taken = calloc(config->threads, sizeof ws->taken[0]);
    if (!ws->taken) {
        free(ws);
        return NULL;
    }
    CDS_INIT_LIST_HEAD(&ws->idle);
    for (unsigned i = 0; i < config->threads; i++) {
        ws->all[i].workers = ws;
        sem_init(&ws->all[i].wake, 0, 0);
    }
    for (unsigned i = 0; i < first; i++) {
        pthread_mutex_lock(config->lock); /* those before it run */
        begin(ws, &ws->all[i]);
        pthread_mutex_unlock(config->lock);
        if (start(ws, &ws->all[i]) != 0) {
            qms_workers_stop(ws);
            return NULL;
        }
    }
    return ws;
}

/* Waits until no thread is left.  None is started any more: those that issue have gone,
 * and a thread that does has not ended. */
static void join_all(struct qms_workers *ws)
{
    for (bool again = true; again;) {
        again = false;
        for (unsigned i = 0; i < ws->config.threads; i++) {
            enum state state;

            pthread_mutex_lock(ws->config.lock);
            state = ws->all[i].state;
            pthread_mutex_unlock(ws->config.lock);
            if (state == NONE)
                continue;
            again = true;
            if (state == BEGINS) /* of a thread that is joined here, too */
                continue;
            pthread_join(ws->all[i].thread, NULL);
            ws->all[i].state = NONE;
        }
    }
}

void qms_workers_stop(struct qms_workers *ws)
{
    struct qms_worker *w, *next;

    if (!ws)
        return;
    pthread_mutex_lock(ws->config.lock);
    ws->stop = true;
    cds_list_for_each_entry_safe(w, next, &ws->idle, idle)
    {
        call_idle(ws, w);
        sem_post(&w->wake);
    }
    pthread_mutex_unlock(ws->config.lock);
    join_all(ws);
    for (unsigned i = 0; i < ws->config.threads; i++)
        sem_destroy(&ws->all[i].wake);
    free(ws->taken);
    free(ws);
}
