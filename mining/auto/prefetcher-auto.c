/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-auto.c - association and readahead behind one interface.
 *
 * Policy ppm knows what has followed what before; policy readahead knows where a
 * sequential reader will go.  Both are told of each access, and what either wants is
 * returned, the likeliest first, no block twice.
 *
 * A reader's long streams are no business of ppm: what lies in a window of SCAN blocks
 * or more that was asked for ahead of this context is not mined, so a scan writes no
 * rules over others', and takes no time for mining.  Shorter runs are mined: what
 * follows them is worth knowing.  Of a file whose extents are known, what is read in
 * one run behind its first SCAN blocks is no business of ppm either.  The context's
 * sequence goes on behind the scan.
 *
 * The memory for rules is ppm's, but for what readahead has, at most a part of it: in a
 * small cache it knows few streams.  The least that it needs, some KiB, is beside that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/parameters.h"
#include "mining/core/registry.h"
#include "mining/core/span.h"
#include "mining/readahead/memory.h"
#include "mining/readahead/tracks.h"

#define SPANS 4  /* windows that a context remembers */
#define SCAN  32 /* blocks */

#define MEMORY      (UINT64_C(16) << 20) /* for rules, if nobody says; as ppm's */
#define PART        4                    /* of it that readahead may have */
#define RULES_LEAST (UINT64_C(64) << 10) /* that ppm can be made with */

struct automatic {
    struct qm_prefetcher base;
    struct qm_prefetcher *ppm;
    struct qm_prefetcher *readahead;
};

/* The streams of either, whose types are their own. */
struct qm_stream {
    struct qm_stream *ppm, *readahead;
    bool mined;                  /* the last access was told to ppm */
    unsigned next;               /* span to be replaced */
    struct qm_span spans[SPANS]; /* of windows asked for ahead of this context */
};

static struct automatic *of(struct qm_prefetcher *p)
{
    return (struct automatic *)p;
}

/* Of readahead's memory, what is of that for rules. */
static uint64_t counted(uint64_t had)
{
    return had - qm_tracks_bytes_within(0);
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    struct qm_mining_config rules = *config;
    struct automatic *a = calloc(1, sizeof *a);
    uint64_t had, left;
    char nothing[64];
    int r = qm_mining_check(config, err, len);

    if (r == 0 && !a) {
        r = ENOMEM;
        snprintf(err, len, "%s", strerror(r));
    }
    if (r != 0) {
        free(a);
        return r;
    }
    a->base.ops = &qm_prefetcher_auto;
    if (rules.rules_memory == 0)
        rules.rules_memory = MEMORY;
    r = qm_prefetcher_readahead.create(config, &a->readahead, nothing, sizeof nothing);
    if (r != 0) {
        snprintf(err, len, "%s", nothing);
        free(a);
        return r;
    }
    had = counted(qm_readahead_set_bytes(a->readahead, rules.rules_memory / PART));
    left = rules.rules_memory > had ? rules.rules_memory - had : 0;
    rules.beside = true;
    rules.rules_memory = left > RULES_LEAST ? left : RULES_LEAST;
    if (rules.rules_most > rules.rules_memory)
        rules.rules_most -= counted(qm_tracks_bytes_within(rules.rules_most / PART));
    r = qm_prefetcher_ppm.create(&rules, &a->ppm, err, len);
    if (r != 0) {
        a->readahead->ops->destroy(a->readahead);
        free(a);
        return r;
    }
    if (left < rules.rules_memory)
        a->ppm->ops->set_memory(a->ppm, left);
    *p = &a->base;
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    struct automatic *a = of(p);
    int r = a->ppm->ops->destroy(a->ppm);

    a->readahead->ops->destroy(a->readahead);
    free(a);
    return r;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct automatic *a = of(p);
    struct qm_stream *s = calloc(1, sizeof *s);
    struct qm_work *work;

    if (!s)
        return NULL;
    s->ppm = a->ppm->ops->begin(a->ppm, klass);
    if (s->ppm) {
        s->readahead = a->readahead->ops->begin(a->readahead, klass);
        if (!s->readahead) {
            a->ppm->ops->end(a->ppm, s->ppm, &work);
            s->ppm = NULL;
        }
    }
    if (!s->ppm) {
        free(s);
        return NULL;
    }
    return s;
}

static void own(struct qm_stream *s, unsigned owner)
{
    qm_prefetcher_ppm.own(s->ppm, owner);
}

/* Where a statement's scan has come to says nothing of the next statement's. */
static void resume(struct qm_stream *s, const struct qm_stream *other)
{
    qm_prefetcher_ppm.resume(s->ppm, other->ppm);
}

static void owners(struct qm_prefetcher *p, unsigned there)
{
    qm_prefetcher_ppm.owners(of(p)->ppm, there);
}

static void request(struct qm_stream *s, uint32_t count)
{
    qm_prefetcher_readahead.request(s->readahead, count);
}

