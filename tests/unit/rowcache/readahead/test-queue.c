/* SPDX-License-Identifier: BSD-3-Clause */
/* test-queue.c - what auto asks for waits until it is taken, and then for how long. */
#include <stdlib.h>

#include "tests/harness.h"

#include "rowcache/readahead/auto-queue.h"

static struct qm_auto_queue queue;
static struct qm_auto_request request;

/* Rows of a table are added to its request; after QM_AUTO_PATIENCE_MS the first one is
 * late. */
TEST(test_waits)
{
    uint64_t late = 5000 + QM_AUTO_PATIENCE_MS;

    assert_false(qm_auto_queue_is_late(&queue, 5000));
    qm_auto_queue_add(&queue, 5000, 1)->count++;
    qm_auto_queue_add(&queue, 5600, 1)->count++;
    qm_auto_queue_add(&queue, 5600, 2)->count++;
    assert_int_equal(queue.count, 2);
    assert_false(qm_auto_queue_is_late(&queue, late - 1));
    assert_true(qm_auto_queue_is_late(&queue, late));
    assert_true(qm_auto_queue_take(&queue, &request));
    assert_int_equal(request.table, 1);
    assert_int_equal(request.count, 2);
    assert_false(qm_auto_queue_is_late(&queue, late)); /* the other waits since 5600 */
    assert_true(qm_auto_queue_is_late(&queue, late + 600));
    assert_true(qm_auto_queue_take(&queue, &request));
    assert_false(qm_auto_queue_take(&queue, &request));
    assert_false(qm_auto_queue_is_late(&queue, late + 10000));
}

/* A request that is full is followed by another one, as far as there is room. */
TEST(test_full)
{
    for (unsigned i = 0; i < QM_AUTO_QUEUE * QM_AUTO_ROWS; i++)
        qm_auto_queue_add(&queue, 0, 1)->count++;
    assert_null(qm_auto_queue_add(&queue, 0, 1));
    assert_true(qm_auto_queue_take(&queue, &request));
    assert_int_equal(request.count, QM_AUTO_ROWS);
    assert_non_null(qm_auto_queue_add(&queue, 0, 1));
    assert_int_equal(queue.count, QM_AUTO_QUEUE);
}
