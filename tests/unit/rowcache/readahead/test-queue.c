/* SPDX-License-Identifier: BSD-3-Clause */
/* test-queue.c - what auto asks for waits until it is taken, and then for how long. */
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
    assert_true(qm_auto_queue_take(&queue, 0, 0, &request));
    assert_int_equal(request.table, 1);
    assert_int_equal(request.count, 2);
    assert_false(qm_auto_queue_is_late(&queue, late)); /* the other waits since 5600 */
    assert_true(qm_auto_queue_is_late(&queue, late + 600));
    assert_true(qm_auto_queue_take(&queue, 0, 0, &request));
    assert_false(qm_auto_queue_take(&queue, 0, 0, &request));
    assert_false(qm_auto_queue_is_late(&queue, late + 10000));
}

static bool is_even(void *opaque, struct qm_item item, unsigned arm)
{
    unsigned *asked = opaque;

    assert_int_equal(arm, item.row + 1);
    ++*asked;
    return item.row % 2 == 0 || item.table == 2;
}

/* Rows that are removed are there no more, and a request without any is none. */
TEST(test_remove)
{
    struct qm_auto_request *r;
    unsigned asked = 0;

    for (uint32_t table = 1; table <= 3; table++)
        for (int64_t row = 0; row < 5; row++) {
            r = qm_auto_queue_add(&queue, table, table);
            r->row[r->count] = row;
            r->arm[r->count++] = (uint16_t)(row + 1);
        }
    assert_true(qm_auto_queue_has(&queue, (struct qm_item){2, 4}));
    assert_false(qm_auto_queue_has(&queue, (struct qm_item){2, 5}));
    assert_false(qm_auto_queue_has(&queue, (struct qm_item){4, 4}));
    qm_auto_queue_remove(&queue, is_even, &asked);
    assert_int_equal(asked, 15);
    assert_int_equal(queue.count, 2);
    assert_false(qm_auto_queue_has(&queue, (struct qm_item){3, 4}));
    for (uint32_t table = 1; table <= 3; table += 2) {
        assert_true(qm_auto_queue_take(&queue, 0, 0, &request));
        assert_int_equal(request.table, table);
        assert_int_equal(request.since, table);
        assert_int_equal(request.count, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(request.row[i], 2 * i + 1);
            assert_int_equal(request.arm[i], 2 * i + 2);
        }
    }
    assert_false(qm_auto_queue_take(&queue, 0, 0, &request));
}

/* A request that is full is followed by another one, as far as there is room. */
TEST(test_full)
{
    for (unsigned i = 0; i < QM_AUTO_QUEUE * QM_AUTO_ROWS; i++)
        qm_auto_queue_add(&queue, 0, 1)->count++;
    assert_null(qm_auto_queue_add(&queue, 0, 1));
    assert_true(qm_auto_queue_take(&queue, 0, 0, &request));
    assert_int_equal(request.count, QM_AUTO_ROWS);
    assert_non_null(qm_auto_queue_add(&queue, 0, 1));
    assert_int_equal(queue.count, QM_AUTO_QUEUE);
}

/* While others are out, a request waits for more rows, but for one whose rows are read
 * soon; the others stay in their order. */
TEST(test_gathers)
{
    queue.count = 0;
    queue.first = QM_AUTO_QUEUE - 2; /* so that the four wrap around */
    for (uint32_t table = 1; table <= 4; table++) {
        struct qm_auto_request *r = qm_auto_queue_add(&queue, 1000 + table, table);

        r->count++;
        r->soon = table == 3;
    }
    assert_true(qm_auto_queue_take(&queue, 1005, 20, &request));
    assert_int_equal(request.table, 3);
    assert_false(qm_auto_queue_take(&queue, 1020, 20, &request));
    for (uint32_t table = 1; table <= 4; table += table == 2 ? 2 : 1) {
        assert_false(qm_auto_queue_take(&queue, 1019 + table, 20, &request));
        assert_true(qm_auto_queue_take(&queue, 1020 + table, 20, &request));
        assert_int_equal(request.table, table);
        assert_false(request.soon);
    }
    /* The next in its place is another one. */
    qm_auto_queue_add(&queue, 0, 1)->soon = true;
    assert_true(qm_auto_queue_take(&queue, 0, 20, &request));
    for (uint32_t table = 1; table <= QM_AUTO_QUEUE; table++) {
        struct qm_auto_request *r = qm_auto_queue_add(&queue, 0, table);

        assert_false(r->soon);
        r->count = QM_AUTO_ROWS;
    }
}
