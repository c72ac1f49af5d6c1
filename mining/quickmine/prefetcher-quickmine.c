/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-quickmine.c - mines each context's sequence for rules (ATC'08 §3.3, §3.4).
 *
 * A stream is a sequence.  When it ends, or has grown by a segment, it is handed out as
 * work, and learn() adds its rules to the rule cache.  The candidates are the likeliest
 * suffixes of the stream's last two blocks.
 *
 * With skip_hits a rule is learned only if its last block was not in the main cache
 * when it was read, or one before it was not that is less than the lookahead away (so
 * all rules are that have a miss or prefetch hit in them).  A stream is *live* from
 * such a block on, until as many hits have followed as a rule can reach: then what it
 * has is handed out.  Of a stream that is not live only those last hits are kept, with
 * which the next miss makes rules; a reader that finds everything in the cache costs no
 * more than that.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/parameters.h"
#include "mining/core/trimmed.h"
#include "mining/core/registry.h"
#include "mining/quickmine/miner.h"
#include "mining/quickmine/rules.h"
#include "mining/core/sequence.h"

struct quickmine {
    struct qm_prefetcher base;
    unsigned lookahead, degree;
    uint64_t segment;
    bool skip_hits;
    struct qm_rules *rules;
    struct qm_trimmed forgotten;
    atomic_uint_least64_t sequences, failed;
};

struct qm_stream {
    struct qm_sequence sequence;
    size_t hits; /* since the last block that was none */
    bool live;   /* the sequence's new blocks are to be learned from */
};

static struct quickmine *of(struct qm_prefetcher *p)
{
    return (struct quickmine *)p;
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    int r = qm_mining_check(config, err, len);
    if (r != 0) {
        return r;
    }
    struct quickmine *q = calloc(1, sizeof *q);
    if (!q) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    q->base.ops = &qm_prefetcher_quickmine;
    q->lookahead = config->lookahead;
    q->degree = config->degree;
    q->segment = config->segment;
    q->skip_hits = config->skip_hits;
    r = qm_rules_open(config, &q->rules, err, len);
    if (r != 0) {
        free(q);
        return r;
    }
    qm_trimmed_init(&q->forgotten);
    *p = &q->base;
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    struct quickmine *q = of(p);
    int r = qm_rules_close(q->rules);
    qm_trimmed_destroy(&q->forgotten);
    free(q);
    return r;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *stream = malloc(sizeof *stream);
    if (stream) {
        qm_sequence_init(&stream->sequence);
        stream->hits = 0;
        stream->live = !of(p)->skip_hits;
    }
    return stream;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    struct quickmine *q = of(p);
    struct qm_sequence *s = &stream->sequence;
    size_t reach = q->lookahead - 1; /* of a rule, from its first block to its last */
    *work = NULL;
    qm_trimmed_revive(&q->forgotten, block);
    if (!qm_sequence_append(s, block)) {
        return;
    }
    if (qm_access_is_hit(outcome)) {
        stream->hits++;
    } else {
        stream->hits = 0;
        stream->live = true;
    }
    if (!stream->live) {
        qm_sequence_keep(s, reach);
    } else if (q->skip_hits && stream->hits >= reach) {
        *work = qm_sequence_detach(s, reach);
        stream->live = false;
    } else if (q->segment > 0 && qm_sequence_fresh(s) >= q->segment) {
        *work = qm_sequence_detach(s, reach);
    }
}

static void set_degree(struct qm_prefetcher *p, unsigned degree)
{
    of(p)->degree = degree;
}

static size_t kept(const struct qm_stream *stream)
{
    return stream->sequence.work ? stream->sequence.work->n : 0;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    struct quickmine *q = of(p);
    const struct qm_sequence *s = &stream->sequence;
    uint64_t blocks[QM_CANDIDATES_MAX];
    unsigned n;

    if (s->seen < 2) {
        return 0;
    }
    n = qm_rules_lookup(q->rules, s->last[0], s->last[1], blocks,
                        max < q->degree ? max : q->degree);
    for (unsigned i = 0; i < n; i++)
        out[i] = qm_candidate_of(blocks[i]);
    return qm_trimmed_filter(&q->forgotten, out, n);
}

static void end(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work)
{
    *work = qm_sequence_detach(&stream->sequence, 0);
    qm_sequence_fini(&stream->sequence);
    free(stream);
}

static int add(void *opaque, uint64_t a, uint64_t b, const uint64_t *suffixes,
               unsigned n)
{
    return qm_rules_add(opaque, a, b, suffixes, n);
}

static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    struct quickmine *q = of(p);
    int r = qm_mine(work->blocks, work->n, work->old, q->lookahead, add, q->rules);
    free(work);
    if (r == 0) {
        atomic_fetch_add(&q->sequences, 1);
    } else {
        atomic_fetch_add(&q->failed, 1);
    }
    return r;
}

static int save(struct qm_prefetcher *p)
{
    return qm_rules_save(of(p)->rules);
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    free(work);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_trimmed_add(&of(p)->forgotten, block, count);
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
}

static int purge(struct qm_prefetcher *p, uint64_t now)
{
    return qm_rules_purge(of(p)->rules, now);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *stats_out)
{
    struct quickmine *q = of(p);
    memset(stats_out, 0, sizeof *stats_out);
    qm_rules_stats(q->rules, stats_out);
    stats_out->sequences = atomic_load(&q->sequences);
    stats_out->failed = atomic_load(&q->failed);
}

static int rules(struct qm_prefetcher *p,
                 int (*each)(void *opaque, const struct qm_rule *rule), void *opaque)
{
    return qm_rules_each(of(p)->rules, each, opaque);
}

const struct qm_prefetcher_ops qm_prefetcher_quickmine = {
    .name = "quickmine",
    .summary = "block correlations mined within each context (ATC'08)",
    .flags = QM_BLOCK_BY_BLOCK,
    .kept = kept,
    .set_degree = set_degree,
    .parameters = QM_HEEDS(QM_LOOKAHEAD) | QM_HEEDS(QM_DEGREE) |
                  QM_HEEDS(QM_MAX_PREFIX) | QM_HEEDS(QM_MAX_SUFFIX) |
                  QM_HEEDS(QM_GRACE) | QM_HEEDS(QM_SEGMENT) | QM_HEEDS(QM_SKIP_HITS) |
                  QM_HEEDS(QM_RULES_POOL) | QM_HEEDS(QM_RULES) |
                  QM_HEEDS(QM_RULES_FOR) | QM_HEEDS(QM_RULES_PURGE),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = learn,
    .discard = discard,
    .save = save,
    .forget = forget,
    .ended = ended,
    .purge = purge,
    .stats = stats,
    .rules = rules,
};
