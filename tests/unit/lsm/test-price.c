/* SPDX-License-Identifier: BSD-3-Clause */
/* price.c with other threads at the worst moment: whenever it is about to take its
 * lock, others insert blocks and settle before it. */
#include <pthread.h>
#include <stdbool.h>

#include "tests/harness.h"

#include "lsm/price.h"

static uint64_t mixed(uint64_t x)
{
    x = (x + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

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
TEST(test_others)
{
    uint64_t loop[] = {700, 300};

    for (int i = 0; i < 2; i++) {
        the_price = price_new();
        price_blocks(the_price, 1000);
        for (unsigned long k = 0; k < 40000; k++) {
            others = k % 100 == 99 ? 10 : 0;
            price_look(the_price, (k % loop[i]) * UINT64_C(0x9e3779b97f4a7c15), true);
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

/* An LRU cache of CACHE among BLOCKS blocks that are looked up alike, and what is
 * erased now and then.  A block stays for 1,216 look-ups, two thirds of which evict. */
#define BLOCKS 3000
#define CACHE  1000

TEST(test_lru)
{
    static uint64_t last[BLOCKS],
        stay; /* when each was looked up; 0: it is not there */
    uint64_t x = 5, stayed = 0, left = 0, evictions = 0;
    struct price *p = price_new();
    unsigned n = 0;

    price_blocks(p, CACHE);
    for (uint64_t now = 1; now < 60000; now++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint32_t i = (uint32_t)(x >> 33) % BLOCKS, old = BLOCKS;
        price_look(p, mixed(i), last[i] > 0);
        if (last[i] == 0) {
            price_insert(p);
            if (n < CACHE) {
                n++;
            } else {
                for (uint32_t k = 0; k < BLOCKS; k++)
                    if (last[k] > 0 && (old == BLOCKS || last[k] < last[old]))
                        old = k;
                stayed += now - last[old];
                left++;
                last[old] = 0;
                evictions++;
            }
        }
        last[i] = now;
        if (now % 1000 == 0) { /* what makes room evicts nothing */
            for (uint32_t k = 0, gone = 0; k < BLOCKS && gone < 20; k++)
                if (last[k] > 0) {
                    price_forget(p, mixed(k));
                    last[k] = 0;
                    gone++;
                    n--;
                }
            price_erased(p, 20);
        }
    }
    stay = stayed / left;
    assert_in_range(stay, 1150, 1350);
    assert_int_equal(price_clock(p), evictions);
    assert_in_range(price_residence(p), 700, 930);
    /* What a block is worth that is looked up as all others are, no more and no less:
     * 1 - exp(-price) is the probability that it is looked up in time. */
    assert_true(price_now(p) > .28 && price_now(p) < .5);
    price_free(p);
}

/* A loop: each look-up comes `after` evictions behind the one before, in a cache of
 * 1,000 blocks.  Where it is in the half of the residence that half of the places would
 * lose, each of these saves two look-ups while a block stays. */
static double price_of(uint64_t after, bool hit)
{
    struct price *p = price_new();
    double price;

    price_blocks(p, 1000);
    for (uint64_t k = 0; k < 1000; k++)
        price_insert(p);
    for (uint64_t k = 0; k < 20150; k++) { /* not at the end of a period */
        price_look(p, mixed(k % after), hit || k < after);
        price_insert(p);
    }
    price = price_now(p);
    price_free(p);
    return price;
}

TEST(test_half)
{
    assert_true(price_of(450, true) < .01);
    assert_true(price_of(550, true) > 1.8 && price_of(550, true) < 2.05);
    assert_true(price_of(950, true) > 1.8 && price_of(950, true) < 2.05);
    assert_true(price_of(1100, false) < .01); /* a larger cache would save these */
}
