/* SPDX-License-Identifier: BSD-3-Clause */
/* advise-output.c - the advice of quickmine advise: text, or JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/advise.h"
#include "cli/cli.h"

/* ---- text */

void advise_processor(const struct qm_virtual_processor *p, const char *from,
                      char text[160])
{
    char count[40] = "";

    if (p->count > 0)
        snprintf(count, sizeof count, ", of %u processors", p->count);
    snprintf(
        text, 160,
        "%g us a request, %g us a read of the backend, %g us to learn a block%s (%s)",
        (double)p->request_ns / 1e3, (double)p->read_ns / 1e3,
        (double)p->block_ns / 1e3, count, from);
}

static void print_trace(const struct advise_report *r)
{
    char size[24], all[24], pause[24];

    printf("trace       %s: %" PRIu64 " reads in %.0f s, %" PRIu64
           " writes; reads touch %s in blocks of %s\n",
           cli_clean(r->request->name), r->reads, r->seconds, r->writes,
           qm_advise_size(r->footprint, all), qm_advise_size(r->block_size, size));
    printf("simulated   ");
    if (r->simulated < r->reads)
        printf("the last %" PRIu64 " reads, which touch %s; ", r->simulated,
               qm_advise_size(r->simulated_footprint, size));
    else
        printf("all of it; ");
    printf("the second half counts\n");
    printf("backend     %s\n", r->request->backend);
    printf("processor   %s\n", r->request->processor_from);
    printf("clients     %u%s, each one read at a time, with %s between them%s\n",
           r->clients, r->request->clients ? "" : " (as in the trace)",
           qm_advise_time((double)r->think_us, pause),
           r->request->think_set ? "" : " (as in the trace)");
}

static void print_levels(const struct advise_report *r)
{
    char text[24];

    printf("level       %s", qm_level_name(r->levels[r->level].level));
    if (r->level_count > 1) {
        printf(" (mean read with %s:", qm_advise_size(r->probe, text));
        for (size_t i = 0; i < r->level_count; i++)
            printf("%s %s %s", i ? "," : "", qm_level_name(r->levels[i].level),
                   qm_advise_time(r->levels[i].cost.mean_us, text));
        printf(")");
    }
    printf("\n");
}

static void print_cost(const struct qm_advise_cost *c)
{
    char mean[24], p99[24];

    printf(" %7.2f %10s %10s", 100 * c->misses, qm_advise_time(c->mean_us, mean),
           qm_advise_time(c->p99_us, p99));
}

static void print_curves(const struct advise_report *r)
{
    const struct qm_advice *a = &r->advice;
    char text[24];

    printf("\n%10s  %-29s    policy=%s\n%10s %7s %10s %10s %-9s %7s %10s %10s %7s\n",
           "", "plain caching", r->input.policy, "memory", "miss %", "mean", "99 %",
           "eviction", "miss %", "mean", "99 %", "gain");
    printf("%10s", "none");
    print_cost(&r->input.none);
    printf("\n");
    for (size_t i = 0; i < r->input.count; i++) {
        const struct qm_advise_point *p = &r->points[i];

        printf("%10s", qm_advise_size(p->memory, text));
        print_cost(&p->plain);
        printf(" %-9s", p->plain.eviction);
        print_cost(&p->ahead);
        printf(" %5.1f %%%s%s\n", 100 * qm_advise_gain(&p->plain, &p->ahead),
               i == a->advised ? "  advised" : "", i == a->knee ? "  knee" : "");
    }
}

