/* SPDX-License-Identifier: BSD-3-Clause */
/* test-order.c - the order of changes: against a model, and with threads. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/harness.h"

#include "server/order.h"
#include "tests/unit/check.h"

/* ---- the model: a change's turn is when no earlier one overlaps with it */

#define ACTIVE 24
#define STEPS  200000

struct entry {
    struct qms_change change;
    uint64_t arrived, from, to;
};

static bool must_wait(struct entry **active, unsigned n, const struct entry *e)
{
    for (unsigned i = 0; i < n; i++)
        if (active[i]->arrived < e->arrived && active[i]->from < e->to &&
            e->from < active[i]->to)
            return true;
    return false;
}

TEST(test_against_a_model)
{
    struct qms_order order;
    struct entry *active[ACTIVE];
    unsigned n = 0, waited = 0;

    qms_order_init(&order);
    srandom(1);
    for (unsigned step = 0; step < STEPS || n > 0; step++) {
        if (step < STEPS && n < ACTIVE && random() % 2 == 0) {
            struct entry *e = calloc(1, sizeof *e);
            /* At the end of the numbers, too: a device may have 2^63 - 1 bytes. */
            uint64_t base = random() % 8 == 0 ? (UINT64_C(1) << 63) - 1200 : 0;

            e->arrived = step;
            e->from = base + random() % 1000;
            e->to = e->from + 1 + random() % (random() % 4 == 0 ? 200 : 10);
            qms_order_arrive(&order, &e->change, e->from, e->to - e->from);
            active[n++] = e;
        } else if (n > 0) {
            unsigned i = random() % n;
            struct entry *e = active[i];

            if (e->change.earlier > 0)
                continue;
            assert_int_equal(qms_order_await(&order, &e->change), 0);
            qms_order_leave(&order, &e->change);
            active[i] = active[--n];
            free(e);
        }
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(active[i]->change.earlier > 0,
                             must_wait(active, n, active[i]));
            waited += active[i]->change.earlier > 0;
        }
    }
    assert_true(waited > 1000);
    assert_true(cds_list_empty(&order.changes));
    qms_order_destroy(&order);
}

/* ---- threads */

#define THREADS 8
#define ROUNDS  20000
#define CELLS   64

static struct qms_order shared;
static _Atomic unsigned inside[CELLS]; /* changes that are being carried out */
static unsigned cells[CELLS];          /* not atomic: the order protects them */

static void *change_cells(void *opaque)
{
    unsigned seed = (unsigned)(uintptr_t)opaque;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct qms_change change;
        unsigned from = rand_r(&seed) % CELLS;
        unsigned n = 1 + rand_r(&seed) % 8;

        if (n > CELLS - from)
            n = CELLS - from;
        qms_order_arrive(&shared, &change, from, n);
        check(qms_order_await(&shared, &change) == 0);
        for (unsigned c = from; c < from + n; c++) {
            check(atomic_fetch_add(&inside[c], 1) == 0);
            cells[c]++;
        }
        if (i % 64 == 0)
            sched_yield();
        for (unsigned c = from; c < from + n; c++)
            atomic_fetch_sub(&inside[c], 1);
        qms_order_leave(&shared, &change);
    }
    return NULL;
}

TEST(test_threads)
{
    pthread_t threads[THREADS];
    unsigned sum = 0;

    qms_order_init(&shared);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, change_cells, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned c = 0; c < CELLS; c++)
        sum += cells[c];
    assert_true(sum >= THREADS * ROUNDS);
    assert_true(cds_list_empty(&shared.changes));
    qms_order_destroy(&shared);
}

/* ---- one that waits */

struct waiter {
    struct qms_order *order;
    struct qms_change change;
    pthread_t thread;
    int error;
    _Atomic bool done;
};

static void *wait_for_turn(void *opaque)
{
    struct waiter *w = opaque;

    w->error = qms_order_await(w->order, &w->change);
    atomic_store(&w->done, true);
    return NULL;
}

static void start(struct waiter *w, struct qms_order *order, uint64_t offset)
{
    *w = (struct waiter){.order = order};
    qms_order_arrive(order, &w->change, offset, 10);
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_turn, w), 0);
}

/* They go one after the other, in the order in which they came, however long each
 * takes; others go on meanwhile. */
TEST(test_long_waits)
{
    struct qms_order order;
    struct qms_change first, beside;
    struct waiter waiters[5];

    qms_order_init(&order);
    qms_order_arrive(&order, &first, 100, 10);
    assert_int_equal(qms_order_await(&order, &first), 0);
    for (unsigned i = 0; i < 5; i++)
        start(&waiters[i], &order, 101 + i);
    qms_order_arrive(&order, &beside, 90, 10);
    assert_int_equal(qms_order_await(&order, &beside), 0);
    qms_order_leave(&order, &beside);
    assert_true(qms_order_await_long(&order));
    for (unsigned i = 0; i < 5; i++)
        assert_false(atomic_load(&waiters[i].done));
    qms_order_leave(&order, &first);
    for (unsigned i = 0; i < 5; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].error, 0);
        for (unsigned later = i + 1; later < 5; later++)
            assert_false(atomic_load(&waiters[later].done));
        qms_order_leave(&order, &waiters[i].change);
    }
    qms_order_end(&order);
    assert_false(qms_order_await_long(&order));
    qms_order_destroy(&order);
}

/* When the server stops, what waits fails and goes, so that what comes after it need
 * not wait for it; what is being carried out goes on. */
TEST(test_stop)
{
    struct qms_order order;
    struct qms_change first, next, free_one;
    struct waiter waiters[3];

    qms_order_init(&order);
    qms_order_arrive(&order, &first, 100, 10);
    assert_int_equal(qms_order_await(&order, &first), 0);
    for (unsigned i = 0; i < 3; i++)
        start(&waiters[i], &order, 95 + 5 * i);
    qms_order_stop(&order);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].error, ESHUTDOWN);
    }
    qms_order_arrive(&order, &next, 109, 10);
    assert_int_equal(qms_order_await(&order, &next), ESHUTDOWN);
    qms_order_arrive(&order, &free_one, 110, 10);
    assert_int_equal(qms_order_await(&order, &free_one), 0);
    qms_order_leave(&order, &free_one);
    qms_order_leave(&order, &first);
    assert_true(cds_list_empty(&order.changes));
    qms_order_destroy(&order);
}
