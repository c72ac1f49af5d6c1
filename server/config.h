/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - the filter's parameters (nbdkit-quickmine-filter(1)). */
#ifndef QMS_CONFIG_H
#define QMS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/params.h"
#include "server/log.h"
#include "server/priority.h"
#include "tier/tier.h"

struct qms_config {
    /* The cache. */
    uint64_t cache_size;   /* bytes, metadata included, and the rules of policy ppm */
    uint64_t rules_bytes;  /* of these, the rules' at first; 0: they are beside it */
    uint64_t cache_blocks; /* capacity in blocks; 0: by cache_size */
    uint64_t block_size;
    uint64_t shards; /* 0: by the number of processors */

    /* What to prefetch, and how. */
    struct qm_params params;
    const struct qm_prefetcher_ops *policy; /* params.policy's */
    /* QM_PREFETCH_AUTO: as many as pay; connections 0: as needed. */
    uint64_t prefetch_threads, prefetch_connections, prefetch_queue;
    enum qms_priority prefetch_priority;
    uint64_t miner_queue; /* capacity of the miner's queue, bytes */
    uint64_t rules_save;  /* seconds; 0: at the end only */
    uint64_t rules_purge; /* seconds; 0: never */

    /* The second tier. */
    uint64_t tier_size;       /* bytes; 0: of a block device, all */
    uint64_t tier_write_rate; /* bytes a day; 0: no bound */
    enum qm_tier_admit tier_admit;
    enum qm_tier_verify tier_verify;
    const char *tier_volume; /* name of what it holds copies of; NULL: made up */

    /* The server. */
    bool parallel;    /* a connection's requests may run in parallel */
    bool prefetching; /* false: learn only */
    bool check_only;  /* end once all layers have their parameters */
    enum qms_log_level log_level;
    char *tier, *tier_witness; /* absolute paths or NULL; freed by qms_config_free() */
    char *rules, *trained, *record, *stats,
        *control;          /* absolute paths or NULL; freed by qms_config_free() */
    char *stats_http;      /* as qms_http_open() takes it, or NULL; the same */
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

/* The two halves of that, for settings.c: the defaults; and what follows from the
 * values that have been put into config, with the checks of the whole. */
void qms_config_defaults(struct qms_config *config);
int qms_config_derive(struct qms_config *config);

/* A key=value for a server that runs. */
struct qms_setting {
    const char *key, *value;
};

/* The i-th of the keys that can be changed while the server runs; NULL: there are no
 * more. */
const char *qms_config_changeable(size_t i);

/* Puts the value of such a key into text, in the form in which it is given.  -1 if key
 * cannot be changed; then text is a sentence that says so, and names those that can. */
int qms_config_get(const struct qms_config *config, const char *key, char *text,
                   size_t len);

/* The configuration that the command line would have given with these settings instead
 * of its own.  Returns 0, or -1 with a sentence in err: the checks are those of
 * qms_config_complete().  *changed shares the paths of `now`, and is not to be freed.
 */
int qms_config_change(const struct qms_config *now, const struct qms_setting *settings,
                      size_t n, struct qms_config *changed, char *err, size_t len);

/* The settings have been carried out: later changes start from them.  Each key comes
 * once.  -1: memory is out, and nothing has changed. */
int qms_config_keep(const struct qms_setting *settings, size_t n);

/* Whether the chosen policy uses that parameter. */
bool qms_config_heeds(const struct qms_config *config, const char *key);

void qms_config_free(struct qms_config *config);

#endif