static void print_tiers(const struct advise_report *r)
{
    const struct advise_request *q = r->request;
    char text[24];

    if (q->tier_count == 0)
        return;
    printf("\nWith a second tier, policy=%s: mean read, and blocks of the backend for "
           "each "
           "one read\n%10s %18s",
           r->input.policy, "memory", "no tier");
    for (size_t t = 0; t < q->tier_count; t++)
        printf(" %18s", qm_advise_size(q->tiers[t], text));
    printf("\n");
    for (size_t i = 0; i < r->input.count; i++) {
        printf("%10s", qm_advise_size(r->points[i].memory, text));
        for (size_t t = 0; t <= q->tier_count; t++) {
            const struct qm_advise_cost *c =
                t == 0 ? &r->points[i].ahead : &r->tiers[t - 1][i];

            printf(" %12s %5.3f", qm_advise_time(c->mean_us, text), c->device);
        }
        printf("\n");
    }
}

static void print_classes(const struct advise_report *r, size_t most)
{
    char memory[24], plain[24], ahead[24];
    size_t n = most > 0 && most < r->class_count ? most : r->class_count;

    if (n == 0)
        return;
    printf("\nWith %s, by class (contexts in none are \"-\"), those that gain most "
           "first:\n%10s %18s %21s %7s  class\n",
           qm_advise_size(r->class_memory, memory), "reads", "miss %, plain/ahead",
           "mean, plain/ahead", "gain");
    for (size_t i = 0; i < n; i++) {
        const struct advise_class *c = &r->classes[i];
        double requests = c->requests ? (double)c->requests : 1;
        double blocks = c->plain_blocks ? (double)c->plain_blocks : 1;
        double others = c->ahead_blocks ? (double)c->ahead_blocks : 1;

        printf("%10" PRIu64 " %9.2f %8.2f %10s %10s %5.1f %%  ", c->requests,
               100 * (double)c->plain_misses / blocks,
               100 * (double)c->ahead_misses / others,
               qm_advise_time(c->plain_us / requests, plain),
               qm_advise_time(c->ahead_us / requests, ahead),
               c->plain_us > 0 ? 100 * (1 - c->ahead_us / c->plain_us) : 0);
        cli_print_name(c->name ? c->name : "-", 0, 1024);
        printf("\n");
    }
    if (n < r->class_count)
        printf("%10s and %zu more\n", "", r->class_count - n);
}

void advise_print(const struct advise_report *r, size_t classes)
{
    const struct qm_advice *a = &r->advice;
    const struct qm_advise_point *p = &r->points[a->advised];
    char size[24], mean[24];

    print_trace(r);
    print_levels(r);
    print_curves(r);
    print_tiers(r);
    print_classes(r, classes);
    printf("\nadvice      cache-size=%" PRIu64 " (%s) policy=%s level=%s eviction=%s: "
           "%s a read\n",
           p->memory, qm_advise_size(p->memory, size),
           a->prefetch ? r->input.policy : "none", r->input.level,
           a->prefetch ? p->ahead.eviction : p->plain.eviction,
           qm_advise_time(a->prefetch ? p->ahead.mean_us : p->plain.mean_us, mean));
    printf("verdict     %s.\n", a->sentence);
}

/* ---- JSON */

static json_t *cost_json(const struct qm_advise_cost *c)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "eviction", c->eviction,
                     "mean_us", c->mean_us, "p50_us", c->p50_us, "p99_us", c->p99_us,
                     "miss_ratio", c->misses, "prefetch_hit_ratio", c->ahead,
                     "device_blocks_per_read", c->device);
}

/* Appends what may be NULL: then the array is no more, and NULL. */
static void append(json_t **array, json_t *item)
{
    if (*array && json_array_append_new(*array, item) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *levels_json(const struct advise_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->level_count && r->level_count > 1; i++)
        append(&array,
               json_pack("{s:s, s:o}", "level", qm_level_name(r->levels[i].level),
                         "cost", cost_json(&r->levels[i].cost)));
    return array;
}

static json_t *points_json(const struct advise_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->input.count; i++)
        append(&array,
               json_pack("{s:I, s:o, s:o, s:f}", "memory",
                         (json_int_t)r->points[i].memory, "plain",
                         cost_json(&r->points[i].plain), "default",
                         cost_json(&r->points[i].ahead), "gain",
                         qm_advise_gain(&r->points[i].plain, &r->points[i].ahead)));
    return array;
}

