/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-ppm.c - prediction by partial matching, with learned probabilities.
 *
 * What followed a context's last two blocks, and its last one alone, is likely to
 * follow again (prediction by partial matching; to prefetch by it is from Curewitz,
 * Krishnan, Vitter, SIGMOD'93).  Only adjacent blocks make a pair (table.h); the
 * paper's window of G blocks is had by a lookahead path: what is likely to follow is
 * taken for read, and so on, likeliest first.  How many steps ahead follows the
 * readers' pace and the backend's latency: what is near is known best, so a step
 * further is taken only as far as blocks come late, that is, are demanded while they
 * are still being read.  The number of steps moves until LATE of those used are late.
 *
 * A stream is of the blocks that its context did *not* find in the main cache, and of
 * early hits (cache.h).  Blocks that are hit again and again, such as an index's root,
 * are passed over: they need no prefetching, what was learned of them when they came
 * still holds when they have left, and rules then step from one block that is worth
 * prefetching to the next.  So such hits cost nothing here, and take no memory.  But a
 * block that just happens to be cached is a step of a path as much as one that is not:
 * if it were passed over, what follows it would seem to follow another block, each time
 * another one, and nobody would be asked what comes next.  The larger the cache, the
 * more of a path is there.
 *
 * The confidence filter (confidence.h) learns from the fate of all prefetches how
 * probable it is that a block is used, and decides what is probable enough; the
 * accuracy controller (accuracy.h) tells it how accurate to be, by what the device has
 * to read.
 *
 * A pair holds a block's number within its region of QM_MARKOV_BLOCKS blocks (64 TiB of
 * 4 KiB blocks), which is that of the block before it.  That a block of another region
 * followed is not learned.
 *
 * Only saving waits for a lock: see table.h and confidence.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/parameters.h"
#include "mining/core/trimmed.h"
#include "mining/core/idle.h"
#include "mining/markov/accuracy.h"
#include "mining/markov/ages.h"
#include "mining/markov/beginnings.h"
#include "mining/markov/confidence.h"
#include "mining/markov/table-file.h"
#include "mining/markov/table.h"
#include "mining/core/registry.h"
#include "mining/core/sequence.h"

enum {
    DEPTH = 2,            /* steps ahead, where blocks arrive at once */
    DEPTH_MAX = 32,       /* however late they come */
    STEPS_MAX = 64,       /* blocks seen on the way, an access */
    CONFIDENCE_PART = 32, /* of the memory for rules, the confidence filter's table's */
    AGES_PART = 32,       /* and that of the ages, which the filter goes by */
};

#define MEMORY (UINT64_C(16) << 20) /* for rules, if nobody says */

#define WATCH_FROM                                                                     \
    0.2f /* of the threshold, how probable a step must be to be watched */
#define FIXED_THRESHOLD 0.5f /* where the threshold does not move */

#define LATE      0.15f /* of the blocks that are used, which may come late */
#define LATE_RATE 0.02f /* how fast the number of steps follows, a block */

/* Of the threshold by which the device's reads are kept few, where the caller knows the
 * price of a read: the rest of it is for the block's place in the cache.  Of a block
 * that is steps further on, more of it: that one can mostly wait for the next read,
 * after which it is nearer, and better known.  Found by trying, in virtual time, where
 * .2 and .4 do as well for the next block; .75 for others makes them late. */
#define PLACE         0.3f
#define PLACE_FURTHER 0.5f

_Static_assert((int)QM_OWNERS == QM_MARKOV_OWNERS, "the same numbers");

struct ppm {
    struct qm_prefetcher base;
    struct qm_markov *pairs;
    struct qm_confidence *confidence;
    struct qm_ages *ages;
    _Atomic float depth; /* steps ahead: DEPTH to DEPTH_MAX */
    unsigned ablate;     /* of enum qm_ablation */
    bool (*cached)(void *opaque, uint64_t block);
    void (*reads)(void *opaque, uint64_t *device, uint64_t *lru);
    float (*threshold)(void *opaque);
    void *opaque;
    struct qm_accuracy accuracy;
    struct qm_beginnings beginnings;
    struct qm_trimmed forgotten;
    struct qm_rules_dir *dir; /* NULL: rules are in memory */
    pthread_mutex_t saving;   /* one at a time */
    _Atomic bool changed;     /* since saving last began */
    atomic_uint_least64_t saves, save_errors;
    atomic_uint_least64_t marginal; /* see struct qm_mining_stats */
};

