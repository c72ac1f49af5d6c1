/* SPDX-License-Identifier: BSD-3-Clause */
/* worth.c - which ways to read ahead earn what they cost; see worth.h. */
#include "rowcache/readahead/worth.h"

#include <stdlib.h>

enum { BUCKETS = 8192, KEEP = 1024 };

#define LOW    .25
#define MARGIN 1.25       /* what is off has to earn more */
#define SMOOTH (1. / 32)  /* of the newest of the times */
#define RISE   (1. / 512) /* how fast the best time is forgotten, a read */

struct qm_worth {
    struct qm_worth_arm arm[QM_WORTH_ARMS + 1];
    unsigned bucket[BUCKETS], count;
    double read_us, best_us; /* 0: not known */
    double busy, budget;
};

struct qm_worth *qm_worth_new(void)
{
    struct qm_worth *worth = calloc(1, sizeof *worth);

    if (worth)
        worth->budget = QM_WORTH_BUDGET;
    return worth;
}

void qm_worth_free(struct qm_worth *worth)
{
    free(worth);
}

unsigned qm_worth_find(struct qm_worth *worth, uint32_t table, unsigned rule,
                       unsigned slot)
{
    uint64_t hash =
        ((uint64_t)table << 16 | rule << 8 | slot) * UINT64_C(0x9e3779b97f4a7c15);
    unsigned *bucket = &worth->bucket[(hash >> 40) % BUCKETS];

    for (unsigned i = *bucket; i; i = worth->arm[i].chain) {
        const struct qm_worth_arm *arm = &worth->arm[i];

        if (arm->table == table && arm->rule == rule && arm->slot == slot)
            return i;
    }
    if (worth->count == QM_WORTH_ARMS)
        return 0;
    worth->arm[++worth->count] = (struct qm_worth_arm){
        .table = table,
        .rule = (uint8_t)rule,
        .slot = (uint8_t)slot,
        .retry_ms = QM_WORTH_RETRY_MS,
        .chain = *bucket,
    };
    *bucket = worth->count;
    return worth->count;
}

const struct qm_worth_arm *qm_worth_get(const struct qm_worth *worth, unsigned arm)
{
    return arm > 0 && arm <= worth->count ? &worth->arm[arm] : NULL;
}

static struct qm_worth_arm *get(struct qm_worth *worth, unsigned arm)
{
    return arm > 0 && arm <= worth->count ? &worth->arm[arm] : NULL;
}

double qm_worth_price(const struct qm_worth *worth)
{
    double slow = worth->read_us > 0 ? 1 - worth->best_us / worth->read_us : 0;

    return LOW + (slow > worth->busy ? slow : worth->busy);
}

double qm_worth_read_us(const struct qm_worth *worth)
{
    return worth->read_us;
}

static bool earns(const struct qm_worth *worth, const struct qm_worth_arm *arm,
                  double margin)
{
    double share = arm->judged > 0 ? arm->used / arm->judged : 0;

    return share * worth->read_us > arm->cost_us * qm_worth_price(worth) * margin;
}

unsigned qm_worth_allow(struct qm_worth *worth, uint64_t now_ms, unsigned arm,
                        unsigned rows)
{
    struct qm_worth_arm *a = get(worth, arm);
    unsigned least = QM_WORTH_TRIAL_ROWS * 2;

    if (!a)
        return 0;
    if (a->state == QM_WORTH_OFF && now_ms >= a->retry_at) {
        a->state = QM_WORTH_TRIAL;
        a->used = a->judged = 0;
    }
    if (a->state == QM_WORTH_OFF)
        return 0;
    if (a->state == QM_WORTH_TRIAL) {
        if (rows > (a->out < least ? least - a->out : 0))
            rows = a->out < least ? least - a->out : 0;
        if (rows > worth->budget)
            rows = (unsigned)worth->budget;
        worth->budget -= rows;
    }
    a->out += rows;
    return rows;
}

static void no_longer_out(struct qm_worth_arm *a, unsigned rows)
{
    a->out -= rows < a->out ? rows : a->out;
}

void qm_worth_give_back(struct qm_worth *worth, unsigned arm, unsigned rows)
{
    struct qm_worth_arm *a = get(worth, arm);

    if (!a)
        return;
    no_longer_out(a, rows);
    if (a->state == QM_WORTH_TRIAL)
        worth->budget += rows;
    if (worth->budget > QM_WORTH_BUDGET)
        worth->budget = QM_WORTH_BUDGET;
}

void qm_worth_paid(struct qm_worth *worth, unsigned arm, unsigned rows, double us)
{
    struct qm_worth_arm *a = get(worth, arm);

    if (!a || rows == 0)
        return;
    us /= rows;
    a->cost_us = a->cost_us > 0 ? a->cost_us + (us - a->cost_us) / 16 : us;
}

static void decide(struct qm_worth *worth, uint64_t now_ms, struct qm_worth_arm *a)
{
    if (a->state == QM_WORTH_OFF || a->judged < QM_WORTH_TRIAL_ROWS)
        return;
    if (earns(worth, a, a->state == QM_WORTH_ON ? 1 : MARGIN)) {
        a->state = QM_WORTH_ON;
        /* What has earned for long is tried again soon. */
        if (a->judged >= KEEP / 2)
            a->retry_ms = QM_WORTH_RETRY_MS;
        return;
    }
    a->state = QM_WORTH_OFF;
    a->retry_at = now_ms + a->retry_ms;
    a->retry_ms = a->retry_ms * 2 < QM_WORTH_RETRY_MOST_MS ? a->retry_ms * 2
                                                           : QM_WORTH_RETRY_MOST_MS;
}

void qm_worth_judge(struct qm_worth *worth, uint64_t now_ms, unsigned arm, bool used)
{
    struct qm_worth_arm *a = get(worth, arm);

    if (!a)
        return;
    no_longer_out(a, 1);
    a->judged++;
    a->used += used;
    if (a->judged >= KEEP) {
        a->judged /= 2;
        a->used /= 2;
    }
    decide(worth, now_ms, a);
}

void qm_worth_late(struct qm_worth *worth, unsigned arm)
{
    struct qm_worth_arm *a = get(worth, arm);

    if (!a || a->used >= a->judged) /* halved meanwhile */
        return;
    a->used++;
    /* It was judged too early. */
    if (a->state == QM_WORTH_OFF && a->judged >= QM_WORTH_TRIAL_ROWS &&
        earns(worth, a, MARGIN))
        a->state = QM_WORTH_ON;
}

void qm_worth_read(struct qm_worth *worth, double us)
{
    worth->read_us =
        worth->read_us > 0 ? worth->read_us + (us - worth->read_us) * SMOOTH : us;
    if (worth->best_us == 0 || worth->read_us < worth->best_us)
        worth->best_us = worth->read_us;
    else
        worth->best_us += (worth->read_us - worth->best_us) * RISE;
    worth->budget += 1. / QM_WORTH_SHARE;
    if (worth->budget > QM_WORTH_BUDGET)
        worth->budget = QM_WORTH_BUDGET;
}

void qm_worth_busy(struct qm_worth *worth, double busy)
{
    worth->busy += (busy - worth->busy) * SMOOTH;
}
