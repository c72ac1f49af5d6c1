/* SPDX-License-Identifier: BSD-3-Clause */
/* test-forest.c - open slots and their nesting, against a slow model: parents alone. */
#include "tests/harness.h"

#include "server/forest.h"

#define NODES 40

TEST(test_begin_and_end)
{
    struct qms_forest *f = qms_forest_new(5);

    assert_false(qms_forest_open(f, 1));
    assert_true(qms_forest_may_begin(f, 1, 0));
    assert_false(qms_forest_may_begin(f, 1, 2)); /* 2 is not open */
    qms_forest_begin(f, 1, 0);
    qms_forest_begin(f, 2, 1);
    qms_forest_begin(f, 3, 2);
    qms_forest_begin(f, 4, 1);
    assert_false(qms_forest_may_begin(f, 1, 3)); /* 3 would end with 1 */
    assert_false(qms_forest_may_begin(f, 3, 3));
    assert_true(qms_forest_may_begin(f, 3, 4));
    qms_forest_end(f, 2);
    assert_true(qms_forest_open(f, 1));
    assert_false(qms_forest_open(f, 2));
    assert_false(qms_forest_open(f, 3));
    assert_true(qms_forest_open(f, 4));
    qms_forest_end(f, 5);      /* not open: nothing happens */
    qms_forest_begin(f, 1, 0); /* anew: what was nested is gone */
    assert_false(qms_forest_open(f, 4));
    free(f);
}

TEST(test_depth_is_limited)
{
    struct qms_forest *f = qms_forest_new(QMS_DEPTH_MAX + 1);

    qms_forest_begin(f, 1, 0);
    for (unsigned n = 2; n <= QMS_DEPTH_MAX; n++) {
        assert_true(qms_forest_may_begin(f, n, n - 1));
        qms_forest_begin(f, n, n - 1);
    }
    assert_false(qms_forest_may_begin(f, QMS_DEPTH_MAX + 1, QMS_DEPTH_MAX));
    assert_true(qms_forest_may_begin(f, QMS_DEPTH_MAX + 1, QMS_DEPTH_MAX - 1));
    qms_forest_end(f, 1);
    for (unsigned n = 1; n <= QMS_DEPTH_MAX; n++)
        assert_false(qms_forest_open(f, n));
    free(f);
}

/* The model: parent[n] of open nodes, -1 of others. */
static int within(const int *parent, int n, int ancestor)
{
    for (; n > 0; n = parent[n])
        if (n == ancestor)
            return 1;
    return 0;
}

static void model_end(int *parent, int node)
{
    int inside[NODES + 1];

    if (parent[node] < 0)
        return;
    for (int n = 1; n <= NODES; n++)
        inside[n] = parent[n] >= 0 && within(parent, n, node);
    for (int n = 1; n <= NODES; n++)
        if (inside[n])
            parent[n] = -1;
}

TEST(test_against_model)
{
    struct qms_forest *f = qms_forest_new(NODES);
    int parent[NODES + 1];

    srand(1);
    for (int n = 0; n <= NODES; n++)
        parent[n] = -1;
    for (int i = 0; i < 20000; i++) {
        int node = 1 + rand() % NODES, within_node = rand() % (NODES + 1);
        struct qms_forest *copy;
        int may;

        if (rand() % 3 == 0) {
            qms_forest_end(f, node);
            model_end(parent, node);
        } else {
            may = within_node == 0 ||
                  (parent[within_node] >= 0 && !within(parent, within_node, node));
            assert_int_equal(qms_forest_may_begin(f, node, within_node), may);
            if (may) {
                qms_forest_begin(f, node, within_node);
                model_end(parent, node);
                parent[node] = within_node;
            }
        }
        copy = qms_forest_copy(f);
        for (int n = 1; n <= NODES; n++)
            assert_int_equal(qms_forest_open(copy, n), parent[n] >= 0);
        free(copy);
    }
    free(f);
}
