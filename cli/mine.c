/* SPDX-License-Identifier: BSD-3-Clause */
/* mine.c - quickmine mine: a trace's rules. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim/mine.h"
#include "cli/cli.h"
#include "cli/mine.h"
#include "mining/core/parameters.h"

struct arguments {
    struct cli_mining mining;
    struct mine_cminer cminer;
    struct cli_setting level;
    bool json;
    const char *file;
};

enum { LEVEL = 'l', JSON = 'j' };

static const struct argp_option options[] = {
    {"level", LEVEL, "LEVEL", 0,
     "which contexts' reads form a sequence: innermost (default), query, transaction, "
     "thread, "
     "connection, none (default with --cminer)",
     0},
    {"json", JSON, NULL, 0, "print an array of objects", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

/* --cminer and the other miner have few options in common. */
static void check(struct argp_state *state, const struct arguments *a)
{
    const struct cli_mining *m = &a->mining;

    if (!a->cminer.on && a->cminer.other)
        argp_error(state, "%s is for --cminer", a->cminer.other);
    if (a->cminer.on && (m->paper || m->given))
        argp_error(state,
                   "of the options for mining, --cminer takes --block-size only");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->mining;
        state->child_inputs[1] = &a->cminer;
        return 0;
    case LEVEL:
        a->level.set = true;
        a->level.value = cli_level(state, arg);
        return 0;
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_END:
        check(state, a);
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

/* Of policy quickmine. */
#define PARAMETERS                                                                     \
    (QM_HEEDS(QM_LOOKAHEAD) | QM_HEEDS(QM_MAX_PREFIX) | QM_HEEDS(QM_MAX_SUFFIX) |      \
     QM_HEEDS(QM_GRACE) | QM_HEEDS(QM_SEGMENT))

static struct argp_child children[] = {
    {NULL, 0, "Mining:", 1}, /* cli_mining_argp() */
    {&mine_cminer_argp, 0, "Mining off-line, for the policy cminer:", 2},
    {NULL, 0, NULL, 0}};
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc =
        "Mines a trace and prints its rules, sorted by number, one a line: "
        "a, b, c and the support of a & b -> c, separated by tabs; or, with --cminer, "
        "mines it for C-Miner*'s rules and prints how many there are."
        "\vRules are kept without bounds unless asked otherwise.  See "
        "quickmine-mine(1).",
    .children = children,
};

static int each_event(void *opaque, const struct qm_event *event)
{
    return qm_mine_event(opaque, event);
}

static int print_rule(void *opaque, const struct qm_rule *rule)
{
    (void)opaque;
    printf("%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", rule->a, rule->b,
           rule->c, rule->support);
    return ferror(stdout);
}

/* As text rather than as a json_t: there may be many millions. */
static int print_rule_json(void *opaque, const struct qm_rule *rule)
{
    const char **comma = opaque;

    printf("%s\n{\"a\": %" PRIu64 ", \"b\": %" PRIu64 ", \"c\": %" PRIu64
           ", \"support\": %" PRIu64 "}",
           *comma, rule->a, rule->b, rule->c, rule->support);
    *comma = ",";
    return ferror(stdout);
}

static int print_rules(struct qm_mine *mine, bool json)
{
    const char *comma = "";
    int n;

    if (json)
        printf("[");
    n = qm_mine_rules(mine, json ? print_rule_json : print_rule, &comma);
    if (json)
        printf("\n]\n");
    if (n < 0)
        return cli_fail("the rules cannot be read: %s", strerror(-n));
    return cli_end_output(CLI_OK);
}

static int mine_rules(const struct arguments *a, struct qm_trace_reader *reader,
                      uint64_t block_size)
{
    struct qm_mining_config config;
    struct qm_mine *mine = NULL;
    char err[256];
    int status = CLI_FAILED, error;

    if (a->mining.paper)
        qm_mining_paper(&config);
    else
        qm_mining_defaults(&config);
    config.max_prefix = 0;
    config.max_suffix = 0;
    cli_mining_apply(&a->mining, &config);
    mine = qm_mine_new(
        &config, a->level.set ? (enum qm_level)a->level.value : QM_LEVEL_INNERMOST,
        block_size, err, sizeof err);
    if (!mine)
        cli_fail("%s", err);
    else
        status = cli_trace_each(reader, "mining", each_event, mine);
    if (status == CLI_OK && (error = qm_mine_finish(mine)) != 0)
        status = cli_fail("%s", strerror(error));
    if (status == CLI_OK)
        status = print_rules(mine, a->json);
    qm_mine_free(mine);
    return status;
}

int qm_cmd_mine(int argc, char **argv)
{
    struct arguments a = {0};
    struct qm_trace_reader *reader;
    uint64_t block_size;
    int status;

    children[0].argp = cli_mining_argp(PARAMETERS, false);
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.cminer.output && cli_same_file(a.file, a.cminer.output))
        return cli_fail("%s is both what to read and what to write", a.file);
    reader = cli_trace_open(a.file);
    if (!reader)
        return CLI_FAILED;
    block_size = a.mining.block_size.set ? a.mining.block_size.value
                                         : qm_trace_block_size(reader);
    if (a.cminer.on)
        status = mine_cminer(&a.cminer, reader,
                             a.level.set ? (enum qm_level)a.level.value : QM_LEVEL_NONE,
                             block_size, a.json);
    else
        status = mine_rules(&a, reader, block_size);
    qm_trace_free(reader);
    return status;
}
