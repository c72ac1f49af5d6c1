/* SPDX-License-Identifier: BSD-3-Clause */
/* record.c - a bounded queue of events with many producers, and the thread that writes
 * them.
 *
 * The queue is a ring of cells, each with a turn.  Cell i is free for the producer that
 * draws ticket t (t mod size = i) when its turn is t, and holds that producer's event
 * when its turn is t + 1; the writer hands it on with turn t + size.  Producers draw
 * tickets by compare-and-swap, so that a producer that finds the ring full draws none.
 *
 * The writer sleeps on a semaphore when the ring is empty.  It announces that in
 * `asleep` and looks once more; a producer publishes its event and then looks at
 * `asleep`.  Both are sequentially consistent, so one of them sees the other.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/record.h"
#include "server/stats.h"

#define CELLS   (UINT64_C(1) << 14)
#define RESERVE (CELLS / 8) /* for begins and ends only */
#define BATCH   1024        /* events between two flushes while more are waiting */

struct cell {
    _Atomic uint64_t turn;
    struct qm_event event;
};

struct qms_recorder {
    struct qm_trace_writer *writer;
    pthread_t thread;
    uint64_t start; /* ns: the trace's time 0 */
    bool started;   /* the thread */
    sem_t wake;
    _Atomic bool asleep, stop;
    _Alignas(64) _Atomic uint64_t tail; /* the next ticket */
    _Alignas(64) _Atomic uint64_t head; /* the writer's; how far it is */
    _Atomic uint64_t recorded, dropped;
    _Atomic int error;
    void (*failed)(void *opaque, int error); /* or NULL */
    void *opaque;
    uint64_t last_us;      /* the writer's */
    uint64_t for_ns, most; /* after start; events; 0: for ever, any number */
    struct cell cells[CELLS];
};

struct qms_recorder *qms_record_open(const char *path, uint64_t block_size, char *err,
                                     size_t len)
{
    struct qms_recorder *r = aligned_alloc(_Alignof(struct qms_recorder), sizeof *r);

    if (!r) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return NULL;
    }
    memset(r, 0, sizeof *r);
    r->writer = qm_trace_keep(path, block_size, err, len);
    if (!r->writer) {
        free(r);
        return NULL;
    }
    sem_init(&r->wake, 0, 0);
    for (uint64_t i = 0; i < CELLS; i++)
        atomic_init(&r->cells[i].turn, i);
    return r;
}

void qms_record_limit(struct qms_recorder *r, unsigned seconds, uint64_t events)
{
    r->for_ns = seconds * UINT64_C(1000000000);
    r->most = events;
}

bool qms_record_over(struct qms_recorder *r)
{
    return (r->for_ns > 0 && qms_now() - r->start >= r->for_ns) ||
           (r->most > 0 &&
            atomic_load_explicit(&r->tail, memory_order_relaxed) >= r->most);
}

/* Puts an event into the ring unless fewer than reserve + 1 cells are free. */
static bool put(struct qms_recorder *r, struct qm_event *event, uint64_t reserve)
{
    uint64_t ticket = atomic_load_explicit(&r->tail, memory_order_relaxed);
    struct cell *cell;

    if (qms_record_over(r))
        return false;
    if (atomic_load_explicit(&r->error, memory_order_relaxed) != 0)
        goto drop;
    for (;;) {
        cell = &r->cells[ticket % CELLS];
        if (ticket - atomic_load_explicit(&r->head, memory_order_acquire) >=
            CELLS - reserve) {
            /* The ticket may be an old one; only the newest tells that it is full. */
            uint64_t newest = atomic_load_explicit(&r->tail, memory_order_relaxed);

            if (newest == ticket)
                goto drop;
            ticket = newest;
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&r->tail, &ticket, ticket + 1,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed))
            break;
    }
    event->us = (qms_now() - r->start) / 1000;
    cell->event = *event;
    atomic_store(&cell->turn, ticket + 1);
    if (atomic_load(&r->asleep) && atomic_exchange(&r->asleep, false))
        sem_post(&r->wake);
    return true;

drop:
    atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
    return false;
}

bool qms_record_begin(struct qms_recorder *r, uint64_t ctx, enum qm_kind kind,
                      const char *klass, uint64_t parent)
{
    struct qm_event event = {.type = QM_TRACE_BEGIN, .ctx = ctx};

    event.kind = kind;
    event.klass = klass;
    event.parent = parent;
    return put(r, &event, 0);
}

