/* SPDX-License-Identifier: BSD-3-Clause */
/* idle.h - the operations of a prefetcher that have nothing to do in it (prefetcher.h).
 */
#ifndef QM_IDLE_H
#define QM_IDLE_H

#include "mining/core/prefetcher.h"

/* Learns nothing, so there is no work to learn from. */
int qm_idle_learn(struct qm_prefetcher *p, struct qm_work *work);
void qm_idle_discard(struct qm_prefetcher *p, struct qm_work *work);

/* Does not care what became of its blocks. */
void qm_idle_ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                   uint32_t user, enum qm_fate fate);

/* Has no rules. */
int qm_idle_purge(struct qm_prefetcher *p, uint64_t now);
void qm_idle_stats(struct qm_prefetcher *p, struct qm_mining_stats *stats);

#endif
