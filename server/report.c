/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - the statistics as a JSON document.
 *
 * Numbers are read one after the other while the server works, so they need not agree
 * to the last count until it is idle.
 *
 * A reset leaves the counters alone, which the server itself goes by: it notes what
 * they are, and reports subtract that.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "server/server.h"

static void put(json_t *object, const char *key, uint64_t n)
{
    json_object_set_new(object, key, json_integer((json_int_t)n));
}

static void put_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

static void put_bool(json_t *object, const char *key, bool value)
{
    json_object_set_new(object, key, json_boolean(value));
}

/* Microseconds, to a thousandth. */
static json_t *micros(double us)
{
    return json_real((double)(int64_t)(us * 1000 + 0.5) / 1000);
}

/* What was counted until the statistics were reset, which reports leave out.  Of
 * classes that came later there is nothing. */
struct qms_baseline {
    uint64_t taken; /* ns */
    struct qm_cache_stats cache;
    uint64_t counters[QMS_NUM_COUNTERS];
    struct qms_latency latency;
    struct qm_mining_stats mining;
    struct qms_miner_stats queue;
    unsigned prefetcher_number; /* whose these are: another has counted anew */
    struct qms_hints_stats hints;
    struct qm_tier_stats tier;
    uint64_t tier_number; /* of its attachment: what came later has counted anew */
    uint64_t losses, reopens;
    uint64_t over_rate;
    uint32_t class_count;
    uint64_t classes[][QMS_CLASS_COUNTERS];
};

/* A report that is being made, of what was counted since base; NULL: since the start.
 */
struct report {
    struct qms_server *s;
    const struct qms_baseline *base;
};

/* A count less what it was at the reset; one that has begun anew since is as it is. */
static uint64_t since(uint64_t now, uint64_t then)
{
    return now >= then ? now - then : now;
}

static uint64_t counted(const struct report *r, enum qms_counter counter)
{
    uint64_t n = qms_stats_get(r->s->stats, counter);

    return r->base ? since(n, r->base->counters[counter]) : n;
}

static uint64_t of_class(const struct report *r, const struct qms_class *k,
                         enum qms_class_counter counter)
{
    uint64_t n = qms_class_get(k, counter);

    return r->base && k->index < r->base->class_count
               ? since(n, r->base->classes[k->index][counter])
               : n;
}

/* What can change while the server runs. */
static void put_settings(struct qms_server *s, json_t *o)
{
    unsigned stripe = qms_rwlock_read(&s->contexts.lock);
    char budget[16];

    put_text(o, "policy", s->engine.prefetcher->ops->name);
    put_text(o, "level", qm_level_name(s->config.params.level));
    put_bool(o, "prefetching", s->engine.prefetches);
    put_bool(o, "throttle", s->engine.throttle != NULL);
    put_bool(o, "admission", s->engine.admission != NULL);
    qm_budget_format(&s->config.params.budget, budget, sizeof budget);
    put_text(o, "prefetch_rate", budget);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
}

static void subtract_cache(struct qm_cache_stats *c, const struct qm_cache_stats *base)
{
    c->hits = since(c->hits, base->hits);
    c->prefetch_hits = since(c->prefetch_hits, base->prefetch_hits);
    c->misses = since(c->misses, base->misses);
    c->prefetches = since(c->prefetches, base->prefetches);
    c->used = since(c->used, base->used);
    c->wasted = since(c->wasted, base->wasted);
    c->evicted = since(c->evicted, base->evicted);
    c->lru_misses = since(c->lru_misses, base->lru_misses);
}

