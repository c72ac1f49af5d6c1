/* SPDX-License-Identifier: BSD-3-Clause */
/* mine.c - the rules that a trace holds. */
#include "sim/mine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feed.h"
#include "engine/params.h"

struct qm_mine {
    struct qm_prefetcher *prefetcher;
    struct qm_feed feed;
    uint64_t block_size;
};

struct qm_mine *qm_mine_new(const struct qm_mining_config *config, enum qm_level level,
                            uint64_t block_size, char *err, size_t len)
{
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find("quickmine");
    struct qm_mining_config adjusted = *config;
    struct qm_mine *mine;
    char why[256] = "";
    int error;

    qm_params_bound_segment(&adjusted, level);
    if (qm_mining_check(&adjusted, err, len) != 0)
        return NULL;
    mine = calloc(1, sizeof *mine);
    if (!mine) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    mine->block_size = block_size;
    error = ops->create(&adjusted, &mine->prefetcher, why, sizeof why);
    if (error) {
        snprintf(err, len, "%s", why[0] ? why : strerror(error));
        free(mine);
        return NULL;
    }
    if (qm_feed_init(&mine->feed, mine->prefetcher, level) != 0) {
        snprintf(err, len, "out of memory");
        qm_mine_free(mine);
        return NULL;
    }
    return mine;
}

static int mine_read(struct qm_mine *mine, const struct qm_event *event)
{
    struct qm_context *target = qm_feed_target(&mine->feed, event);
    uint64_t block = event->offset / mine->block_size;
    uint64_t last = (event->offset + event->length - 1) / mine->block_size;
    int error = 0;

    if (!target)
        return 0;
    for (; block <= last && !error; block++)
        error = qm_feed_access(&mine->feed, target, block, QM_ACCESS_MISS);
    return error;
}

int qm_mine_event(struct qm_mine *mine, const struct qm_event *event)
{
    switch (event->type) {
    case QM_TRACE_BEGIN:
    case QM_TRACE_END:
        return qm_feed_context(&mine->feed, event);
    case QM_TRACE_READ:
        return mine_read(mine, event);
    default:
        return 0; /* writes are not mined */
    }
}

int qm_mine_finish(struct qm_mine *mine)
{
    return qm_feed_finish(&mine->feed, true);
}

int qm_mine_rules(struct qm_mine *mine,
                  int (*each)(void *opaque, const struct qm_rule *rule), void *opaque)
{
    return mine->prefetcher->ops->rules(mine->prefetcher, each, opaque);
}

void qm_mine_free(struct qm_mine *mine)
{
    if (!mine)
        return;
    qm_feed_finish(&mine->feed, false);
    mine->prefetcher->ops->destroy(mine->prefetcher);
    free(mine);
}
