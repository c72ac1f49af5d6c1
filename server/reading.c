/* SPDX-License-Identifier: BSD-3-Clause */
/* reading.c - see reading.h. */
#include "server/reading.h"

#include "server/server.h"

static const enum qms_class_counter counters[] = {
    [QM_HIT] = QMS_CLASS_HITS,
    [QM_PREFETCH_HIT] = QMS_CLASS_PREFETCH_HITS,
    [QM_MISS] = QMS_CLASS_MISSES,
};
static const enum qms_class_counter nested_counters[] = {
    [QM_HIT] = QMS_CLASS_NESTED_HITS,
    [QM_PREFETCH_HIT] = QMS_CLASS_NESTED_PREFETCH_HITS,
    [QM_MISS] = QMS_CLASS_NESTED_MISSES,
};

/* On whose behalf blocks are prefetched. */
struct issuer {
    struct qms_server *s;
    const struct qms_ref *ref;
};

static unsigned issue(void *opaque, uint64_t block, uint32_t count)
{
    const struct issuer *i = opaque;
    unsigned client = i->ref->slot ? i->ref->slot->client : QMS_CLIENT_NONE;
    unsigned n =
        qms_prefetch_issue(i->s->prefetch, block, count, client, i->ref->klass->index);

    if (n > 0)
        qms_class_add(i->ref->klass, QMS_CLASS_ISSUED, n);
    return n;
}

/* A context has read a block: its sequence grows, and what that makes likely is
 * prefetched. */
static void learn(struct qms_server *s, const struct qms_ref *ref, uint64_t block,
                  enum qm_access access)
{
    struct qm_candidate candidates[QM_CANDIDATES_MAX];
    struct issuer issuer = {s, ref};
    struct qm_kept_back kept;
    unsigned n, stripe;
    struct qm_engine e; /* what is issued next may wait, so that is without the lock;
                           its prefetcher may be gone then: qms_reading_refused() */
    uint64_t now;

    if (qm_engine_ignores(&s->engine, access))
        return;
    stripe = qms_rwlock_read(&s->contexts.lock);
    n = qms_context_access(&s->contexts, ref, block, access, candidates);
    if (n > 0)
        e = s->engine;
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
    if (n == 0)
        return;
    now = qm_engine_needs_time(&e) ? qms_now() : 0;
    kept = qm_engine_issue(&e, ref->klass->index, now, candidates, n, issue, &issuer);
    if (kept.throttled > 0)
        qms_stats_add(s->stats, QMS_PREFETCH_THROTTLED, kept.throttled);
    if (kept.watched > 0)
        qms_stats_add(s->stats, QMS_PREFETCH_WATCHED, kept.watched);
}

void qms_reading_refused(void *opaque, uint64_t number, uint64_t block, uint32_t count)
{
    struct qms_server *s = opaque;
    unsigned stripe = qms_rwlock_read(&s->contexts.lock);

    if (s->engine.number == number) /* else its stream has gone with the prefetcher */
        qm_engine_refused(&s->engine, block, count);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
}

/* A context of that class has demanded a block: see qm_engine_found(), _missed(). */
static enum qm_access tell(struct qms_server *s, uint64_t block, uint32_t klass,
                           const struct qm_lookup *found)
{
    const bool watched = found->outcome == QM_MISS && qm_bound_is_watching(&s->bound);
    enum qm_access access;
    unsigned stripe;

    if (found->outcome != QM_PREFETCH_HIT && !watched) /* then nobody is told */
        return qm_engine_found(&s->engine, block, klass, found);
    stripe = qms_rwlock_read(&s->contexts.lock);
    access = qm_engine_found(&s->engine, block, klass, found);
    if (watched)
        qm_engine_missed(&s->engine, block, klass);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
    return access;
}

/* Blocks, and what they took, of contexts of a class count for the classes around. */
static void count_around(struct qms_server *s, const struct qms_around *around,
                         const uint64_t outcomes[QM_MISS + 1])
{
    for (unsigned i = 0; i < around->count; i++) {
        struct qms_class *klass = qms_class_at(s->classes, around->klass[i]);

        for (unsigned outcome = 0; outcome <= QM_MISS; outcome++)
            if (outcomes[outcome] > 0)
                qms_class_add(klass, nested_counters[outcome], outcomes[outcome]);
    }
}

/* A request of a class has taken so long. */
static void count_request(struct qms_server *s, struct qms_class *klass,
                          const struct qms_around *around, uint64_t took)
{
    qms_class_add(klass, QMS_CLASS_REQUESTS, 1);
    qms_class_add(klass, QMS_CLASS_NS, took);
    for (unsigned i = 0; i < around->count; i++) {
        struct qms_class *outer = qms_class_at(s->classes, around->klass[i]);

        qms_class_add(outer, QMS_CLASS_NESTED_REQUESTS, 1);
        qms_class_add(outer, QMS_CLASS_NESTED_NS, took);
    }
}

/* A block that a hint tells the class of. */
static void count_hinted(struct qms_server *s, const struct qms_hint *hint,
                         enum qm_outcome outcome)
{
    uint64_t outcomes[QM_MISS + 1] = {0};