static void put_cache(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    struct qm_cache_stats c;

    qm_cache_get_stats(s->cache, &c);
    if (r->base)
        subtract_cache(&c, &r->base->cache);
    put(o, "block_size", s->config.block_size);
    put(o, "cache_blocks", qm_cache_capacity(s->cache));
    put(o, "prefetch_blocks", c.prefetch_share);
    put(o, "cache_bytes", c.bytes);
    put(o, "held_blocks", c.main_blocks + c.prefetch_blocks);
    put(o, "evicted", c.evicted);
    put(o, "size", s->size);
    put_bool(o, "uncached", atomic_load(&s->uncached));
    put(o, "reads", counted(r, QMS_READS));
    put(o, "read_bytes", counted(r, QMS_READ_BYTES));
    put(o, "writes", counted(r, QMS_WRITES));
    put(o, "write_bytes", counted(r, QMS_WRITE_BYTES));
    put(o, "hits", c.hits);
    put(o, "prefetch_hits", c.prefetch_hits);
    put(o, "promotes", c.prefetch_hits); /* old name */
    put(o, "misses", c.misses + counted(r, QMS_PAST));
    put(o, "prefetches", c.prefetches);
    put(o, "used", c.used);
    put(o, "wasted", c.wasted);
    put(o, "lru_misses", c.lru_misses);
    put(o, "failed", counted(r, QMS_PREFETCH_FAILED));
    put(o, "dropped", counted(r, QMS_PREFETCH_DROPPED));
    put(o, "throttled", counted(r, QMS_PREFETCH_THROTTLED));
    put(o, "watched", counted(r, QMS_PREFETCH_WATCHED));
    put(o, "cancelled", counted(r, QMS_PREFETCH_CANCELLED));
    put(o, "withheld", counted(r, QMS_PREFETCH_THROTTLED));  /* old name */
    put(o, "overtaken", counted(r, QMS_PREFETCH_CANCELLED)); /* old name */
    put(o, "device_reads", counted(r, QMS_DEVICE_READS));
    put(o, "prefetch_reads", counted(r, QMS_AHEAD_READS));
    put(o, "over_rate",
        since(atomic_load(&s->rate.over), r->base ? r->base->over_rate : 0));
    put(o, "device_blocks", counted(r, QMS_DEVICE_BLOCKS));
}

/* What sessions say of others' reads. */
static void put_hints(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    json_t *hints = json_object();
    struct qms_hints_stats h;

    qms_hints_get_stats(s->hints, &h);
    if (r->base) {
        h.blocks = since(h.blocks, r->base->hints.blocks);
        h.joined = since(h.joined, r->base->hints.joined);
        h.unread = since(h.unread, r->base->hints.unread);
        h.unhinted = since(h.unhinted, r->base->hints.unhinted);
    }
    put(hints, "sessions", h.sessions);
    put(hints, "blocks", h.blocks);
    put(hints, "joined", h.joined);
    put(hints, "unread", h.unread);
    put(hints, "unhinted", h.unhinted);
    put(hints, "waiting", h.waiting);
    json_object_set_new(o, "hints", hints);
}

/* How busy the device is, as the prefetch threads see it, and what they make of it. */
static void put_load(struct qms_server *s, json_t *o)
{
    json_t *load = json_object();

    put(load, "percent", 100 * atomic_load(&s->load.share) / QM_DEVICE_LOAD_ALL);
    json_object_set_new(load, "slowness", json_real(qm_device_load_slowness(&s->load)));
    json_object_set_new(o, "load", load);
}

/* The server's own connections to the layer below. */
static void put_backing(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    struct qms_backing_stats b = {0};
    struct qms_prefetch_stats p = {0};

    if (s->backing)
        qms_backing_stats(s->backing, &b);
    if (r->base) {
        b.losses = since(b.losses, r->base->losses);
        b.reopens = since(b.reopens, r->base->reopens);
    }
    put(o, "prefetch_connections", b.open);
    put(o, "prefetch_losses", b.losses);
    put(o, "prefetch_reopens", b.reopens);
    if (s->prefetch)
        qms_prefetch_get_stats(s->prefetch, &p);
    put(o, "prefetch_threads", p.threads);
    put(o, "prefetch_in_flight", p.busy);
    put(o, "prefetch_in_flight_most", p.most);
    put(o, "prefetch_in_flight_allowed", p.allowed);
    put(o, "prefetch_queue", p.queue);
}

