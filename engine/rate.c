/* SPDX-License-Identifier: BSD-3-Clause */
/* rate.c - a token bucket (rate.h).
 *
 * The tokens are not counted: there are (now - empty) / interval of them.  A token is
 * taken by moving `empty` on by an interval; the bound of BURST is kept by moving it on
 * to where there are not more.
 *
 * Why an interval of a period's length has at most N reads: at its begin, tokens and
 * promises are at most BURST together, and every read uses one; less than
 * N - BURST + 1 whole intervals between tokens lie within it.
 */
#include "engine/rate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

#define BURST_PART  10 /* of the budget's reads */
#define BURST_LEAST 8
#define DEAR_PART   4 /* of BURST, for the dear ones */

static const struct {
    const char *name;
    uint64_t period;
} units[] = {
    {"s", SECOND},
    {"min", 60 * SECOND},
    {"h", 3600 * SECOND},
    {"day", 86400 * SECOND},
};

#define UNITS (sizeof units / sizeof units[0])

bool qm_budget_parse(const char *text, struct qm_budget *budget)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t n;

    if (strcmp(text, "off") == 0) {
        *budget = (struct qm_budget){0, 0};
        return true;
    }
    if (digits == 0 || digits > 7 || text[digits] != '/')
        return false;
    n = strtoull(text, NULL, 10);
    if (n < 1 || n > QM_BUDGET_MOST)
        return false;
    for (size_t i = 0; i < UNITS; i++)
        if (strcmp(text + digits + 1, units[i].name) == 0) {
            *budget = (struct qm_budget){n, units[i].period};
            return true;
        }
    return false;
}

void qm_budget_format(const struct qm_budget *budget, char *text, size_t len)
{
    snprintf(text, len, "off");
    for (size_t i = 0; i < UNITS && budget->reads > 0; i++)
        if (units[i].period == budget->period)
            snprintf(text, len, "%" PRIu64 "/%s", budget->reads, units[i].name);
}

void qm_rate_init(struct qm_rate *rate)
{
    *rate = (struct qm_rate){.burst = 0};
    atomic_init(&rate->on, false);
    atomic_init(&rate->over, 0);
    pthread_mutex_init(&rate->lock, NULL);
}

void qm_rate_destroy(struct qm_rate *rate)
{
    pthread_mutex_destroy(&rate->lock);
}

static int64_t burst_of(uint64_t reads)
{
    uint64_t burst = reads / BURST_PART, least = reads / 2;

    if (least > BURST_LEAST)
        least = BURST_LEAST;
    if (burst < least)
        burst = least;
    return burst > 0 ? (int64_t)burst : 1;
}

void qm_rate_set(struct qm_rate *rate, const struct qm_budget *budget)
{
    uint64_t most;
    int64_t tokens = 0;

    pthread_mutex_lock(&rate->lock);
    if (budget->reads > 0) {
        if (rate->begun)
            tokens = (rate->last - rate->empty) / rate->interval;
        rate->burst = burst_of(budget->reads);
        most = budget->reads - (uint64_t)rate->burst + 1;
        rate->interval = (int64_t)((budget->period + most - 1) / most);
        rate->empty = rate->last - tokens * rate->interval; /* bound() cuts them */
    }
    if (!qm_rate_is_on(rate)) { /* promises of before did not count */
        rate->promised = 0;
        rate->begun = false;
    }
    atomic_store_explicit(&rate->on, budget->reads > 0, memory_order_relaxed);
    pthread_mutex_unlock(&rate->lock);
}

/* Lets what is too much run over.  The lock is held. */
static void bound(struct qm_rate *rate, int64_t now)
{
    int64_t room = rate->burst - rate->promised, earliest;

    if (!rate->begun || now > rate->last) /* callers looked at the clock before */
        rate->last = now;
    if (!rate->begun)
        rate->empty = now;
    rate->begun = true;
    earliest = rate->last - (room > 0 ? room : 0) * rate->interval;
    if (rate->empty < earliest)
        rate->empty = earliest;
}

/* Takes a token, if more than `keep` are there.  The lock is held. */
static bool take(struct qm_rate *rate, int64_t now, int64_t keep)
{
    bound(rate, now);
    if (rate->last - rate->empty < (keep + 1) * rate->interval)
        return false;
    rate->empty += rate->interval;
    return true;
}

bool qm_rate_take(struct qm_rate *rate, uint64_t now, bool dear)
{
    bool taken;

    if (!qm_rate_is_on(rate))
        return true;
    pthread_mutex_lock(&rate->lock);
    taken = take(rate, (int64_t)now, dear ? 0 : rate->burst / DEAR_PART);
    rate->promised += taken;
    pthread_mutex_unlock(&rate->lock);
    return taken;
}

/* The lock is held. */
static void give_back(struct qm_rate *rate)
{
    if (rate->promised == 0) /* promised while there was no budget */
        return;
    rate->promised--;
    rate->empty -= rate->interval;
}

void qm_rate_return(struct qm_rate *rate)
{
    if (!qm_rate_is_on(rate))
        return;
    pthread_mutex_lock(&rate->lock);
    give_back(rate);
    pthread_mutex_unlock(&rate->lock);
}

bool qm_rate_read(struct qm_rate *rate, uint64_t now, unsigned promises)
{
    bool may = true;

    if (!qm_rate_is_on(rate))
        return true;
    pthread_mutex_lock(&rate->lock);
    while (promises > 1 && promises-- > 0)
        give_back(rate);
    bound(rate, (int64_t)now); /* with the promise: it is of those BURST */
    if (promises > 0 && rate->promised > 0)
        rate->promised--;
    else
        may = take(rate, (int64_t)now, 0);
    pthread_mutex_unlock(&rate->lock);
    return may;
}

void qm_rate_over(struct qm_rate *rate, uint64_t blocks)
{
    atomic_fetch_add_explicit(&rate->over, blocks, memory_order_relaxed);
}
