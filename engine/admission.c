/* SPDX-License-Identifier: BSD-3-Clause */
/* admission.c - a line through reads' times, and what follows from it (admission.h). */
#include "engine/admission.h"

#include <math.h>

#define FADE   0.002 /* of what is known, a read: some hundred reads count */
#define ENOUGH 32.0  /* reads before anything is said */

/* A device that serves one read at a time, in the order of arrival, and is busy for a
 * part U of it, makes reads wait for U / (1 - U) times half a read's time, or more if
 * these times stray (Pollaczek and Khinchine).  That would be 0.5.  Less makes the
 * threshold higher: a prefetch that is used may come late, and then saves less than a
 * read's time.  Found by trying, in virtual time, from 0.15 to 0.58, where little
 * changes from 0.3 on. */
#define WAIT 0.4

#define ALONE_HALF  4.0   /* a read that found another weighs a 16th, and so on */
#define OTHERS_MOST 64.0  /* so that a weight is never 0 */
#define ALONE_MOST  128.0 /* reads that were alone count */

/* On a device that is nearly always busy, D counts up to 1 + HEAVY times: requests come
 * in bursts, and of these the queues, and with them the slowest reads, grow faster than
 * the mean.  By a power of the threshold, so that below a half nothing changes.  Found
 * by trying, in virtual time, from 1 to 3 and from 2 to 6. */
#define HEAVY       2.0
#define HEAVY_POWER 6

/* The variance of the demands on their way, as a part of their mean, below which all
 * are of clients that wait for them.  Such clients make it 1 less the part of the time
 * for which they wait, and they do not wait where their block is being prefetched. */
#define CLOSED 0.5

#define MOST 0.95f /* so that there are always some prefetches to learn from */

#define SAVED_RATE  0.005 /* how fast S is learned, a prefetch that is used */
#define SAVED_LEAST 0.01

/* How fast S is forgotten, a demand's read.  A small S keeps those prefetches back that
 * it would be learned from, so without this it would stay small. */
#define SAVED_FADE 0.00005
#define SAVED_ALL  0.999 /* from there on it is 1 */

#define STATE_FADE    0.02 /* of what is known of a state, a read or a count, at least */
#define FOLLOWED_MOST 1000 /* demands: what they are counted for has no end */
#define TOGETHER_MOST 64.0 /* reads that keep the device busy */

/* A line is too flat by this factor, since its points stray: in which order a device
 * serves, and which of its parts a read is for, are chance here.  From the device
 * model's disks, whose busy time is known. */
#define FLAT 1.6

/* How many standard errors an estimate must lie on the side of a busy device, to count.
 * Found by trying, in virtual time: the slope is of hundreds of reads, and on a busy
 * device a whole one makes it too low. */
#define ALONE_SURE 2.0
#define SLOPE_SURE 0.5

void qm_admission_init(struct qm_admission *a)
{
    *a = (struct qm_admission){.gap = 0};
    atomic_init(&a->saved, 1);
    qm_inflight_init(&a->inflight, 0);
    pthread_mutex_init(&a->lock, NULL);
}

void qm_admission_destroy(struct qm_admission *a)
{
    qm_inflight_destroy(&a->inflight);
    pthread_mutex_destroy(&a->lock);
}

