/* SPDX-License-Identifier: BSD-3-Clause */
/* advise.c - see advise.h. */
#include "sim/advise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Below this part of equal, two policies are told apart. */
#define ALIKE 0.01

const char *qm_verdict_name(enum qm_verdict verdict)
{
    static const char *const names[] = {"pays", "pays-smaller", "plain-pays", "idle",
                                        "no-reuse"};

    return names[verdict];
}

const char *qm_advise_size(uint64_t bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    for (; value >= 1024 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, 24, value < 100 && value != floor(value) ? "%.1f %s" : "%.0f %s",
             value, units[unit]);
    return text;
}

const char *qm_advise_time(double us, char text[24])
{
    if (us >= 1e6)
        snprintf(text, 24, "%.2f s", us / 1e6);
    else if (us >= 1e3)
        snprintf(text, 24, us < 1e5 ? "%.2f ms" : "%.0f ms", us / 1e3);
    else
        snprintf(text, 24, us < 100 ? "%.1f us" : "%.0f us", us);
    return text;
}

double qm_advise_gain(const struct qm_advise_cost *plain,
                      const struct qm_advise_cost *ahead)
{
    return plain->mean_us > 0 ? 1 - ahead->mean_us / plain->mean_us : 0;
}

static const struct qm_advise_cost *better(const struct qm_advise_point *p)
{
    return qm_advise_gain(&p->plain, &p->ahead) > ALIKE ? &p->ahead : &p->plain;
}

/* The least memory whose latency is near to the best. */
size_t qm_advise_memory(const struct qm_advise_input *in)
{
    double best = INFINITY;
    size_t i = 0;

    for (size_t k = 0; k < in->count; k++)
        best = fmin(best, better(&in->points[k])->mean_us);
    while (better(&in->points[i])->mean_us > best * (1 + QM_ADVISE_NEAR))
        i++;
    return i;
}

static size_t find_knee(const struct qm_advise_input *in)
{
    const struct qm_advise_point *first = &in->points[0];
    const struct qm_advise_point *last = &in->points[in->count - 1];
    double width = log((double)last->memory / (double)first->memory), most = 0;
    double high = better(first)->mean_us, fall = better(last)->mean_us - high;
    size_t knee = in->count - 1;

    if (in->count < 3 || fall >= 0)
        return qm_advise_memory(in);
    for (size_t i = 1; i < in->count; i++) {
        double at = log((double)in->points[i].memory / (double)first->memory) / width;
        double below = (high + fall * at - better(&in->points[i])->mean_us) / -fall;

        if (below > most) {
            most = below;
            knee = i;
        }
    }
    return knee;
}

/* The gain at a point; 0 if it is not worth it. */
static double worth(const struct qm_advise_input *in, size_t i)
{
    const struct qm_advise_point *p = &in->points[i];
    double saved = p->plain.mean_us - p->ahead.mean_us;
    double gain = qm_advise_gain(&p->plain, &p->ahead);

    return gain > 0 && saved < QM_ADVISE_WORTH * in->none.mean_us ? 0 : gain;
}

static size_t find_best_gain(const struct qm_advise_input *in)
{
    size_t best = 0;

    for (size_t i = 1; i < in->count; i++)
        if (worth(in, i) > worth(in, best))
            best = i;
    return best;
}

/* How far each policy is above the better of both, at worst. */
static void find_worst(const struct qm_advise_input *in, size_t advised, double *plain,
                       double *ahead)
{
    const struct qm_advise_point *at = &in->points[advised];

    *plain = *ahead = 1;
    for (size_t i = 0; i <= in->other_count; i++) {
        double p = i ? in->others[i - 1].plain_us : at->plain.mean_us;
        double a = i ? in->others[i - 1].ahead_us : at->ahead.mean_us;
        double best = fmin(p, a);

        if (best > 0) {
            *plain = fmax(*plain, p / best);
            *ahead = fmax(*ahead, a / best);
        } else { /* one of them, or none, takes no time at all */
            *plain = p > 0 ? INFINITY : *plain;
            *ahead = a > 0 ? INFINITY : *ahead;
        }
    }
}

static enum qm_verdict judge(const struct qm_advise_input *in,
                             const struct qm_advice *a)
{
    const struct qm_advise_point *at = &in->points[a->advised];

    if (in->reads_per_second > 0 && a->outstanding < QM_ADVISE_IDLE)
        return QM_IDLE;
    if (worth(in, a->advised) >= QM_ADVISE_GAIN)
        return QM_PAYS;
    if (worth(in, a->best_gain) >= QM_ADVISE_GAIN)
        return a->best_gain < a->advised ? QM_PAYS_SMALLER : QM_PAYS;
    if (qm_advise_gain(&in->none, &at->plain) >= QM_ADVISE_GAIN)
        return QM_PLAIN_PAYS;
    return QM_NO_REUSE;
}

