/* SPDX-License-Identifier: BSD-3-Clause */
/* test-plan.c - for which values it is certain that no other text means the same row.
 */
#include "tests/harness.h"

#include "rowcache/fill/plan.h"

/* Of a table with as many integers as there are values; around them is that byte. */
static bool plain(char around, unsigned count, const char *const *values)
{
    struct qm_plan *plan = calloc(1, sizeof *plan);
    struct qm_row_name *name = malloc(sizeof *name);
    size_t at = 0;
    bool is;

    assert_true(plan && name);
    memset(name, around, sizeof *name);
    plan->count = name->parts = count;
    for (unsigned i = 0; i < count; i++) {
        plan->column[i].integer = true;
        name->part[i].at = at;
        name->part[i].length = strlen(values[i]);
        memcpy(name->values + at, values[i], strlen(values[i]));
        at += strlen(values[i]);
    }
    is = qm_plan_is_plain(plan, name);
    if (count > 0) {
        plan->column[count - 1].integer = false;
        assert_false(qm_plan_is_plain(plan, name));
    }
    free(plan);
    free(name);
    return is;
}

static bool plain_one(char around, const char *value)
{
    return plain(around, 1, &value);
}

/* What stands before and behind a value does not matter. */
TEST(test_one)
{
    static const char around[] = "-0+7 ";
    static const char *const good[] = {"0", "1", "-1", "10", "42", "-7"};
    static const char *const bad[] = {"", "-", "-0", "00", "01", "-01"};

    for (const char *byte = around; *byte; byte++)
        for (unsigned i = 0; i < 6; i++) {
            assert_true(plain_one(*byte, good[i]));
            assert_false(plain_one(*byte, bad[i]));
        }
}

TEST(test_several)
{
    assert_true(plain(':', 2, (const char *const[]){"5", "0"}));
    assert_true(plain('-', 3, (const char *const[]){"0", "-5", "0"}));
    assert_false(plain(':', 2, (const char *const[]){"0", "05"}));
    assert_false(plain(':', 2, (const char *const[]){"-0", "5"}));
}
