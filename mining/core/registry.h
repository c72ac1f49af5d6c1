/* SPDX-License-Identifier: BSD-3-Clause */
/* registry.h - the prefetchers that there are; used by prefetcher.c, and by
 * auto/, which is made of others. */
#ifndef QM_REGISTRY_H
#define QM_REGISTRY_H

#include "mining/core/prefetcher.h"

extern const struct qm_prefetcher_ops qm_prefetcher_none;
extern const struct qm_prefetcher_ops qm_prefetcher_seq;
extern const struct qm_prefetcher_ops qm_prefetcher_run;
extern const struct qm_prefetcher_ops qm_prefetcher_amp;
extern const struct qm_prefetcher_ops qm_prefetcher_mithril;
extern const struct qm_prefetcher_ops qm_prefetcher_quickmine;
extern const struct qm_prefetcher_ops qm_prefetcher_ppm;
extern const struct qm_prefetcher_ops qm_prefetcher_readahead;
extern const struct qm_prefetcher_ops qm_prefetcher_auto;
extern const struct qm_prefetcher_ops qm_prefetcher_cminer;
extern const struct qm_prefetcher_ops qm_prefetcher_cminer_plus;

#endif
