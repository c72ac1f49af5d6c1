/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.c - see metrics.h.
 *
 * The tables say which key of the JSON document is which metric.  A metric's samples
 * must follow each other, so classes are gone through once for each metric.
 */
#include "server/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { COUNTER, GAUGE };

struct metric {
    const char *object; /* that the key is in; NULL: the document */
    const char *key;
    const char *name; /* after quickmine_; of counters without _total */
    enum type type;
    const char *unit; /* the name's end; NULL: none */
    double scale;     /* the metric's value of 1 in the document */
    const char *help;
};

static const struct metric metrics[] = {
    {NULL, "uptime_us", "uptime_seconds", GAUGE, "seconds", 1e-6,
     "Time since the server started"},
    {NULL, "reads", "reads", COUNTER, NULL, 1, "Read requests of clients"},
    {NULL, "read_bytes", "read_bytes", COUNTER, "bytes", 1, "Bytes of read requests"},
    {NULL, "writes", "writes", COUNTER, NULL, 1, "Write and zero requests of clients"},
    {NULL, "write_bytes", "write_bytes", COUNTER, "bytes", 1,
     "Bytes of write and zero requests"},
    {NULL, "hits", "hits", COUNTER, NULL, 1,
     "Requested blocks found in the main cache"},
    {NULL, "prefetch_hits", "prefetch_hits", COUNTER, NULL, 1,
     "Requested blocks for which a prefetch had been issued"},
    {NULL, "misses", "misses", COUNTER, NULL, 1, "Requested blocks found in neither"},
    {NULL, "lru_misses", "lru_misses", COUNTER, NULL, 1,
     "Estimated misses of an LRU cache of the same size without prefetching"},
    {NULL, "evicted", "evicted_blocks", COUNTER, NULL, 1,
     "Blocks evicted from the main cache"},
    {NULL, "prefetches", "prefetches", COUNTER, NULL, 1, "Blocks prefetched"},
    {NULL, "used", "prefetches_used", COUNTER, NULL, 1,
     "Prefetched blocks that were requested"},
    {NULL, "wasted", "prefetches_wasted", COUNTER, NULL, 1,
     "Prefetched blocks that left the cache without a request"},
    {NULL, "failed", "prefetches_failed", COUNTER, NULL, 1,
     "Prefetches that the layer below did not serve"},
    {NULL, "dropped", "prefetches_dropped", COUNTER, NULL, 1,
     "Candidates and prefetches dropped because the queue was full"},
    {NULL, "throttled", "prefetches_throttled", COUNTER, NULL, 1,
     "Candidates not prefetched as the device was busy, or as that did not pay"},
    {NULL, "watched", "prefetches_watched", COUNTER, NULL, 1,
     "Candidates not prefetched as it was not known yet whether that pays"},
    {NULL, "cancelled", "prefetches_cancelled", COUNTER, NULL, 1,
     "Prefetches that need not be read any more"},
    {NULL, "device_reads", "device_reads", COUNTER, NULL, 1,
     "Reads of the layer below"},
    {NULL, "prefetch_reads", "device_prefetch_reads", COUNTER, NULL, 1,
     "Of these, reads of prefetches"},
    {NULL, "over_rate", "prefetches_over_rate", COUNTER, NULL, 1,
     "Blocks not prefetched because of prefetch-rate"},
    {NULL, "device_blocks", "device_blocks", COUNTER, NULL, 1,
     "Blocks read from the layer below"},
    {NULL, "tier_hits", "tier_hits", COUNTER, NULL, 1,
     "Blocks found in the second tier"},
    {NULL, "tier_misses", "tier_misses", COUNTER, NULL, 1,
     "Blocks looked for in the second tier in vain"},
    {NULL, "tier_unverified", "tier_unverified_blocks", GAUGE, NULL, 1,
     "Blocks of the second tier that are yet to be compared with the device"},
    {NULL, "tier_outdated", "tier_outdated_blocks", COUNTER, NULL, 1,
     "Blocks of the second tier that the device was found to have changed"},
    {NULL, "tier_inserted", "tier_inserted_blocks", COUNTER, NULL, 1,
     "Blocks written to the second tier"},
    {NULL, "tier_written_bytes", "tier_written_bytes", COUNTER, "bytes", 1,
     "Bytes written to the second tier"},
    {NULL, "tier_errors", "tier_errors", COUNTER, NULL, 1,
     "Errors and wrong checksums of the second tier"},
    {NULL, "tier_blocks", "tier_blocks", GAUGE, NULL, 1, "Blocks in the second tier"},
    {NULL, "tier_unsafe", "tier_unsafe", GAUGE, NULL, 1,
     "1 if the second tier has failed and its file must be removed before it is used "
     "again"},
    {NULL, "tier_dead", "tier_dead", GAUGE, NULL, 1,
     "1 if the second tier is detached after errors"},
    {NULL, "block_size", "block_size_bytes", GAUGE, "bytes", 1, "Size of a block"},
    {NULL, "size", "device_size_bytes", GAUGE, "bytes", 1, "Size of the device"},
    {NULL, "cache_size", "cache_size_bytes", GAUGE, "bytes", 1,
     "cache-size: memory for blocks, metadata and rules"},
    {NULL, "cache_bytes", "cache_bytes", GAUGE, "bytes", 1,
     "Memory of the cache in use, metadata included"},
    {NULL, "cache_blocks", "cache_capacity_blocks", GAUGE, NULL, 1,
     "Blocks that the cache has room for"},
    {NULL, "prefetch_blocks", "prefetch_capacity_blocks", GAUGE, NULL, 1,
     "Of these, present size of the prefetch cache"},
    {NULL, "held_blocks", "held_blocks", GAUGE, NULL, 1, "Blocks in the cache"},
    {NULL, "uncached", "uncached", GAUGE, NULL, 1,
     "1 if nothing is cached because connections need not see each other's writes"},
    {NULL, "prefetching", "prefetching", GAUGE, NULL, 1, "1 if the server prefetches"},
    {NULL, "throttle", "throttle", GAUGE, NULL, 1, "1 if throttle is on"},
    {NULL, "admission", "admission", GAUGE, NULL, 1, "1 if admission is on"},
    {"load", "percent", "load_admitted_ratio", GAUGE, "ratio", 0.01,
     "Share of candidates that are prefetched at the present load of the device"},
    {"load", "slowness", "load_slowness_ratio", GAUGE, "ratio", 1,
     "How long the last reads took, as a multiple of those of an idle device"},
    {NULL, "prefetch_connections", "prefetch_connections", GAUGE, NULL, 1,
     "Open connections to the layer below for prefetching"},
    {NULL, "prefetch_losses", "prefetch_connection_losses", COUNTER, NULL, 1,
     "Times that these were lost"},
    {NULL, "prefetch_reopens", "prefetch_connection_reopens", COUNTER, NULL, 1,
     "Connections opened in place of lost ones"},
    {NULL, "prefetch_threads", "prefetch_threads", GAUGE, NULL, 1,
     "Threads that prefetch"},
    {NULL, "prefetch_in_flight", "prefetch_in_flight", GAUGE, NULL, 1,
     "Prefetch reads in flight"},
    {NULL, "prefetch_in_flight_most", "prefetch_in_flight_most", GAUGE, NULL, 1,
     "Most prefetch reads that were in flight at a time"},
    {NULL, "prefetch_in_flight_allowed", "prefetch_in_flight_allowed", GAUGE, NULL, 1,
     "Prefetch reads that may be in flight at present"},
    {NULL, "prefetch_queue", "prefetch_queue", GAUGE, NULL, 1,
     "Prefetches that may wait for their turn at present"},
    {NULL, "rules", "rules", GAUGE, NULL, 1, "Rules held"},
    {NULL, "rules_bytes", "rules_bytes", GAUGE, "bytes", 1, "Memory of rules"},
    {NULL, "rules_limit", "rules_limit_bytes", GAUGE, "bytes", 1,
     "Memory that rules may take at present"},
    {NULL, "rules_traded", "rules_traded", COUNTER, NULL, 1,
     "Changes of the division of cache-size between rules and blocks"},
    {NULL, "prefetch_resting", "prefetch_resting", GAUGE, NULL, 1,
     "1 if nothing is prefetched at present, because it costs more than it saves"},
    {NULL, "rules_saves", "rules_saves", COUNTER, NULL, 1,
     "Times the rules were saved"},
    {NULL, "rules_save_errors", "rules_save_errors", COUNTER, NULL, 1,
     "Times that saving the rules failed"},
    {NULL, "sequences", "sequences", COUNTER, NULL, 1, "Sequences learned from"},
    {NULL, "sequences_shed", "sequences_shed", COUNTER, NULL, 1,
     "Sequences dropped because the miner's queue was full"},
    {NULL, "sequences_failed", "sequences_failed", COUNTER, NULL, 1,
     "Sequences that could not be learned from"},
    {NULL, "sequences_queued", "sequences_queued", GAUGE, NULL, 1,
     "Sequences that wait to be learned from"},
    {NULL, "lookups", "rule_lookups", COUNTER, NULL, 1, "Look-ups of rules"},
    {NULL, "matches", "rule_matches", COUNTER, NULL, 1, "Of these, found"},
    {NULL, "contexts_open", "contexts_open", GAUGE, NULL, 1, "Open contexts"},
    {NULL, "contexts_begun", "contexts_begun", COUNTER, NULL, 1, "Contexts begun"},
    {NULL, "ignored_ends", "ignored_ends", COUNTER, NULL, 1,
     "Ends of slots in which no context was open"},
    {NULL, "bad_records", "bad_records", COUNTER, NULL, 1, "Control messages refused"},
    {NULL, "sessions", "sessions", GAUGE, NULL, 1, "Open sessions"},
    {NULL, "connections", "connections", GAUGE, NULL, 1, "Open connections"},
    {"hints", "sessions", "hint_sessions", GAUGE, NULL, 1, "Sessions that send hints"},
    {"hints", "blocks", "hint_blocks", COUNTER, NULL, 1, "Blocks that hints told of"},
    {"hints", "joined", "hint_blocks_joined", COUNTER, NULL, 1,
     "Of these, joined with a read"},
    {"hints", "unread", "hint_blocks_unread", COUNTER, NULL, 1, "Of these, never read"},
    {"hints", "unhinted", "unhinted_blocks", COUNTER, NULL, 1,
     "Blocks read that no hint told of, while hints were sent"},
    {"hints", "waiting", "hint_blocks_waiting", GAUGE, NULL, 1,
     "Hints that wait for their read, and blocks read that wait for their hint"},
    {NULL, "recorded", "recorded_events", COUNTER, NULL, 1, "Events recorded"},
    {NULL, "record_dropped", "recorded_events_dropped", COUNTER, NULL, 1,
     "Events that could not be recorded"},
};

