/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-keys.c - finds misspelt keys in the file that describes a server.
 *
 * Keys that are not serve's go to the filter; and those that are not its, nbdkit offers
 * to the filters and the plugin below, which may be any.  So a key that is not known
 * here is refused only if it is like one that is.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/serve.h"

/* The filter's: all of server/parameters.c, as the test cli-serve_keys checks. */
static const char *const filters[] = {"admission",
                                      "block-size",
                                      "cache-blocks",
                                      "cache-size",
                                      "check-only",
                                      "control",
                                      "degree",
                                      "eviction",
                                      "grace",
                                      "level",
                                      "log-level",
                                      "lookahead",
                                      "max-prefix",
                                      "max-suffix",
                                      "miner-queue",
                                      "policy",
                                      "prefetch-connections",
                                      "prefetch-on",
                                      "prefetch-priority",
                                      "prefetch-queue",
                                      "prefetch-rate",
                                      "prefetch-share",
                                      "prefetch-threads",
                                      "prefetching",
                                      "preset",
                                      "readahead-cap",
                                      "readahead-cap-disk",
                                      "readahead-cap-ssd",
                                      "readahead-preset",
                                      "record",
                                      "requests",
                                      "retrain",
                                      "rules",
                                      "rules-for",
                                      "rules-memory",
                                      "rules-pool",
                                      "rules-purge",
                                      "rules-save",
                                      "segment",
                                      "shards",
                                      "skip-hits",
                                      "stats",
                                      "stats-http",
                                      "throttle",
                                      "tier",
                                      "tier-admit",
                                      "tier-size",
                                      "tier-verify",
                                      "tier-volume",
                                      "tier-witness",
                                      "tier-write-rate",
                                      "trained"};

const char *const serve_own_keys[] = {
    "backend", "filter",  "quickmine-filter", "nbdkit",         "nbdkit-option",
    "socket",  "control", "listen",           "stats",          "uri",
    "threads", "mount",   "readonly",         "lock-directory", "allocator",
    NULL};

/* Before the dot. */
static const char *const groups[] = {"backend", "mount", "agent"};

/* The key of a list that a key is most like, if it is more like that than *best; of a
 * short one, a third may differ. */
static void nearest(const char *key, const char *const *list, size_t n, unsigned *best,
                    const char **like)
{
    for (size_t i = 0; i < n && list[i]; i++) {
        unsigned far = cli_distance(key, list[i]);

        if (far < *best && far <= strlen(list[i]) / 3) {
            *best = far;
            *like = list[i];
        }
    }
}

int serve_check_keys(const struct serve_file *file)
{
    const size_t n = sizeof filters / sizeof filters[0];

    for (size_t i = 0; i < file->n; i++) {
        const struct serve_setting *s = &file->settings[i];
        const char *dot = strchr(s->key, '.'), *like = NULL;
        unsigned best = CLI_NEAR + 1;
        char group[16] = "";

        if (dot && dot - s->key < (ptrdiff_t)sizeof group) {
            memcpy(group, s->key, (size_t)(dot - s->key));
            nearest(group, groups, sizeof groups / sizeof groups[0], &best, &like);
        } else if (!dot) {
            nearest(s->key, serve_own_keys, SIZE_MAX, &best, &like);
            nearest(s->key, filters, n, &best, &like);
        }
        if (!like || best == 0)
            continue;
        cli_fail("%s:%u: there is no key %s; did you mean %s%s?", file->path, s->line,
                 s->key, like, dot ? dot : "");
        return -1;
    }
    return 0;
}
