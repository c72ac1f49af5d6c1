/* SPDX-License-Identifier: BSD-3-Clause */
/* yield.c - which ways to read ahead earn what they cost; see yield.h. */
#include "rowcache/readahead/yield.h"

#include <limits.h>
#include <stdlib.h>

enum { BUCKETS = 8192, KEEP = 1024, COST_ROWS = 256 };

#define LOW         .25
#define PROCESSORS  3.
#define WORK        1.25
#define QUEUED      .3 /* ... the price of work begins to rise */
#define QUEUED_MOST .5
#define SCARCE      .7 /* busy part of the processors: the price begins to rise */
#define SCARCEST    .9 /* ... and rises no further */
#define GUESS       (1. / 64)  /* of a read's time: a row costs at least that */
#define MARGIN      1.25       /* what is off has to earn more */
#define SOME        .125       /* of what is used */
#define SMOOTH      (1. / 32)  /* of the newest of the times */
#define RISE        (1. / 512) /* how fast the best time is forgotten, a read */

struct qm_rule_yield {
    struct qm_rule_yield_arm arm[QM_RULE_YIELD_ARMS + 1];
    unsigned bucket[BUCKETS], count;
    unsigned judge_ms;
    bool watches;
    double read_us, best_us, work_us; /* 0: not known */
    double busy;
    double processors;          /* their busy part; below 0: not known */
    double cost_us;             /* of a row of any foreseen arm; 0: not known */
    double row_us, row_work_us; /* of a row of any arm; 0: not known */
};

struct qm_rule_yield *qm_rule_yield_new(unsigned judge_ms, bool watches)
{
    struct qm_rule_yield *yield = calloc(1, sizeof *yield);

    if (!yield)
        return NULL;
    yield->judge_ms = judge_ms;
    yield->watches = watches;
    yield->processors = -1;
    return yield;
}

void qm_rule_yield_free(struct qm_rule_yield *yield)
{
    free(yield);
}

unsigned qm_rule_yield_find(struct qm_rule_yield *yield, uint32_t table, unsigned rule,
                            unsigned slot)
{
    uint64_t hash =
        ((uint64_t)table << 16 | rule << 8 | slot) * UINT64_C(0x9e3779b97f4a7c15);
    unsigned *bucket = &yield->bucket[(hash >> 40) % BUCKETS];

    for (unsigned i = *bucket; i; i = yield->arm[i].chain) {
        const struct qm_rule_yield_arm *arm = &yield->arm[i];

        if (arm->table == table && arm->rule == rule && arm->slot == slot)
            return i;
    }
    if (yield->count == QM_RULE_YIELD_ARMS)
        return 0;
    yield->arm[++yield->count] = (struct qm_rule_yield_arm){
        .table = table,
        .rule = (uint8_t)rule,
        .slot = (uint8_t)slot,
        .state = yield->watches ? QM_RULE_YIELD_WATCHED : QM_RULE_YIELD_TRIAL,
        .of_watched = yield->watches,
        .retry_ms = QM_RULE_YIELD_RETRY_MS,
        .chain = *bucket,
    };
    *bucket = yield->count;
    return yield->count;
}

const struct qm_rule_yield_arm *qm_rule_yield_get(const struct qm_rule_yield *yield,
                                                  unsigned arm)
{
    return arm > 0 && arm <= yield->count ? &yield->arm[arm] : NULL;
}

static struct qm_rule_yield_arm *get(struct qm_rule_yield *yield, unsigned arm)
{
    return arm > 0 && arm <= yield->count ? &yield->arm[arm] : NULL;
}

/* 0 up to that busy part of the processors, 1 from the other on. */
static double scarcity(const struct qm_rule_yield *yield, double from, double to)
{
    double scarce = (yield->processors - from) / (to - from);

    return scarce < 0 ? 0 : scarce > 1 ? 1 : scarce;
}

static double price_of_time(const struct qm_rule_yield *yield)
{
    double slow = yield->read_us > 0 ? 1 - yield->best_us / yield->read_us : 0;

    return LOW + (slow > yield->busy ? slow : yield->busy) +
           (yield->work_us > 0 ? 0 : PROCESSORS * scarcity(yield, SCARCE, SCARCEST));
}

