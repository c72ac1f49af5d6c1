/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.c - see parameters.h. */
#include "mining/core/parameters.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define GIB(n) ((uint64_t)(n) << 30)
#define FIELD(field)                                                                   \
    offsetof(struct qm_mining_config, field),                                          \
        sizeof(((struct qm_mining_config *)0)->field)

static const struct qm_parameter parameters[] = {
    [QM_LOOKAHEAD] = {"lookahead", QM_COUNT, QM_LOOKAHEAD_MIN, QM_LOOKAHEAD_MAX,
                      QM_CHECKED, "5", NULL, "accesses that a rule may span",
                      FIELD(lookahead)},
    [QM_DEGREE] = {"degree", QM_COUNT, 1, QM_CANDIDATES_MAX, QM_CHECKED, "4", NULL,
                   "most blocks prefetched for an access", FIELD(degree)},
    [QM_MAX_PREFIX] = {"max-prefix", QM_COUNT, 0, UINT32_MAX, QM_UNCHECKED, "262144",
                       "0", "prefixes kept, the least recently used goes first; 0: all",
                       FIELD(max_prefix)},
    [QM_MAX_SUFFIX] = {"max-suffix", QM_COUNT, 0, UINT16_MAX, QM_UNCHECKED, "8", "0",
                       "suffixes kept for a prefix, the least frequent goes first; 0: "
                       "all",
                       FIELD(max_suffix)},
    [QM_GRACE] = {"grace", QM_COUNT, 0, UINT16_MAX, QM_CHECKED, "3", NULL,
                  "updates of its prefix during which a new suffix is kept",
                  FIELD(grace)},
    [QM_SEGMENT] = {"segment", QM_COUNT, 0, UINT32_MAX, QM_UNCHECKED, "4096", "0",
                    "blocks after which a sequence is mined in passing; 0: only at its "
                    "end",
                    FIELD(segment)},
    [QM_SKIP_HITS] = {"skip-hits", QM_FLAG, 0, 1, QM_UNCHECKED, "on", "off",
                      "learn nothing from hits that are not near a miss",
                      FIELD(skip_hits)},
    [QM_RULES_MEMORY] = {"rules-memory", QM_SIZE, KIB(64), GIB(1024), QM_CHECKED_OR_0,
                         "a part of cache-size", NULL, "most memory for the rules",
                         FIELD(rules_memory)},
    [QM_RULES_POOL] = {"rules-pool", QM_SIZE, QM_POOL_MIN, QM_POOL_MAX, QM_CHECKED,
                       "8M", "4M",
                       "memory for the rules; others are in a temporary file",
                       FIELD(rules_pool)},
    [QM_RULES] = {"rules", QM_FILE, 0, 0, QM_UNCHECKED, "none", NULL,
                  "directory in which rules are kept", FIELD(rules_dir)},
    [QM_RULES_FOR] = {"rules-for", QM_WORD, 0, 0, QM_UNCHECKED, "by its size", NULL,
                      "the device that the rules are of", FIELD(rules_for)},
    [QM_RULES_PURGE] = {"rules-purge", QM_COUNT, 0, UINT32_MAX, QM_UNCHECKED, "0", NULL,
                        "seconds after which unused rules are removed; 0: never",
                        FIELD(purge_after)},
    [QM_TRAINED] = {"trained", QM_FILE, 0, 0, QM_UNCHECKED, "none", NULL,
                    "rules mined off-line", FIELD(trained)},
    [QM_RETRAIN] = {"retrain", QM_COUNT, 0, QM_RETRAIN_MAX, QM_CHECKED, "0", NULL,
                    "accesses after which it learns again; 0: as it does by itself",
                    FIELD(retrain)},
    [QM_READAHEAD_PRESET] = {"readahead-preset", QM_WORD, 0, 0, QM_UNCHECKED, "none",
                             NULL,
                             "published scheme to follow instead: linux or "
                             "device-aware",
                             FIELD(readahead_preset)},
    [QM_READAHEAD_CAP] = {"readahead-cap", QM_COUNT, 4, 65536, QM_CHECKED, "128", NULL,
                          "largest window of linux in KiB", FIELD(readahead_cap)},
    [QM_READAHEAD_CAP_DISK] = {"readahead-cap-disk", QM_COUNT, 4, 65536, QM_CHECKED,
                               "512", NULL,
                               "largest window of device-aware on a disk in KiB",
                               FIELD(readahead_cap_disk)},
    [QM_READAHEAD_CAP_SSD] = {"readahead-cap-ssd", QM_COUNT, 4, 65536, QM_CHECKED, "32",
                              NULL, "largest window of device-aware on an SSD in KiB",
                              FIELD(readahead_cap_ssd)},
};
static_assert(sizeof parameters / sizeof parameters[0] == QM_PARAMETERS,
              "each has its entry");

