/* SPDX-License-Identifier: BSD-3-Clause */
/* price.c with other threads at the worst moment: whenever it is about to take its
 * lock, others insert blocks and settle before it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lsm/price.h"

static struct price *the_price;
static uint64_t others;

static int lock_after_others(pthread_mutex_t *lock)
{
    static bool inside;

    if (the_price && !inside) {
        inside = true;
        for (uint64_t i = 0; i < others; i++)
            price_insert(the_price);
        price_now(the_price);
        inside = false;
    }
    return pthread_mutex_lock(lock);
}

#define pthread_mutex_lock lock_after_others
#include "lsm/price.c"

/* No count of insertions is taken before the one that another thread has settled.  If
 * it were, there would seem to have been 2^64 insertions, and the price would be 0. */
static void test_others(void **state)
{
    uint64_t loop[] = {1100, 2000};

    for (int i = 0; i < 2; i++) {
        the_price = price_new();
        price_blocks(the_price, 1000);
        for (unsigned long k = 0; k < 40000; k++) {
            others = k % 100 == 99 ? 10 : 0;
            price_look(the_price, (k % loop[i]) * UINT64_C(0x9e3779b97f4a7c15));
            price_insert(the_price);
        }
        others = 0;
        if (i == 0)
            assert_true(price_now(the_price) > .3);
        else
            assert_true(price_now(the_price) < .01);
        price_free(the_price);
        the_price = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_others)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