static double price_of_work(const struct qm_rule_yield *yield)
{
    return LOW + WORK * scarcity(yield, QUEUED, QUEUED_MOST);
}

bool qm_rule_yield_is_scarce(const struct qm_rule_yield *yield)
{
    return scarcity(yield, QUEUED, QUEUED_MOST) > 0;
}

double qm_rule_yield_price(const struct qm_rule_yield *yield)
{
    double time = price_of_time(yield), work = price_of_work(yield);

    return time > work || yield->work_us == 0 ? time : work;
}

double qm_rule_yield_read_us(const struct qm_rule_yield *yield)
{
    return yield->read_us;
}

/* Soon after its trial began. */
static bool is_young(const struct qm_rule_yield *yield, uint64_t now_ms,
                     const struct qm_rule_yield_arm *a)
{
    return now_ms - a->began < 2 * (uint64_t)yield->judge_ms;
}

static double judged(const struct qm_rule_yield *yield, uint64_t now_ms,
                     const struct qm_rule_yield_arm *a)
{
    double ms = a->of_watched ? (double)(a->watched * now_ms - a->watched_ms)
                              : (double)(a->fresh * now_ms - a->since);

    return a->judged + (is_young(yield, now_ms, a) ? ms / yield->judge_ms : 0);
}

double qm_rule_yield_judged(const struct qm_rule_yield *yield, uint64_t now_ms,
                            unsigned arm)
{
    const struct qm_rule_yield_arm *a = qm_rule_yield_get(yield, arm);

    return a ? judged(yield, now_ms, a) : 0;
}

/* What is watched has fetched nothing: until it is known from before, its rows cost
 * what others do. */
static bool earns(const struct qm_rule_yield *yield, uint64_t now_ms,
                  const struct qm_rule_yield_arm *arm, double margin)
{
    double of = judged(yield, now_ms, arm);
    double share = arm->foreseen ? arm->share : of > 0 ? arm->used / of : 0;
    double cost_us = arm->cost_us, work_us = arm->work_us;

    if (arm->of_watched && cost_us == 0)
        cost_us = yield->row_us > 0 ? yield->row_us : GUESS * yield->read_us;
    if (arm->of_watched && work_us == 0)
        work_us = yield->row_work_us;
    return share * yield->read_us > cost_us * price_of_time(yield) * margin &&
           (yield->work_us == 0 ||
            share * yield->work_us >= work_us * price_of_work(yield) * margin);
}

void qm_rule_yield_forget(struct qm_rule_yield *yield, uint32_t table)
{
    for (unsigned i = 1; i <= yield->count; i++) {
        struct qm_rule_yield_arm *a = &yield->arm[i];

        if (a->table == table)
            *a = (struct qm_rule_yield_arm){
                .table = table,
                .rule = a->rule,
                .slot = a->slot,
                .state = yield->watches ? QM_RULE_YIELD_WATCHED : QM_RULE_YIELD_TRIAL,
                .of_watched = yield->watches,
                .watched = a->watched,
                .watched_ms = a->watched_ms,
                .out = a->out,
                .fresh = a->fresh,
                .since = a->since,
                .retry_ms = QM_RULE_YIELD_RETRY_MS,
                .chain = a->chain};
    }
}

void qm_rule_yield_foresee(struct qm_rule_yield *yield, unsigned arm, double share)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return;
    if (a->state == QM_RULE_YIELD_WATCHED)
        a->state = QM_RULE_YIELD_TRIAL;
    a->of_watched = false;
    a->foreseen = true;
    a->share = share;
}

/* Counts anew. */
static void begin(struct qm_rule_yield_arm *a, uint64_t now_ms,
                  enum qm_rule_yield_state state)
{
    a->state = state;
    a->of_watched = state == QM_RULE_YIELD_WATCHED;
    a->used = a->judged = 0;
    a->began = now_ms;
}

