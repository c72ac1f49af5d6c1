/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - arguments of options: numbers, sizes, times, levels, lists, policies'
 * parameters. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "mining/core/parameters.h"

/* Reads digits.  Returns what follows them, or NULL if there are none or too many. */
static const char *digits(const char *arg, uint64_t *value)
{
    uint64_t v = 0;
    const char *p = arg;

    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');

        if (v > (UINT64_MAX - digit) / 10)
            return NULL;
        v = v * 10 + digit;
    }
    *value = v;
    return p == arg ? NULL : p;
}

uint64_t cli_number(struct argp_state *state, const char *option, const char *arg,
                    uint64_t min, uint64_t max)
{
    uint64_t value = 0;
    const char *end = digits(arg, &value);

    if (end && *end == '\0' && value >= min && value <= max)
        return value;
    if (max == UINT64_MAX)
        argp_error(state, "%s must be a number from %llu, not '%s'", option,
                   (unsigned long long)min, arg);
    else
        argp_error(state, "%s must be a number from %llu to %llu, not '%s'", option,
                   (unsigned long long)min, (unsigned long long)max, arg);
    return min;
}

uint64_t cli_size(struct argp_state *state, const char *option, const char *arg,
                  uint64_t min, uint64_t max)
{
    static const char units[] = "bkmgtpe";
    uint64_t value = 0;
    const char *end = digits(arg, &value), *unit;

    if (end && *end != '\0' && end[1] == '\0') {
        unit = strchr(units, *end | 0x20);
        unsigned shift = unit ? 10 * (unsigned)(unit - units) : 64;

        end = shift < 64 && value <= UINT64_MAX >> shift ? end + 1 : NULL;
        if (end)
            value <<= shift;
    }
    if (!end || *end != '\0')
        argp_error(
            state,
            "%s must be a size like 65536, 64K, 16M or 1G (K, M, G, T: powers of "
            "1024), not '%s'",
            option, arg);
    if (value < min || value > max)
        argp_error(state, "%s must be from %llu to %llu bytes, not '%s'", option,
                   (unsigned long long)min, (unsigned long long)max, arg);
    return value;
}

/* Reads a number with at most three decimals, in thousandths, below whole_max whole
 * ones. Returns whether that is all of arg. */
static bool thousandths(const char *arg, uint64_t whole_max, uint64_t *value)
{
    uint64_t whole = 0, unit = 1000, part = 0;
    const char *p = digits(arg, &whole);

    if (p && *p == '.' && p[1] != '\0')
        for (p++; *p >= '0' && *p <= '9' && unit > 1; p++) {
            unit /= 10;
            part += (uint64_t)(*p - '0') * unit;
        }
    *value = whole < whole_max ? whole * 1000 + part : 0;
    return p && *p == '\0' && *value > 0;
}

uint64_t cli_percent(struct argp_state *state, const char *option, const char *arg)
{
    uint64_t value;

    if (!thousandths(arg, 100, &value))
        argp_error(state,
                   "%s must be auto, or a percentage above 0 and below 100 like 4 or "
                   "12.5, not "
                   "'%s'",
                   option, arg);
    return value;
}

uint64_t cli_seconds(struct argp_state *state, const char *option, const char *arg)
{
    uint64_t value;

    if (!thousandths(arg, 1000000000, &value))
        argp_error(
            state,
            "%s must be a number of seconds above 0 and below a billion, like 60 "
            "or 0.5, not '%s'",
            option, arg);
    return value * 1000;
}

uint64_t cli_milliseconds(struct argp_state *state, const char *option, const char *arg)
{
    uint64_t value;

    if (!thousandths(arg, 1000000000, &value))
        argp_error(state,
                   "%s must be a number of milliseconds above 0 and below a billion, "
                   "like 20 or 0.5, not '%s'",
                   option, arg);
    return value;
}