struct qm_stream {
    uint32_t klass;
    unsigned owner;
    unsigned seen;    /* up to 2 */
    uint64_t last[2]; /* the last block, and the one before it */
    bool promoted;    /* the last one was there */
    bool resumed;     /* the last ones are another's: no access was told since */
    bool fresh;       /* it has just come: there are candidates */
};

/* A block that may be read, some steps ahead. */
struct step {
    uint64_t block, previous;
    bool two; /* there is a previous one */
    bool done;
    unsigned depth;
    float probability;
};

struct search {
    struct ppm *q;
    const struct qm_stream *stream;
    unsigned depth; /* how far ahead */
    /* How probable the use of the next block must be, and of one further on. */
    float threshold, further;
    unsigned n; /* steps; the first is the stream's last block */
    struct step steps[STEPS_MAX];
    struct qm_candidate *out;
    unsigned found, max;
};

static struct ppm *of(struct qm_prefetcher *p)
{
    return (struct ppm *)p;
}

static int save(struct ppm *q)
{
    int r;

    pthread_mutex_lock(&q->saving);
    atomic_store(&q->changed, false); /* before it is read: what comes then is next */
    r = qm_markov_save(q->pairs, q->dir);
    pthread_mutex_unlock(&q->saving);
    if (r != 0)
        atomic_store(&q->changed, true);
    atomic_fetch_add(r == 0 ? &q->saves : &q->save_errors, 1);
    return r;
}

static int save_changes(struct qm_prefetcher *p)
{
    struct ppm *q = of(p);

    return q->dir && atomic_load(&q->changed) ? save(q) : 0;
}

static void release(struct ppm *q)
{
    if (q->dir)
        qm_rules_dir_close(q->dir);
    qm_markov_free(q->pairs);
    qm_confidence_free(q->confidence);
    qm_ages_free(q->ages);
    free(q);
}

static int destroy(struct qm_prefetcher *p)
{
    struct ppm *q = of(p);
    int r = save_changes(p);

    pthread_mutex_destroy(&q->saving);
    qm_trimmed_destroy(&q->forgotten);
    release(q);
    return r;
}

static uint64_t bytes_beside_pairs(const struct ppm *q)
{
    return qm_confidence_bytes(q->confidence) + qm_ages_bytes(q->ages);
}

static void limit(struct ppm *q, uint64_t bytes)
{
    uint64_t other;

    if (bytes < qm_confidence_least() + qm_ages_least())
        bytes = 0; /* nothing is proposed */
    qm_confidence_set_bytes(q->confidence, bytes / CONFIDENCE_PART);
    qm_ages_set_bytes(q->ages, bytes / AGES_PART);
    other = bytes_beside_pairs(q);
    qm_markov_set_bytes(q->pairs, bytes > other ? bytes - other : 0);
}

static void set_memory(struct qm_prefetcher *p, uint64_t bytes)
{
    limit(of(p), bytes);
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    uint64_t bytes = config->rules_memory ? config->rules_memory : MEMORY;
    uint64_t most = config->rules_most > bytes ? config->rules_most : bytes;
    struct ppm *q;
    int r = qm_mining_check(config, err, len);

    if (r != 0)
        return r;
    q = calloc(1, sizeof *q);
    if (!q || !(q->confidence = qm_confidence_new(most / CONFIDENCE_PART)) ||
        !(q->ages = qm_ages_new(most / AGES_PART)) ||
        !(q->pairs = qm_markov_new(most - bytes_beside_pairs(q)))) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        r = ENOMEM;
    } else if (config->rules_dir) {
        r = qm_markov_load(q->pairs, config, &q->dir, err, len);
        if (r != 0)
            q->dir = NULL;
    }
    if (r != 0) {
        if (q)
            release(q);
        return r;
    }
    if (most > bytes)
        limit(q, bytes);
    if (config->beside)
        qm_confidence_beside(q->confidence);
    pthread_mutex_init(&q->saving, NULL);
    q->base.ops = &qm_prefetcher_ppm;
    q->cached = config->cached;
    q->reads = config->reads;
    q->threshold = config->threshold;
    q->opaque = config->opaque;
    q->ablate = config->ablate;
    atomic_init(&q->depth, DEPTH);
    qm_accuracy_init(&q->accuracy);
    qm_beginnings_init(&q->beginnings);
    qm_trimmed_init(&q->forgotten);
    *p = &q->base;
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *s = calloc(1, sizeof *s);

    if (s)
        s->klass = klass;
    return s;
}

