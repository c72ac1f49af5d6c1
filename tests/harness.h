/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.h - cmocka's tests, without a list of them, as in Linux' kselftest_harness.h:
 *
 *   TEST(test_name) { ... }
 *   TEST_WITH(test_name, set_up, tear_down) { ... }
 *
 *   FIXTURE(empty, cache_new(), cache_free(it))
 *   TEST_ON(test_name, empty, struct cache *c) { ... }
 *
 * Each defines test_name(void **state), which its program runs, in the order in which
 * they are written: the second between set_up and tear_down, which may be NULL; the
 * last with what its fixture has made for it alone, and unmakes as `it`.
 * harness-main.c has the program's main(), unless the program has one, which then calls
 * run_listed().
 *
 * Tests need not include again what is included here.
 */
#ifndef QM_TESTS_HARNESS_H
#define QM_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct listed_test {
    struct CMUnitTest test;
    struct listed_test *next;
};

/* Called before main(). */
void list_test(struct listed_test *test);

/* All that are listed; set_up before them and tear_down after them may be NULL.  How
 * many failed. */
int run_listed(int (*set_up)(void **state), int (*tear_down)(void **state));

/* How many of n rounds or cases are run: a third, the first of them; all if QM_ROUNDS
 * is "all" in the environment, as it is for the test NAME_long of qm_all_rounds(). */
static inline unsigned qm_rounds(unsigned n)
{
    const char *which = getenv("QM_ROUNDS");

    return which && strcmp(which, "all") == 0 ? n : (n + 2) / 3;
}

#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down)                                             \
    static void name(void **state);                                                    \
    static __attribute__((constructor)) void list_##name(void)                         \
    {                                                                                  \
        static struct listed_test listed = {                                           \
            cmocka_unit_test_setup_teardown(name, set_up, tear_down), NULL};           \
                                                                                       \
        list_test(&listed);                                                            \
    }                                                                                  \
    static void name(void **state)

#define FIXTURE(name, make, unmake)                                                    \
    static int set_up_##name(void **state)                                             \
    {                                                                                  \
        *state = make;                                                                 \
        return 0;                                                                      \
    }                                                                                  \
    static int tear_down_##name(void **state)                                          \
    {                                                                                  \
        __typeof__(make) it = *state;                                                  \
                                                                                       \
        unmake;                                                                        \
        return 0;                                                                      \
    }
#define TEST_ON(name, fixture, subject)                                                \
    static void on_##name(subject);                                                    \
    TEST_WITH(name, set_up_##fixture, tear_down_##fixture)                             \
    {                                                                                  \
        on_##name(*state);                                                             \
    }                                                                                  \
    static void on_##name(subject)

#endif
