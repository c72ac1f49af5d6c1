/* SPDX-License-Identifier: BSD-3-Clause */
/* test-priority.c - a thread's I/O priority is lowered, never raised, and is its own.
 */
#include <linux/ioprio.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/priority.h"
#include "tests/unit/check.h"

#define VALUE(class, level) ((class) << IOPRIO_CLASS_SHIFT | (level))
#define LOW                 VALUE(IOPRIO_CLASS_BE, 7)
#define IDLE                VALUE(IOPRIO_CLASS_IDLE, 0)

static int get(void)
{
    return (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
}

struct lowered {
    int begin; /* -1: as it comes */
    enum qms_priority to;
    int after;
};

static void *lower(void *opaque)
{
    struct lowered *l = opaque;

    if (l->begin != -1)
        check(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, l->begin) == 0);
    check(qms_priority_lower(l->to) == 0);
    l->after = get();
    return NULL;
}

/* In a thread of its own. */
static int lowered(int begin, enum qms_priority to)
{
    struct lowered l = {.begin = begin, .to = to};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, lower, &l), 0);
    pthread_join(thread, NULL);
    return l.after;
}

TEST(test_lowered)
{
    int mine = get();

    assert_int_equal(lowered(-1, QMS_PRIORITY_LOW), LOW);
    assert_int_equal(lowered(-1, QMS_PRIORITY_IDLE), IDLE);
    assert_int_equal(lowered(-1, QMS_PRIORITY_NORMAL), mine);
    assert_int_equal(lowered(VALUE(IOPRIO_CLASS_BE, 0), QMS_PRIORITY_LOW), LOW);
    assert_int_equal(lowered(VALUE(IOPRIO_CLASS_BE, 7), QMS_PRIORITY_IDLE), IDLE);
    /* The others' stays. */
    assert_int_equal(get(), mine);
}

TEST(test_not_raised)
{
    assert_int_equal(lowered(IDLE, QMS_PRIORITY_LOW), IDLE);
    assert_int_equal(lowered(IDLE, QMS_PRIORITY_IDLE), IDLE);
    assert_int_equal(lowered(LOW, QMS_PRIORITY_LOW), LOW);
    assert_int_equal(lowered(LOW, QMS_PRIORITY_NORMAL), LOW);
}