static void put_latency(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    struct qms_latency l;
    json_t *latency = json_object(), *histogram = json_array();

    qms_stats_latency(s->stats, &l);
    if (r->base)
        qms_stats_latency_since(&l, &r->base->latency);
    put(latency, "count", l.count);
    json_object_set_new(latency, "sum", micros((double)l.sum_ns / 1000));
    json_object_set_new(latency, "mean", micros(l.mean));
    json_object_set_new(latency, "p50", micros(l.p50));
    json_object_set_new(latency, "p90", micros(l.p90));
    json_object_set_new(latency, "p99", micros(l.p99));
    json_object_set_new(latency, "max", micros(l.max));
    for (unsigned i = 0; i < QMS_LATENCY_BUCKETS; i++)
        if (l.buckets[i] > 0) {
            json_t *bucket = json_array();

            json_array_append_new(bucket, micros(qms_stats_bucket_us(i)));
            json_array_append_new(bucket, json_integer((json_int_t)l.buckets[i]));
            json_array_append_new(histogram, bucket);
        }
    json_object_set_new(latency, "histogram", histogram);
    json_object_set_new(o, "latency_us", latency);
}

/* Returns the number of its attachment; 0: there is no tier. */
static uint64_t get_tier(struct qms_server *s, struct qm_tier_stats *t)
{
    unsigned token;
    struct qm_tier *tier = qms_tiers_tell(&s->tiers, &token);
    uint64_t number = 0;

    if (tier) {
        qm_tier_get_stats(tier, t);
        number = atomic_load(&s->tiers.number);
    }
    qms_tiers_leave(&s->tiers, token);
    return number;
}

/* Of what was counted; the rest says how the tier is. */
static void subtract_tier(struct qm_tier_stats *t, const struct qm_tier_stats *base)
{
    t->hits = since(t->hits, base->hits);
    t->misses = since(t->misses, base->misses);
    t->verified = since(t->verified, base->verified);
    t->outdated = since(t->outdated, base->outdated);
    t->inserted = since(t->inserted, base->inserted);
    t->handed_on = since(t->handed_on, base->handed_on);
    t->kept = since(t->kept, base->kept);
    t->refused = since(t->refused, base->refused);
    t->scans = since(t->scans, base->scans);
    t->over_rate = since(t->over_rate, base->over_rate);
    t->full = since(t->full, base->full);
    t->stale = since(t->stale, base->stale);
    t->voided = since(t->voided, base->voided);
    t->failed = since(t->failed, base->failed);
    t->invalidated = since(t->invalidated, base->invalidated);
    t->evicted = since(t->evicted, base->evicted);
    t->bytes_written = since(t->bytes_written, base->bytes_written);
    t->stalls = since(t->stalls, base->stalls);
    t->read_errors = since(t->read_errors, base->read_errors);
    t->write_errors = since(t->write_errors, base->write_errors);
    t->wrong_checksums = since(t->wrong_checksums, base->wrong_checksums);
}

/* The second tier; nothing without one. */
static void put_tier(const struct report *r, json_t *o)
{
    struct qm_tier_stats t;
    uint64_t number = get_tier(r->s, &t);

    if (number == 0)
        return;
    if (r->base && number == r->base->tier_number)
        subtract_tier(&t, &r->base->tier);
    put(o, "tier_size", t.size);
    put(o, "tier_capacity", t.capacity);
    put(o, "tier_blocks", t.blocks);
    put(o, "tier_memory", t.memory);
    put_text(o, "tier_io", t.rings > 0 ? "io_uring" : "threads");
    put(o, "tier_hits", t.hits);
    put(o, "tier_misses", t.misses);
    put(o, "tier_recovered", t.recovered);
    put(o, "tier_unverified", t.unverified);
    put(o, "tier_verified", t.verified);
    put(o, "tier_outdated", t.outdated);
    put(o, "tier_queued", t.queued);
    put(o, "tier_inserted", t.inserted);
    put(o, "tier_handed_on", t.handed_on);
    put(o, "tier_kept", t.kept);
    put(o, "tier_rewritten", 0); /* nothing is written anew: it stays */
    put(o, "tier_refused", t.refused + t.scans + t.over_rate);
    put(o, "tier_dropped", t.full + t.stale + t.voided + t.failed);
    put(o, "tier_invalidated", t.invalidated);
    put(o, "tier_evicted", t.evicted);
    put(o, "tier_written_bytes", t.bytes_written);
    put(o, "tier_age_us", t.age_ns / 1000);
    put(o, "tier_stalls", t.stalls);
    put(o, "tier_errors", t.read_errors + t.write_errors + t.wrong_checksums);
    put_bool(o, "tier_dead", t.dead);
    put_bool(o, "tier_unsafe", t.unsafe);
    if (t.dead)
        put_text(o, "tier_reason", t.reason);
}