/* Of each class. */
static const struct metric class_metrics[] = {
    {NULL, "contexts", "class_contexts", COUNTER, NULL, 1,
     "Contexts of the class begun"},
    {NULL, "total_hits", "class_hits", COUNTER, NULL, 1,
     "Blocks read in contexts of the class and found in the main cache"},
    {NULL, "total_prefetch_hits", "class_prefetch_hits", COUNTER, NULL, 1,
     "Blocks read in contexts of the class for which a prefetch had been issued"},
    {NULL, "total_misses", "class_misses", COUNTER, NULL, 1,
     "Blocks read in contexts of the class and found in neither"},
    {NULL, "issued", "class_prefetches", COUNTER, NULL, 1,
     "Blocks prefetched for the class"},
    {NULL, "used", "class_prefetches_used", COUNTER, NULL, 1,
     "Of these, requested by anybody"},
    {NULL, "wasted", "class_prefetches_wasted", COUNTER, NULL, 1,
     "Of these, gone without a request"},
    {NULL, "total_latency_us", "class_latency_seconds", GAUGE, "seconds", 1e-6,
     "Mean latency of read requests in contexts of the class since the start"},
};

/* Bounds of the histogram of latencies: powers of two of nanoseconds, each of which is
 * a bound of a bucket in the document, too. */
