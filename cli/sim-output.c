/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-output.c - the results of quickmine sim: a table, or JSON. */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/sim.h"

/* A share of 0 is not known. */
static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : -1;
}

static json_t *json_ratio(double r)
{
    return r < 0 ? json_null() : json_real(r);
}

/* The counts, into object; false if memory is out. */
static bool add_counts(json_t *object, const struct qm_sim_result *r)
{
    json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
        (json_int_t)r->requests, "writes", (json_int_t)r->writes, "reads",
        (json_int_t)r->reads, "hits", (json_int_t)r->hits, "prefetch_hits",
        (json_int_t)r->prefetch_hits, "promotes", /* old name */
        (json_int_t)r->prefetch_hits, "misses", (json_int_t)r->misses, "prefetches",
        (json_int_t)r->prefetches, "used", (json_int_t)r->used, "wasted",
        (json_int_t)r->wasted, "prefetch_reads", (json_int_t)r->ahead_reads,
        "over_rate", (json_int_t)r->over_rate);

    return counts && json_object_update_new(object, counts) == 0;
}

static json_t *series_json(const struct sim_run *run)
{
    json_t *array = json_array();

    for (size_t i = 0; i < run->point_count; i++) {
        const struct sim_point *p = &run->points[i];
        json_t *point = json_pack("{s:f, s:I}", "seconds", (double)p->us / 1e6, "rules",
                                  (json_int_t)p->result.mining.rules);

        if (!point || !add_counts(point, &p->result)) {
            json_decref(point);
            json_decref(array);
            return NULL;
        }
        json_array_append_new(array, point);
    }
    return array;
}

/* Of blocks, metadata and rules. */
static uint64_t total_bytes(const struct sim_run *run)
{
    const struct qm_sim_result *r = &run->result;

    return r->cache_blocks * run->config.block_size + r->metadata_bytes +
           r->mining.rules_bytes;
}

/* What a run that took time has beside. */
static bool add_times(json_t *object, const struct sim_run *run)
{
    const struct qm_virtual_config *c = run->config.timed;
    const struct qm_virtual_result *t = &run->result.timed;
    json_t *times;

    if (!c)
        return true;
    times = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I}",
        "clients", (json_int_t)c->clients, "speed", c->speed, "think_ms",
        (double)c->think_ns / 1e6, "mean_us", t->mean, "p50_us", t->p50, "p99_us",
        t->p99, "p999_us", t->p999, "max_us", t->most, "seconds", t->seconds,
        "reads_per_second", t->reads_per_second, "utilisation", t->utilisation,
        "demand_reads", (json_int_t)t->demand_reads, "demand_blocks",
        (json_int_t)t->demand_blocks, "prefetch_reads", (json_int_t)t->prefetch_reads,
        "prefetch_blocks", (json_int_t)t->prefetch_blocks, "bridged_blocks",
        (json_int_t)t->bridged, "late", (json_int_t)t->late, "cancelled",
        (json_int_t)t->cancelled, "dropped", (json_int_t)t->dropped, "throttled",
        (json_int_t)t->throttled, "watched", (json_int_t)t->watched,
        "prefetch_read_blocks", (json_int_t)t->prefetch_blocks, "processor_seconds",
        t->computed, "in_flight_aim", (json_int_t)t->aim, "in_flight_most",
        (json_int_t)t->in_flight);
    return times && json_object_update_new(object, times) == 0;
}

/* What a run with a second tier has beside, by the server's names. */
static bool add_tier(json_t *object, const struct sim_run *run)
{
    const struct qm_sim_tier_config *c = &run->config.tier;
    const struct qm_sim_tier_counts *n = &run->result.tier;
    json_t *tier = json_pack(
        "{s:I, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:I}", "tier_size",
        (json_int_t)c->size, "tier_admit", c->size > 0 ? c->admit : NULL,
        "tier_capacity", (json_int_t)n->capacity, "tier_blocks", (json_int_t)n->blocks,
        "tier_hits", (json_int_t)n->hits, "tier_misses",
        (json_int_t)(n->lookups - n->hits), "tier_inserted", (json_int_t)n->inserted,
        "tier_kept", (json_int_t)n->kept, "tier_rewritten", 0, "tier_refused",
        (json_int_t)n->refused, "tier_invalidated", (json_int_t)n->invalidated,
        "tier_written_bytes", (json_int_t)n->bytes_written);

    if (tier && run->config.timed &&
        json_object_set_new(tier, "tier_utilisation",
                            json_real(run->result.timed.tier_utilisation)) != 0) {
        json_decref(tier);
        return false;
    }
    return tier && json_object_update_new(object, tier) == 0;
}

/* Blocks that are read from the backend. */
static uint64_t device_reads(const struct qm_sim_result *r)
{
    uint64_t wanted = r->misses + r->prefetches + r->timed.bridged;

    return wanted > r->tier.hits ? wanted - r->tier.hits : 0;
}

