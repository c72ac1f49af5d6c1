/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - reads the filter's parameters.
 *
 * A preset is a set of defaults, wherever on the command line it stands.  So values are
 * only kept as they come, and parsed when all are known.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nbdkit-filter.h>

#include "cache/cache.h"
#include "cache/eviction.h"
#include "mining/core/idle.h"
#include "mining/core/parameters.h"
#include "server/config.h"
#ifdef QM_HAVE_HTTP
#include "server/http.h"
#endif
#include "server/values.h"

#define DEFAULT_SIZE     (UINT64_C(256) << 20)
#define MAX_QUEUE        65536
#define MAX_THREADS      256
#define PARALLEL_ALLOWED (NBDKIT_VERSION_MAJOR > 1 || NBDKIT_VERSION_MINOR >= 34)

typedef int parser(const char *key, const char *value, struct qms_config *config);

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

static int set_prefetch_threads(const char *key, const char *value,
                                struct qms_config *c)
{
    return qms_value_ranged(key, value, 1, MAX_THREADS, &c->prefetch_threads);
}

static int set_prefetch_connections(const char *key, const char *value,
                                    struct qms_config *c)
{
    return qms_value_ranged(key, value, 1, MAX_THREADS, &c->prefetch_connections);
}

static int set_prefetch_queue(const char *key, const char *value, struct qms_config *c)
{
    return qms_value_ranged(key, value, 1, MAX_QUEUE, &c->prefetch_queue);
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
    if (c->parallel && !PARALLEL_ALLOWED) {
        qms_value_complain(
            "%s=parallel needs nbdkit 1.34 or newer: this one (%s) would stop "
            "when a client disappears with requests in flight",
            key, NBDKIT_VERSION_STRING);
        return -1;
    }
    return 0;
}

static int set_preset(const char *key, const char *value, struct qms_config *c)
{
    if (strcmp(value, "paper") != 0)
        return qms_value_wrong(key, value, "paper");
    qm_params_paper(&c->params);
    return 0;
}

/* With which policies a key has an effect. */
enum effect {
    ALWAYS,
    IF_PREFETCHING, /* all but none */
    IF_ASKED,    /* those that prefetch, and are not asked after each access anyway */
    IF_LEARNING, /* those with work for the miner's thread */
    IF_SAVING,   /* those with rules that are kept in a directory */
    IF_HEEDED,   /* those that list it: it is in the table of parameters */
};