static json_t *tiers_json(const struct advise_report *r)
{
    json_t *array = json_array();

    for (size_t t = 0; t < r->request->tier_count; t++)
        for (size_t i = 0; i < r->input.count; i++)
            append(&array, json_pack("{s:I, s:I, s:o}", "tier_size",
                                     (json_int_t)r->request->tiers[t], "memory",
                                     (json_int_t)r->points[i].memory, "default",
                                     cost_json(&r->tiers[t][i])));
    return array;
}

static json_t *classes_json(const struct advise_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->class_count; i++) {
        const struct advise_class *c = &r->classes[i];

        append(&array, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "class",
                                 c->name ? cli_json_text(c->name) : json_null(),
                                 "requests", (json_int_t)c->requests, "plain_blocks",
                                 (json_int_t)c->plain_blocks, "plain_misses",
                                 (json_int_t)c->plain_misses, "default_blocks",
                                 (json_int_t)c->ahead_blocks, "default_misses",
                                 (json_int_t)c->ahead_misses, "plain_us", c->plain_us,
                                 "default_us", c->ahead_us));
    }
    return array;
}

/* The policies on a faster and a slower backend, at the memory advised. */
static json_t *others_json(const struct advise_report *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->input.other_count; i++)
        append(&array,
               json_pack("{s:f, s:f, s:f}", "backend_times",
                         i ? 1 + ADVISE_OFF : 1 - ADVISE_OFF, "plain_us",
                         r->others[i].plain_us, "default_us", r->others[i].ahead_us));
    return array;
}

static json_t *advice_json(const struct advise_report *r)
{
    const struct qm_advice *a = &r->advice;
    const struct qm_advise_point *p = &r->points[a->advised];

    return json_pack(
        "{s:b, s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:f, s:f, s:I, s:b, s:o}", "pays",
        a->pays, "verdict", qm_verdict_name(a->verdict), "sentence", a->sentence,
        "cache_size", (json_int_t)p->memory, "knee",
        (json_int_t)r->points[a->knee].memory, "policy",
        a->prefetch ? r->input.policy : "none", "level", r->input.level, "eviction",
        a->prefetch ? p->ahead.eviction : p->plain.eviction, "mean_us",
        a->prefetch ? p->ahead.mean_us : p->plain.mean_us, "reads_under_way",
        a->outstanding, "most_gain_at", (json_int_t)r->points[a->best_gain].memory,
        "close", a->close, "others", others_json(r));
}

static json_t *processor_json(const struct qm_virtual_processor *p)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)p->count,
                     "request_us", (double)p->request_ns / 1e3, "read_us",
                     (double)p->read_ns / 1e3, "block_us", (double)p->block_ns / 1e3);
}

json_t *advise_json(const struct advise_report *r)
{
    json_t *trace =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "file",
                  cli_json_text(r->request->name), "reads", (json_int_t)r->reads,
                  "writes", (json_int_t)r->writes, "untagged", (json_int_t)r->untagged,
                  "blocks", (json_int_t)r->blocks, "block_size",
                  (json_int_t)r->block_size, "footprint", (json_int_t)r->footprint,
                  "seconds", r->seconds, "simulated", (json_int_t)r->simulated,
                  "simulated_footprint", (json_int_t)r->simulated_footprint);

    return json_pack(
        "{s:o, s:o, s:o, s:I, s:f, s:s, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o}",
        "trace", trace, "backend", cli_json_text(r->request->backend), "processor",
        processor_json(&r->request->processor), "clients", (json_int_t)r->clients,
        "think_ms", (double)r->think_us / 1e3, "level", r->input.level, "levels_at",
        (json_int_t)r->probe, "levels", levels_json(r), "no_cache",
        cost_json(&r->input.none), "curve", points_json(r), "tiers", tiers_json(r),
        "classes_at", (json_int_t)r->class_memory, "classes", classes_json(r), "advice",
        advice_json(r));
}
