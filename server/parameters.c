/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.c - the table of the filter's parameters: how each is parsed, with which
 * policies it has an effect, and what --help says of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-filter.h>

#include "cache/eviction.h"
#include "engine/inflight.h"
#include "mining/core/parameters.h"
#ifdef QM_HAVE_HTTP
#include "server/http.h"
#endif
#include "server/parameters.h"
#include "server/values.h"

#define MAX_QUEUE   65536
#define MAX_THREADS QM_INFLIGHT_MOST

static int set_cache_size(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_sized(key, value, &c->cache_size);
}

static int set_cache_blocks(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_ranged(key, value, 1, UINT32_MAX, &c->cache_blocks);
}

static int set_block_size(const char *key, const char *value, struct qms_config *c)
{
    uint64_t n;

    if (qms_value_size(value, &n) == -1 || n < 4096 || n > 1 << 20 ||
        (n & (n - 1)) != 0)
        return qms_value_wrong(key, value, "a power of two from 4K to 1M");
    c->block_size = n;
    return 0;
}

static int set_policy(const char *key, const char *value, struct qms_config *c)
{
    if (!qm_prefetcher_find(value)) {
        qms_value_complain("%s must be one of %s, not \"%s\"", key,
                           qm_prefetcher_names(), value);
        return -1;
    }
    c->params.policy = value;
    return 0;
}

static int set_eviction(const char *key, const char *value, struct qms_config *c)
{
    if (!qm_evict_find(value)) {
        qms_value_complain("%s must be one of %s, not \"%s\"", key, qm_evict_names(),
                           value);
        return -1;
    }
    c->params.eviction = value;
    return 0;
}

static int set_level(const char *key, const char *value, struct qms_config *c)
{
    int level = qm_level_parse(value);

    if (level == -1)
        return qms_value_wrong(
            key, value, "innermost, query, transaction, thread, connection or none");
    c->params.level = level;
    return 0;
}

/* Percent, with at most three decimals. */
static int set_share(const char *key, const char *value, struct qms_config *c)
{
    static const char allowed[] =
        "auto, or a percentage above 0 and below 100 (like 4 or 12.5)";
    size_t whole = strspn(value, "0123456789"), decimals;
    uint64_t n, scale = 1000;
    struct qm_params defaults;

    if (strcmp(value, "auto") == 0) {
        qm_params_defaults(&defaults);
        c->params.prefetch_share = defaults.prefetch_share;
        c->params.share_adapts = true;
        return 0;
    }
    if (whole == 0 || whole > 2)
        return qms_value_wrong(key, value, allowed);
    n = strtoul(value, NULL, 10) * 1000;
    if (value[whole] == '.') {
        decimals = strspn(value + whole + 1, "0123456789");
        if (decimals == 0 || decimals > 3 || value[whole + 1 + decimals] != '\0')
            return qms_value_wrong(key, value, allowed);
        for (const char *p = value + whole + 1; *p; p++) {
            scale /= 10;
            n += (*p - '0') * scale;
        }
    } else if (value[whole] != '\0') {
        return qms_value_wrong(key, value, allowed);
    }
    if (n == 0)
        return qms_value_wrong(key, value, allowed);
    c->params.prefetch_share = n;
    c->params.share_adapts = false;
    return 0;
}

static int set_prefetch_on(const char *key, const char *value, struct qms_config *c)
{
    if (!qm_params_read_prefetch_on(value, &c->params.on_prefetch_hit))
        return qms_value_wrong(key, value, "miss, or prefetch-hit (on both)");
    return 0;
}

static int set_throttle(const char *key, const char *value, struct qms_config *c)
{
    c->params.throttle = strcmp(value, "on") == 0;
    if (!c->params.throttle && strcmp(value, "off") != 0)
        return qms_value_wrong(key, value, "on or off");
    return 0;
}

static int set_prefetching(const char *key, const char *value, struct qms_config *c)
{
    c->prefetching = strcmp(value, "on") == 0;
    if (!c->prefetching && strcmp(value, "off") != 0)
        return qms_value_wrong(key, value, "on or off");
    return 0;
}

static int set_log_level(const char *key, const char *value, struct qms_config *c)
{
    int level = qms_log_parse(value);

    if (level == -1)
        return qms_value_wrong(key, value, "error, warning or note");
    c->log_level = level;
    return 0;
}