static struct {
    const char *key;
    parser *parse; /* NULL: by the table of parameters */
    enum effect effect;
    const char *form, *help; /* NULL: by a table */
    const char *value;       /* NULL: not given */
} keys[] = {
    /* First: the others override it. */
    {"preset", set_preset, ALWAYS, "paper", "defaults as in the ATC'08 paper", NULL},
    {"cache-size", set_cache_size, ALWAYS, "SIZE",
     "memory for caching, metadata and rules included (default 256M)", NULL},
    {"cache-blocks", set_cache_blocks, ALWAYS, "N",
     "cache exactly N blocks, whatever memory that takes", NULL},
    {"block-size", set_block_size, ALWAYS, "SIZE",
     "power of two from 4K to 1M (default 16K)", NULL},
    {"eviction", set_eviction, ALWAYS, "NAME", NULL, NULL},
    {"shards", set_shards, ALWAYS, "N",
     "parts of the cache; 1: exact order (default 0: by CPUs)", NULL},
    {"policy", set_policy, ALWAYS, "NAME", NULL, NULL},
    {"level", set_level, IF_PREFETCHING, "LEVEL",
     "contexts of a sequence: innermost (default), query, transaction, thread, "
     "connection or none",
     NULL},
    {"prefetch-share", set_share, IF_PREFETCHING, "auto|PERCENT",
     "prefetch cache's share of the cache (default auto; 4 in the preset)", NULL},
    {"prefetch-on", set_prefetch_on, IF_ASKED, "WHAT",
     "when to prefetch: miss (default in the preset), or prefetch-hit (default): on "
     "both",
     NULL},
    {"throttle", set_throttle, IF_PREFETCHING, "on|off",
     "whether classes that do not benefit prefetch less (default on; off in the "
     "preset)",
     NULL},
    {"admission", set_admission, IF_PREFETCHING, "on|off",
     "prefetch what is probable enough at the device's load (default off)", NULL},
    {"prefetching", set_prefetching, IF_PREFETCHING, "on|off",
     "off: learn, but prefetch nothing (default on)", NULL},
    {"prefetch-threads", set_prefetch_threads, IF_PREFETCHING, "N",
     "threads that read ahead (1 to 256; default 4)", NULL},
    {"prefetch-connections", set_prefetch_connections, IF_PREFETCHING, "N",
     "their connections to the layer below (1 to 256; default: one each)", NULL},
    {"prefetch-queue", set_prefetch_queue, IF_PREFETCHING, "N",
     "prefetches that may wait (1 to 65536; default 128)", NULL},
    {"miner-queue", set_miner_queue, IF_LEARNING, "SIZE",
     "memory of sequences that wait to be mined (64K to 64G; default 64M)", NULL},
    {"lookahead", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"degree", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"max-prefix", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"max-suffix", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"grace", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"segment", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"skip-hits", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"rules", set_rules, IF_HEEDED, NULL, NULL, NULL},
    {"rules-for", set_rules_for, IF_HEEDED, NULL, NULL, NULL},
    {"rules-save", set_rules_save, IF_SAVING, "SECONDS",
     "interval of saving them (0 to 86400; default 60; 0: at the end only)", NULL},
    {"rules-memory", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"rules-pool", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"rules-purge", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"trained", set_trained, IF_HEEDED, NULL, NULL, NULL},
    {"retrain", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"readahead-preset", set_readahead_preset, IF_HEEDED, NULL, NULL, NULL},
    {"readahead-cap", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"readahead-cap-disk", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"readahead-cap-ssd", NULL, IF_HEEDED, NULL, NULL, NULL},
    {"tier", set_tier, ALWAYS, "PATH",
     "file or block device for a second tier of caching, on a local SSD", NULL},
    {"tier-witness", set_tier_witness, ALWAYS, "PATH",
     "small file on another file system that says whether the tier is right", NULL},
    {"tier-size", set_tier_size, ALWAYS, "SIZE",
     "its size; needed for a file (default of a block device: all of it)", NULL},
    {"tier-admit", set_tier_admit, ALWAYS, "auto|all|none",
     "which evicted blocks enter it (default auto: those that are worth it)", NULL},
    {"tier-write-rate", set_tier_write_rate, ALWAYS, "SIZE",
     "bytes a day that may be written to it (default 0: no bound)", NULL},
    {"tier-volume", set_tier_volume, ALWAYS, "NAME",
     "name of what the device holds (default: by the plugin's parameters)", NULL},
    {"record", set_record, ALWAYS, "FILE", "record a trace", NULL},
    {"stats", set_stats, ALWAYS, "SOCKET", "Unix socket that serves the statistics",
     NULL},
    {"stats-http", set_stats_http, ALWAYS, "WHERE",
     "serve the statistics over HTTP: ADDRESS:PORT, of loopback, or unix:PATH", NULL},
    {"control", set_control, ALWAYS, "SOCKET",
     "Unix socket over which parameters can be changed", NULL},
    {"log-level", set_log_level, ALWAYS, "LEVEL",
     "least of what is logged while it runs: error, warning or note (default)", NULL},
    {"requests", set_requests, ALWAYS, "serial|parallel",
     "whether a connection's requests run in parallel", NULL},
};

#define KEYS (sizeof keys / sizeof keys[0])

/* The values that were changed while the server runs: keys[].value, to be freed. */
static char *changed[KEYS];

