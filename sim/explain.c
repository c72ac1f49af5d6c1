/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.c - a prefetcher that passes everything on, and takes notes.
 *
 * What is simulated must not depend on it: so it has each operation that the prefetcher
 * has, and no other.
 *
 * What was seen is in a table of words, open addressing: the hash of a block or of a
 * pair, and in its low byte how often.  Two that agree in 56 bits of their hash are
 * taken for one.
 */
#define XXH_INLINE_ALL
#include "sim/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    FAR = 5,       /* accesses back; the paper's window (ATC'08 §4.3) */
    PROPOSED = 64, /* to a sequence, the latest are remembered */
    FIRST = 1 << 16,
    COUNT = 0xff,
};

struct seen {
    uint64_t *words; /* 0: free */
    uint64_t mask, used;
};

struct qm_explain {
    struct qm_prefetcher base;
    struct qm_prefetcher_ops ops; /* base's: those that the prefetcher has */
    struct qm_prefetcher *of;
    struct seen seen;
    uint64_t counts[QM_REASON_COUNT];
    int error;
};

struct qm_stream {
    struct qm_stream *of;
    const struct qm_prefetcher_ops *ops; /* of's */
    uint64_t last[FAR];                  /* the latest first */
    unsigned n;
    bool asked;   /* since the last access, or there was none */
    bool resumed; /* the last ones are another's: no access was told since */
    uint64_t proposed[PROPOSED];
    unsigned proposals;
};

const char *qm_reason_name(enum qm_reason reason)
{
    static const char *const names[] = {
#define X(reason, name, text) [reason] = name,
        QM_REASONS(X)
#undef X
    };

    return names[reason];
}

const char *qm_reason_text(enum qm_reason reason)
{
    static const char *const texts[] = {
#define X(reason, name, text) [reason] = text,
        QM_REASONS(X)
#undef X
    };

    return texts[reason];
}

static uint64_t hash_of(uint64_t a, uint64_t b, uint64_t kind)
{
    uint64_t all[] = {a, b, kind};

    return XXH3_64bits(all, sizeof all);
}

static uint64_t block_key(uint64_t block)
{
    return hash_of(block, 0, 0);
}

/* Block came directly after the other (far: or with few between them). */
static uint64_t pair_key(uint64_t after, uint64_t block, bool far)
{
    return hash_of(after, block, far ? 2 : 1);
}

/* The word of a key, or the free one where it belongs. */
static uint64_t *find(const struct seen *t, uint64_t key)
{
    uint64_t i = (key >> 8) & t->mask;

    while (t->words[i] != 0 && ((t->words[i] ^ key) & ~(uint64_t)COUNT) != 0)
        i = (i + 1) & t->mask;
    return &t->words[i];
}

static int grow(struct seen *t)
{
    struct seen larger = {.mask = t->words ? 2 * t->mask + 1 : FIRST - 1,
                          .used = t->used};

    larger.words = calloc(larger.mask + 1, sizeof *larger.words);
    if (!larger.words)
        return ENOMEM;
    for (uint64_t i = 0; t->words && i <= t->mask; i++)
        if (t->words[i] != 0)
            *find(&larger, t->words[i]) = t->words[i];
    free(t->words);
    *t = larger;
    return 0;
}

static unsigned times(const struct seen *t, uint64_t key)
{
    return t->words ? *find(t, key) & COUNT : 0;
}

static void note(struct qm_explain *e, uint64_t key)
{
    struct seen *t = &e->seen;
    uint64_t *word;

    if ((!t->words || t->used > t->mask / 4 * 3) && grow(t) != 0) {
        e->error = ENOMEM;
        return;
    }
    word = find(t, key);
    if (*word == 0) {
        *word = (key & ~(uint64_t)COUNT) | 1;
        t->used++;
    } else if ((*word & COUNT) < COUNT) {
        ++*word;
    }
}

static bool was_proposed(const struct qm_stream *s, uint64_t block)
{
    for (unsigned i = 0; i < s->proposals && i < PROPOSED; i++)
        if (s->proposed[i] == block)
            return true;
    return false;
}

static bool is_far(const struct qm_explain *e, const struct qm_stream *s,
                   uint64_t block)
{
    for (unsigned i = 0; i < s->n; i++)
        if (times(&e->seen, pair_key(s->last[i], block, true)) > 0)
            return true;
    return false;
}

static enum qm_reason reason_of(struct qm_explain *e, const struct qm_stream *s,
                                uint64_t block)
{
    const struct qm_prefetcher_ops *ops = e->of->ops;
    unsigned followed;

    if (times(&e->seen, block_key(block)) == 0)
        return QM_REASON_NEW_BLOCK;
    if (s->n == 0 || (s->resumed && ops->knows && !ops->knows(e->of, s->of, block)))
        return QM_REASON_BEGINNING;
    if (was_proposed(s, block))
        return QM_REASON_LEFT;
    followed = times(&e->seen, pair_key(s->last[0], block, false));
    if (followed > 0 && !s->asked)
        return QM_REASON_KEPT_BACK;
    if (followed == 0)
        return is_far(e, s, block) ? QM_REASON_FAR : QM_REASON_NEW_PAIR;
    if (ops->knows && !ops->knows(e->of, s->of, block))
        return followed == 1 ? QM_REASON_LOST_ONCE : QM_REASON_LOST;
    return followed == 1 ? QM_REASON_UNLIKELY_ONCE : QM_REASON_UNLIKELY;
}

static void remember(struct qm_explain *e, struct qm_stream *s, uint64_t block)
{
    note(e, block_key(block));
    if (s->n > 0 && s->last[0] == block)
        return;
    if (s->n > 0)
        note(e, pair_key(s->last[0], block, false));
    for (unsigned i = 0; i < s->n; i++)
        note(e, pair_key(s->last[i], block, true));
    for (unsigned i = s->n < FAR ? s->n++ : FAR - 1; i > 0; i--)
        s->last[i] = s->last[i - 1];
    s->last[0] = block;
}