static void own(struct qm_stream *s, unsigned owner)
{
    s->owner = owner;
}

static void resume(struct qm_stream *s, const struct qm_stream *other)
{
    if (other->seen == 0 || (other->resumed && s->seen > 0))
        return; /* it has read nothing itself */
    s->seen = other->seen;
    s->last[0] = other->last[0];
    s->last[1] = other->last[1];
    s->resumed = true;
}

static void owners(struct qm_prefetcher *p, unsigned there)
{
    qm_markov_owners(of(p)->pairs, there);
}

/* What block's number has beside what a pair can hold. */
static uint64_t region_of(uint64_t block)
{
    return block & ~(QM_MARKOV_BLOCKS - 1);
}

/* Block followed the history of key, of which s->last[0] is the last. */
static enum qm_markov_known learn_pair(struct ppm *q, const struct qm_stream *s,
                                       uint64_t key, uint64_t block)
{
    if (region_of(block) != region_of(s->last[0]))
        return QM_MARKOV_NEW;
    return qm_markov_learn(q->pairs, s->owner, key, block - region_of(block));
}

static bool has(const struct qm_markov_pair *pairs, unsigned n, uint64_t block)
{
    for (unsigned i = 0; i < n; i++) {
        if (pairs[i].block == block)
            return true;
    }
    return false;
}

static bool knows(struct qm_prefetcher *p, const struct qm_stream *s, uint64_t block)
{
    struct qm_markov_pair found[QM_MARKOV_FOUND_MAX];
    struct ppm *q = of(p);
    uint64_t number = block - region_of(block);

    if (s->seen == 0 || region_of(block) != region_of(s->last[0]))
        return false;
    if (has(found, qm_markov_find(q->pairs, qm_markov_key1(s->last[0]), found), number))
        return true;
    return s->seen > 1 &&
           has(found,
               qm_markov_find(q->pairs, qm_markov_key2(s->last[1], s->last[0]), found),
               number);
}

/* Whether what a resumed stream reads first is taken to follow what was read before. */
static bool goes_on(struct ppm *q, const struct qm_stream *s, uint64_t block)
{
    if (q->ablate & QM_ABLATE_STATEMENTS)
        return false;
    if (block == s->last[0] || region_of(block) != region_of(s->last[0]))
        return true; /* of that no rule can be */
    if (!qm_beginnings_samples(s->last[0]))
        return qm_beginnings_pay(&q->beginnings, s->klass);
    qm_beginnings_count(&q->beginnings, s->klass, knows(&q->base, s, block));
    return true;
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_trimmed_add(&of(p)->forgotten, block, count);
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    enum qm_markov_known one = QM_MARKOV_NEW, two = QM_MARKOV_NEW;
    struct ppm *q = of(p);

    *work = NULL;
    s->fresh = false;
    if (outcome == QM_ACCESS_HIT && !(q->ablate & QM_ABLATE_MISSES))
        return;
    if (outcome == QM_ACCESS_MISS)
        qm_confidence_missed(q->confidence, block);
    if (!qm_confidence_sleeps(q->confidence))
        qm_ages_note(q->ages, block);
    qm_trimmed_revive(&q->forgotten, block);
    if (s->resumed && !goes_on(q, s, block))
        s->seen = 0;
    s->resumed = false;
    if (s->seen > 0 && s->last[0] == block)
        return;
    if (s->seen > 0)
        one = learn_pair(q, s, qm_markov_key1(s->last[0]), block);
    if (s->seen > 1 && !(q->ablate & QM_ABLATE_TWO))
        two = learn_pair(q, s, qm_markov_key2(s->last[1], s->last[0]), block);
    if (outcome == QM_ACCESS_PREFETCH_HIT && one != QM_MARKOV_KNOWN &&
        two != QM_MARKOV_KNOWN && one + two > QM_MARKOV_NEW)
        atomic_fetch_add_explicit(&q->marginal, 1, memory_order_relaxed);
    s->last[1] = s->last[0];
    s->last[0] = block;
    s->promoted = outcome == QM_ACCESS_PREFETCH_HIT;
    s->fresh = true;
    if (s->seen < 2)
        s->seen++;
    /* Once between two saves: readers share the line. */
    if (q->dir && !atomic_load_explicit(&q->changed, memory_order_relaxed))
        atomic_store_explicit(&q->changed, true, memory_order_relaxed);
}