int qms_config_set(const char *key, const char *value)
{
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].key, key) == 0) {
            keys[i].value = value;
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
        const struct qm_parameter *p = qm_parameter_find(keys[i].key);

        if (keys[i].parse == set_policy)
            snprintf(text, sizeof text,
                     "prefetch policy: %s (default %s; %s in the preset)",
                     qm_prefetcher_names(), params.policy, paper.policy);
        else if (keys[i].parse == set_eviction)
            snprintf(text, sizeof text,
                     "eviction policy: %s (default %s; %s in the preset)",
                     qm_evict_names(), params.eviction, paper.eviction);
        else if (p)
            qm_parameter_help(p, NULL, text, sizeof text);
        else
            snprintf(text, sizeof text, "%s", keys[i].help);
        add_help(out, keys[i].key, p ? forms[p->kind] : keys[i].form, text);
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

static void defaults(struct qms_config *c)
{
    *c = (struct qms_config){
        .cache_size = DEFAULT_SIZE,
        .block_size = 16384,
        .prefetch_threads = QM_PREFETCH_THREADS,
        .prefetch_queue = QM_PREFETCH_QUEUE,
        .miner_queue = UINT64_C(64) << 20,
        .rules_save = 60,
        .parallel = PARALLEL_ALLOWED,
        .prefetching = true,
        .log_level = QMS_NOTE,
    };
    qm_params_defaults(&c->params);
}

/* How many blocks, and how many of them for prefetching. */
static int size_cache(struct qms_config *c)
{
    const char *whose;
    uint64_t memory = qms_value_most_memory(&whose);
    uint64_t least = qm_params_prefetch(&c->params) ? 2 : 1;

    c->blocks = c->cache_blocks;
    if (c->cache_blocks == 0) {
        if (qms_value_check_memory("cache-size", c->cache_size) == -1)
            return -1;
        c->block_bytes = qm_params_block_bytes(&c->params, c->policy, c->cache_size);
        c->blocks = qm_cache_blocks_within(c->block_bytes, c->block_size);
    } else if (c->cache_blocks > memory / c->block_size) {
        qms_value_complain("cache-blocks must not exceed %s, that is %" PRIu64
                           " blocks of %" PRIu64 " bytes; it is %" PRIu64,
                           whose, memory / c->block_size, c->block_size,
                           c->cache_blocks);
        return -1;
    }
    if (c->blocks < least) {
        qms_value_complain(
            "the cache must have room for %s of %" PRIu64
            " bytes and its metadata: give a larger cache-size than %" PRIu64
            ", or a smaller block-size",
            least == 1 ? "a block" : "two blocks (one for prefetching)", c->block_size,
            c->cache_blocks == 0 ? c->cache_size : c->cache_blocks * c->block_size);
        return -1;
    }
    c->prefetch_blocks = qm_params_prefetch_blocks(&c->params, c->blocks);
    c->prefetch_most = qm_params_prefetch_most(&c->params, c->blocks);
    return 0;
}

static unsigned automatic_shards(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned shards = 4;

    while ((long)shards < 4 * cpus && shards < 64)
        shards *= 2;
    return shards;
}

static bool has_effect(enum effect effect, const char *key,
                       const struct qm_prefetcher_ops *policy)
{
    bool prefetches = strcmp(policy->name, "none") != 0;

    switch (effect) {
    case ALWAYS:
        return true;
    case IF_PREFETCHING:
        return prefetches;
    case IF_ASKED:
        return prefetches && !(policy->flags & QM_ASK_ALWAYS);
    case IF_LEARNING:
        return policy->learn != qm_idle_learn;
    case IF_SAVING:
        return qm_parameter_heeded(qm_parameter(QM_RULES), policy);
    case IF_HEEDED:
        return qm_parameter_heeded(qm_parameter_find(key), policy);
    }
    return false;
}

bool qms_config_heeds(const struct qms_config *c, const char *key)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, key) == 0)
            return has_effect(keys[i].effect, key, c->policy);
    return false;
}

static bool is_given(const char *key)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, key) == 0)
            return keys[i].value != NULL;
    return false;
}

/* Names what was given and has no effect. */
static void warn_of_ignored(const struct qms_config *c)
{
    static const char *const of_rules[] = {"rules-for", "rules-save"};
    static const char *const of_tier[] = {"tier-size", "tier-admit", "tier-write-rate",
                                          "tier-volume"};
    char ignored[512] = "";

    for (size_t i = 0; i < KEYS; i++) {
        size_t n = strlen(ignored);

        if (keys[i].value && !qms_config_heeds(c, keys[i].key))
            snprintf(ignored + n, sizeof ignored - n, "%s%s", n ? ", " : "",
                     keys[i].key);
    }
    if (ignored[0] != '\0')
        nbdkit_error("warning: policy=%s ignores %s", c->policy->name, ignored);
    if (c->cache_blocks != 0 && is_given("cache-size"))
        nbdkit_error("warning: cache-size is ignored where cache-blocks is given");
    for (size_t i = 0; i < 2 && !c->rules; i++)
        if (is_given(of_rules[i]))
            nbdkit_error("warning: %s is ignored without rules", of_rules[i]);
    for (size_t i = 0; i < 4 && !c->tier; i++)
        if (is_given(of_tier[i]))
            nbdkit_error("warning: %s is ignored without tier", of_tier[i]);
    if (c->params.mining.max_suffix == 0 && is_given("grace"))
        nbdkit_error("warning: grace is ignored where max-suffix is 0");
}

