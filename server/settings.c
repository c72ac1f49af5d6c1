/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - what of the configuration can be changed while the server runs: how it
 * is shown, and the configuration that a change gives.
 *
 * A change starts from the values of the command line and of the changes before, and is
 * parsed and checked as a whole, like the command line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config.h"
#include "server/parameters.h"
#include "server/values.h"

static void get_policy(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%s", c->params.policy);
}

static void get_cache_size(const struct qms_config *c, char *text, size_t len)
{
    /* As the statistic cache_size: with cache-blocks there is none. */
    snprintf(text, len, "%" PRIu64, c->cache_blocks == 0 ? c->cache_size : 0);
}

static void get_level(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%s", qm_level_name(c->params.level));
}

static void get_degree(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%u", c->params.mining.degree);
}

static void get_flag(bool value, char *text, size_t len)
{
    snprintf(text, len, "%s", value ? "on" : "off");
}

static void get_prefetch_on(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%s", c->params.on_prefetch_hit ? "prefetch-hit" : "miss");
}

static void get_throttle(const struct qms_config *c, char *text, size_t len)
{
    get_flag(c->params.throttle, text, len);
}

static void get_admission(const struct qms_config *c, char *text, size_t len)
{
    get_flag(c->params.admission, text, len);
}

static void get_prefetching(const struct qms_config *c, char *text, size_t len)
{
    get_flag(c->prefetching, text, len);
}

static void get_prefetch_rate(const struct qms_config *c, char *text, size_t len)
{
    qm_budget_format(&c->params.budget, text, len);
}

static void get_log_level(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%s", qms_log_name(c->log_level));
}

static const struct {
    const char *key;
    void (*get)(const struct qms_config *c, char *text, size_t len);
} changeable[] = {
    {"cache-size", get_cache_size},
    {"policy", get_policy},
    {"level", get_level},
    {"degree", get_degree},
    {"prefetch-on", get_prefetch_on},
    {"throttle", get_throttle},
    {"admission", get_admission},
    {"prefetching", get_prefetching},
    {"prefetch-rate", get_prefetch_rate},
    {"log-level", get_log_level},
};

#define CHANGEABLE (sizeof changeable / sizeof changeable[0])

const char *qms_config_changeable(size_t i)
{
    return i < CHANGEABLE ? changeable[i].key : NULL;
}

int qms_config_get(const struct qms_config *c, const char *key, char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < CHANGEABLE; i++)
        if (strcmp(changeable[i].key, key) == 0) {
            changeable[i].get(c, text, len);
            return 0;
        }
    n += (size_t)snprintf(text, len,
                          "\"%.64s\" cannot be changed while the server runs;"
                          " these can:",
                          key);
    for (size_t i = 0; i < CHANGEABLE && n < len; i++)
        n += (size_t)snprintf(text + n, len - n, "%s %s", i > 0 ? "," : "",
                              changeable[i].key);
    return -1;
}

static size_t find_key(const char *key)
{
    size_t i = 0;

    while (strcmp(qms_keys[i].key, key) != 0)
        i++;
    return i;
}

static const char *value_of(size_t i, const struct qms_setting *settings, size_t n)
{
    for (size_t k = n; k-- > 0;)
        if (strcmp(qms_keys[i].key, settings[k].key) == 0)
            return settings[k].value;
    return qms_key_value(i);
}
int qms_config_change(const struct qms_config *now, const struct qms_setting *settings,
                      size_t n, struct qms_config *c, char *err, size_t len)
{
    int r = 0;

    for (size_t k = 0; k < n; k++) {
        if (qms_config_get(now, settings[k].key, err, len) == -1)
            return -1;
        if (now->cache_blocks != 0 && strcmp(settings[k].key, "cache-size") == 0) {
            snprintf(err, len,
                     "cache-size cannot be changed: the server was started with "
                     "cache-blocks");
            return -1;
        }
    }
    err[0] = '\0';
    qms_value_tell(err, len);
    qms_config_defaults(c);
    c->rules = now->rules;
    c->trained = now->trained;
    c->tier = now->tier;
    c->tier_witness = now->tier_witness;
    c->record = now->record;
    c->stats = now->stats;
    c->stats_http = now->stats_http;
    c->control = now->control;
    for (size_t i = 0; i < qms_key_count && r == 0; i++) {
        const char *value = value_of(i, settings, n);

        /* A path may be relative to a directory that the server has left. */
        if (value && !qms_key_is_path(i))
            r = qms_key_set(i, value, c);
    }
    if (r == 0)
        r = qms_config_derive(c);
    qms_value_tell(NULL, 0);
    return r;
}

int qms_config_keep(const struct qms_setting *settings, size_t n)
{
    char *copies[CHANGEABLE] = {0};

    if (n > CHANGEABLE)
        return -1;
    for (size_t k = 0; k < n; k++)
        if (!(copies[k] = strdup(settings[k].value))) {
            while (k > 0)
                free(copies[--k]);
            return -1;
        }
    for (size_t k = 0; k < n; k++)
        qms_key_keep(find_key(settings[k].key), copies[k]);
    return 0;
}
