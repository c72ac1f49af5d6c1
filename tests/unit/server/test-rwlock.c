/* SPDX-License-Identifier: BSD-3-Clause */
/* test-rwlock.c - a writer is alone, and nobody waits for ever. */
#include <unistd.h>

#include "tests/harness.h"

#include "server/rwlock.h"
#include "tests/unit/check.h"

#define READERS 4
#define ROUNDS  300

static struct qms_rwlock lock;
static uint64_t a, b; /* equal, but while a writer changes them */
static _Atomic bool stop;
static _Atomic unsigned entered, turned_away;

static void *read_it(void *opaque)
{
    const bool waits = opaque != NULL;
    unsigned stripe;

    while (!atomic_load(&stop)) {
        if (waits) {
            stripe = qms_rwlock_read(&lock);
        } else if (!qms_rwlock_try_read(&lock, &stripe)) {
            atomic_fetch_add(&turned_away, 1);
            continue;
        }
        check(a == b);
        qms_rwlock_read_unlock(&lock, stripe);
        atomic_fetch_add(&entered, 1);
    }
    return NULL;
}

static void *change_it(void *opaque)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned before = atomic_load(&entered);

        qms_rwlock_write(&lock);
        a++;
        if (i % 16 == 0)
            usleep(100);
        b++;
        qms_rwlock_write_unlock(&lock);
        while (atomic_load(&entered) == before)
            usleep(10);
    }
    return NULL;
}

TEST(test_alone)
{
    pthread_t readers[READERS], changers[2];

    qms_rwlock_init(&lock);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(
            pthread_create(&readers[i], NULL, read_it, i % 2 ? &lock : NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&changers[i], NULL, change_it, NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(changers[i], NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    assert_int_equal(a, 2 * ROUNDS);
    assert_int_equal(b, 2 * ROUNDS);
    qms_rwlock_destroy(&lock);
}

TEST(test_closed)
{
    unsigned stripe;

    qms_rwlock_init(&lock);
    qms_rwlock_write(&lock);
    assert_false(qms_rwlock_try_read(&lock, &stripe));
    qms_rwlock_write_unlock(&lock);
    assert_true(qms_rwlock_try_read(&lock, &stripe));
    qms_rwlock_read_unlock(&lock, stripe);
    qms_rwlock_destroy(&lock);
}
