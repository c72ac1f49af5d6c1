/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - the filter's parameters (nbdkit-quickmine-filter(1)). */
#ifndef QMS_CONFIG_H
#define QMS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/params.h"

struct qms_config {
    /* The cache. */
    uint64_t cache_size;   /* bytes, metadata included, and the rules of policy ppm */
    uint64_t block_bytes;  /* of these, what blocks and their metadata may take */
    uint64_t cache_blocks; /* capacity in blocks; 0: by cache_size */
    uint64_t block_size;
    uint64_t shards; /* 0: by the number of processors */

    /* What to prefetch, and how. */
    struct qm_params params;
    const struct qm_prefetcher_ops *policy; /* params.policy's */
    uint64_t prefetch_threads, prefetch_connections, prefetch_queue;
    uint64_t miner_queue; /* capacity of the miner's queue, bytes */
    uint64_t rules_save;  /* seconds; 0: at the end only */
    uint64_t rules_purge; /* seconds; 0: never */

    /* The server. */
    bool parallel; /* a connection's requests may run in parallel */
    char *rules, *trained, *record,
        *stats;            /* absolute paths or NULL; freed by qms_config_free() */
    const char *rules_for; /* name of the device of the rules; NULL: by its size */

    /* Derived by qms_config_complete(). */
    uint64_t blocks;
    uint64_t prefetch_blocks; /* prefetch partition; its initial size if share_adapts */
    uint64_t prefetch_most;   /* largest size of it */
};

/* nbdkit's --help shows it.  Empty until qms_config_load(), which the filter calls when
 * it is loaded, has made it from the tables of parameters. */
extern char qms_config_help[];
void qms_config_load(void);

/* A key=value of the command line.  Returns 0; 1 if the key is not one of ours; or -1
 * when nbdkit_error() has said what was wrong. */
int qms_config_set(const char *key, const char *value);

/* Puts the defaults, the preset and the values together and checks the whole.  Returns
 * 0, or -1 when nbdkit_error() has said what was wrong. */
int qms_config_complete(struct qms_config *config);

/* Whether the chosen policy uses that parameter. */
bool qms_config_heeds(const struct qms_config *config, const char *key);

void qms_config_free(struct qms_config *config);

#endif