/* The misses by reason. */
static bool add_reasons(json_t *object, const struct sim_run *run)
{
    json_t *missed;

    if (!run->config.explain)
        return true;
    missed = json_object();
    for (unsigned i = 0; i < QM_REASON_COUNT; i++)
        if (json_object_set_new(missed, qm_reason_name(i),
                                json_integer((json_int_t)run->result.missed[i])) != 0) {
            json_decref(missed);
            return false;
        }
    return json_object_set_new(object, "missed", missed) == 0;
}

static json_t *run_json(const struct sim_run *run, bool series)
{
    const struct qm_sim_config *c = &run->config;
    const struct qm_sim_result *r = &run->result;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I}", "policy", c->params.policy,
        "level", qm_level_name(c->params.level), "eviction", c->params.eviction,
        "preset", c->paper ? "paper" : NULL, "cache_size", (json_int_t)c->cache_size,
        "block_size", (json_int_t)c->block_size, "cache_blocks",
        (json_int_t)r->cache_blocks, "prefetch_blocks", (json_int_t)r->prefetch_blocks,
        "prefetch_capacity", (json_int_t)r->prefetch_blocks);
    json_t *rest = json_pack(
        "{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "miss_ratio", json_ratio(ratio(r->misses, r->reads)), "accuracy",
        json_ratio(ratio(r->used, r->prefetches)), "coverage",
        json_ratio(ratio(r->prefetch_hits, r->prefetch_hits + r->misses)),
        "device_reads", (json_int_t)device_reads(r), "lru_misses",
        (json_int_t)r->lru_misses, "rules", (json_int_t)r->mining.rules, "prefixes",
        (json_int_t)r->mining.prefixes, "rules_bytes",
        (json_int_t)r->mining.rules_bytes, "sequences", (json_int_t)r->mining.sequences,
        "lookups", (json_int_t)r->mining.lookups, "matches",
        (json_int_t)r->mining.matches, "metadata_bytes", (json_int_t)r->metadata_bytes,
        "total_bytes", (json_int_t)total_bytes(run));

    if (object && add_counts(object, r) && add_times(object, run) &&
        add_tier(object, run) && add_reasons(object, run) && rest &&
        json_object_update(object, rest) == 0 &&
        (!series || json_object_set_new(object, "series", series_json(run)) == 0)) {
        json_decref(rest);
        return object;
    }
    json_decref(rest);
    json_decref(object);
    return NULL;
}

int sim_print_json(const struct sim_runs *runs)
{
    json_t *array = json_array();

    for (size_t i = 0; i < runs->count; i++)
        if (json_array_append_new(
                array, run_json(&runs->runs[i], runs->series_us > 0)) == -1) {
            json_decref(array);
            return cli_fail("out of memory");
        }
    return cli_print_json(array);
}

