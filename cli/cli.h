/* SPDX-License-Identifier: BSD-3-Clause */
/* cli.h - what the subcommands of quickmine share.
 *
 * A subcommand is `int cmd(int argc, char **argv)`, with argv[0] "quickmine NAME",
 * which parses its arguments by argp and returns an exit status.  Wrong usage ends the
 * program in argp_error(), with CLI_USAGE.
 */
#ifndef QM_CLI_H
#define QM_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "mining/core/context.h"
#include "mining/core/prefetcher.h"
#include "trace/trace.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

int qm_cmd_trace(int argc, char **argv);
int qm_cmd_trace_info(int argc, char **argv);
int qm_cmd_trace_cut(int argc, char **argv);
int qm_cmd_trace_convert(int argc, char **argv);
int qm_cmd_mine(int argc, char **argv);
int qm_cmd_sim(int argc, char **argv);
int qm_cmd_advise(int argc, char **argv);
int qm_cmd_replay(int argc, char **argv);
int qm_cmd_stat(int argc, char **argv);
int qm_cmd_set(int argc, char **argv);
int qm_cmd_tier(int argc, char **argv);
int qm_cmd_get(int argc, char **argv);
int qm_cmd_top(int argc, char **argv);
int qm_cmd_extents(int argc, char **argv);
int qm_cmd_confine(int argc, char **argv);
int qm_cmd_serve(int argc, char **argv);
int qm_cmd_rowcache(int argc, char **argv);
int qm_cmd_lsm(int argc, char **argv);
int qm_cmd_agent(int argc, char **argv);  /* where BPF is built */
int qm_cmd_attach(int argc, char **argv); /* where this is built */
int qm_cmd_detach(int argc, char **argv);

/* A subcommand in a table that ends with a NULL name. */
struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    const struct cli_command *commands; /* its own subcommands; NULL: none */
};

extern const struct cli_command cli_trace_commands[], cli_tier_commands[];

/* Runs the command that argv[1] names; program is what it is a subcommand of, and
 * manual where more is said about all of them. */
int cli_dispatch(const struct cli_command *commands, const char *program,
                 const char *manual, int argc, char **argv);

/* How many characters have to be changed, added, left out or swapped with the next one
 * to make b of a; more than CLI_NEAR, up to which words are alike, if either is long.
 */
#define CLI_NEAR 2
unsigned cli_distance(const char *a, const char *b);

/* Prints "quickmine NAME: " and a message to stderr.  Returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same of what is no failure. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parse the argument of an option, and end the program with a sentence that says what
 * is allowed if it is wrong. */
uint64_t cli_number(struct argp_state *state, const char *option, const char *arg,
                    uint64_t min, uint64_t max);
uint64_t cli_size(struct argp_state *state, const char *option, const char *arg,
                  uint64_t min, uint64_t max); /* bytes: 64M, 1G, ... */
/* Above 0 and below 100, with at most three decimals; in thousandths of a percent. */
uint64_t cli_percent(struct argp_state *state, const char *option, const char *arg);
/* Above 0, with at most three decimals; in microseconds. */
uint64_t cli_seconds(struct argp_state *state, const char *option, const char *arg);
/* Above 0, with at most three decimals; in microseconds. */
uint64_t cli_milliseconds(struct argp_state *state, const char *option,
                          const char *arg);
/* 0, or above with at most three decimals; in nanoseconds. */
uint64_t cli_microseconds(struct argp_state *state, const char *option,
                          const char *arg);
/* max: 0; recorded: 1; xN: N. */
double cli_speed(struct argp_state *state, const char *option, const char *arg);
bool cli_on_off(struct argp_state *state, const char *option, const char *arg);
uint64_t cli_block_size(struct argp_state *state, const char *arg);
enum qm_level cli_level(struct argp_state *state, const char *arg);

/* For what a parser does not know itself: the one argument that is no option, of
 * commands that read a trace, or that ask a server.  Ends the program if there are two,
 * or none. */
error_t cli_trace_argument(int key, char *arg, struct argp_state *state,
                           const char **file);
error_t cli_server_argument(int key, char *arg, struct argp_state *state,
                            const char **target);

/* Calls each() for each of the words in list, which are separated by commas, with a
 * copy that is valid during the call.  Empty words are an error. */
void cli_list(struct argp_state *state, const char *option, const char *list,
              void (*each)(struct argp_state *state, const char *word));

/* A value that may be given. */
struct cli_setting {
    bool set;
    uint64_t value;
};

/* Parses the value of a policy's parameter into its field of config; text is not
 * copied. */
struct qm_parameter;
void cli_parameter(struct argp_state *state, const struct qm_parameter *p,
                   const char *arg, struct qm_mining_config *config);

/* Mining: options that mine and sim share, as a child of their parsers. */
struct cli_mining {
    bool paper;     /* --preset paper */
    unsigned given; /* parameters: QM_HEEDS() of each; the fields of the others are 0 */
    struct qm_mining_config config;
    struct cli_setting block_size;
};

/* The parser of --preset, --block-size and these parameters (QM_HEEDS() of each); its
 * input: struct cli_mining.  bounds: rules are bounded by default.  To be called once,
 * before the program has threads. */
const struct argp *cli_mining_argp(unsigned parameters, bool bounds);

/* What was asked for, on top of config. */
void cli_mining_apply(const struct cli_mining *asked, struct qm_mining_config *config);

/* Progress on stderr, if that is a terminal, for what takes more than a second. */
struct cli_progress {
    const char *what;
    struct timespec begun, shown;
    bool terminal, visible;
};

void cli_progress_start(struct cli_progress *p, const char *what);
/* at of total; total 0: not known. */
void cli_progress_show(struct cli_progress *p, uint64_t at, uint64_t total);
void cli_progress_stop(struct cli_progress *p);

/* Opens a trace, or prints why not and returns NULL. */
struct qm_trace_reader *cli_trace_open(const char *path);
/* Calls each() for every event, with progress, until it returns non-zero: an errno
 * value. Prints what goes wrong.  Returns an exit status. */
int cli_trace_each(struct qm_trace_reader *reader, const char *what,
                   int (*each)(void *opaque, const struct qm_event *event),
                   void *opaque);

/* Whether both are one regular file: to write over what is being read destroys it. */
bool cli_same_file(const char *a, const char *b);

/* A string whose bytes may be anything: if they are not UTF-8, those that are not ASCII
 * become question marks. */
json_t *cli_json_text(const char *text);
/* Text of others for a person to read: a copy without what a terminal should not be
 * given (trace/text.h), good until the eighth call after it. */
const char *cli_clean(const char *text);
/* Prints the part of a name (UTF-8, of any origin) that begins skip columns from its
 * beginning and takes width columns at most; a terminal shows it as that and nothing
 * else.  Returns how many columns it took. */
size_t cli_print_name(const char *name, size_t skip, size_t width);
size_t cli_name_width(const char *name); /* in columns */
/* Prints json on one line or several, and frees it: with escapes for all that is not
 * ASCII if there is something that a terminal should not be given.  Returns an exit
 * status. */
int cli_print_json(json_t *json);
int cli_print_json_line(json_t *json);
/* Returns status, or CLI_FAILED with a message if stdout could not be written. */
int cli_end_output(int status);

/* A descriptor (signalfd(2)) that is readable when the program is to end: by SIGINT,
 * SIGTERM, or its terminal's end; or -1 with errno.  Before any thread is started. */
int cli_end_fd(void);

#endif