static int set_admission(const char *key, const char *value, struct qms_config *c)
{
    c->params.admission = strcmp(value, "on") == 0;
    if (!c->params.admission && strcmp(value, "off") != 0)
        return qms_value_wrong(key, value, "on or off");
    return 0;
}

static int set_prefetch_rate(const char *key, const char *value, struct qms_config *c)
{
    if (!qm_budget_parse(value, &c->params.budget))
        return qms_value_wrong(key, value, QM_BUDGET_ALLOWED);
    return 0;
}

/* A number from 1 to most, or auto. */
static int ranged_or_auto(const char *key, const char *value, uint64_t most,
                          uint64_t *n)
{
    char allowed[64];
    uint64_t given;

    if (strcmp(value, "auto") == 0) {
        *n = QM_PREFETCH_AUTO;
        return 0;
    }
    if (qms_value_number(value, &given) == 0 && given >= 1 && given <= most) {
        *n = given;
        return 0;
    }
    snprintf(allowed, sizeof allowed, "a number from 1 to %" PRIu64 ", or auto", most);
    return qms_value_wrong(key, value, allowed);
}

static int set_prefetch_threads(const char *key, const char *value,
                                struct qms_config *c)
{
    return ranged_or_auto(key, value, MAX_THREADS, &c->prefetch_threads);
}

static int set_prefetch_connections(const char *key, const char *value,
                                    struct qms_config *c)
{
    return qms_value_ranged(key, value, 1, MAX_THREADS, &c->prefetch_connections);
}

static int set_prefetch_queue(const char *key, const char *value, struct qms_config *c)
{
    return ranged_or_auto(key, value, MAX_QUEUE, &c->prefetch_queue);
}

static int set_prefetch_priority(const char *key, const char *value,
                                 struct qms_config *c)
{
    static const char *const names[] = {[QMS_PRIORITY_NORMAL] = "normal",
                                        [QMS_PRIORITY_LOW] = "low",
                                        [QMS_PRIORITY_IDLE] = "idle"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i]) == 0) {
            c->prefetch_priority = (enum qms_priority)i;
            return 0;
        }
    return qms_value_wrong(key, value, "normal, low or idle");
}

static int set_miner_queue(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_memory(key, value, 64, &c->miner_queue);
}

static int set_rules_save(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_ranged(key, value, 0, 86400, &c->rules_save);
}

static int set_rules_for(const char *key, const char *value, struct qms_config *c)
{
    if (*value == '\0')
        return qms_value_wrong(key, value, "a name");
    c->rules_for = value;
    return 0;
}

static int set_rules(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->rules);
}

static int set_trained(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->trained);
}

static int set_readahead_preset(const char *key, const char *value,
                                struct qms_config *c)
{
    static const char *const presets[] = {"none", "linux", "device-aware"};

    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(value, presets[i]) == 0) {
            c->params.mining.readahead_preset = presets[i];
            return 0;
        }
    }
    return qms_value_wrong(key, value, "none, linux or device-aware");
}

static int set_record(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->record);
}

static int set_stats(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->stats);
}

static int set_stats_http(const char *key, const char *value, struct qms_config *c)
{
#ifdef QM_HAVE_HTTP
    char err[512];

    if (qms_http_check(value, err, sizeof err) == -1) {
        qms_value_complain("%s", err);
        return -1;
    }
    free(c->stats_http);
    /* A path keeps its meaning when nbdkit changes its directory. */
    if (strncmp(value, "unix:", 5) == 0) {
        char *path = nbdkit_absolute_path(value + 5);

        if (!path || asprintf(&c->stats_http, "unix:%s", path) == -1)
            c->stats_http = NULL;
        free(path);
    } else {
        c->stats_http = strdup(value);
    }
    return c->stats_http ? 0 : -1;
#else
    qms_value_complain("%s cannot be used: this filter was built without libmicrohttpd",
                       key);
    return -1;
#endif
}

static int set_control(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->control);
}

static int set_tier(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->tier);
}

static int set_tier_witness(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_path(key, value, &c->tier_witness);
}

static int set_tier_size(const char *key, const char *value, struct qms_config *c)
{
    if (qms_value_size(value, &c->tier_size) == -1 || c->tier_size == 0)
        return qms_value_wrong(key, value, "a size, for example 100G");
    return 0;
}

