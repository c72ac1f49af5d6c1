/* SPDX-License-Identifier: BSD-3-Clause */
/* idle.c - operations that do nothing. */
#include "mining/core/idle.h"

#include <string.h>

int qm_idle_learn(struct qm_prefetcher *p, struct qm_work *work)
{
    return 0;
}

void qm_idle_discard(struct qm_prefetcher *p, struct qm_work *work)
{
}

void qm_idle_ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                   uint32_t user, enum qm_fate fate)
{
}

int qm_idle_purge(struct qm_prefetcher *p, uint64_t now)
{
    return 0;
}

void qm_idle_stats(struct qm_prefetcher *p, struct qm_mining_stats *stats)
{
    memset(stats, 0, sizeof *stats);
}
