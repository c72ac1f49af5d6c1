/* SPDX-License-Identifier: BSD-3-Clause */
/* rate.h - a budget of reads ahead, for devices where a read costs money.
 *
 * The budget is a number N of reads in a period T: no interval of length T, wherever it
 * begins, has more than N of them.  A token bucket keeps to that: it holds at most
 * BURST tokens, a tenth of N (but at least 8, or N / 2 if that is less, or 1), and gets
 * N - BURST + 1 of them a period, evenly.  It begins empty, so that a server that is
 * started again and again keeps to the budget, too.
 *
 * A token is taken when it is decided to read ahead: qm_rate_take() promises one read.
 * The read comes later, or never, as its blocks wait in a queue meanwhile: they are
 * joined with others', or a demand reads them.  The reading thread therefore says how
 * many promises the read's blocks had, and gets back those that were not needed:
 * qm_rate_read().  A promise whose read will not come is given back by
 * qm_rate_return().  Tokens and promises together are never more than BURST.
 *
 * Any thread may call any of these at any time.  Without a budget none takes the lock.
 * Times are the caller's, in nanoseconds, of a clock that does not go back; the same
 * clock in all calls.
 */
#ifndef QM_ENGINE_RATE_H
#define QM_ENGINE_RATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A budget: the most reads in a period, which is in nanoseconds; reads 0: no bound. */
struct qm_budget {
    uint64_t reads, period;
};

/* The largest budget's reads, a period. */
#define QM_BUDGET_MOST 1000000

/* Reads "off", or "N/s", "N/min", "N/h" or "N/day" with N from 1 to QM_BUDGET_MOST.
 * Returns whether it is one of these; else sets nothing. */
bool qm_budget_parse(const char *text, struct qm_budget *budget);
/* What qm_budget_parse() takes. */
#define QM_BUDGET_ALLOWED                                                              \
    "off, or a number of reads from 1 to 1000000 a period: N/s, N/min, N/h or N/day"
/* Writes it so.  len: at least 16. */
void qm_budget_format(const struct qm_budget *budget, char *text, size_t len);

struct qm_rate {
    _Atomic bool on;       /* there is a budget */
    _Atomic uint64_t over; /* blocks that were not read ahead for want of tokens */
    pthread_mutex_t lock;  /* a leaf, of all that follows */
    int64_t interval;      /* ns between two tokens; rounded up */
    int64_t burst;         /* tokens and promises at most */
    int64_t promised;      /* reads that were promised and are still to come */
    int64_t empty;         /* time since which tokens have been coming */
    int64_t last;          /* latest time that was told */
    bool begun;            /* `empty` is set */
};

void qm_rate_init(struct qm_rate *rate); /* without a budget */
void qm_rate_destroy(struct qm_rate *rate);

/* Changes the budget.  The tokens that there are stay, as far as the new one allows. */
void qm_rate_set(struct qm_rate *rate, const struct qm_budget *budget);

static inline bool qm_rate_is_on(struct qm_rate *rate)
{
    return atomic_load_explicit(&rate->on, memory_order_relaxed);
}

/* Promises a read, if there is a token; true without a budget.  dear: it saves reads,
 * or very probably does, and may have the last tokens; others leave a quarter of BURST
 * to these. */
bool qm_rate_take(struct qm_rate *rate, uint64_t now, bool dear);

/* A promised read will not come. */
void qm_rate_return(struct qm_rate *rate);

/* A read is about to be sent, whose blocks had `promises` promises.  False: they had
 * none, and there is no token for it: it must not be sent. */
bool qm_rate_read(struct qm_rate *rate, uint64_t now, unsigned promises);

/* Blocks were not read ahead for want of tokens. */
void qm_rate_over(struct qm_rate *rate, uint64_t blocks);

#endif