static int set_key(size_t i, const char *value, struct qms_config *c)
{
    return (keys[i].parse ? keys[i].parse : set_parameter)(keys[i].key, value, c);
}

/* What follows from the values, which have been put into c; checks the whole. */
static int derive(struct qms_config *c)
{
    struct qm_cache_config cache;
    char err[256];

    if (c->prefetch_connections == 0 || c->prefetch_connections > c->prefetch_threads)
        c->prefetch_connections = c->prefetch_threads; /* more would be of no use */
    c->params.mining.rules_dir = c->rules;
    c->params.mining.rules_for = c->rules_for;
    c->params.mining.trained = c->trained;
    c->rules_purge = c->params.mining.purge_after; /* the miner's clock: seconds */
    if (c->shards == 0)
        c->shards = automatic_shards();
    c->policy = qm_prefetcher_find(c->params.policy);
    if (!c->policy) { /* the preset's: others were looked for */
        qms_value_complain("this filter was built without policy %s", c->params.policy);
        return -1;
    }
    c->params.policy = c->policy->name; /* which stays, whatever becomes of the value */
    if (qm_mining_check(&c->params.mining, err, sizeof err) != 0) {
        qms_value_complain("%s", err);
        return -1;
    }
    if (size_cache(c) == -1)
        return -1;
    qm_params_complete(&c->params, c->block_size,
                       c->cache_blocks > 0 ? c->cache_blocks * c->block_size
                                           : c->block_bytes);
    cache = qm_params_cache(&c->params, c->policy, c->block_size, c->blocks);
    cache.shards = c->shards;
    cache.data = true;
    if (qm_cache_check(&cache, err, sizeof err) != 0) {
        qms_value_complain("%s", err);
        return -1;
    }
    return 0;
}

int qms_config_complete(struct qms_config *c)
{
    defaults(c);
    for (size_t i = 0; i < KEYS; i++)
        if (keys[i].value && set_key(i, keys[i].value, c) == -1)
            return -1;
    if (derive(c) == -1)
        return -1;
    warn_of_ignored(c);
    return 0;
}

/* What can be changed while the server runs, as getters show it. */
static void get_policy(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%s", c->params.policy);
}

static void get_cache_size(const struct qms_config *c, char *text, size_t len)
{
    snprintf(text, len, "%" PRIu64, c->cache_size);
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

    while (strcmp(keys[i].key, key) != 0)
        i++;
    return i;
}

static const char *value_of(size_t i, const struct qms_setting *settings, size_t n)
{
    for (size_t k = n; k-- > 0;)
        if (strcmp(keys[i].key, settings[k].key) == 0)
            return settings[k].value;
    return keys[i].value;
}

/* A path of the command line may be relative to a directory that the server has left.
 */
static bool is_path(size_t i)
{
    return keys[i].parse == set_rules || keys[i].parse == set_trained ||
           keys[i].parse == set_tier || keys[i].parse == set_tier_witness ||
           keys[i].parse == set_record || keys[i].parse == set_stats ||
           keys[i].parse == set_stats_http || keys[i].parse == set_control;
}

int qms_config_change(const struct qms_config *now, const struct qms_setting *settings,
                      size_t n, struct qms_config *c, char *err, size_t len)
{
    int r = 0;

    for (size_t k = 0; k < n; k++)
        if (qms_config_get(now, settings[k].key, err, len) == -1)
            return -1;
    err[0] = '\0';
    qms_value_tell(err, len);
    defaults(c);
    c->rules = now->rules;
    c->trained = now->trained;
    c->tier = now->tier;
    c->tier_witness = now->tier_witness;
    c->record = now->record;
    c->stats = now->stats;
    c->stats_http = now->stats_http;
    c->control = now->control;
    for (size_t i = 0; i < KEYS && r == 0; i++) {
        const char *value = value_of(i, settings, n);

        if (value && !is_path(i))
            r = set_key(i, value, c);
    }
    if (r == 0)
        r = derive(c);
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
    for (size_t k = 0; k < n; k++) {
        size_t i = find_key(settings[k].key);

        free(changed[i]);
        keys[i].value = changed[i] = copies[k];
    }
    return 0;
}

void qms_config_free(struct qms_config *c)
{
    free(c->rules);
    free(c->trained);
    free(c->tier);
    free(c->tier_witness);
    free(c->record);
    free(c->stats);
    free(c->stats_http);
    free(c->control);
    for (size_t i = 0; i < KEYS; i++) {
        free(changed[i]);
        changed[i] = NULL;
    }
}