void qms_report_tier(struct qms_server *s, json_t *o)
{
    put_tier(&(struct report){s, NULL}, o);
}

/* How the memory is divided between blocks and rules. */
static void put_memory(struct qms_server *s, json_t *o, uint64_t rules_limit)
{
    struct qm_memory_stats memory;

    qm_memory_get_stats(&s->memory, &memory);
    put(o, "cache_size", memory.total);
    put(o, "rules_limit", rules_limit);
    put(o, "rules_traded", memory.traded);
    put_bool(o, "prefetch_resting",
             memory.resting && s->engine.bound && s->engine.bounded);
}

/* Returns the number of the prefetcher. */
static unsigned get_mining(struct qms_server *s, struct qm_mining_stats *m,
                           struct qms_miner_stats *queue)
{
    unsigned stripe = qms_rwlock_read(&s->contexts.lock), number = s->prefetcher_number;

    s->engine.prefetcher->ops->stats(s->engine.prefetcher, m);
    if (s->miner)
        qms_miner_stats(s->miner, queue);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
    return number;
}

static void subtract_mining(struct qm_mining_stats *m, struct qms_miner_stats *queue,
                            const struct qms_baseline *base)
{
    m->saves = since(m->saves, base->mining.saves);
    m->save_errors = since(m->save_errors, base->mining.save_errors);
    m->sequences = since(m->sequences, base->mining.sequences);
    m->lookups = since(m->lookups, base->mining.lookups);
    m->matches = since(m->matches, base->mining.matches);
    queue->shed = since(queue->shed, base->queue.shed);
    queue->failed = since(queue->failed, base->queue.failed);
}

static void put_mining(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    struct qm_mining_stats m = {0};
    struct qms_miner_stats queue = {0};
    unsigned number = get_mining(s, &m, &queue);

    if (r->base && number == r->base->prefetcher_number)
        subtract_mining(&m, &queue, r->base);
    put(o, "rules", m.rules);
    put(o, "prefixes", m.prefixes);
    put(o, "rules_bytes", m.rules_bytes);
    put_memory(s, o, m.rules_limit);
    put(o, "rules_saves", m.saves);
    put(o, "rules_save_errors", m.save_errors);
    put(o, "sequences", m.sequences);
    put(o, "sequences_shed", queue.shed);
    put(o, "sequences_queued", queue.queued);
    put(o, "sequences_failed", queue.failed);
    put(o, "lookups", m.lookups);
    put(o, "matches", m.matches);
}

static void put_contexts(const struct report *r, json_t *o)
{
    struct qms_server *s = r->s;
    struct qms_record_stats recorded = {0};

    put(o, "contexts_open", atomic_load(&s->contexts.open));
    put(o, "contexts_begun", counted(r, QMS_CONTEXTS_BEGUN));
    put(o, "ignored_ends", counted(r, QMS_IGNORED_ENDS));
    put(o, "bad_records", counted(r, QMS_BAD_RECORDS));
    put(o, "sessions", qms_sessions_count(&s->sessions));
    pthread_mutex_lock(&s->lock);
    put(o, "connections", s->connection_count);
    pthread_mutex_unlock(&s->lock);
    if (s->recorder)
        qms_record_stats(s->recorder, &recorded);
    put(o, "recorded", recorded.recorded);
    put(o, "record_dropped", recorded.dropped);
    if (recorded.error != 0)
        put_text(o, "record_error", strerror(recorded.error));
}