/* From now on its rows are fetched.  What was seen of those that were not counts as few
 * of them. */
static void trust(const struct qm_rule_yield *yield, uint64_t now_ms,
                  struct qm_rule_yield_arm *a)
{
    double of = judged(yield, now_ms, a);

    a->used *= QM_RULE_YIELD_TRIAL_ROWS / of;
    a->judged = QM_RULE_YIELD_TRIAL_ROWS;
    a->of_watched = false;
    a->began = now_ms;
    a->unpaid = QM_RULE_YIELD_TRIAL_ROWS;
}

static void turn_off(struct qm_rule_yield_arm *a, uint64_t now_ms)
{
    a->state = QM_RULE_YIELD_OFF;
    a->retry_at = now_ms + a->retry_ms;
    a->retry_ms = a->retry_ms * 2 < QM_RULE_YIELD_RETRY_MOST_MS
                      ? a->retry_ms * 2
                      : QM_RULE_YIELD_RETRY_MOST_MS;
}

/* An arm that is not foreseen. */
static void decide(const struct qm_rule_yield *yield, uint64_t now_ms,
                   struct qm_rule_yield_arm *a)
{
    bool was_off = a->state == QM_RULE_YIELD_OFF;

    /* One that is off comes back only if it went off before its rows had their time. */
    if (judged(yield, now_ms, a) < QM_RULE_YIELD_TRIAL_ROWS || a->unpaid > 0 ||
        (was_off && !is_young(yield, now_ms, a)))
        return;
    if (earns(yield, now_ms, a, a->state == QM_RULE_YIELD_ON ? 1 : MARGIN)) {
        /* What has earned for long is tried again soon. */
        if (!a->of_watched && a->judged >= KEEP / 2)
            a->retry_ms = QM_RULE_YIELD_RETRY_MS;
        else if (was_off && a->retry_ms > QM_RULE_YIELD_RETRY_MS)
            a->retry_ms /= 2;
        if (a->of_watched)
            trust(yield, now_ms, a);
        a->state = QM_RULE_YIELD_ON;
    } else if (!was_off) {
        turn_off(a, now_ms);
    }
}

static unsigned at_most_out(const struct qm_rule_yield_arm *a, unsigned rows,
                            unsigned most)
{
    unsigned left = a->out < most ? most - a->out : 0;

    return rows < left ? rows : left;
}

static unsigned at_most_on_trial(const struct qm_rule_yield_arm *a, unsigned rows)
{
    return at_most_out(a, rows, QM_RULE_YIELD_TRIAL_ROWS * 2);
}

/* Nothing has to be fetched to know its share; what a row costs is found out anew after
 * a while. */
static unsigned allow_foreseen(const struct qm_rule_yield *yield, uint64_t now_ms,
                               struct qm_rule_yield_arm *a, unsigned rows)
{
    if (a->state == QM_RULE_YIELD_OFF && now_ms >= a->retry_at) {
        a->state = QM_RULE_YIELD_TRIAL;
        a->tried = false;
    }
    if (!a->tried)
        return a->share > GUESS * qm_rule_yield_price(yield) * MARGIN
                   ? at_most_out(a, rows, QM_RULE_YIELD_COST_ROWS)
                   : 0;
    if (earns(yield, now_ms, a, a->state == QM_RULE_YIELD_ON ? 1 : MARGIN)) {
        if (a->state == QM_RULE_YIELD_TRIAL)
            a->retry_ms = QM_RULE_YIELD_RETRY_MS;
        a->state = QM_RULE_YIELD_ON;
    } else if (a->state != QM_RULE_YIELD_OFF) {
        turn_off(a, now_ms);
    }
    return a->state == QM_RULE_YIELD_ON ? rows : 0;
}

static unsigned room_to_watch(const struct qm_rule_yield_arm *a)
{
    unsigned most = QM_RULE_YIELD_WATCH_ROWS;

    return a->watched < most ? most - a->watched : 0;
}

/* Each further trial halves what its rows cost when they were fetched last: they may
 * have become cheaper.  The next rows that are fetched tell their cost anew. */
