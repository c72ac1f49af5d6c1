/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - the statistics as a JSON document.
 *
 * Numbers are read one after the other while the server works, so they need not agree
 * to the last count until it is idle.
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

/* What can change while the server runs. */
static void put_settings(struct qms_server *s, json_t *o)
{
    unsigned stripe = qms_gate_enter(&s->contexts.gate);

    put_text(o, "policy", s->engine.prefetcher->ops->name);
    put_text(o, "level", qm_level_name(s->config.params.level));
    put_bool(o, "prefetching", s->engine.prefetches);
    put_bool(o, "throttle", s->engine.throttle != NULL);
    put_bool(o, "admission", s->engine.admission != NULL);
    qms_gate_leave(&s->contexts.gate, stripe);
}

static void put_cache(struct qms_server *s, json_t *o)
{
    struct qm_cache_stats c;

    qm_cache_get_stats(s->cache, &c);
    put(o, "block_size", s->config.block_size);
    put(o, "cache_blocks", s->config.blocks);
    put(o, "prefetch_blocks", c.prefetch_share);
    put(o, "cache_bytes", c.bytes);
    put(o, "held_blocks", c.main_blocks + c.prefetch_blocks);
    put(o, "evicted", c.evicted);
    put(o, "size", s->size);
    put_bool(o, "uncached", atomic_load(&s->uncached));
    put(o, "reads", qms_stats_get(s->stats, QMS_READS));
    put(o, "read_bytes", qms_stats_get(s->stats, QMS_READ_BYTES));
    put(o, "writes", qms_stats_get(s->stats, QMS_WRITES));
    put(o, "write_bytes", qms_stats_get(s->stats, QMS_WRITE_BYTES));
    put(o, "hits", c.hits);
    put(o, "prefetch_hits", c.prefetch_hits);
    put(o, "promotes", c.prefetch_hits); /* old name */
    put(o, "misses", c.misses);
    put(o, "prefetches", c.prefetches);
    put(o, "used", c.used);
    put(o, "wasted", c.wasted);
    put(o, "lru_misses", c.lru_misses);
    put(o, "failed", qms_stats_get(s->stats, QMS_PREFETCH_FAILED));
    put(o, "dropped", qms_stats_get(s->stats, QMS_PREFETCH_DROPPED));
    put(o, "throttled", qms_stats_get(s->stats, QMS_PREFETCH_THROTTLED));
    put(o, "cancelled", qms_stats_get(s->stats, QMS_PREFETCH_CANCELLED));
    put(o, "withheld", qms_stats_get(s->stats, QMS_PREFETCH_THROTTLED));  /* old name */
    put(o, "overtaken", qms_stats_get(s->stats, QMS_PREFETCH_CANCELLED)); /* old name */
    put(o, "device_reads", qms_stats_get(s->stats, QMS_DEVICE_READS));
    put(o, "device_blocks", qms_stats_get(s->stats, QMS_DEVICE_BLOCKS));
}

