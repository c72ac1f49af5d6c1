/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-wtinylfu.h - W-TinyLFU with other windows, and a sketch that several share. */
#ifndef QM_EVICT_WTINYLFU_H
#define QM_EVICT_WTINYLFU_H

#include <stdbool.h>

#include "cache/evict-sketch.h"

/* For qm_evict_wtinylfu.create_for(). */
struct qm_wtinylfu_config {
    unsigned window;          /* percent of the blocks: 0 (1 block) to 100 (LRU) */
    bool keeps;               /* a window that has less grows to that again */
    bool yields;              /* a window that nothing refills shrinks to 1 block */
    struct qm_sketch *sketch; /* whose owner counts each access, and outlives the
                                 policy; NULL: one of its own */
};

#endif
