/* SPDX-License-Identifier: BSD-3-Clause */
/* perfect.c - a prefetcher that knows what each context will read (see perfect.h).
 *
 * A stream follows its sequence in the future: it stands at the access that its context
 * made last.
 */
#include "sim/perfect.h"

#include <stdlib.h>
#include <string.h>

struct perfect {
    struct qm_prefetcher base;
    const struct qm_future *future;
    enum qm_level level;
    unsigned degree;
    uint32_t sequences; /* the number of the next to begin */
};

/* Counts the streams that begin, and does nothing else. */
struct order {
    struct qm_prefetcher base;
    uint32_t begun;
};

struct qm_stream {
    uint32_t number;
    bool begun;  /* there was an access */
    uint32_t at; /* the last one */
};

static const struct qm_prefetcher_ops perfect_ops;

static struct perfect *of(struct qm_prefetcher *p)
{
    return (struct perfect *)p;
}

struct qm_prefetcher *qm_perfect_new(const struct qm_future *future,
                                     enum qm_level level, unsigned degree)
{
    struct perfect *perfect = malloc(sizeof *perfect);

    if (!perfect)
        return NULL;
    *perfect = (struct perfect){
        .base = {&perfect_ops}, .future = future, .level = level, .degree = degree};
    return &perfect->base;
}

void qm_perfect_next(struct qm_prefetcher *p, uint32_t sequence)
{
    of(p)->sequences = sequence;
}

static struct qm_stream *order_begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *stream = malloc(sizeof *stream);

    (void)klass;
    if (stream)
        *stream = (struct qm_stream){.number = ((struct order *)p)->begun++};
    return stream;
}

static void order_end(struct qm_prefetcher *p, struct qm_stream *stream,
                      struct qm_work **work)
{
    (void)p;
    free(stream);
    *work = NULL;
}

static const struct qm_prefetcher_ops order_ops = {
    .name = "order",
    .begin = order_begin,
    .end = order_end,
};

struct qm_prefetcher *qm_perfect_order_new(void)
{
    struct order *order = malloc(sizeof *order);

    if (!order)
        return NULL;
    *order = (struct order){.base = {&order_ops}};
    return &order->base;
}

uint32_t qm_perfect_order_begun(const struct qm_prefetcher *order)
{
    return ((const struct order *)order)->begun;
}

void qm_perfect_order_free(struct qm_prefetcher *order)
{
    free(order);
}

static int destroy(struct qm_prefetcher *p)
{
    free(of(p));
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *stream = malloc(sizeof *stream);

    (void)klass;
    if (stream)
        *stream = (struct qm_stream){.number = of(p)->sequences++};
    return stream;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    struct perfect *perfect = of(p);

    (void)block;
    (void)outcome;
    stream->at = stream->begun
                     ? qm_future_following(perfect->future, perfect->level, stream->at)
                     : qm_future_first(perfect->future, perfect->level, stream->number);
    stream->begun = true;
    *work = NULL;
}

static bool has(const struct qm_candidate *found, unsigned n, uint64_t block)
{
    for (unsigned i = 0; i < n; i++)
        if (found[i].block == block)
            return true;
    return false;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    struct perfect *perfect = of(p);
    const struct qm_future *f = perfect->future;
    uint32_t at = stream->at;
    uint64_t current;
    unsigned n = 0;

    if (!stream->begun || at == QM_FUTURE_NEVER)
        return 0;
    if (max > perfect->degree)
        max = perfect->degree;
    current = qm_future_block(f, at);
    for (int i = 0; i < QM_PERFECT_WINDOW && n < max; i++) {
        uint64_t block;

        at = qm_future_following(f, perfect->level, at);
        if (at == QM_FUTURE_NEVER)
            break;
        block = qm_future_block(f, at);
        if (block != current && !has(out, n, block))
            out[n++] = (struct qm_candidate){block, 1, 1, false};
    }
    return n;
}

static void end(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work)
{
    (void)p;
    free(stream);
    *work = NULL;
}

/* There is nothing to be learned. */
static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    (void)p;
    (void)work;
    return 0;
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    (void)p;
    (void)work;
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    (void)p;
    (void)block;
    (void)issuer;
    (void)user;
    (void)fate;
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *stats_out)
{
    (void)p;
    memset(stats_out, 0, sizeof *stats_out);
}

static const struct qm_prefetcher_ops perfect_ops = {
    .name = QM_PERFECT,
    .summary = "knows what each context will read; a bound",
    .flags = QM_BLOCK_BY_BLOCK,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = learn,
    .discard = discard,
    .ended = ended,
    .stats = stats,
};
