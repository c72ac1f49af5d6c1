/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher.c - the prefetchers by name, and their configuration (see prefetcher.h).
 */
#include "mining/core/prefetcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mining/core/parameters.h"
#include "mining/core/registry.h"

#define DEVICE_MAX 4096
#define RULES_MIN  (UINT64_C(64) << 10)
#define RULES_MAX  (UINT64_C(1) << 40)
#define RULES_PART 8 /* of the cache */

/* clang-format off */ /* one a line */
static const struct qm_prefetcher_ops *const prefetchers[] = {
    &qm_prefetcher_none,
    &qm_prefetcher_seq,
    &qm_prefetcher_run,
    &qm_prefetcher_amp,
    &qm_prefetcher_mithril,
    &qm_prefetcher_quickmine,
    &qm_prefetcher_ppm,
    &qm_prefetcher_readahead,
    &qm_prefetcher_auto,
    &qm_prefetcher_cminer,
    &qm_prefetcher_cminer_plus,
};
/* clang-format on */
#define COUNT (sizeof prefetchers / sizeof prefetchers[0])

const struct qm_prefetcher_ops *qm_prefetcher_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(prefetchers[i]->name, name) == 0) {
            return prefetchers[i];
        }
    }
    return NULL;
}

static char names[256];
static pthread_once_t named = PTHREAD_ONCE_INIT;

static void name_all(void)
{
    size_t at = 0;

    for (size_t i = 0; i < COUNT && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               prefetchers[i]->name);
}

const char *qm_prefetcher_names(void)
{
    pthread_once(&named, name_all);
    return names;
}

/* By bit; the old names are accepted for one release. */
static const struct {
    const char *name, *old;
} ablations[] = {
    {"two", NULL},          {"confidence", "judge"}, {"watch", NULL},
    {"threshold", "price"}, {"lookahead", "chain"},  {"misses", NULL},
    {"accuracy", "aim"},    {"ages", NULL},          {"statements", NULL},
};

unsigned qm_ablation_find(const char *name)
{
    for (unsigned i = 0; i < sizeof ablations / sizeof ablations[0]; i++) {
        if (strcmp(ablations[i].name, name) == 0 ||
            (ablations[i].old && strcmp(ablations[i].old, name) == 0))
            return 1u << i;
    }
    return 0;
}

const char *qm_ablation_names(void)
{
    return "two, confidence, watch, threshold, lookahead, misses, accuracy, ages, "
           "statements";
}

void qm_mining_defaults(struct qm_mining_config *config)
{
    *config = (struct qm_mining_config){
        .lookahead = 5,
        .max_prefix = 262144,
        .max_suffix = 8,
        .grace = 3,
        .degree = 4,
        .segment = 4096,
        .skip_hits = true,
        .rules_pool = UINT64_C(8) << 20,
        .readahead_cap = 128,
        .readahead_cap_disk = 512,
        .readahead_cap_ssd = 32,
    };
}

void qm_mining_paper(struct qm_mining_config *config)
{
    qm_mining_defaults(config);
    config->max_prefix = 0;
    config->max_suffix = 0;
    config->segment = 0;
    config->skip_hits = false;
    config->rules_pool = UINT64_C(4) << 20;
}

uint64_t qm_mining_rules_memory(uint64_t cache_bytes)
{
    uint64_t bytes = cache_bytes / RULES_PART;

    if (bytes < RULES_MIN)
        return RULES_MIN;
    return bytes < RULES_MAX ? bytes : RULES_MAX;
}

static int __attribute__((format(printf, 3, 4)))
wrong(char *err, size_t len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, len, format, args);
    va_end(args);
    return EINVAL;
}

int qm_mining_check(const struct qm_mining_config *config, char *err, size_t len)
{
    char limits[64];

    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        const struct qm_parameter *p = qm_parameter((enum qm_parameter_id)id);
        uint64_t value;

        if (p->check == QM_UNCHECKED)
            continue;
        value = qm_parameter_get(p, config);
        if (value == 0 && p->check == QM_CHECKED_OR_0)
            continue;
        if (value < p->min || value > p->max) {
            qm_parameter_limits(p, limits, sizeof limits);
            return wrong(err, len, "%s is %llu; it must be %s", p->name,
                         (unsigned long long)value, limits);
        }
    }
    if (config->rules_dir && !*config->rules_dir) {
        return wrong(err, len, "the name of the rules directory is empty");
    }
    if (config->rules_for && strlen(config->rules_for) > DEVICE_MAX) {
        return wrong(err, len,
                     "the name of the device that the rules are of is longer "
                     "than %d bytes",
                     DEVICE_MAX);
    }
    err[0] = '\0';
    return 0;
}
