/* SPDX-License-Identifier: BSD-3-Clause */
/* proof.h - for tests of what is made of candidates that are known to pay. */
#ifndef QM_TESTS_ENGINE_PROOF_H
#define QM_TESTS_ENGINE_PROOF_H

#include "engine/watch.h"

/* Blocks that were watched are missed at once: n of either kind. */
static inline void show_uses(struct qm_watch *w, unsigned n)
{
    const uint32_t horizons[2] = {UINT32_MAX, UINT32_MAX};
    struct qm_watch_end ends[QM_WATCH_ENDS];

    for (uint64_t i = 0; i < 2 * n; i++) {
        qm_watch_add(w, QM_BLOCKS_MAX - 1 - i, 0, i % 2);
        (void)qm_watch_missed(w, QM_BLOCKS_MAX - 1 - i, 0, horizons, ends);
    }
}

/* Both kinds of candidates are proven. */
static inline void prove(struct qm_watch *w)
{
    show_uses(w, 8);
}

#endif
