/* SPDX-License-Identifier: BSD-3-Clause */
/* paper.h - one context's streams under a preset (presets.h).
 *
 * In Linux each open file has one stream; here a context has up to QM_PAPER_STREAMS,
 * told apart by where they read on.  Strictly sequential: a read that leaves a block
 * out, or goes backward, is a new one.
 *
 * No locking: the caller serializes what one context reads.
 */
#ifndef QM_PAPER_H
#define QM_PAPER_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"
#include "mining/core/recent.h"
#include "mining/core/span.h"
#include "mining/readahead/presets.h"

enum { QM_PAPER_STREAMS = 64 };

struct qm_paper_config {
    bool aware; /* else: linux */
    struct qm_caps caps;
    /* Where a block lies; NULL: all on a disk. */
    enum qm_place (*place)(void *opaque, uint64_t block);
    void *opaque;
};

struct qm_paper {
    struct qm_recent streams;
};

void qm_paper_fini(struct qm_paper *paper);

/* A read of count blocks misses the first of them.  Returns what is to be read ahead.
 */
struct qm_span qm_paper_miss(struct qm_paper *paper,
                             const struct qm_paper_config *config, uint64_t block,
                             uint32_t count);

/* The same for one that finds a block that was read ahead. */
struct qm_span qm_paper_pass(struct qm_paper *paper,
                             const struct qm_paper_config *config, uint64_t block,
                             uint32_t count);

#endif