unsigned qm_admission_begin(struct qm_admission *a, bool ahead)
{
    unsigned others = qm_admission_reads(a);

    if (!ahead)
        atomic_fetch_add_explicit(&a->begun, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(ahead ? &a->ahead : &a->demands, 1, memory_order_relaxed);
    return others;
}

static unsigned size_of(unsigned blocks)
{
    unsigned size = blocks > 0 ? 31 - (unsigned)__builtin_clz(blocks) : 0;

    return size < QM_ADMISSION_SIZES ? size : QM_ADMISSION_SIZES - 1;
}

/* How long a read takes alone: the mean of all, where one that found others weighs the
 * less the more these were.  The lock is held. */
static void learn_alone(struct qm_admission *a, double others, double ns, unsigned size)
{
    double weight = exp2(-ALONE_HALF * (others < OTHERS_MOST ? others : OTHERS_MOST));

    a->sizes[size].alone_weight += weight;
    a->sizes[size].alone_squares += weight * weight;
    if (a->sizes[size].alone_weight > ALONE_MOST) {
        double part = ALONE_MOST / a->sizes[size].alone_weight;

        a->sizes[size].alone_weight = ALONE_MOST;
        a->sizes[size].alone_squares *= part * part;
    }
    a->sizes[size].alone +=
        weight / a->sizes[size].alone_weight * (ns - a->sizes[size].alone);
}

/* The lock is held. */
static void learn(struct qm_admission *a, double others, double ns, unsigned size)
{
    double by_others, by_ns, part;

    for (unsigned i = 0; i < QM_ADMISSION_SIZES; i++)
        a->sizes[i].weight *= 1 - FADE;
    a->sizes[size].weight += 1;
    part = 1 / a->sizes[size].weight;
    by_others = others - a->sizes[size].others;
    by_ns = ns - a->sizes[size].ns;
    learn_alone(a, others, ns, size);
    a->sizes[size].others += part * by_others;
    a->sizes[size].ns += part * by_ns;
    /* Welford's: once with the mean before, once with that after. */
    a->spread = (1 - FADE) * a->spread + by_others * (others - a->sizes[size].others);
    a->covariance = (1 - FADE) * a->covariance + by_others * (ns - a->sizes[size].ns);
    a->strays = (1 - FADE) * a->strays + by_ns * (ns - a->sizes[size].ns);
    a->weight = (1 - FADE) * a->weight + 1;
}

/* By how much reads' times stray from the line: the standard deviation, ns.  The lock
 * is held. */
static double deviation(const struct qm_admission *a)
{
    double line = a->spread > 0 ? a->covariance * a->covariance / a->spread : 0;

    return a->strays > line ? sqrt((a->strays - line) / a->weight) : 0;
}

/* The most that a read of that size takes alone, ns: the mean of those seen, and what
 * chance may have taken off it.  The lock is held. */
static double most_alone(const struct qm_admission *a, unsigned size)
{
    double error =
        deviation(a) * sqrt(a->sizes[size].alone_squares) / a->sizes[size].alone_weight;

    return a->sizes[size].alone + ALONE_SURE * error;
}

/* The part of the time that the device is busy, by how much longer than alone reads
 * take.  The lock is held. */
static double busy_by_waiting(const struct qm_admission *a)
{
    double waited = 0, weight = 0;

    for (unsigned i = 0; i < QM_ADMISSION_SIZES; i++)
        if (a->sizes[i].alone > 0) {
            waited += a->sizes[i].weight * (a->sizes[i].ns / most_alone(a, i) - 1);
            weight += a->sizes[i].weight;
        }
    waited = waited > 0 ? waited / weight : 0;
    return waited / (waited + WAIT);
}

/* By how much a read delays another, ns.  The lock is held. */
static double delay(const struct qm_admission *a)
{
    double slope = 0;

    if (a->spread > 0)
        slope = a->covariance / a->spread - SLOPE_SURE * deviation(a) / sqrt(a->spread);
    return slope > 0 ? FLAT * slope : 0;
}

/* How long a read of a block, or of a few, takes alone, ns; 0: not known.  The lock is
 * held. */
static double alone(const struct qm_admission *a)
{
    unsigned size = 0;

    while (size + 1 < QM_ADMISSION_SIZES && a->sizes[size].alone <= 0)
        size++;
    return a->sizes[size].alone;
}

/* The least probability at which a read is worth it, which delays each of the demands
 * that follow by `delayed` ns.  The lock is held. */
static double worth_from(const struct qm_admission *a, double delayed, double followed)
{
    double saved = atomic_load_explicit(&a->saved, memory_order_relaxed);

    if (saved < SAVED_LEAST)
        saved = SAVED_LEAST;
    delayed = (delayed < alone(a) ? delayed : alone(a)) * followed;
    return delayed > 0 ? delayed / (delayed + saved * alone(a)) : 0;
}

/* A demand has ended.  The lock is held. */
static void learn_waiting(struct qm_admission *a)
{
    const double n = qm_admission_demands(a), by = n - a->waiting.mean;

    a->waiting.weight = (1 - FADE) * a->waiting.weight + 1;
    a->waiting.mean += by / a->waiting.weight;
    a->waiting.variance +=
        (by * (n - a->waiting.mean) - a->waiting.variance) / a->waiting.weight;
}

/* The part of the demands that come on their own, about.  The lock is held. */
static double open_part(const struct qm_admission *a)
{
    const double mean = a->waiting.mean,
                 ratio = mean > 0 ? a->waiting.variance / mean : 0;

    return ratio < CLOSED ? 0 : ratio < 1 ? (ratio - CLOSED) / (1 - CLOSED) : 1;
}

/* Of demands that follow a read, how many wait for it: one of each client, and a part
 * of those beyond.  The lock is held. */
static double waits(const struct qm_admission *a, double followed)
{
    const double clients = a->waiting.mean + 1; /* and that whose demand has ended */

    return followed > clients ? clients + open_part(a) * (followed - clients)
                              : followed;
}

/* The threshold, if D counts as said at HEAVY. */
static double weighed(double threshold)
{
    const double times = 1 + HEAVY * pow(threshold, HEAVY_POWER);

    return times * threshold / (1 + (times - 1) * threshold);
}

/* delayed: what delay() says.  The lock is held. */
static void judge(struct qm_admission *a, double delayed)
{
    double busy = a->gap > 0 ? delayed / a->gap : 0;
    double waiting = busy_by_waiting(a);
    double average = busy > waiting ? busy : waiting, now;

    for (unsigned i = 0; i < QM_ADMISSION_STATES; i++) {
        now = worth_from(a, delayed, waits(a, a->states[i].followed));
        now = weighed(now > average ? now : average);
        atomic_store_explicit(&a->thresholds[i], now < MOST ? (float)now : MOST,
                              memory_order_relaxed);
    }
}

/* Moves a mean towards a value, by a part of the way that the count of values gives,
 * but not less than STATE_FADE. */
static double moved(double mean, double value, double *weight)
{
    *weight += 1;
    return mean +
           (value - mean) * (*weight < 1 / STATE_FADE ? 1 / *weight : STATE_FADE);
}

/* A demand's read of one block took so long beside others.  The lock is held. */
static void learn_took(struct qm_admission *a, unsigned others, double ns)
{
    const unsigned i = qm_admission_state(others);
    double took = atomic_load_explicit(&a->took[i], memory_order_relaxed);

    took = moved(took, ns, &a->states[i].took_weight);
    atomic_store_explicit(&a->took[i], (float)took, memory_order_relaxed);
}

/* For each state: how many demands a read more would have delayed, if it had been sent
 * in that state.  These are the demands that begin until it would have ended, and until
 * fewer reads are on their way than the device serves at a time.  delayed: what delay()
 * says.  The lock is held. */
static void learn_followed(struct qm_admission *a, double delayed, unsigned others,
                           uint64_t now, uint64_t ns)
{
    const unsigned reads = qm_admission_reads(a), state = qm_admission_state(reads);
    const unsigned begun = atomic_load_explicit(&a->begun, memory_order_relaxed);
    double together = delayed > 0 ? alone(a) / delayed : TOGETHER_MOST;

    if (together < 1)
        together = 1;
    for (unsigned i = 0; i < QM_ADMISSION_STATES; i++) {
        unsigned followed = begun - a->states[i].begun;
        double since = (double)now - (double)a->states[i].since;

        if (!a->states[i].watched ||
            (followed < FOLLOWED_MOST && (since < alone(a) || reads >= together)))
            continue;
        /* The read that has ended now may be the first that came after that. */
        if (followed > 0 && others < together && since - (double)ns >= alone(a))
            followed--;
        a->states[i].followed =
            moved(a->states[i].followed, followed, &a->states[i].weight);
        a->states[i].watched = false;
    }
    if (!a->states[state].watched) {
        a->states[state].watched = true;
        a->states[state].since = now;
        a->states[state].begun = begun;
    }
}

/* Two at the same moment may count as one. */
void qm_admission_used(struct qm_admission *a, unsigned others, uint64_t waited)
{
    const unsigned i = qm_admission_state(others);
    double took = atomic_load_explicit(&a->took[i], memory_order_relaxed);
    double saved = atomic_load_explicit(&a->saved, memory_order_relaxed), part = 1;

    if (waited == 0 && saved > SAVED_ALL)
        return; /* nearly all are like this, and need not write */
    if (waited > 0 && took <= 0)
        return;
    if (waited > 0)
        part = (double)waited < took ? 1 - (double)waited / took : 0;
    atomic_store_explicit(&a->saved, (float)(saved + SAVED_RATE * (part - saved)),
                          memory_order_relaxed);
}

/* Moves S towards 1. */
static void forget_saved(struct qm_admission *a)
{
    double saved = atomic_load_explicit(&a->saved, memory_order_relaxed);

    if (saved > SAVED_ALL)
        return;
    atomic_store_explicit(&a->saved, (float)(saved + SAVED_FADE * (1 - saved)),
                          memory_order_relaxed);
}

/* The lock is held. */
static void note_end(struct qm_admission *a, uint64_t now)
{
    double gap = now > a->last ? (double)(now - a->last) : 0;

    if (a->last > 0)
        a->gap += (gap - a->gap) * (a->gap > 0 ? FADE : 1);
    if (now > a->last)
        a->last = now;
}

void qm_admission_end(struct qm_admission *a, bool ahead, unsigned others, uint64_t now,
                      uint64_t ns, unsigned blocks)
{
    double idle, delayed;

    atomic_fetch_sub_explicit(ahead ? &a->ahead : &a->demands, 1, memory_order_relaxed);
    if (blocks == 0)
        return;
    pthread_mutex_lock(&a->lock);
    note_end(a, now);
    learn(a, others, (double)ns, size_of(blocks));
    if (!ahead) {
        learn_waiting(a);
        forget_saved(a);
    }
    if (!ahead && blocks == 1)
        learn_took(a, others, (double)ns);
    delayed = delay(a);
    learn_followed(a, delayed, others, now, ns);
    if (a->weight >= ENOUGH)
        judge(a, delayed);
    idle = a->sizes[size_of(blocks)].alone;
    pthread_mutex_unlock(&a->lock);
    qm_inflight_ended(&a->inflight, others, idle > 0 ? (double)ns / idle : 0);
}

unsigned qm_admission_queue(const struct qm_admission *a, unsigned limit)
{
    unsigned queue = qm_inflight_queue(&a->inflight, qm_admission_demands(a));

    return queue < limit ? queue : limit;
}