/* Block was on the way already. */
static bool met(const struct search *s, uint64_t block)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->steps[i].block == block)
            return true;
    }
    return false;
}

static bool is_cached(const struct ppm *q, uint64_t block)
{
    return q->cached && q->cached(q->opaque, block);
}

/* Step may be followed by features' block. */
static void propose(struct search *s, const struct step *from,
                    struct qm_features *features)
{
    struct qm_confidence *confidence = s->q->confidence;
    float threshold = from->depth == 0 ? s->threshold : s->further;
    uint64_t weights = qm_confidence_weights(features);
    float probability = s->q->ablate & QM_ABLATE_CONFIDENCE
                            ? from->probability * features->count /
                                  (float)(features->count + features->rest)
                            : qm_confidence_probability(confidence, weights);
    bool accepted = probability >= threshold;

    if (probability < threshold * WATCH_FROM || s->n == STEPS_MAX ||
        (!accepted && s->q->ablate & QM_ABLATE_WATCH))
        return;
    s->steps[s->n++] = (struct step){
        .block = features->block,
        .previous = from->block,
        .two = true,
        .done = from->depth + 1 == s->depth || !accepted,
        .depth = from->depth + 1,
        .probability = probability,
    };
    if ((accepted && s->found == s->max) || is_cached(s->q, features->block))
        return;
    qm_confidence_propose(confidence, features->block, weights, accepted);
    if (accepted)
        s->out[s->found++] = (struct qm_candidate){
            .block = features->block, .count = 1, .probability = probability};
}

static unsigned age_of(const struct ppm *q, uint64_t block)
{
    return q->ablate & QM_ABLATE_AGES ? QM_AGE_UNKNOWN : qm_ages_find(q->ages, block);
}

/* Proposes what may follow a step. */
static void follow(struct search *s, const struct step *from)
{
    struct qm_markov_pair one[QM_MARKOV_FOUND_MAX], two[QM_MARKOV_FOUND_MAX];
    uint64_t key1 = qm_markov_key1(from->block);
    uint64_t key2 = qm_markov_key2(from->previous, from->block);
    unsigned n1, n2 = 0;

    if (from->two) {
        qm_markov_expect(s->q->pairs, key1);
        n2 = qm_markov_find(s->q->pairs, key2, two);
    }
    n1 = qm_markov_find(s->q->pairs, key1, one);
    for (unsigned i = 0; i < n2 + n1; i++) {
        const struct qm_markov_pair *pair = i < n2 ? &two[i] : &one[i - n2];
        struct qm_features features = {
            .after_two = i < n2,
            .both = i < n2 ? has(one, n1, pair->block) : n2 == 0,
            .count = pair->count,
            .since = pair->since,
            .rest = pair->rest,
            .depth = from->depth,
            .path = from->probability,
            .promoted = s->stream->promoted,
            .klass = s->stream->klass,
            .previous = from->block,
            .block = region_of(from->block) + pair->block,
        };

        if (met(s, features.block) || qm_trimmed_has(&s->q->forgotten, features.block))
            continue;
        features.age = age_of(s->q, features.block);
        propose(s, from, &features);
    }
}

