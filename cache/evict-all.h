/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-all.h - all eviction policies, for the registry in eviction.c.  A new policy
 * adds a line here, a line there, and its file to CMakeLists.txt. */
#ifndef QM_EVICT_ALL_H
#define QM_EVICT_ALL_H

#include "cache/eviction.h"

extern const struct qm_evict_ops qm_evict_lru;
extern const struct qm_evict_ops qm_evict_lfu;
extern const struct qm_evict_ops qm_evict_mru;
extern const struct qm_evict_ops qm_evict_arc;
extern const struct qm_evict_ops qm_evict_s3fifo;
extern const struct qm_evict_ops qm_evict_wtinylfu;
extern const struct qm_evict_ops qm_evict_adaptive;

/* The node of an LRU that is the next to go; NULL: there is none. */
struct qm_evict_node *qm_evict_lru_oldest(void *policy);

/* The most bytes that any of them declares for that capacity, for the byte budget. */
size_t qm_evict_max_bytes(uint64_t capacity);

#endif
