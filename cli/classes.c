/* SPDX-License-Identifier: BSD-3-Clause */
/* classes.c - the classes of a server's statistics. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/server.h"

/* A class with the same number and kind, or NULL. */
static const json_t *same_class(const json_t *stats, const json_t *klass)
{
    size_t i;
    json_t *other;

    json_array_foreach(json_object_get(stats, "classes"), i, other)
    {
        if (strcmp(cli_text(other, "class"), cli_text(klass, "class")) == 0 &&
            strcmp(cli_text(other, "kind"), cli_text(klass, "kind")) == 0)
            return other;
    }
    return NULL;
}

static int by_reads(const void *a, const void *b)
{
    const struct cli_class *x = a, *y = b;

    if (x->reads != y->reads)
        return x->reads > y->reads ? -1 : 1;
    return strcmp(cli_text(x->klass, "class"), cli_text(y->klass, "class"));
}

static uint64_t since(const json_t *klass, const json_t *was, const char *key)
{
    uint64_t n = cli_count(klass, key), before = cli_count(was, key);

    return n >= before ? n - before : 0;
}

/* The key's name in the object: an older server prints it as old_key. */
static const char *name_in(const json_t *object, const char *key, const char *old_key)
{
    return json_object_get(object, key) ? key : old_key;
}

/* A count with what is nested; a server that does not know that has it without. */
static uint64_t total_since(const json_t *klass, const json_t *was, const char *total,
                            const char *own)
{
    return since(klass, was, json_object_get(klass, total) ? total : own);
}

/* As it is: cli_text()'s copies do not last. */
static const char *text_of(const json_t *klass, const char *key)
{
    const char *text = json_string_value(json_object_get(klass, key));

    return text ? text : "-";
}

struct cli_class *cli_classes(const json_t *stats, const json_t *before, size_t *count)
{
    const json_t *array = json_object_get(stats, "classes");
    size_t n = json_array_size(array), i;
    struct cli_class *classes = calloc(n ? n : 1, sizeof *classes);
    json_t *k;

    if (!classes)
        return NULL;
    json_array_foreach(array, i, k)
    {
        const json_t *was = before ? same_class(before, k) : NULL;
        const char *name = text_of(k, "name");
        struct cli_class *c = &classes[i];

        *c = (struct cli_class){
            .klass = k,
            .kind = text_of(k, "kind"),
            .name = *name ? name : text_of(k, "class"),
            .state = text_of(k, "state"),
            .set = text_of(k, "set"),
            .contexts = since(k, was, "contexts"),
            .reads = total_since(k, was, "total_reads", "reads"),
            .hits = total_since(k, was, "total_hits", "hits"),
            .prefetch_hits =
                total_since(k, was, name_in(k, "total_prefetch_hits", "total_promotes"),
                            name_in(k, "prefetch_hits", "promotes")),
            .misses = total_since(k, was, "total_misses", "misses"),
            .issued = since(k, was, "issued"),
            .used = since(k, was, "used"),
            .wasted = since(k, was, "wasted"),
            .latency_us =
                cli_real(k, json_object_get(k, "total_latency_us") ? "total_latency_us"
                                                                   : "latency_us"),
        };
    }
    qsort(classes, n, sizeof *classes, by_reads);
    *count = n;
    return classes;
}

void cli_print_classes(const json_t *stats)
{
    size_t count;
    struct cli_class *classes = cli_classes(stats, NULL, &count);

    if (!classes)
        return;
    printf("%-11s %9s %10s %6s %6s %6s %9s %6s %9s %-7s %-8s %s\n", "kind", "contexts",
           "reads", "hit%", "pfhit%", "miss%", "issued", "used%", "us/read", "state",
           "set", "class");
    for (size_t i = 0; i < count; i++) {
        const struct cli_class *c = &classes[i];

        printf("%-11s %9" PRIu64 " %10" PRIu64 " %6.1f %6.1f %6.1f %9" PRIu64
               " %6.1f %9.1f %-7s %-8.8s ",
               cli_clean(c->kind), c->contexts, c->reads,
               cli_percentage(c->hits, c->reads),
               cli_percentage(c->prefetch_hits, c->reads),
               cli_percentage(c->misses, c->reads), c->issued,
               cli_percentage(c->used, c->issued), c->latency_us, cli_clean(c->state),
               cli_clean(c->set));
        cli_print_name(c->name, 0, SIZE_MAX);
        putchar('\n');
    }
    free(classes);
}
