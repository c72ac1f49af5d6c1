/* SPDX-License-Identifier: BSD-3-Clause */
/* mine-cminer.c - quickmine mine --cminer: C-Miner*'s rules, mined off-line. */
#include <string.h>

#include "sim/train.h"
#include "cli/mine.h"
#include "mining/baselines/cminer-file.h"

enum {
    OUTPUT = 'o',
    CMINER = 0x300,
    MAX_GAP,
    SEGMENT_LENGTH,
    MIN_SUPPORT,
    MIN_CONFIDENCE,
    MEMORY,
    SKIP,
    FIRST,
    UNTIL,
};

static const struct argp_option options[] = {
    {"cminer", CMINER, NULL, 0, "mine as C-Miner* does, and print counts", 0},
    {"output", OUTPUT, "RULES", 0, "write the rules to this file", 0},
    {"max-gap", MAX_GAP, "N", 0, "accesses that a sequence may span (2 to 64; 10)", 0},
    {"segment-length", SEGMENT_LENGTH, "N", 0,
     "accesses of a segment (2 to 65536; 100)", 0},
    {"min-support", MIN_SUPPORT, "N", 0,
     "segments that a frequent sequence is in, at least (1)", 0},
    {"min-confidence", MIN_CONFIDENCE, "PERCENT", 0,
     "of a rule that is kept, at least (0 to 100; 10)", 0},
    {"memory", MEMORY, "SIZE", 0, "memory for what is counted at a time (64M)", 0},
    {"skip", SKIP, "N", 0, "leave out the first N read requests", 0},
    {"first", FIRST, "N", 0, "mine the first N read requests (after those) only", 0},
    {"until", UNTIL, "SECONDS", 0, "mine the trace's first SECONDS only", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void set(struct cli_setting *setting, uint64_t value)
{
    setting->set = true;
    setting->value = value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct mine_cminer *a = state->input;

    switch (key) {
    case CMINER:
        a->on = true;
        return 0;
    case OUTPUT:
        if (*arg == '\0')
            argp_error(state, "--output must be the name of a file");
        a->output = arg;
        a->other = "--output";
        return 0;
    case MAX_GAP:
        set(&a->max_gap,
            cli_number(state, "--max-gap", arg, QM_CMINER_GAP_MIN, QM_CMINER_GAP_MAX));
        a->other = "--max-gap";
        return 0;
    case SEGMENT_LENGTH:
        set(&a->segment, cli_number(state, "--segment-length", arg,
                                    QM_CMINER_SEGMENT_MIN, QM_CMINER_SEGMENT_MAX));
        a->other = "--segment-length";
        return 0;
    case MIN_SUPPORT:
        set(&a->min_support, cli_number(state, "--min-support", arg, 1, UINT32_MAX));
        a->other = "--min-support";
        return 0;
    case MIN_CONFIDENCE:
        set(&a->min_confidence, cli_number(state, "--min-confidence", arg, 0, 100));
        a->other = "--min-confidence";
        return 0;
    case MEMORY:
        set(&a->memory,
            cli_size(state, "--memory", arg, QM_CMINER_MEMORY_MIN, UINT64_C(1) << 40));
        a->other = "--memory";
        return 0;
    case SKIP:
        a->skip = cli_number(state, "--skip", arg, 0, UINT64_MAX);
        a->other = "--skip";
        return 0;
    case FIRST:
        a->first = cli_number(state, "--first", arg, 1, UINT64_MAX);
        a->other = "--first";
        return 0;
    case UNTIL:
        a->until = cli_number(state, "--until", arg, 1, UINT32_MAX);
        a->other = "--until";
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp mine_cminer_argp = {.options = options, .parser = parse};

static struct qm_cminer_config config_of(const struct mine_cminer *asked)
{
    struct qm_cminer_config config;

    qm_cminer_defaults(&config);
    if (asked->max_gap.set)
        config.max_gap = (unsigned)asked->max_gap.value;
    if (asked->segment.set)
        config.segment = (unsigned)asked->segment.value;
    if (asked->min_support.set)
        config.min_support = (uint32_t)asked->min_support.value;
    if (asked->min_confidence.set)
        config.min_confidence = (unsigned)asked->min_confidence.value;
    if (asked->memory.set)
        config.memory = asked->memory.value;
    return config;
}

struct reading {
    struct qm_train *train;
    bool ended; /* the part that is asked for */
};

static int each_event(void *opaque, const struct qm_event *event)
{
    struct reading *reading = opaque;
    int error = qm_train_event(reading->train, event);

    reading->ended = error == -1;
    return error;
}

/* Reads the part of the trace that is asked for.  Returns an exit status. */
static int read_trace(const struct mine_cminer *asked, struct qm_trace_reader *reader,
                      const struct qm_cminer_info *info, struct qm_cminer_db *db,
                      uint64_t *requests)
{
    struct qm_train_config config = {
        .level = info->level,
        .block_size = info->block_size,
        .segment = info->config.segment,
        .skip = asked->skip,
        .first = asked->first,
        .until = asked->until * 1000000,
    };
    struct reading reading = {.train = qm_train_new(&config)};
    int status = CLI_FAILED, error;

    if (reading.train)
        status = cli_trace_each(reader, "reading", each_event, &reading);
    else
        cli_fail("out of memory");
    if (reading.ended)
        status = CLI_OK;
    if (status == CLI_OK && (error = qm_train_finish(reading.train, db)) != 0)
        status = cli_fail("%s", strerror(error));
    if (status == CLI_OK)
        *requests = qm_train_requests(reading.train);
    qm_train_free(reading.train);
    return status;
}

struct mining {
    struct cli_progress progress;
    struct qm_cminer_writer *writer; /* NULL: the rules are counted only */
    uint64_t prefixes, blocks;
};

static int each_prefix(void *opaque, const struct qm_cminer_prefix *prefix)
{
    struct mining *mining = opaque;

    if (++mining->prefixes % 4096 == 0)
        cli_progress_show(&mining->progress, prefix->a, mining->blocks);
    return mining->writer ? qm_cminer_write_prefix(mining->writer, prefix) : 0;
}

/* Mines db, and writes its rules to output (NULL: nowhere).  Returns an exit status. */
static int mine(const char *output, const struct qm_cminer_info *info,
                const struct qm_cminer_db *db, struct qm_cminer_counts *counts)
{
    struct mining mining = {.blocks = db->distinct};
    char err[600];
    int error;

    if (output &&
        qm_cminer_write(output, info, db, &mining.writer, err, sizeof err) != 0)
        return cli_fail("%s", err);
    cli_progress_start(&mining.progress, "mining");
    error = qm_cminer_mine(&info->config, db, each_prefix, &mining, counts);
    cli_progress_stop(&mining.progress);
    if (mining.writer &&
        qm_cminer_write_end(mining.writer, !error, err, sizeof err) != 0)
        return cli_fail("%s", err);
    return error ? cli_fail("%s: %s", output ? output : "mining", strerror(error))
                 : CLI_OK;
}

static json_t *counts_json(const struct qm_cminer_info *info, uint64_t requests,
                           const struct qm_cminer_counts *counts, uint64_t bytes)
{
    const struct qm_cminer_config *c = &info->config;

    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
        " s:I}",
        "level", qm_level_name(info->level), "block_size", (json_int_t)info->block_size,
        "max_gap", (json_int_t)c->max_gap, "segment_length", (json_int_t)c->segment,
        "min_support", (json_int_t)c->min_support, "min_confidence",
        (json_int_t)c->min_confidence, "requests", (json_int_t)requests, "accesses",
        (json_int_t)counts->accesses, "segments", (json_int_t)counts->segments,
        "frequent_blocks", (json_int_t)counts->blocks, "frequent_pairs",
        (json_int_t)counts->pairs, "frequent_triples", (json_int_t)counts->triples,
        "rules_unpruned", (json_int_t)(counts->pairs + counts->triples), "rules",
        (json_int_t)counts->rules, "prefixes", (json_int_t)counts->prefixes, "bytes",
        (json_int_t)bytes);
}

/* The same, a line each. */
static int print_counts(json_t *counts)
{
    const char *name;
    json_t *value;

    json_object_foreach(counts, name, value) if (json_is_string(value))
        printf("%-16s %s\n", name, json_string_value(value));
    else printf("%-16s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
    json_decref(counts);
    return cli_end_output(CLI_OK);
}

int mine_cminer(const struct mine_cminer *asked, struct qm_trace_reader *reader,
                enum qm_level level, uint64_t block_size, bool json)
{
    struct qm_cminer_info info = {
        .level = level, .block_size = block_size, .config = config_of(asked)};
    struct qm_cminer_counts counts;
    struct qm_cminer_db db = {0};
    uint64_t requests = 0;
    json_t *printed;
    int status = read_trace(asked, reader, &info, &db, &requests);

    if (status == CLI_OK)
        status = mine(asked->output, &info, &db, &counts);
    if (status == CLI_OK) {
        printed = counts_json(
            &info, requests, &counts,
            qm_cminer_file_size(db.distinct, counts.prefixes, counts.rules));
        if (!printed)
            status = cli_fail("out of memory");
        else
            status = json ? cli_print_json(printed) : print_counts(printed);
    }
    qm_cminer_db_free(&db);
    return status;
}