static int set_tier_admit(const char *key, const char *value, struct qms_config *c)
{
    static const char *const names[] = {[QM_TIER_ADMIT_AUTO] = "auto",
                                        [QM_TIER_ADMIT_ALL] = "all",
                                        [QM_TIER_ADMIT_NONE] = "none"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i]) == 0) {
            c->tier_admit = (enum qm_tier_admit)i;
            return 0;
        }
    return qms_value_wrong(key, value, "auto, all or none");
}

static int set_tier_verify(const char *key, const char *value, struct qms_config *c)
{
    static const char *const names[] = {[QM_TIER_VERIFY_AUTO] = "auto",
                                        [QM_TIER_VERIFY_ALWAYS] = "always",
                                        [QM_TIER_VERIFY_NEVER] = "never"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i]) == 0) {
            c->tier_verify = (enum qm_tier_verify)i;
            return 0;
        }
    return qms_value_wrong(key, value, "auto, always or never");
}

static int set_tier_write_rate(const char *key, const char *value, struct qms_config *c)
{
    if (qms_value_size(value, &c->tier_write_rate) == -1 ||
        c->tier_write_rate >= UINT64_C(1) << 60)
        return qms_value_wrong(key, value,
                               "bytes a day below 1E, for example 500G; 0: no bound");
    return 0;
}

static int set_tier_volume(const char *key, const char *value, struct qms_config *c)
{
    if (*value == '\0' || strlen(value) > 255)
        return qms_value_wrong(key, value, "a name of 1 to 255 bytes");
    c->tier_volume = value;
    return 0;
}

static int set_shards(const char *key, const char *value, struct qms_config *c)
{
    uint64_t n;

    if (qms_value_number(value, &n) == -1 || n > 1024 || (n & (n - 1)) != 0)
        return qms_value_wrong(key, value,
                               "0 (by the number of CPUs) or a power of two to 1024");
    c->shards = n;
    return 0;
}

static int set_requests(const char *key, const char *value, struct qms_config *c)
{
    c->parallel = strcmp(value, "parallel") == 0;
    if (!c->parallel && strcmp(value, "serial") != 0)
        return qms_value_wrong(key, value, "serial or parallel");
    if (c->parallel && !QMS_PARALLEL_ALLOWED) {
        qms_value_complain(
            "%s=parallel needs nbdkit 1.34 or newer: this one (%s) would stop "
            "when a client disappears with requests in flight",
            key, NBDKIT_VERSION_STRING);
        return -1;
    }
    return 0;
}

static int set_check_only(const char *key, const char *value, struct qms_config *c)
{
    c->check_only = strcmp(value, "on") == 0;
    if (!c->check_only && strcmp(value, "off") != 0)
        return qms_value_wrong(key, value, "on or off");
    return 0;
}

static int set_preset(const char *key, const char *value, struct qms_config *c)
{
    if (strcmp(value, "paper") != 0)
        return qms_value_wrong(key, value, "paper");
    qm_params_paper(&c->params);
    return 0;
}