/* What sessions say of others' reads. */
static void put_hints(struct qms_server *s, json_t *o)
{
    json_t *hints = json_object();
    struct qms_hints_stats h;

    qms_hints_get_stats(s->hints, &h);
    put(hints, "sessions", h.sessions);
    put(hints, "blocks", h.blocks);
    put(hints, "joined", h.joined);
    put(hints, "unread", h.unread);
    put(hints, "unhinted", h.unhinted);
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
static void put_backing(struct qms_server *s, json_t *o)
{
    struct qms_backing_stats b = {0};

    if (s->backing)
        qms_backing_stats(s->backing, &b);
    put(o, "prefetch_connections", b.open);
    put(o, "prefetch_losses", b.losses);
    put(o, "prefetch_reopens", b.reopens);
}

static void put_latency(struct qms_server *s, json_t *o)
{
    struct qms_latency l;
    json_t *latency = json_object(), *histogram = json_array();

    qms_stats_latency(s->stats, &l);
    put(latency, "count", l.count);
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

static void put_mining(struct qms_server *s, json_t *o)
{
    struct qm_mining_stats m = {0};
    struct qms_miner_stats queue = {0};
    unsigned stripe = qms_gate_enter(&s->contexts.gate);

    s->engine.prefetcher->ops->stats(s->engine.prefetcher, &m);
    if (s->miner)
        qms_miner_stats(s->miner, &queue);
    qms_gate_leave(&s->contexts.gate, stripe);
    put(o, "rules", m.rules);
    put(o, "prefixes", m.prefixes);
    put(o, "rules_bytes", m.rules_bytes);
    put(o, "rules_saves", m.saves);
    put(o, "rules_save_errors", m.save_errors);
    put(o, "sequences", m.sequences);
    put(o, "sequences_shed", queue.shed);
    put(o, "sequences_queued", queue.queued);
    put(o, "sequences_failed", queue.failed);
    put(o, "lookups", m.lookups);
    put(o, "matches", m.matches);
}

static void put_contexts(struct qms_server *s, json_t *o)
{
    struct qms_record_stats r = {0};

    put(o, "contexts_open", atomic_load(&s->contexts.open));
    put(o, "contexts_begun", qms_stats_get(s->stats, QMS_CONTEXTS_BEGUN));
    put(o, "ignored_ends", qms_stats_get(s->stats, QMS_IGNORED_ENDS));
    put(o, "bad_records", qms_stats_get(s->stats, QMS_BAD_RECORDS));
    put(o, "sessions", qms_sessions_count(&s->sessions));
    pthread_mutex_lock(&s->lock);
    put(o, "connections", s->connection_count);
    pthread_mutex_unlock(&s->lock);
    if (s->recorder)
        qms_record_stats(s->recorder, &r);
    put(o, "recorded", r.recorded);
    put(o, "record_dropped", r.dropped);
    if (r.error != 0)
        put_text(o, "record_error", strerror(r.error));
}

/* Read requests in contexts of the class, those nested in them included. */
static uint64_t total_requests(const struct qms_class *k)
{
    return qms_class_get(k, QMS_CLASS_REQUESTS) +
           qms_class_get(k, QMS_CLASS_NESTED_REQUESTS);
}

/* How a class fares with the throttle, and the set that it is judged in: the number of
 * one class of it. */
static void put_state(struct qms_server *s, json_t *o, const struct qms_class *k)
{
    enum qm_throttle_state state = QM_THROTTLE_ON;
    unsigned stripe = qms_gate_enter(&s->contexts.gate);
    uint32_t set = k->index;
    char id[17];

    if (s->engine.throttle)
        state = qm_throttle_get(s->engine.throttle,
                                qm_engine_class(&s->engine, k->index), &set);
    qms_gate_leave(&s->contexts.gate, stripe);
    snprintf(id, sizeof id, "%016" PRIx64, qms_class_at(s->classes, set)->id);
    put_text(o, "state", qm_throttle_state_name(state));
    put_text(o, "set", id);
}

static double mean_us(uint64_t ns, uint64_t requests)
{
    return requests ? (double)ns / 1000 / (double)requests : 0;
}

/* What was read in contexts of the class, those nested in them included. */
static void put_total(json_t *o, const struct qms_class *k)
{
    uint64_t hits =
        qms_class_get(k, QMS_CLASS_HITS) + qms_class_get(k, QMS_CLASS_NESTED_HITS);
    uint64_t prefetch_hits = qms_class_get(k, QMS_CLASS_PREFETCH_HITS) +
                             qms_class_get(k, QMS_CLASS_NESTED_PREFETCH_HITS);
    uint64_t misses =
        qms_class_get(k, QMS_CLASS_MISSES) + qms_class_get(k, QMS_CLASS_NESTED_MISSES);
    uint64_t ns =
        qms_class_get(k, QMS_CLASS_NS) + qms_class_get(k, QMS_CLASS_NESTED_NS);

    put(o, "total_reads", hits + prefetch_hits + misses);
    put(o, "total_hits", hits);
    put(o, "total_prefetch_hits", prefetch_hits);
    put(o, "total_promotes", prefetch_hits); /* old name */
    put(o, "total_misses", misses);
    json_object_set_new(o, "total_latency_us", micros(mean_us(ns, total_requests(k))));
}

static json_t *class_object(struct qms_server *s, const struct qms_class *k)
{
    uint64_t hits = qms_class_get(k, QMS_CLASS_HITS);
    uint64_t prefetch_hits = qms_class_get(k, QMS_CLASS_PREFETCH_HITS);
    uint64_t misses = qms_class_get(k, QMS_CLASS_MISSES);
    uint64_t requests = qms_class_get(k, QMS_CLASS_REQUESTS);
    uint64_t ns = qms_class_get(k, QMS_CLASS_NS);
    json_t *o = json_object();
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, k->id);
    put_text(o, "class", id);
    put_text(o, "kind", k->kind ? qm_kind_name(k->kind) : "other");
    put_text(o, "name", atomic_load_explicit(&k->name, memory_order_acquire));
    put(o, "contexts", qms_class_get(k, QMS_CLASS_CONTEXTS));
    put(o, "reads", hits + prefetch_hits + misses);
    put(o, "hits", hits);
    put(o, "prefetch_hits", prefetch_hits);
    put(o, "promotes", prefetch_hits); /* old name */
    put(o, "misses", misses);
    put(o, "issued", qms_class_get(k, QMS_CLASS_ISSUED));
    put(o, "used", qms_class_get(k, QMS_CLASS_USED));
    put(o, "wasted", qms_class_get(k, QMS_CLASS_WASTED));
    json_object_set_new(o, "latency_us", micros(mean_us(ns, requests)));
    put_total(o, k);
    put_state(s, o, k);
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
static json_t *class_array(struct qms_server *s, uint32_t most)
{
    uint32_t count = qms_classes_count(s->classes), n = 0;
    struct ranked *ranked = calloc(count, sizeof *ranked);
    json_t *array = json_array();

    if (!ranked)
        return array;
    for (uint32_t i = QMS_CLASS_OTHER; i < count; i++) {
        struct qms_class *k = qms_class_at(s->classes, i);

        if (qms_class_get(k, QMS_CLASS_CONTEXTS) != 0)
            ranked[n++] = (struct ranked){total_requests(k), k};
    }
    qsort(ranked, n, sizeof *ranked, by_requests);
    for (uint32_t i = 0; i < n && i < most; i++)
        json_array_append_new(array, class_object(s, ranked[i].klass));
    free(ranked);
    return array;
}

/* All but the classes. */
static json_t *report(struct qms_server *s)
{
    json_t *o = json_object();

    put_text(o, "version", QM_VERSION);
    put(o, "uptime_us", (qms_now() - s->started) / 1000);
    put_settings(s, o);
    put_text(o, "eviction", s->config.params.eviction);
    put_cache(s, o);
    put_latency(s, o);
    put_load(s, o);
    qms_hints_expire(s->hints, qms_now());
    put_hints(s, o);
    put_backing(s, o);
    put_mining(s, o);
    put_contexts(s, o);
    return o;
}

json_t *qms_report_object(struct qms_server *s, uint32_t classes)
{
    json_t *o = report(s);

    json_object_set_new(o, "classes", class_array(s, classes));
    return o;
}

char *qms_report(struct qms_server *s, size_t max)
{
    json_t *o = report(s);
    char *text = NULL;

    for (uint32_t most = QMS_CLASSES_MAX; most > 0; most /= 2) {
        json_object_set_new(o, "classes", class_array(s, most));
        free(text);
        text = json_dumps(o, JSON_COMPACT);
        if (!text || strlen(text) < max)
            break;
    }
    json_decref(o);
    return text;
}
