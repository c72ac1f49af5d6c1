/* SPDX-License-Identifier: BSD-3-Clause */
/* trace-info.c - quickmine trace info: what a trace is like. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "sim/info.h"
#include "cli/cli.h"

struct arguments {
    enum qm_level level;
    struct cli_setting block_size;
    uint64_t classes; /* to print at most */
    bool json;
    const char *file;
};

enum { LEVEL = 'l', JSON = 'j', BLOCK_SIZE = 'b', CLASSES = 'n' };

static const struct argp_option options[] = {
    {"level", LEVEL, "LEVEL", 0,
     "which contexts to look at: innermost (default), query, transaction, thread, "
     "connection",
     0},
    {"block-size", BLOCK_SIZE, "SIZE", 0, "bytes of a block, instead of the trace's",
     0},
    {"classes", CLASSES, "N", 0, "print the N classes with most reads (20); 0: all", 0},
    {"json", JSON, NULL, 0, "print an object, with all classes", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case LEVEL:
        a->level = cli_level(state, arg);
        if (a->level == QM_LEVEL_NONE)
            argp_error(state, "at level none there are no contexts to look at");
        return 0;
    case BLOCK_SIZE:
        a->block_size.set = true;
        a->block_size.value = cli_block_size(state, arg);
        return 0;
    case CLASSES:
        a->classes = cli_number(state, "--classes", arg, 0, UINT64_MAX);
        return 0;
    case JSON:
        a->json = true;
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc = "Describes a trace: requests, footprint, contexts, sequential runs, "
           "interference.\vSee quickmine-trace(1).",
};

static double per(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static int by_reads(const void *a, const void *b)
{
    const struct qm_info_class *x = *(struct qm_info_class *const *)a;
    const struct qm_info_class *y = *(struct qm_info_class *const *)b;

    if (x->blocks_read != y->blocks_read)
        return x->blocks_read > y->blocks_read ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Classes with most reads first: pointers into info, in an array to be freed. */
static const struct qm_info_class **sort_classes(const struct qm_info *info,
                                                 size_t *count)
{
    const struct qm_info_class **sorted = calloc(info->class_count, sizeof *sorted);

    *count = 0;
    if (!sorted)
        return NULL;
    for (uint32_t i = 0; i < info->class_count; i++)
        if (info->classes[i].contexts > 0)
            sorted[(*count)++] = &info->classes[i];
    qsort(sorted, *count, sizeof *sorted, by_reads);
    return sorted;
}

/* Number 0 stands for several, of different kinds. */
static const char *kind_of(const struct qm_info_class *k)
{
    return k->name ? qm_kind_name(k->kind) : "-";
}

static const char *name_of(const struct qm_info_class *k)
{
    return k->name ? k->name : "(others)";
}

static void print_runs(const char *name, const struct qm_runs *r)
{
    printf("  %-14s %12" PRIu64 " %12.2f %12" PRIu64 "\n", name, r->runs,
           per(r->blocks, r->runs), r->longest);
}

static void print_kinds(const struct qm_info *info)
{
    printf("\n  %-14s %12s %10s %10s %10s %10s %8s %8s %10s %8s\n", "contexts", "count",
           "requests", "median", "p99", "most", "none", "1 to 10", "blocks", "1 to 10");
    for (int k = QM_CONNECTION; k < QM_KINDS; k++) {
        const struct qm_info_kind *kind = &info->kinds[k];

        if (kind->contexts == 0)
            continue;
        printf("  %-14s %12" PRIu64 " %10.1f %10" PRIu64 " %10" PRIu64 " %10" PRIu64
               " %6.1f %% %6.1f %% %10.1f %6.1f %%\n",
               qm_kind_name((enum qm_kind)k), kind->contexts,
               qm_histogram_mean(&kind->requests),
               qm_histogram_percentile(&kind->requests, 50),
               qm_histogram_percentile(&kind->requests, 99), kind->requests.max,
               100 * per(kind->silent, kind->contexts),
               100 * per(kind->brief, kind->contexts), qm_histogram_mean(&kind->blocks),
               100 * per(kind->brief_blocks, kind->contexts));
    }
}

static int print_classes(const struct qm_info *info, uint64_t limit)
{
    size_t count;
    const struct qm_info_class **sorted = sort_classes(info, &count);

    if (!sorted)
        return cli_fail("out of memory");
    printf("\n  %-12s %10s %10s %10s %12s %12s %9s  %s\n", "kind", "contexts", "reads",
           "writes", "blocks read", "innermost", "a context", "class");
    for (size_t i = 0; i < count && (limit == 0 || i < limit); i++) {
        printf("  %-12s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %12" PRIu64
               " %12" PRIu64 " %9.1f  ",
               kind_of(sorted[i]), sorted[i]->contexts, sorted[i]->reads,
               sorted[i]->writes, sorted[i]->blocks_read, sorted[i]->own_blocks_read,
               per(sorted[i]->blocks_read, sorted[i]->contexts));
        cli_print_name(name_of(sorted[i]), 0, SIZE_MAX);
        putchar('\n');
    }
    if (limit > 0 && count > limit)
        printf("  and %zu more (--classes 0 prints all)\n", count - (size_t)limit);
    free(sorted);
    return CLI_OK;
}

static int print_text(const struct qm_info *info, const struct arguments *a,
                      uint64_t block_size)
{
    uint64_t requests = info->reads + info->writes;
    double seconds = (double)(info->last_us - info->first_us) / 1e6;
    int status = CLI_OK;

    printf("block size     %" PRIu64 "\n", block_size);
    printf("duration       %.3f s\n", seconds);
    printf("requests       %" PRIu64 ": %" PRIu64 " reads, %" PRIu64 " writes; %" PRIu64
           " of no context",
           requests, info->reads, info->writes, info->untagged);
    if (seconds > 0)
        printf("; %.1f a second", (double)requests / seconds);
    printf("\nread           %" PRIu64 " bytes, %" PRIu64 " blocks\n", info->bytes_read,
           info->blocks_read);
    printf("written        %" PRIu64 " bytes, %" PRIu64 " blocks\n",
           info->bytes_written, info->blocks_written);
    printf("footprint      %" PRIu64 " blocks, %" PRIu64 " bytes; read %" PRIu64
           ", written %" PRIu64 " blocks\n",
           info->footprint, info->footprint * block_size, info->footprint_read,
           info->footprint_written);
    printf("contexts       %" PRIu64 "; at most %" PRIu64 " at once, %" PRIu64
           " open at the end\n",
           info->contexts, info->open_at_once, info->open_at_end);

    printf("\n  %-14s %12s %12s %12s\n", "reads in a row", "runs", "blocks a run",
           "longest");
    print_runs("as they came", &info->interleaved);
    print_runs("by thread", &info->by_thread);
    if (a->level != QM_LEVEL_THREAD)
        print_runs(qm_level_name(a->level), &info->by_level);
    if (info->contexts > 0)
        print_kinds(info);
    printf("\ninterference   %.2f requests of others between two of a context (%s)\n",
           qm_histogram_mean(&info->interference), qm_level_name(a->level));
    if (info->contexts > 0)
        status = print_classes(info, a->classes);
    return cli_end_output(status);
}

static json_t *runs_json(const struct qm_runs *r)
{
    return json_pack("{s:I, s:I, s:f, s:I}", "runs", (json_int_t)r->runs, "blocks",
                     (json_int_t)r->blocks, "average", per(r->blocks, r->runs),
                     "longest", (json_int_t)r->longest);
}

static json_t *histogram_json(const struct qm_histogram *h)
{
    return json_pack("{s:f, s:I, s:I, s:I, s:I}", "mean", qm_histogram_mean(h), "p50",
                     (json_int_t)qm_histogram_percentile(h, 50), "p90",
                     (json_int_t)qm_histogram_percentile(h, 90), "p99",
                     (json_int_t)qm_histogram_percentile(h, 99), "max",
                     (json_int_t)h->max);
}

static json_t *kinds_json(const struct qm_info *info)
{
    json_t *kinds = json_object();

    for (int k = QM_CONNECTION; k < QM_KINDS; k++) {
        const struct qm_info_kind *kind = &info->kinds[k];

        json_object_set_new(kinds, qm_kind_name((enum qm_kind)k),
                            json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "contexts",
                                      (json_int_t)kind->contexts, "without_requests",
                                      (json_int_t)kind->silent, "with_1_to_10_requests",
                                      (json_int_t)kind->brief,
                                      "with_1_to_10_blocks_read",
                                      (json_int_t)kind->brief_blocks, "requests",
                                      histogram_json(&kind->requests), "blocks_read",
                                      histogram_json(&kind->blocks)));
    }
    return kinds;
}

static json_t *classes_json(const struct qm_info *info)
{
    size_t count;
    const struct qm_info_class **sorted = sort_classes(info, &count);
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            array,
            json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "class",
                      cli_json_text(name_of(sorted[i])), "kind", kind_of(sorted[i]),
                      "contexts", (json_int_t)sorted[i]->contexts, "reads",
                      (json_int_t)sorted[i]->reads, "writes",
                      (json_int_t)sorted[i]->writes, "blocks_read",
                      (json_int_t)sorted[i]->blocks_read, "own_reads",
                      (json_int_t)sorted[i]->own_reads, "own_writes",
                      (json_int_t)sorted[i]->own_writes, "own_blocks_read",
                      (json_int_t)sorted[i]->own_blocks_read));
    free(sorted);
    return array;
}