static void doubt_cost(struct qm_rule_yield_arm *a)
{
    a->cost_us /= 2;
    a->work_us /= 2;
    a->paid = 0;
}

/* The time that has passed says something, too. */
static void settle(const struct qm_rule_yield *yield, uint64_t now_ms,
                   struct qm_rule_yield_arm *a)
{
    if (a->state == QM_RULE_YIELD_OFF && now_ms >= a->retry_at) {
        begin(a, now_ms, yield->watches ? QM_RULE_YIELD_WATCHED : QM_RULE_YIELD_TRIAL);
        doubt_cost(a);
    }
    if (a->began == 0)
        a->began = now_ms;
    if (a->state == QM_RULE_YIELD_WATCHED || a->state == QM_RULE_YIELD_TRIAL)
        decide(yield, now_ms, a);
}

unsigned qm_rule_yield_room(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || (a->state == QM_RULE_YIELD_OFF && now_ms < a->retry_at))
        return 0;
    if (a->foreseen)
        return UINT_MAX;
    if (yield->watches && room_to_watch(a) == 0 &&
        (a->state == QM_RULE_YIELD_WATCHED || a->state == QM_RULE_YIELD_OFF))
        return 0;
    settle(yield, now_ms, a);
    if (a->state == QM_RULE_YIELD_OFF)
        return 0;
    if (a->state == QM_RULE_YIELD_WATCHED)
        return room_to_watch(a);
    return a->state == QM_RULE_YIELD_TRIAL || a->unpaid > 0
               ? at_most_on_trial(a, UINT_MAX)
               : UINT_MAX;
}

unsigned qm_rule_yield_to_watch(struct qm_rule_yield *yield, uint64_t now_ms,
                                unsigned arm, unsigned rows)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || a->foreseen || !yield->watches)
        return 0;
    settle(yield, now_ms, a);
    if (a->state != QM_RULE_YIELD_WATCHED)
        return 0;
    return rows < room_to_watch(a) ? rows : room_to_watch(a);
}

void qm_rule_yield_watch(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return;
    a->watched++;
    a->watched_ms += now_ms;
}

void qm_rule_yield_judge_watched(struct qm_rule_yield *yield, uint64_t now_ms,
                                 unsigned arm, uint64_t since_ms,
                                 enum qm_rule_yield_outcome outcome)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || a->watched == 0)
        return;
    a->watched--;
    a->watched_ms -= since_ms;
    if (!a->of_watched || outcome == QM_RULE_YIELD_UNKNOWN)
        return;
    a->judged++;
    a->used += outcome == QM_RULE_YIELD_USED;
    decide(yield, now_ms, a);
}

void qm_rule_yield_late_watched(struct qm_rule_yield *yield, uint64_t now_ms,
                                unsigned arm)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || !a->of_watched || a->used >= a->judged)
        return;
    a->used++;
    if (a->state == QM_RULE_YIELD_OFF && a->judged >= QM_RULE_YIELD_TRIAL_ROWS &&
        earns(yield, now_ms, a, MARGIN)) {
        trust(yield, now_ms, a);
        a->state = QM_RULE_YIELD_ON;
    }
}

unsigned qm_rule_yield_allow(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm,
                             unsigned rows)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return 0;
    if (a->foreseen) {
        rows = allow_foreseen(yield, now_ms, a, rows);
        a->out += rows;
        return rows;
    }
    settle(yield, now_ms, a);
    if (a->state == QM_RULE_YIELD_OFF || a->state == QM_RULE_YIELD_WATCHED)
        return 0;
    if (a->state == QM_RULE_YIELD_TRIAL || a->unpaid > 0)
        rows = at_most_on_trial(a, rows);
    a->out += rows;
    return rows;
}

static void no_longer_out(struct qm_rule_yield_arm *a, unsigned rows)
{
    a->out -= rows < a->out ? rows : a->out;
}

void qm_rule_yield_give_back(struct qm_rule_yield *yield, unsigned arm, unsigned rows)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return;
    no_longer_out(a, rows);
}

