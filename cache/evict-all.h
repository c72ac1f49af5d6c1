/* evict-all.h - the policies that there are, for the registry in eviction.c.  A new one
 * adds a line here, a line there, and its file to CMakeLists.txt. */
#ifndef QM_EVICT_ALL_H
#define QM_EVICT_ALL_H

#include "cache/eviction.h"

extern const struct qm_evict_ops qm_evict_lru;

/* The most that any of them keeps per block of capacity, for the byte budget. */
size_t qm_evict_max_bytes(void);

#endif