static int print_json(const struct qm_info *info, const struct arguments *a,
                      uint64_t block_size)
{
    json_t *json = json_pack(
        "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I,"
        " s:I, s:I, s:{s:o, s:o, s:o}, s:o, s:o, s:o}",
        "block_size", (json_int_t)block_size, "level", qm_level_name(a->level),
        "duration_us", (json_int_t)(info->last_us - info->first_us), "requests",
        (json_int_t)(info->reads + info->writes), "reads", (json_int_t)info->reads,
        "writes", (json_int_t)info->writes, "untagged", (json_int_t)info->untagged,
        "bytes_read", (json_int_t)info->bytes_read, "bytes_written",
        (json_int_t)info->bytes_written, "blocks_read", (json_int_t)info->blocks_read,
        "blocks_written", (json_int_t)info->blocks_written, "footprint_blocks",
        (json_int_t)info->footprint, "footprint_bytes",
        (json_int_t)(info->footprint * block_size), "footprint_read",
        (json_int_t)info->footprint_read, "footprint_written",
        (json_int_t)info->footprint_written, "contexts", (json_int_t)info->contexts,
        "contexts_at_once", (json_int_t)info->open_at_once, "contexts_open_at_end",
        (json_int_t)info->open_at_end, "sequential_runs", "interleaved",
        runs_json(&info->interleaved), "thread", runs_json(&info->by_thread), "level",
        runs_json(&info->by_level), "interference", histogram_json(&info->interference),
        "kinds", kinds_json(info), "classes", classes_json(info));

    return cli_print_json(json);
}

static int each_event(void *opaque, const struct qm_event *event)
{
    return qm_info_event(opaque, event);
}

int qm_cmd_trace_info(int argc, char **argv)
{
    struct arguments a = {.level = QM_LEVEL_INNERMOST, .classes = 20};
    struct qm_trace_reader *reader;
    struct qm_info_maker *maker;
    uint64_t block_size;
    int status;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    reader = cli_trace_open(a.file);
    if (!reader)
        return CLI_FAILED;
    block_size = a.block_size.set ? a.block_size.value : qm_trace_block_size(reader);
    maker = qm_info_new(a.level, block_size);
    if (maker)
        status = cli_trace_each(reader, "reading", each_event, maker);
    else
        status = cli_fail("out of memory");
    if (status == CLI_OK) {
        const struct qm_info *info = qm_info_finish(maker);

        status = a.json ? print_json(info, &a, block_size)
                        : print_text(info, &a, block_size);
    }
    qm_info_free(maker);
    qm_trace_free(reader);
    return status;
}