/* Read requests in contexts of the class, those nested in them included. */
static uint64_t total_requests(const struct report *r, const struct qms_class *k)
{
    return of_class(r, k, QMS_CLASS_REQUESTS) +
           of_class(r, k, QMS_CLASS_NESTED_REQUESTS);
}

/* How a class fares with the throttle, and the set that it is judged in: the number of
 * one class of it. */
static void put_state(struct qms_server *s, json_t *o, const struct qms_class *k)
{
    enum qm_throttle_state state = QM_THROTTLE_ON;
    unsigned stripe = qms_rwlock_read(&s->contexts.lock);
    uint32_t set = k->index;
    char id[17];

    if (s->engine.throttle)
        state = qm_throttle_get(s->engine.throttle,
                                qm_engine_class(&s->engine, k->index), &set);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
    snprintf(id, sizeof id, "%016" PRIx64, qms_class_at(s->classes, set)->id);
    put_text(o, "state", qm_throttle_state_name(state));
    put_text(o, "set", id);
}

static double mean_us(uint64_t ns, uint64_t requests)
{
    return requests ? (double)ns / 1000 / (double)requests : 0;
}

/* What was read in contexts of the class, those nested in them included. */
static void put_total(const struct report *r, json_t *o, const struct qms_class *k)
{
    uint64_t hits =
        of_class(r, k, QMS_CLASS_HITS) + of_class(r, k, QMS_CLASS_NESTED_HITS);
    uint64_t prefetch_hits = of_class(r, k, QMS_CLASS_PREFETCH_HITS) +
                             of_class(r, k, QMS_CLASS_NESTED_PREFETCH_HITS);
    uint64_t misses =
        of_class(r, k, QMS_CLASS_MISSES) + of_class(r, k, QMS_CLASS_NESTED_MISSES);
    uint64_t ns = of_class(r, k, QMS_CLASS_NS) + of_class(r, k, QMS_CLASS_NESTED_NS);

    put(o, "total_reads", hits + prefetch_hits + misses);
    put(o, "total_hits", hits);
    put(o, "total_prefetch_hits", prefetch_hits);
    put(o, "total_promotes", prefetch_hits); /* old name */
    put(o, "total_misses", misses);
    json_object_set_new(o, "total_latency_us",
                        micros(mean_us(ns, total_requests(r, k))));
}

static json_t *class_object(const struct report *r, const struct qms_class *k)
{
    uint64_t hits = of_class(r, k, QMS_CLASS_HITS);
    uint64_t prefetch_hits = of_class(r, k, QMS_CLASS_PREFETCH_HITS);
    uint64_t misses = of_class(r, k, QMS_CLASS_MISSES);
    uint64_t requests = of_class(r, k, QMS_CLASS_REQUESTS);
    uint64_t ns = of_class(r, k, QMS_CLASS_NS);
    json_t *o = json_object();
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, k->id);
    put_text(o, "class", id);
    put_text(o, "kind", k->kind ? qm_kind_name(k->kind) : "other");
    put_text(o, "name", atomic_load_explicit(&k->name, memory_order_acquire));
    put(o, "contexts", of_class(r, k, QMS_CLASS_CONTEXTS));
    put(o, "reads", hits + prefetch_hits + misses);
    put(o, "hits", hits);
    put(o, "prefetch_hits", prefetch_hits);
    put(o, "promotes", prefetch_hits); /* old name */
    put(o, "misses", misses);
    put(o, "issued", of_class(r, k, QMS_CLASS_ISSUED));
    put(o, "used", of_class(r, k, QMS_CLASS_USED));
    put(o, "wasted", of_class(r, k, QMS_CLASS_WASTED));
    json_object_set_new(o, "latency_us", micros(mean_us(ns, requests)));
    put_total(r, o, k);
    put_state(r->s, o, k);
    return o;
}

struct ranked {
    uint64_t requests;
    struct qms_class *klass;
};

static int by_requests(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->requests != y->requests)
        return x->requests < y->requests ? 1 : -1;
    return x->klass->index < y->klass->index ? -1 : 1;
}

/* The classes that were read in most, at most `most` of them; but those in which no
 * context was begun are left out. */
