/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness.h"
#include <errno.h>
#include <stdio.h>

static struct listed_test *first, **last = &first;
static size_t count;

void list_test(struct listed_test *test)
{
    *last = test;
    last = &test->next;
    count++;
}

int run_listed(int (*set_up)(void **state), int (*tear_down)(void **state))
{
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    size_t n = 0;
    int failed;

    if (count == 0 || !tests) {
        fputs(count == 0 ? "there are no tests\n" : "no memory\n", stderr);
        free(tests);
        return 1;
    }
    for (const struct listed_test *t = first; t; t = t->next)
        tests[n++] = t->test;
    failed = _cmocka_run_group_tests(program_invocation_short_name, tests, n, set_up,
                                     tear_down);
    free(tests);
    return failed;
}