static bool is_scanned(const struct qm_stream *s, uint64_t block)
{
    for (unsigned i = 0; i < SPANS; i++)
        if (qm_span_has(s->spans[i], block))
            return true;
    return false;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    struct automatic *a = of(p);

    a->readahead->ops->access(a->readahead, s->readahead, block, outcome, work);
    *work = NULL;
    s->mined =
        !is_scanned(s, block) && !qm_readahead_scans_file(s->readahead, block, SCAN);
    if (s->mined)
        a->ppm->ops->access(a->ppm, s->ppm, block, outcome, work);
}

/* A window was asked for: n ranges. */
static void remember(struct qm_stream *s, const struct qm_candidate *ranges, unsigned n)
{
    struct qm_span span = {UINT64_MAX, 0};
    uint64_t blocks = 0;

    for (unsigned i = 0; i < n; i++) {
        if (ranges[i].block < span.from)
            span.from = ranges[i].block;
        if (ranges[i].block + ranges[i].count > span.to)
            span.to = ranges[i].block + ranges[i].count;
        blocks += ranges[i].count;
    }
    if (blocks < SCAN / 2 || span.to - span.from > 4 * blocks)
        return; /* it is short, or a stride */
    s->spans[s->next] = span;
    s->next = (s->next + 1) % SPANS;
}

/* Leaves out what lies in the n ranges before it, and puts the rest in its place by
 * probability; returns how many there are then. */
static unsigned merge(struct qm_candidate *all, unsigned ranges, unsigned n)
{
    unsigned kept = ranges;

    for (unsigned i = ranges; i < n; i++) {
        const struct qm_candidate c = all[i];
        bool twice = false;
        unsigned at;

        for (unsigned k = 0; k < kept && !twice; k++)
            twice = all[k].stream && c.block >= all[k].block &&
                    c.block - all[k].block < all[k].count;
        if (twice)
            continue;
        for (at = kept++; at > 0 && all[at - 1].probability < c.probability; at--)
            all[at] = all[at - 1];
        all[at] = c;
    }
    return kept;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    struct automatic *a = of(p);
    unsigned ranges =
        a->readahead->ops->candidates(a->readahead, s->readahead, out, max);
    unsigned n;

    remember(s, out, ranges);
    n = ranges;
    if (s->mined && n < max)
        n += a->ppm->ops->candidates(a->ppm, s->ppm, out + n, max - n);
    return merge(out, ranges, n);
}

static void refused(struct qm_prefetcher *p, uint64_t block, uint32_t count)
{
    struct automatic *a = of(p);

    a->readahead->ops->refused(a->readahead, block, count);
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    struct automatic *a = of(p);

    a->readahead->ops->end(a->readahead, s->readahead, work);
    a->ppm->ops->end(a->ppm, s->ppm, work);
    free(s);
}

static int save(struct qm_prefetcher *p)
{
    return qm_prefetcher_ppm.save(of(p)->ppm);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_prefetcher_readahead.forget(of(p)->readahead, block, count);
    qm_prefetcher_ppm.forget(of(p)->ppm, block, count);
}

static void extents(struct qm_prefetcher *p, const struct qm_extent *told, unsigned n)
{
    qm_prefetcher_readahead.extents(of(p)->readahead, told, n);
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    struct automatic *a = of(p);

    a->readahead->ops->ended(a->readahead, block, issuer, user, fate);
    a->ppm->ops->ended(a->ppm, block, issuer, user, fate);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *out)
{
    struct automatic *a = of(p);
    struct qm_mining_stats readahead = {0};

    a->ppm->ops->stats(a->ppm, out);
    a->readahead->ops->stats(a->readahead, &readahead);
    out->rules_bytes += counted(readahead.rules_bytes);
    out->rules_limit += counted(readahead.rules_bytes);
}

static void set_memory(struct qm_prefetcher *p, uint64_t bytes)
{
    struct automatic *a = of(p);
    uint64_t part = qm_tracks_bytes_within(bytes / PART), had;
    uint64_t rules = counted(part);

    /* Rules give back first, so both never have more than the larger of old and new. */
    a->ppm->ops->set_memory(a->ppm, bytes > rules ? bytes - rules : 0);
    had = qm_readahead_set_bytes(a->readahead, part);
    if (had != part) { /* no memory for the change */
        rules = counted(had);
        a->ppm->ops->set_memory(a->ppm, bytes > rules ? bytes - rules : 0);
    }
}

const struct qm_prefetcher_ops qm_prefetcher_auto = {
    .name = "auto",
    .summary =
        "what followed the last blocks (ppm), and sequential streams (readahead)",
    .flags = QM_EARLY_HITS | QM_STREAMS | QM_WEIGHS_READS | QM_BOUNDED_RULES,
    .parameters =
        QM_HEEDS(QM_RULES_MEMORY) | QM_HEEDS(QM_RULES) | QM_HEEDS(QM_RULES_FOR),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .request = request,
    .access = access_block,
    .candidates = candidates,
    .refused = refused,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .own = own,
    .owners = owners,
    .resume = resume,
    .save = save,
    .forget = forget,
    .extents = extents,
    .ended = ended,
    .set_memory = set_memory,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};