static json_t *class_array(const struct report *r, uint32_t most)
{
    struct qms_server *s = r->s;
    uint32_t count = qms_classes_count(s->classes), n = 0;
    struct ranked *ranked = calloc(count, sizeof *ranked);
    json_t *array = json_array();

    if (!ranked)
        return array;
    for (uint32_t i = QMS_CLASS_OTHER; i < count; i++) {
        struct qms_class *k = qms_class_at(s->classes, i);

        if (qms_class_get(k, QMS_CLASS_CONTEXTS) != 0)
            ranked[n++] = (struct ranked){total_requests(r, k), k};
    }
    qsort(ranked, n, sizeof *ranked, by_requests);
    for (uint32_t i = 0; i < n && i < most; i++)
        json_array_append_new(array, class_object(r, ranked[i].klass));
    free(ranked);
    return array;
}

/* All but the classes. */
static json_t *report(const struct report *r)
{
    struct qms_server *s = r->s;
    json_t *o = json_object();

    put_text(o, "version", QM_VERSION);
    put(o, "uptime_us", (qms_now() - s->started) / 1000);
    if (r->base)
        put(o, "reset_us", (qms_now() - r->base->taken) / 1000);
    put_settings(s, o);
    put_text(o, "eviction", s->config.params.eviction);
    put_cache(r, o);
    put_latency(r, o);
    put_load(s, o);
    qms_hints_expire(s->hints, qms_now());
    put_hints(r, o);
    put_backing(r, o);
    put_tier(r, o);
    put_mining(r, o);
    put_contexts(r, o);
    return o;
}

json_t *qms_report_object(struct qms_server *s, uint32_t classes, bool ever)
{
    struct report r = {s, NULL};
    json_t *o;

    pthread_mutex_lock(&s->baseline_lock);
    r.base = ever ? NULL : s->baseline;
    o = report(&r);
    json_object_set_new(o, "classes", class_array(&r, classes));
    pthread_mutex_unlock(&s->baseline_lock);
    return o;
}

char *qms_report(struct qms_server *s, size_t max)
{
    struct report r = {s, NULL};
    char *text = NULL;
    json_t *o;

    pthread_mutex_lock(&s->baseline_lock);
    r.base = s->baseline;
    o = report(&r);
    for (uint32_t most = QMS_CLASSES_MAX; most > 0; most /= 2) {
        json_object_set_new(o, "classes", class_array(&r, most));
        free(text);
        text = json_dumps(o, JSON_COMPACT);
        if (!text || strlen(text) < max)
            break;
    }
    pthread_mutex_unlock(&s->baseline_lock);
    json_decref(o);
    return text;
}

int qms_report_reset(struct qms_server *s)
{
    uint32_t classes = qms_classes_count(s->classes);
    struct qms_baseline *base =
        calloc(1, sizeof *base + classes * sizeof base->classes[0]);
    struct qms_backing_stats backing = {0};

    if (!base)
        return -1;
    base->taken = qms_now();
    base->over_rate = atomic_load(&s->rate.over);
    qm_cache_get_stats(s->cache, &base->cache);
    for (int i = 0; i < QMS_NUM_COUNTERS; i++)
        base->counters[i] = qms_stats_get(s->stats, i);
    qms_stats_latency(s->stats, &base->latency);
    base->prefetcher_number = get_mining(s, &base->mining, &base->queue);
    qms_hints_get_stats(s->hints, &base->hints);
    base->tier_number = get_tier(s, &base->tier);
    if (s->backing)
        qms_backing_stats(s->backing, &backing);
    base->losses = backing.losses;
    base->reopens = backing.reopens;
    base->class_count = classes;
    for (uint32_t k = 0; k < classes; k++)
        for (int i = 0; i < QMS_CLASS_COUNTERS; i++)
            base->classes[k][i] = qms_class_get(qms_class_at(s->classes, k), i);
    pthread_mutex_lock(&s->baseline_lock);
    free(s->baseline);
    s->baseline = base;
    pthread_mutex_unlock(&s->baseline_lock);
    return 0;
}