static void say(const struct qm_advise_input *in, struct qm_advice *a)
{
    const struct qm_advise_point *at = &in->points[a->advised];
    const struct qm_advise_point *most = &in->points[a->best_gain];
    const struct qm_advise_point *last = &in->points[in->count - 1];
    char size[24], small[24], with[24], without[24];
    char *to = a->sentence;
    size_t len = sizeof a->sentence;

    qm_advise_size(at->memory, size);
    qm_advise_size(most->memory, small);
    switch (a->verdict) {
    case QM_PAYS:
        if (worth(in, a->advised) < QM_ADVISE_GAIN)
            at = most;
        qm_advise_size(at->memory, size);
        snprintf(to, len,
                 "pays, because with %s prefetching (policy=%s level=%s) brings the "
                 "mean read from %s to %s, %.0f %% below plain caching in the same "
                 "memory: it serves %.0f %% of the blocks, and the misses go from %.1f "
                 "to %.1f %%",
                 size, in->policy, in->level,
                 qm_advise_time(at->plain.mean_us, without),
                 qm_advise_time(at->ahead.mean_us, with),
                 100 * qm_advise_gain(&at->plain, &at->ahead), 100 * at->ahead.ahead,
                 100 * at->plain.misses, 100 * at->ahead.misses);
        return;
    case QM_PAYS_SMALLER:
        snprintf(to, len,
                 "pays with less memory, because with %s prefetching (policy=%s "
                 "level=%s) brings the mean read from %s to %s, %.0f %% below plain "
                 "caching; with %s a plain cache misses %.1f %% of the blocks, and "
                 "little is left to gain",
                 small, in->policy, in->level,
                 qm_advise_time(most->plain.mean_us, without),
                 qm_advise_time(most->ahead.mean_us, with),
                 100 * qm_advise_gain(&most->plain, &most->ahead), size,
                 100 * at->plain.misses);
        return;
    case QM_PLAIN_PAYS:
        snprintf(
            to, len,
            "does not pay, because at no size prefetching saves %.0f %% of the time of "
            "a plain "
            "cache of the same memory, which with %s misses %.1f %% of the blocks (%s "
            "a read, %s "
            "without a cache): %s, or give the memory to the database",
            100 * QM_ADVISE_GAIN, size, 100 * at->plain.misses,
            qm_advise_time(at->plain.mean_us, with),
            qm_advise_time(in->none.mean_us, without),
            a->prefetch ? "leave the policy as it is" : "use policy=none");
        return;
    case QM_IDLE:
        snprintf(to, len,
                 "does not pay, because the database hardly waits for the device: %.3g "
                 "reads a second of %s each keep %.2g reads under way on average",
                 in->reads_per_second, qm_advise_time(in->none.mean_us, without),
                 a->outstanding);
        return;
    case QM_NO_REUSE:
        qm_advise_size(last->memory, size);
        snprintf(
            to, len,
            "does not pay, because blocks are neither read again within %s of "
            "memory nor follow from what was read before: a plain cache misses "
            "%.1f %% of them and prefetching %.1f %%, and a read takes %s or more, "
            "%s without a cache",
            size, 100 * last->plain.misses, 100 * last->ahead.misses,
            qm_advise_time(better(last)->mean_us, with),
            qm_advise_time(in->none.mean_us, without));
    }
}

/* That the policies hardly differ. */
static void say_close(const struct qm_advise_input *in, struct qm_advice *a)
{
    const struct qm_advise_point *at = &in->points[a->advised];
    size_t said = strlen(a->sentence);
    char size[24];

    snprintf(a->sentence + said, sizeof a->sentence - said,
             "; with %s, policies none and %s are within %.0f %% of each other%s",
             qm_advise_size(at->memory, size), in->policy, 100 * QM_ADVISE_CLOSE,
             in->other_count > 0 ? ", also if the backend is faster or slower" : "");
}

void qm_advise(const struct qm_advise_input *in, struct qm_advice *a)
{
    double plain, ahead;

    *a = (struct qm_advice){.advised = qm_advise_memory(in),
                            .best_gain = find_best_gain(in),
                            .knee = find_knee(in)};
    a->outstanding = in->reads_per_second * in->none.mean_us / 1e6;
    find_worst(in, a->advised, &plain, &ahead);
    a->prefetch = ahead < plain * (1 - ALIKE);
    a->close = fmax(plain, ahead) < 1 + QM_ADVISE_CLOSE;
    a->verdict = judge(in, a);
    a->pays = a->verdict == QM_PAYS || a->verdict == QM_PAYS_SMALLER;
    say(in, a);
    if (a->close && a->verdict != QM_IDLE)
        say_close(in, a);
}