enum { FIRST_BOUND = 10, LAST_BOUND = 34 };

static void put_label(FILE *out, const char *key, const char *value)
{
    fprintf(out, "%s=\"", key);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fprintf(out, "\\%c", *value);
        else if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return value ? value : "";
}

static void put_head(FILE *out, const struct metric *m)
{
    fprintf(out, "# HELP quickmine_%s %s.\n# TYPE quickmine_%s %s\n", m->name, m->help,
            m->name, m->type == COUNTER ? "counter" : "gauge");
    if (m->unit)
        fprintf(out, "# UNIT quickmine_%s %s\n", m->name, m->unit);
}

static void put_name(FILE *out, const struct metric *m)
{
    fprintf(out, "quickmine_%s%s", m->name, m->type == COUNTER ? "_total" : "");
}

static void put_value(FILE *out, const struct metric *m, const json_t *value)
{
    if (json_is_integer(value) && m->scale == 1)
        fprintf(out, " %" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
    else if (json_is_boolean(value))
        fprintf(out, " %d\n", json_is_true(value));
    else
        fprintf(out, " %.9g\n", json_number_value(value) * m->scale);
}

static void put_metrics(FILE *out, const json_t *stats)
{
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const struct metric *m = &metrics[i];
        const json_t *in = m->object ? json_object_get(stats, m->object) : stats;
        const json_t *value = json_object_get(in, m->key);

        if (!value)
            continue;
        put_head(out, m);
        put_name(out, m);
        put_value(out, m, value);
    }
}