const struct qms_key qms_keys[] = {
    /* First: the others override it. */
    {"preset", set_preset, QMS_ALWAYS, "paper", "defaults as in the ATC'08 paper"},
    {"cache-size", set_cache_size, QMS_ALWAYS, "SIZE",
     "memory for caching, metadata and rules included (default 256M)"},
    {"cache-blocks", set_cache_blocks, QMS_ALWAYS, "N",
     "cache exactly N blocks, whatever memory that takes"},
    {"block-size", set_block_size, QMS_ALWAYS, "SIZE",
     "power of two from 4K to 1M (default 16K)"},
    {"eviction", set_eviction, QMS_ALWAYS, "NAME", NULL},
    {"shards", set_shards, QMS_ALWAYS, "N",
     "parts of the cache; 1: exact order (default 0: by CPUs)"},
    {"policy", set_policy, QMS_ALWAYS, "NAME", NULL},
    {"level", set_level, QMS_IF_PREFETCHING, "LEVEL",
     "contexts of a sequence: innermost (default), query, transaction, thread, "
     "connection or none"},
    {"prefetch-share", set_share, QMS_IF_PREFETCHING, "auto|PERCENT",
     "prefetch cache's share of the cache (default auto; 4 in the preset)"},
    {"prefetch-on", set_prefetch_on, QMS_IF_ASKED, "WHAT",
     "when to prefetch: miss (default in the preset), or prefetch-hit (default): on "
     "both"},
    {"throttle", set_throttle, QMS_IF_PREFETCHING, "on|off",
     "whether classes that do not benefit prefetch less (default on; off in the "
     "preset)"},
    {"admission", set_admission, QMS_IF_PREFETCHING, "on|off",
     "prefetch what is probable enough at the device's load (default on; off in the "
     "preset)"},
    {"prefetching", set_prefetching, QMS_IF_PREFETCHING, "on|off",
     "off: learn, but prefetch nothing (default on)"},
    {"prefetch-rate", set_prefetch_rate, QMS_IF_PREFETCHING, "off|N/PERIOD",
     "prefetch reads a period of s, min, h or day at most (default off)"},
    {"prefetch-threads", set_prefetch_threads, QMS_IF_PREFETCHING, "N|auto",
     "prefetches in flight: as many as pay, or a fixed number (1 to 256; default "
     "auto)"},
    {"prefetch-connections", set_prefetch_connections, QMS_IF_PREFETCHING, "N",
     "connections to the layer below for them, at most (1 to 256; default: as needed)"},
    {"prefetch-queue", set_prefetch_queue, QMS_IF_PREFETCHING, "N|auto",
     "prefetches that may wait (1 to 65536, or auto: by those in flight; default "
     "auto)"},
    {"prefetch-priority", set_prefetch_priority, QMS_IF_PREFETCHING, "normal|low|idle",
     "I/O priority of their reads, of files and block devices (default low)"},
    {"miner-queue", set_miner_queue, QMS_IF_LEARNING, "SIZE",
     "memory of sequences that wait to be mined (64K to 64G; default 64M)"},
    {"lookahead", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"degree", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"max-prefix", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"max-suffix", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"grace", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"segment", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"skip-hits", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"rules", set_rules, QMS_IF_HEEDED, NULL, NULL},
    {"rules-for", set_rules_for, QMS_IF_HEEDED, NULL, NULL},
    {"rules-save", set_rules_save, QMS_IF_SAVING, "SECONDS",
     "interval of saving them (0 to 86400; default 60; 0: at the end only)"},
    {"rules-memory", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"rules-pool", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"rules-purge", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"trained", set_trained, QMS_IF_HEEDED, NULL, NULL},
    {"retrain", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"readahead-preset", set_readahead_preset, QMS_IF_HEEDED, NULL, NULL},
    {"readahead-cap", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"readahead-cap-disk", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"readahead-cap-ssd", NULL, QMS_IF_HEEDED, NULL, NULL},
    {"tier", set_tier, QMS_ALWAYS, "PATH",
     "file or block device for a second tier of caching, on a local SSD"},
    {"tier-witness", set_tier_witness, QMS_ALWAYS, "PATH",
     "small file on another file system that says whether the tier is right"},
    {"tier-size", set_tier_size, QMS_ALWAYS, "SIZE",
     "its size; needed for a file (default of a block device: all of it)"},
    {"tier-admit", set_tier_admit, QMS_ALWAYS, "auto|all|none",
     "which evicted blocks enter it (default auto: those that are worth it)"},
    {"tier-verify", set_tier_verify, QMS_ALWAYS, "auto|always|never",
     "compare what it has at start with the device (default auto: unless nobody else "
     "has written)"},
    {"tier-write-rate", set_tier_write_rate, QMS_ALWAYS, "SIZE",
     "bytes a day that may be written to it (default 0: no bound)"},
    {"tier-volume", set_tier_volume, QMS_ALWAYS, "NAME",
     "name of what the device holds (default: by the plugin's parameters)"},
    {"record", set_record, QMS_ALWAYS, "FILE", "record a trace"},
    {"stats", set_stats, QMS_ALWAYS, "SOCKET",
     "Unix socket that serves the statistics"},
    {"stats-http", set_stats_http, QMS_ALWAYS, "WHERE",
     "serve the statistics over HTTP: ADDRESS:PORT, of loopback, or unix:PATH"},
    {"control", set_control, QMS_ALWAYS, "SOCKET",
     "Unix socket over which parameters can be changed"},
    {"log-level", set_log_level, QMS_ALWAYS, "LEVEL",
     "least of what is logged while it runs: error, warning or note (default)"},
    {"requests", set_requests, QMS_ALWAYS, "serial|parallel",
     "whether a connection's requests run in parallel"},
    {"check-only", set_check_only, QMS_ALWAYS, "on|off",
     "check all parameters, open nothing, and end (default off)"},
};
#define KEYS (sizeof qms_keys / sizeof qms_keys[0])