void qms_record_end(struct qms_recorder *r, uint64_t ctx)
{
    struct qm_event event = {.type = QM_TRACE_END, .ctx = ctx};

    put(r, &event, 0);
}

void qms_record_io(struct qms_recorder *r, char type, uint64_t ctx, uint64_t offset,
                   uint64_t length)
{
    struct qm_event event = {.type = type, .ctx = ctx};

    event.offset = offset;
    event.length = length;
    put(r, &event, RESERVE);
}

/* Whether the ring's next cell holds an event. */
static bool waiting(struct qms_recorder *r, uint64_t head)
{
    return atomic_load(&r->cells[head % CELLS].turn) == head + 1;
}

/* Nothing is written any more. */
static void fail(struct qms_recorder *r, int error)
{
    atomic_store(&r->error, error);
    if (r->failed)
        r->failed(r->opaque, error);
}

static void write_event(struct qms_recorder *r, struct qm_event *event)
{
    int error = atomic_load_explicit(&r->error, memory_order_relaxed);

    /* Two threads that draw tickets at the same moment may read the clock in the other
     * order; a trace's time does not go back. */
    if (event->us < r->last_us)
        event->us = r->last_us;
    r->last_us = event->us;
    if (error == 0) {
        error = qm_trace_write(r->writer, event);
        if (error == 0) {
            atomic_fetch_add_explicit(&r->recorded, 1, memory_order_relaxed);
            return;
        }
        fail(r, error);
    }
    atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
}

static void flush(struct qms_recorder *r)
{
    int error;

    if (atomic_load_explicit(&r->error, memory_order_relaxed) != 0)
        return;
    error = qm_trace_flush(r->writer);
    if (error != 0)
        fail(r, error);
}

static void *record_thread(void *opaque)
{
    struct qms_recorder *r = opaque;
    uint64_t head = 0, flushed = 0;

    flush(r); /* the header: from now on the file is a trace */
    for (;;) {
        while (waiting(r, head)) {
            struct cell *cell = &r->cells[head % CELLS];
            struct qm_event event = cell->event;

            atomic_store_explicit(&cell->turn, head + CELLS, memory_order_relaxed);
            atomic_store_explicit(&r->head, ++head, memory_order_release);
            write_event(r, &event);
            if (head - flushed >= BATCH) {
                flush(r);
                flushed = head;
            }
        }
        if (flushed != head) {
            flush(r);
            flushed = head;
        }
        atomic_store(&r->asleep, true);
        if (waiting(r, head)) {
            /* A producer that saw us asleep has posted, or is about to: harmless, the
             * semaphore is one ahead and we look once in vain. */
            atomic_store(&r->asleep, false);
            continue;
        }
        if (atomic_load(&r->stop))
            return NULL;
        while (sem_wait(&r->wake) == -1 && errno == EINTR)
            ;
    }
}

void qms_record_on_error(struct qms_recorder *r,
                         void (*failed)(void *opaque, int error), void *opaque)
{
    r->failed = failed;
    r->opaque = opaque;
}

int qms_record_start(struct qms_recorder *r)
{
    int error;

    r->start = qms_now();
    error = pthread_create(&r->thread, NULL, record_thread, r);
    r->started = error == 0;
    return error;
}

int qms_record_close(struct qms_recorder *r)
{
    struct qms_record_stats stats;

    return qms_record_close_with(r, &stats);
}

int qms_record_close_with(struct qms_recorder *r, struct qms_record_stats *stats)
{
    int error = 0, close_error = 0;

    if (r->started) {
        atomic_store(&r->stop, true);
        sem_post(&r->wake);
        pthread_join(r->thread, NULL);
        error = atomic_load(&r->error);
        close_error = qm_trace_close(r->writer);
    } else {
        qm_trace_abandon(r->writer);
    }
    qms_record_stats(r, stats);
    sem_destroy(&r->wake);
    free(r);
    return error ? error : close_error;
}

void qms_record_stats(struct qms_recorder *r, struct qms_record_stats *stats)
{
    stats->recorded = atomic_load_explicit(&r->recorded, memory_order_relaxed);
    stats->dropped = atomic_load_explicit(&r->dropped, memory_order_relaxed);
    stats->error = atomic_load_explicit(&r->error, memory_order_relaxed);
}
