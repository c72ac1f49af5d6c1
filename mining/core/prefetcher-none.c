/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-none.c - plain caching: the baseline that prefetching is measured against.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/registry.h"

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    *p = malloc(sizeof **p);
    if (!*p) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    (*p)->ops = &qm_prefetcher_none;
    err[0] = '\0';
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    free(p);
    return 0;
}

/* There is nothing to keep of a stream, so all are the same one. */
static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return (struct qm_stream *)p;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    *work = NULL;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    return 0;
}

static void end(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work)
{
    *work = NULL;
}

const struct qm_prefetcher_ops qm_prefetcher_none = {
    .name = "none",
    .summary = "plain caching, no prefetching",
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = qm_idle_stats,
    .rules = NULL,
};
