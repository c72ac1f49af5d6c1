/* SPDX-License-Identifier: BSD-3-Clause */
/* test-patience.c - for how long a read waits for its context. */
#include <stdbool.h>

#include "tests/harness.h"

#include "clients/attach/patience.h"

#define MS    UINT64_C(1000000)
#define NEVER UINT64_MAX

static struct qm_patience patience;

static int set_up(void **state)
{
    patience = (struct qm_patience){0};
    return 0;
}

struct result {
    bool known;
    uint64_t waited;
    unsigned looks;
};

/* A read of which the ring tells after some time; at `free` it can be read up to where
 * it stood when the request came. */
static struct result read_that(uint64_t told, uint64_t free)
{
    struct result r = {.looks = 0};

    for (;;) {
        const struct qm_patience_look look = {r.waited >= told, r.waited >= free,
                                              r.waited};
        uint64_t nap = qm_patience_next(&patience, &look);

        r.looks++;
        r.known = look.known;
        if (nap == 0)
            return r;
        r.waited += nap;
    }
}

TEST_WITH(test_what_is_known_waits_for_nothing, set_up, NULL)
{
    struct result r = read_that(0, 0);

    assert_true(r.known);
    assert_int_equal(r.looks, 1);
    r = read_that(0, NEVER); /* another's record is being written behind it */
    assert_true(r.known);
    assert_int_equal(r.looks, 1);
}

TEST_WITH(test_what_is_never_told_waits_for_nothing, set_up, NULL)
{
    for (unsigned i = 0; i < 1000; i++) {
        struct result r = read_that(NEVER, 0);

        assert_false(r.known);
        assert_int_equal(r.looks, 1);
    }
    /* and does not take away from others. */
    assert_true(read_that(30 * MS, 30 * MS).known);
}

/* The processor that writes the record stands still for that long. */
TEST_WITH(test_a_late_record_is_waited_for, set_up, NULL)
{
    static const uint64_t late[] = {1000,    20000,   MS,      6 * MS,
                                    30 * MS, 90 * MS, 199 * MS};

    for (unsigned i = 0; i < sizeof late / sizeof *late; i++) {
        struct result r = read_that(late[i], late[i]);

        assert_true(r.known);
        /* Not much longer than it takes, and without burning the processor. */
        assert_in_range(r.waited, late[i], late[i] + late[i] / 2 + 20000);
        assert_in_range(r.looks, 2, 130);
    }
}

TEST_WITH(test_one_in_its_way_ends_the_waiting, set_up, NULL)
{
    struct result r = read_that(NEVER, 10 * MS);

    assert_false(r.known);
    assert_in_range(r.waited, 10 * MS, 15 * MS);
}

TEST_WITH(test_a_ring_that_stands_still, set_up, NULL)
{
    for (unsigned i = 0; i < QM_PATIENCE_BLIND; i++) {
        struct result r = read_that(NEVER, NEVER);

        assert_false(r.known);
        assert_int_equal(r.waited, QM_PATIENCE_MOST);
    }
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(read_that(NEVER, NEVER).waited, 0);
    assert_true(read_that(0, 0).known);
    assert_true(read_that(30 * MS, 30 * MS).known);
}