static void put_class_labels(FILE *out, const json_t *k)
{
    fputc('{', out);
    put_label(out, "class", text(k, "class"));
    fputc(',', out);
    put_label(out, "kind", text(k, "kind"));
    fputc(',', out);
    put_label(out, "name", text(k, "name"));
    fputc('}', out);
}

/* 0: prefetches as it likes; 1: a block at a time; 2: nothing, but for probes. */
static int state_number(const json_t *k)
{
    const char *state = text(k, "state");

    return strcmp(state, "off") == 0 ? 2 : strcmp(state, "reduced") == 0;
}

static void put_classes(FILE *out, const json_t *classes)
{
    static const struct metric state = {
        NULL,
        "state",
        "class_state",
        GAUGE,
        NULL,
        1,
        "How the throttle judges the class: 0 on, 1 reduced, 2 off"};
    json_t *k;
    size_t n;

    for (size_t i = 0; i < sizeof class_metrics / sizeof class_metrics[0]; i++) {
        const struct metric *m = &class_metrics[i];

        put_head(out, m);
        json_array_foreach(classes, n, k)
        {
            put_name(out, m);
            put_class_labels(out, k);
            put_value(out, m, json_object_get(k, m->key));
        }
    }
    put_head(out, &state);
    json_array_foreach(classes, n, k)
    {
        put_name(out, &state);
        put_class_labels(out, k);
        fprintf(out, " %d\n", state_number(k));
    }
}

static void put_latency(FILE *out, const json_t *latency)
{
    const json_t *histogram = json_object_get(latency, "histogram");
    json_int_t count = json_integer_value(json_object_get(latency, "count")), below = 0;
    size_t at = 0, size = json_array_size(histogram);

    fputs("# HELP quickmine_read_latency_seconds Latency of read requests of clients.\n"
          "# TYPE quickmine_read_latency_seconds histogram\n"
          "# UNIT quickmine_read_latency_seconds seconds\n",
          out);
    for (int bits = FIRST_BOUND; bits <= LAST_BOUND; bits++) {
        double bound_us = ldexp(1, bits) / 1000;

        for (; at < size; at++) {
            const json_t *bucket = json_array_get(histogram, at);

            if (json_number_value(json_array_get(bucket, 0)) >= bound_us)
                break;
            below += json_integer_value(json_array_get(bucket, 1));
        }
        fprintf(out,
                "quickmine_read_latency_seconds_bucket{le=\"%.12g\"} %" PRIi64 "\n",
                bound_us / 1e6, (int64_t)below);
    }
    fprintf(out,
            "quickmine_read_latency_seconds_bucket{le=\"+Inf\"} %" PRIi64 "\n"
            "quickmine_read_latency_seconds_count %" PRIi64 "\n"
            "quickmine_read_latency_seconds_sum %.15g\n",
            (int64_t)count, (int64_t)count,
            json_number_value(json_object_get(latency, "sum")) / 1e6);
}

static void put_info(FILE *out, const json_t *stats)
{
    static const char *const keys[] = {"version", "policy", "level", "eviction"};

    fputs("# HELP quickmine What serves.\n# TYPE quickmine info\nquickmine_info{", out);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (i > 0)
            fputc(',', out);
        put_label(out, keys[i], text(stats, keys[i]));
    }
    fputs("} 1\n", out);
}

char *qms_metrics(const json_t *stats)
{
    char *text_out = NULL;
    size_t size;
    FILE *out = open_memstream(&text_out, &size);
    bool failed;

    if (!out)
        return NULL;
    put_info(out, stats);
    put_metrics(out, stats);
    put_latency(out, json_object_get(stats, "latency_us"));
    put_classes(out, json_object_get(stats, "classes"));
    fputs("# EOF\n", out);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text_out);
        return NULL;
    }
    return text_out;
}