static void smooth(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + (value - *mean) / 16 : value;
}

/* Adds n values to a mean of some others; in all they are of.  One SELECT brings many
 * rows, and its time says little where it waits for a processor. */
static void mean_of(double *mean, double value, unsigned n, unsigned of)
{
    *mean = *mean > 0 && n < of ? *mean + (value - *mean) * n / of : value;
}

void qm_rule_yield_paid(struct qm_rule_yield *yield, unsigned arm, unsigned rows,
                        double us, double work_us)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || rows == 0)
        return;
    us /= rows;
    a->unpaid -= rows < a->unpaid ? rows : a->unpaid;
    a->paid = a->paid + rows < COST_ROWS ? a->paid + rows : COST_ROWS;
    smooth(&yield->row_us, us);
    if (work_us > 0) {
        mean_of(&a->work_us, work_us / rows, rows, a->paid);
        smooth(&yield->row_work_us, work_us / rows);
    }
    if (a->foreseen) {
        smooth(&yield->cost_us, us);
        if (!a->tried)
            a->cost_us = yield->cost_us;
        a->tried = true;
        smooth(&a->cost_us, us);
    } else {
        mean_of(&a->cost_us, us, rows, a->paid);
    }
}

void qm_rule_yield_came(struct qm_rule_yield *yield, unsigned arm, uint64_t now_ms)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return;
    a->fresh++;
    a->since += now_ms;
}

void qm_rule_yield_left(struct qm_rule_yield *yield, unsigned arm, uint64_t came_ms)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || a->fresh == 0)
        return;
    a->fresh--;
    a->since -= came_ms;
}

void qm_rule_yield_judge(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm,
                         bool used)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a)
        return;
    no_longer_out(a, 1);
    if (a->of_watched) /* it came before the arm was watched */
        return;
    a->judged++;
    a->used += used;
    if (a->judged >= KEEP && !is_young(yield, now_ms, a)) {
        a->judged /= 2;
        a->used /= 2;
    }
    if (!a->foreseen)
        decide(yield, now_ms, a);
}

void qm_rule_yield_late(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (!a || a->of_watched || a->used >= a->judged) /* halved meanwhile */
        return;
    a->used++;
    /* It was judged too early. */
    if (!a->foreseen && a->state == QM_RULE_YIELD_OFF &&
        a->judged >= QM_RULE_YIELD_TRIAL_ROWS && earns(yield, now_ms, a, MARGIN))
        a->state = QM_RULE_YIELD_ON;
}

void qm_rule_yield_lead(struct qm_rule_yield *yield, unsigned arm, uint64_t ms)
{
    struct qm_rule_yield_arm *a = get(yield, arm);

    if (a)
        a->soon += ((ms < QM_RULE_YIELD_SOON_MS) - a->soon) * SMOOTH;
}

bool qm_rule_yield_is_soon(const struct qm_rule_yield *yield, unsigned arm)
{
    const struct qm_rule_yield_arm *a = qm_rule_yield_get(yield, arm);

    return a && a->soon > SOME;
}

void qm_rule_yield_read(struct qm_rule_yield *yield, double us)
{
    yield->read_us =
        yield->read_us > 0 ? yield->read_us + (us - yield->read_us) * SMOOTH : us;
    if (yield->best_us == 0 || yield->read_us < yield->best_us)
        yield->best_us = yield->read_us;
    else
        yield->best_us += (yield->read_us - yield->best_us) * RISE;
}

void qm_rule_yield_work(struct qm_rule_yield *yield, double us)
{
    yield->work_us = us;
}

void qm_rule_yield_busy(struct qm_rule_yield *yield, double busy)
{
    yield->busy += (busy - yield->busy) * SMOOTH;
}

/* Half a second that is not like the others shall not turn all arms off; after one and
 * a half, what is new counts by nine tenths. */
void qm_rule_yield_processors(struct qm_rule_yield *yield, double busy)
{
    if (yield->processors < 0)
        yield->processors = busy;
    else
        yield->processors += (busy - yield->processors) / 3;
}