/* The likeliest step that has not been followed, or NULL. */
static struct step *next(struct search *s)
{
    struct step *best = NULL;

    for (unsigned i = 0; i < s->n; i++) {
        struct step *step = &s->steps[i];

        if (!step->done && (!best || step->probability > best->probability))
            best = step;
    }
    return best;
}

/* Asks for as much accuracy as the device's reads call for. */
static void set_accuracy(struct ppm *q)
{
    uint64_t device, lru;

    if (!q->reads || q->ablate & QM_ABLATE_ACCURACY || !qm_accuracy_due(&q->accuracy))
        return;
    q->reads(q->opaque, &device, &lru);
    qm_confidence_set_accuracy(q->confidence,
                               qm_accuracy_next(&q->accuracy, device, lru));
}

/* How probable the use of a block must be: for it to be worth its place in the cache,
 * which the confidence knows, and its read, which the caller may. */
static void set_thresholds(const struct ppm *q, struct search *s)
{
    float own = q->ablate & QM_ABLATE_THRESHOLD
                    ? FIXED_THRESHOLD
                    : qm_confidence_threshold(q->confidence);
    float least = q->threshold ? q->threshold(q->opaque) : QM_PRICE_UNKNOWN;
    float place = least >= 0 ? PLACE * own : own;
    float further = least >= 0 ? PLACE_FURTHER * own : own;

    s->threshold = place > least ? place : least;
    s->further = further > least ? further : least;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    struct search s = {.q = of(p), .stream = stream, .out = out, .max = max};
    struct step *step;

    if (!stream->fresh || qm_confidence_sleeps(s.q->confidence))
        return 0;
    set_accuracy(s.q);
    set_thresholds(s.q, &s);
    s.depth = s.q->ablate & QM_ABLATE_LOOKAHEAD
                  ? 1
                  : (unsigned)(atomic_load_explicit(&s.q->depth, memory_order_relaxed) +
                               0.5f);
    s.n = 1;
    s.steps[0] = (struct step){
        .block = stream->last[0],
        .previous = stream->last[1],
        .two = stream->seen > 1,
        .probability = 1,
    };
    for (unsigned i = 0; i < s.depth && (step = next(&s)); i++) {
        step->done = true;
        follow(&s, step);
    }
    return s.found;
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    *work = NULL;
    free(s);
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    struct ppm *q = of(p);
    float depth;

    qm_confidence_ended(q->confidence, block, fate != QM_FATE_UNUSED);
    if (fate == QM_FATE_UNUSED)
        return;
    depth = atomic_load_explicit(&q->depth, memory_order_relaxed);
    depth += LATE_RATE * ((fate == QM_FATE_LATE ? 1 : 0) - LATE);
    if (depth < DEPTH)
        depth = DEPTH;
    if (depth > DEPTH_MAX)
        depth = DEPTH_MAX;
    atomic_store_explicit(&q->depth, depth, memory_order_relaxed);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *out)
{
    struct ppm *q = of(p);
    struct qm_markov_stats pairs;

    qm_markov_get_stats(q->pairs, &pairs);
    *out = (struct qm_mining_stats){
        .rules = pairs.held,
        .rules_bytes = pairs.bytes + bytes_beside_pairs(q),
        .rules_limit = pairs.most + bytes_beside_pairs(q),
        .marginal = atomic_load_explicit(&q->marginal, memory_order_relaxed),
        .evicted = pairs.evicted,
        .saves = atomic_load(&q->saves),
        .save_errors = atomic_load(&q->save_errors),
    };
}

const struct qm_prefetcher_ops qm_prefetcher_ppm = {
    .name = "ppm",
    .summary = "what followed the last two blocks, judged by what became of it",
    .flags = QM_EARLY_HITS | QM_WEIGHS_READS | QM_BOUNDED_RULES,
    .parameters =
        QM_HEEDS(QM_RULES_MEMORY) | QM_HEEDS(QM_RULES) | QM_HEEDS(QM_RULES_FOR),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .own = own,
    .owners = owners,
    .resume = resume,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .save = save_changes,
    .forget = forget,
    .knows = knows,
    .ended = ended,
    .set_memory = set_memory,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};