uint64_t cli_microseconds(struct argp_state *state, const char *option, const char *arg)
{
    uint64_t value = 0;

    if (strcmp(arg, "0") != 0 && !thousandths(arg, 1000000, &value))
        argp_error(state,
                   "%s must be a number of microseconds, 0 or below a million, "
                   "like 20 or 0.5, not '%s'",
                   option, arg);
    return value;
}

double cli_speed(struct argp_state *state, const char *option, const char *arg)
{
    char *end = NULL;
    double speed = 0;

    if (strcmp(arg, "max") == 0)
        return 0;
    if (strcmp(arg, "recorded") == 0)
        return 1;
    if (*arg == 'x' && ((arg[1] >= '0' && arg[1] <= '9') || arg[1] == '.'))
        speed = strtod(arg + 1, &end);
    if (!end || *end != '\0' || !isfinite(speed) || speed < 0.001 || speed > 1e6)
        argp_error(state,
                   "%s must be max, recorded, or x and a factor from 0.001 to "
                   "1000000 (like x2), not '%s'",
                   option, arg);
    return speed;
}

bool cli_on_off(struct argp_state *state, const char *option, const char *arg)
{
    if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0)
        argp_error(state, "%s must be on or off, not '%s'", option, arg);
    return strcmp(arg, "on") == 0;
}

uint64_t cli_block_size(struct argp_state *state, const char *arg)
{
    uint64_t size =
        cli_size(state, "--block-size", arg, QM_TRACE_BLOCK_MIN, QM_TRACE_BLOCK_MAX);

    if (size & (size - 1))
        argp_error(state, "--block-size must be a power of two, not '%s'", arg);
    return size;
}

enum qm_level cli_level(struct argp_state *state, const char *arg)
{
    int level = qm_level_parse(arg);

    if (level == -1)
        argp_error(
            state,
            "the level must be innermost, query, transaction, thread, connection "
            "or none, not '%s'",
            arg);
    return (enum qm_level)level;
}

static error_t one_argument(int key, char *arg, struct argp_state *state,
                            const char **value, const char *what, const char *missing)
{
    switch (key) {
    case ARGP_KEY_ARG:
        if (*value)
            argp_error(state, "one %s only, not '%s' as well", what, arg);
        *value = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "%s", missing);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

error_t cli_trace_argument(int key, char *arg, struct argp_state *state,
                           const char **file)
{
    return one_argument(key, arg, state, file, "trace", "which trace?");
}

error_t cli_server_argument(int key, char *arg, struct argp_state *state,
                            const char **target)
{
    return one_argument(key, arg, state, target, "server",
                        "which server? Give its NBD URI or its statistics' socket");
}

void cli_list(struct argp_state *state, const char *option, const char *list,
              void (*each)(struct argp_state *state, const char *word))
{
    char *copy = strdup(list), *rest = copy, *word;

    if (!copy) {
        argp_failure(state, CLI_FAILED, ENOMEM, "%s", option);
        return;
    }
    while ((word = strsep(&rest, ","))) {
        if (*word == '\0')
            argp_error(state, "%s holds an empty word: '%s'", option, list);
        each(state, word);
    }
    free(copy);
}

void cli_parameter(struct argp_state *state, const struct qm_parameter *p,
                   const char *arg, struct qm_mining_config *config)
{
    char option[64];

    snprintf(option, sizeof option, "--%s", p->name);
    switch (p->kind) {
    case QM_COUNT:
        qm_parameter_set(p, config, cli_number(state, option, arg, p->min, p->max));
        return;
    case QM_SIZE:
        qm_parameter_set(p, config, cli_size(state, option, arg, p->min, p->max));
        return;
    case QM_FLAG:
        qm_parameter_set(p, config, cli_on_off(state, option, arg));
        return;
    case QM_FILE:
    case QM_WORD:
        if (*arg == '\0')
            argp_error(state, "%s must not be empty", option);
        qm_parameter_set_text(p, config, arg);
        return;
    }
}