const struct qm_parameter *qm_parameter(enum qm_parameter_id id)
{
    return &parameters[id];
}

const struct qm_parameter *qm_parameter_find(const char *name)
{
    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        if (strcmp(parameters[id].name, name) == 0)
            return &parameters[id];
    }
    return NULL;
}

bool qm_parameter_heeded(const struct qm_parameter *parameter,
                         const struct qm_prefetcher_ops *ops)
{
    return ops->parameters & QM_HEEDS(parameter - parameters);
}

uint64_t qm_parameter_get(const struct qm_parameter *parameter,
                          const struct qm_mining_config *config)
{
    const char *field = (const char *)config + parameter->offset;

    if (parameter->kind == QM_FLAG)
        return *(const bool *)field;
    if (parameter->bytes == sizeof(uint64_t))
        return *(const uint64_t *)(const void *)field;
    return *(const unsigned *)(const void *)field;
}

void qm_parameter_set(const struct qm_parameter *parameter,
                      struct qm_mining_config *config, uint64_t value)
{
    char *field = (char *)config + parameter->offset;

    if (parameter->kind == QM_FLAG)
        *(bool *)field = value != 0;
    else if (parameter->bytes == sizeof(uint64_t))
        *(uint64_t *)(void *)field = value;
    else
        *(unsigned *)(void *)field = (unsigned)value;
}

void qm_parameter_set_text(const struct qm_parameter *parameter,
                           struct qm_mining_config *config, const char *text)
{
    memcpy((char *)config + parameter->offset, &text, sizeof text);
}

void qm_parameter_copy(const struct qm_parameter *parameter,
                       struct qm_mining_config *config,
                       const struct qm_mining_config *from)
{
    memcpy((char *)config + parameter->offset, (const char *)from + parameter->offset,
           parameter->bytes);
}

/* A size as people write it. */
static void write_size(uint64_t bytes, char *text, size_t len)
{
    static const char units[] = "KMGT";
    unsigned unit = 0;

    for (bytes >>= 10; bytes >= 1024 && bytes % 1024 == 0 && unit < 3; unit++)
        bytes >>= 10;
    snprintf(text, len, "%" PRIu64 "%c", bytes, units[unit]);
}

void qm_parameter_limits(const struct qm_parameter *p, char *text, size_t len)
{
    char min[24], max[24];

    if (p->kind == QM_SIZE) {
        write_size(p->min, min, sizeof min);
        write_size(p->max, max, sizeof max);
        snprintf(text, len, "from %s to %s", min, max);
    } else if (p->min == 0) {
        snprintf(text, len, "at most %" PRIu64, p->max);
    } else {
        snprintf(text, len, "from %" PRIu64 " to %" PRIu64, p->min, p->max);
    }
}

static void __attribute__((format(printf, 3, 4)))
add(char *text, size_t len, const char *format, ...)
{
    size_t at = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + at, len - at, format, args);
    va_end(args);
}

void qm_parameter_help(const struct qm_parameter *p, const char *fallback, char *text,
                       size_t len)
{
    char min[24], max[24], names[256], *rest = names, *name;
    const char *comma = "; ";

    text[0] = '\0';
    add(text, len, "%s", p->help);
    if (p->kind == QM_COUNT) {
        add(text, len, " (%" PRIu64 " to %" PRIu64, p->min, p->max);
    } else if (p->kind == QM_SIZE) {
        write_size(p->min, min, sizeof min);
        write_size(p->max, max, sizeof max);
        add(text, len, " (%s to %s", min, max);
    } else {
        comma = " (";
    }
    add(text, len, "%sdefault %s", comma, fallback ? fallback : p->fallback);
    if (p->paper && !fallback)
        add(text, len, "; %s in the preset", p->paper);
    add(text, len, "); for policy");
    snprintf(names, sizeof names, "%s", qm_prefetcher_names());
    while ((name = strsep(&rest, ", "))) {
        if (*name && qm_parameter_heeded(p, qm_prefetcher_find(name)))
            add(text, len, " %s", name);
    }
}