static void print_ratio(double r, int width)
{
    if (r < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*.4f", width, r);
}

/* Bytes, as they would be given: in the largest unit that it is a multiple of, if
 * that is short, else with a decimal. */
static void print_bytes(uint64_t bytes, int width)
{
    static const char units[] = " KMGTPE";
    char text[32];
    unsigned unit = 0;
    double size;

    while (bytes > 0 && bytes % 1024 == 0 && units[unit + 1]) {
        bytes /= 1024;
        unit++;
    }
    for (size = (double)bytes; size >= 10000 && units[unit + 1]; unit++)
        size /= 1024;
    snprintf(text, sizeof text, size < 10000 && size == (double)bytes ? "%.0f" : "%.1f",
             size);
    if (unit > 0)
        snprintf(text + strlen(text), 2, "%c", units[unit]);
    printf(" %*s", width, text);
}

static void print_size(const struct sim_run *run, int width)
{
    print_bytes(run->config.cache_blocks > 0
                    ? run->result.cache_blocks * run->config.block_size
                    : run->config.cache_size,
                width);
}

static bool shows_tier(const struct sim_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        if (runs->runs[i].config.tier.size > 0)
            return true;
    return false;
}

static void print_tier_head(bool tier)
{
    if (tier)
        printf(" %8s %5s %10s %10s %10s", "tier", "admit", "tier-hits", "admitted",
               "written");
}

static void print_tier(const struct sim_run *run, bool tier)
{
    const struct qm_sim_tier_config *c = &run->config.tier;
    const struct qm_sim_tier_counts *n = &run->result.tier;

    if (!tier)
        return;
    print_bytes(c->size, 8);
    printf(" %5s %10" PRIu64 " %10" PRIu64, c->size > 0 ? c->admit : "-", n->hits,
           n->inserted);
    print_bytes(n->bytes_written, 10);
}

/* The eviction policies are worth a column if they differ, or are not the usual one. */
static bool shows_eviction(const struct sim_runs *runs)
{
    struct qm_sim_config usual;

    for (size_t i = 0; i < runs->count; i++) {
        (runs->runs[i].config.paper ? qm_sim_paper : qm_sim_defaults)(&usual);
        if (strcmp(runs->runs[i].config.params.eviction, usual.params.eviction) != 0)
            return true;
    }
    return false;
}

static void print_row(const struct sim_run *run, bool eviction, bool tier)
{
    const struct qm_sim_config *c = &run->config;
    const struct qm_sim_result *r = &run->result;

    printf("%-10s %-11s", c->params.policy, qm_level_name(c->params.level));
    if (eviction)
        printf(" %-8s", c->params.eviction);
    print_size(run, 8);
    printf(" %9" PRIu64 " %9" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
           " %10" PRIu64,
           r->cache_blocks, r->prefetch_blocks, r->reads, r->hits, r->prefetch_hits,
           r->misses);
    print_ratio(ratio(r->misses, r->reads), 7);
    printf(" %10" PRIu64 " %10" PRIu64, r->prefetches, r->used);
    print_ratio(ratio(r->used, r->prefetches), 8);
    print_ratio(ratio(r->prefetch_hits, r->prefetch_hits + r->misses), 8);
    printf(" %10" PRIu64 " %9" PRIu64, device_reads(r), r->mining.rules);
    print_tier(run, tier);
    printf("\n");
}

/* Microseconds, as milliseconds. */
static void print_ms(double us, int width)
{
    printf(" %*.3f", width, us / 1e3);
}

static void print_timed_row(const struct sim_run *run, bool eviction, bool tier)
{
    const struct qm_virtual_result *t = &run->result.timed;
    const struct qm_sim_result *r = &run->result;

    printf("%-10s %-11s", run->config.params.policy,
           qm_level_name(run->config.params.level));
    if (eviction)
        printf(" %-8s", run->config.params.eviction);
    print_size(run, 8);
    if (run->config.timed->clients > 0)
        printf(" %7u", run->config.timed->clients);
    else
        printf(" %7s", "open");
    printf(" %10" PRIu64, r->requests);
    print_ms(t->mean, 9);
    print_ms(t->p50, 9);
    print_ms(t->p99, 9);
    print_ms(t->p999, 9);
    printf(" %9.1f %6.3f", t->reads_per_second, t->utilisation);
    printf(" %10" PRIu64 " %10" PRIu64, t->demand_reads, t->prefetch_reads);
    print_ratio(ratio(r->misses, r->reads), 7);
    print_ratio(ratio(r->used, r->prefetches), 8);
    printf(" %9u", r->prefetches > 0 ? t->in_flight : 0);
    print_tier(run, tier);
    printf("\n");
}

/* A line for each reason, of the runs that are asked why they missed. */
static void print_reasons(const struct sim_run *run)
{
    const struct qm_sim_result *r = &run->result;

    if (!run->config.explain)
        return;
    printf("\n%s, level %s, %s, cache", run->config.params.policy,
           qm_level_name(run->config.params.level), run->config.params.eviction);
    print_size(run, 0);
    printf(":\n%-14s %10s %7s %7s  %s\n", "missed", "reads", "of all", "misses",
           "because");
    for (unsigned i = 0; i < QM_REASON_COUNT; i++) {
        printf("%-14s %10" PRIu64, qm_reason_name(i), r->missed[i]);
        print_ratio(ratio(r->missed[i], r->reads), 7);
        print_ratio(ratio(r->missed[i], r->misses), 7);
        printf("  %s\n", qm_reason_text(i));
    }
}

/* Of runs that took time. */
static void print_timed(const struct sim_runs *runs, bool eviction, bool tier)
{
    printf("%-10s %-11s", "policy", "level");
    if (eviction)
        printf(" %-8s", "eviction");
    printf(" %8s %7s %10s %9s %9s %9s %9s %9s %6s %10s %10s %7s %8s %9s", "cache",
           "clients", "requests", "mean ms", "p50", "p99", "p99.9", "reads/s", "busy",
           "demand", "prefetch", "miss", "accuracy", "in-flight");
    print_tier_head(tier);
    printf("\n");
    for (size_t i = 0; i < runs->count; i++)
        print_timed_row(&runs->runs[i], eviction, tier);
}

int sim_print_table(const struct sim_runs *runs)
{
    bool eviction = shows_eviction(runs), tier = shows_tier(runs);

    if (runs->count > 0 && runs->runs[0].config.timed) {
        print_timed(runs, eviction, tier);
        for (size_t i = 0; i < runs->count; i++)
            print_reasons(&runs->runs[i]);
        return cli_end_output(CLI_OK);
    }
    printf("%-10s %-11s", "policy", "level");
    if (eviction)
        printf(" %-8s", "eviction");
    printf(" %8s %9s %9s %10s %10s %10s %10s %7s %10s %10s %8s %8s %10s %9s", "cache",
           "blocks", "prefetch", "reads", "hits", "pf-hits", "misses", "miss",
           "prefetches", "used", "accuracy", "coverage", "device", "rules");
    print_tier_head(tier);
    printf("\n");
    for (size_t i = 0; i < runs->count; i++)
        print_row(&runs->runs[i], eviction, tier);
    for (size_t i = 0; i < runs->count; i++)
        print_reasons(&runs->runs[i]);
    return cli_end_output(CLI_OK);
}