/* ---- the prefetcher's operations */

static struct qm_explain *explain_of(struct qm_prefetcher *p)
{
    return (struct qm_explain *)p;
}

static int destroy(struct qm_prefetcher *p)
{
    struct qm_explain *e = explain_of(p);
    int r = e->of->ops->destroy(e->of);

    free(e->seen.words);
    free(e);
    return r;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_explain *e = explain_of(p);
    struct qm_stream *s = calloc(1, sizeof *s);

    if (s) {
        s->ops = e->of->ops;
        s->of = e->of->ops->begin(e->of, klass);
    }
    if (s && !s->of) {
        free(s);
        return NULL;
    }
    return s;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    struct qm_explain *e = explain_of(p);

    if (outcome == QM_ACCESS_MISS)
        e->counts[reason_of(e, s, block)]++;
    remember(e, s, block);
    s->resumed = false;
    /* Nobody need be asked then. */
    s->asked = outcome == QM_ACCESS_HIT ||
               (outcome == QM_ACCESS_EARLY_HIT && !(e->of->ops->flags & QM_EARLY_HITS));
    e->of->ops->access(e->of, s->of, block, outcome, work);
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    struct qm_explain *e = explain_of(p);
    unsigned n = e->of->ops->candidates(e->of, s->of, out, max);

    s->asked = true;
    for (unsigned i = 0; i < n; i++)
        for (uint32_t j = 0; j < out[i].count && j < PROPOSED; j++)
            s->proposed[s->proposals++ % PROPOSED] = out[i].block + j;
    return n;
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->end(e->of, s->of, work);
    free(s);
}

static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    struct qm_explain *e = explain_of(p);

    return e->of->ops->learn(e->of, work);
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->discard(e->of, work);
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->ended(e->of, block, issuer, user, fate);
}

static int purge(struct qm_prefetcher *p, uint64_t now)
{
    struct qm_explain *e = explain_of(p);

    return e->of->ops->purge(e->of, now);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *out)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->stats(e->of, out);
}

static void refused(struct qm_prefetcher *p, uint64_t block, uint32_t count)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->refused(e->of, block, count);
}

static void request(struct qm_stream *s, uint32_t count)
{
    s->ops->request(s->of, count);
}

static size_t kept(const struct qm_stream *s)
{
    return s->ops->kept(s->of);
}

static void own(struct qm_stream *s, unsigned owner)
{
    s->ops->own(s->of, owner);
}

static void owners(struct qm_prefetcher *p, unsigned there)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->owners(e->of, there);
}

static void resume(struct qm_stream *s, const struct qm_stream *other)
{
    struct qm_stream as = *other;

    as.of = s->of;
    as.resumed = true;
    if (other->n > 0 && !(other->resumed && s->n > 0))
        *s = as;
    s->ops->resume(s->of, other->of);
}

static void set_degree(struct qm_prefetcher *p, unsigned degree)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->set_degree(e->of, degree);
}

static int save(struct qm_prefetcher *p)
{
    struct qm_explain *e = explain_of(p);

    return e->of->ops->save(e->of);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->forget(e->of, block, count);
}

static void extents(struct qm_prefetcher *p, const struct qm_extent *all, unsigned n)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->extents(e->of, all, n);
}

static bool knows(struct qm_prefetcher *p, const struct qm_stream *s, uint64_t block)
{
    struct qm_explain *e = explain_of(p);

    return e->of->ops->knows(e->of, s->of, block);
}

static void set_memory(struct qm_prefetcher *p, uint64_t bytes)
{
    struct qm_explain *e = explain_of(p);

    e->of->ops->set_memory(e->of, bytes);
}

static int rules(struct qm_prefetcher *p,
                 int (*each)(void *opaque, const struct qm_rule *rule), void *opaque)
{
    struct qm_explain *e = explain_of(p);

    return e->of->ops->rules(e->of, each, opaque);
}

struct qm_explain *qm_explain_new(struct qm_prefetcher *prefetcher)
{
    struct qm_explain *e = calloc(1, sizeof *e);

    if (!e) {
        prefetcher->ops->destroy(prefetcher);
        return NULL;
    }
    e->of = prefetcher;
    e->ops = (struct qm_prefetcher_ops){
        .name = prefetcher->ops->name,
        .summary = prefetcher->ops->summary,
        .flags = prefetcher->ops->flags,
        .parameters = prefetcher->ops->parameters,
#define HAS(operation) .operation = prefetcher->ops->operation ? (operation) : NULL
        HAS(destroy),
        HAS(begin),
        .access = access_block,
        HAS(candidates),
        HAS(refused),
        HAS(end),
        HAS(learn),
        HAS(discard),
        HAS(request),
        HAS(kept),
        HAS(own),
        HAS(owners),
        HAS(resume),
        HAS(set_degree),
        HAS(save),
        HAS(forget),
        HAS(extents),
        HAS(knows),
        HAS(ended),
        HAS(set_memory),
        HAS(purge),
        HAS(stats),
        HAS(rules),
#undef HAS
    };
    e->base.ops = &e->ops;
    return e;
}

struct qm_prefetcher *qm_explain_prefetcher(struct qm_explain *e)
{
    return &e->base;
}

void qm_explain_counts(const struct qm_explain *e, uint64_t counts[QM_REASON_COUNT])
{
    for (unsigned i = 0; i < QM_REASON_COUNT; i++)
        counts[i] = e->counts[i];
}

int qm_explain_error(const struct qm_explain *e)
{
    return e->error;
}