const size_t qms_key_count = KEYS;

/* What was given, by key. */
static struct {
    const char *value; /* NULL: nothing */
    char *changed;     /* value, if it came while the server ran: to be freed */
} given[KEYS];

int qms_config_set(const char *key, const char *value)
{
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(qms_keys[i].key, key) == 0) {
            given[i].value = value;
            return 0;
        }
    }
    return 1;
}

char qms_config_help[8192];

#define HELP_LEFT  23 /* columns of the keys */
#define HELP_WIDTH 79

/* Adds the key with its form, and what it is, in lines. */
static void add_help(FILE *out, const char *key, const char *form, const char *help)
{
    int column = fprintf(out, "%s=%s", key, form);

    if (column >= HELP_LEFT)
        column = HELP_WIDTH; /* the words begin on the next line */
    while (*help) {
        size_t word = strcspn(help, " ");

        if (column + 1 + (int)word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_LEFT - 1, "");
            column = HELP_LEFT - 1;
        }
        if (column < HELP_LEFT - 1)
            column += fprintf(out, "%*s", HELP_LEFT - 1 - column, "");
        column += fprintf(out, " %.*s", (int)word, help);
        help += word + strspn(help + word, " ");
    }
    fputc('\n', out);
}

void qms_config_load(void)
{
    static const char *const forms[] = {[QM_COUNT] = "N",
                                        [QM_SIZE] = "SIZE",
                                        [QM_FLAG] = "on|off",
                                        [QM_FILE] = "PATH",
                                        [QM_WORD] = "NAME"};
    FILE *out = fmemopen(qms_config_help, sizeof qms_config_help, "w");
    struct qm_params params, paper;
    char text[512];

    if (!out)
        return;
    qm_params_defaults(&params);
    qm_params_paper(&paper);
    for (size_t i = 0; i < KEYS; i++) {
        const struct qm_parameter *p = qm_parameter_find(qms_keys[i].key);

        if (qms_keys[i].parse == set_policy)
            snprintf(text, sizeof text,
                     "prefetch policy: %s (default %s; %s in the preset)",
                     qm_prefetcher_names(), params.policy, paper.policy);
        else if (qms_keys[i].parse == set_eviction)
            snprintf(text, sizeof text,
                     "eviction policy: %s (default %s; %s in the preset)",
                     qm_evict_names(), params.eviction, paper.eviction);
        else if (p)
            qm_parameter_help(p, NULL, text, sizeof text);
        else
            snprintf(text, sizeof text, "%s", qms_keys[i].help);
        add_help(out, qms_keys[i].key, p ? forms[p->kind] : qms_keys[i].form, text);
    }
    fclose(out);
}
/* Parses the value of a key that has no parser of its own. */
static int set_parameter(const char *key, const char *value, struct qms_config *c)
{
    const struct qm_parameter *p = qm_parameter_find(key);
    uint64_t n = strcmp(value, "on") == 0;

    if (p->kind == QM_COUNT && qms_value_ranged(key, value, p->min, p->max, &n) == -1)
        return -1;
    if (p->kind == QM_SIZE && qms_value_memory(key, value, p->max >> 30, &n) == -1)
        return -1;
    if (p->kind == QM_FLAG && n == 0 && strcmp(value, "off") != 0)
        return qms_value_wrong(key, value, "on or off");
    qm_parameter_set(p, &c->params.mining, n);
    return 0;
}
int qms_key_set(size_t i, const char *value, struct qms_config *c)
{
    const struct qms_key *key = &qms_keys[i];

    return (key->parse ? key->parse : set_parameter)(key->key, value, c);
}

bool qms_key_is_path(size_t i)
{
    return qms_keys[i].parse == set_rules || qms_keys[i].parse == set_trained ||
           qms_keys[i].parse == set_tier || qms_keys[i].parse == set_tier_witness ||
           qms_keys[i].parse == set_record || qms_keys[i].parse == set_stats ||
           qms_keys[i].parse == set_stats_http || qms_keys[i].parse == set_control;
}

const char *qms_key_value(size_t i)
{
    return given[i].value;
}

void qms_key_keep(size_t i, char *value)
{
    free(given[i].changed);
    given[i].value = given[i].changed = value;
}

void qms_key_free_kept(void)
{
    for (size_t i = 0; i < KEYS; i++) {
        free(given[i].changed);
        given[i].changed = NULL;
    }
}