    outcomes[outcome] = 1;
    qms_class_add(qms_class_at(s->classes, hint->klass), counters[outcome], 1);
    count_around(s, &hint->around, outcomes);
}

void qms_reading_begin(struct qms_reading *r, struct qms_server *s,
                       struct qms_connection *c, struct qms_slot *slot, uint32_t count,
                       uint64_t offset)
{
    r->s = s;
    r->last = (offset + count - (count > 0)) / s->config.block_size;
    r->start = qms_now();
    r->hintable = !c->tagged && qms_hints_active(s->hints);
    r->hinted = r->hintable && qms_hints_covers(s->hints, c->number);
    r->connection = c->number;
    /* What is hinted is recorded when its hint comes, or when none has. */
    if (r->hinted)
        r->ref = (struct qms_ref){.klass = qms_class_at(s->classes, QMS_CLASS_NONE)};
    else
        qms_context_arrive(&s->contexts, slot, QM_TRACE_READ, offset, count, &r->ref);
}

/* Whether a hint accounts for the block, now or later. */
static bool is_hinted(struct qms_reading *r, uint64_t block,
                      const struct qm_lookup *found)
{
    struct qms_hint hint;

    if (qms_hints_read(r->s->hints, r->start, r->connection, block, found, !r->hinted,
                       &hint)) {
        count_hinted(r->s, &hint, found->outcome);
        (void)tell(r->s, block, hint.klass, found);
        if (!r->named)
            r->hint = hint;
        r->named = true;
        return true;
    }
    if (r->hinted)
        (void)tell(r->s, block, QMS_CLASS_NONE, found);
    return r->hinted;
}

void qms_reading_found(struct qms_reading *r, uint64_t block,
                       const struct qm_lookup *found)
{
    struct qms_server *s = r->s;

    if (found->outcome == QM_PREFETCH_HIT)
        qms_class_add(qms_class_at(s->classes, found->issuer), QMS_CLASS_USED, 1);
    if (r->hintable && is_hinted(r, block, found))
        return;
    qms_class_add(r->ref.klass, counters[found->outcome], 1);
    r->outcomes[found->outcome]++;
    r->ref.blocks = (uint32_t)(r->last - block + 1);
    learn(s, &r->ref, block, tell(s, block, r->ref.klass->index, found));
}

void qms_reading_end(struct qms_reading *r, uint32_t count)
{
    struct qms_server *s = r->s;
    uint64_t took = qms_now() - r->start;

    qms_stats_add(s->stats, QMS_READS, 1);
    qms_stats_add(s->stats, QMS_READ_BYTES, count);
    qms_stats_took(s->stats, took);
    count_around(s, &r->ref.around, r->outcomes);
    if (r->named)
        count_request(s, qms_class_at(s->classes, r->hint.klass), &r->hint.around,
                      took);
    else if (!r->hinted) /* else its class is not known yet */
        count_request(s, r->ref.klass, &r->ref.around, took);
}

static void hint_block(struct qms_server *s, unsigned source, const struct qms_ref *ref,
                       uint64_t now, uint64_t block)
{
    struct qms_hint hint = {ref->klass->index, ref->around};
    struct qm_lookup found;
    bool counted;

    if (!qms_hints_said(s->hints, now, source, block, &hint, &found, &counted))
        qm_cache_foresee(s->cache, block, &found); /* the read is on its way */
    else if (!counted)
        count_hinted(s, &hint, found.outcome);
    learn(s, ref, block, qm_engine_access(&found));
}

void qms_reading_hinted(void *opaque, unsigned source, struct qms_slot *slot,
                        uint64_t offset, uint32_t length)
{
    struct qms_server *s = opaque;
    const uint64_t block_size = s->config.block_size;
    const uint64_t size = atomic_load(&s->size);
    uint64_t end, now = qms_now();
    struct qms_ref ref;

    if (offset >= size)
        return;
    end = length < size - offset ? offset + length : size;
    qms_context_arrive(&s->contexts, slot, QM_TRACE_READ, offset, end - offset, &ref);
    for (uint64_t block = offset / block_size; block <= (end - 1) / block_size;
         block++) {
        ref.blocks = (uint32_t)((end - 1) / block_size - block + 1);
        hint_block(s, source, &ref, now, block);
    }
}

void qms_reading_told(void *opaque, const struct qm_bytes *extents, unsigned n)
{
    struct qms_server *s = opaque;
    unsigned stripe = qms_rwlock_read(&s->contexts.lock);

    qm_engine_tell(&s->engine, s->config.block_size, atomic_load(&s->size), extents, n);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
}

unsigned qms_reading_hinting(void *opaque)
{
    struct qms_server *s = opaque;

    return qms_hints_session_enter(s->hints);
}

void qms_reading_hinting_ended(void *opaque, unsigned source)
{
    struct qms_server *s = opaque;

    qms_hints_session_leave(s->hints, source);
}

void qms_reading_alone(void *opaque, uint64_t block, enum qm_outcome outcome)
{
    struct qms_server *s = opaque;

    qms_class_add(qms_class_at(s->classes, QMS_CLASS_NONE), counters[outcome], 1);
    if (s->recorder)
        qms_record_io(s->recorder, QM_TRACE_READ, 0, block * s->config.block_size,
                      s->config.block_size);
}
