/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - how much memory policy readahead has for the streams that it knows, and
 * what another policy beside it has to know of them.
 *
 * Alone it always has as much as it can use.  Policy auto divides memory between it and
 * rules. */
#ifndef QM_READAHEAD_MEMORY_H
#define QM_READAHEAD_MEMORY_H

#include "mining/core/prefetcher.h"

/* From now on p, of policy readahead, has at most that many bytes, or the least that
 * streams need.  Returns what it has.  Any thread. */
uint64_t qm_readahead_set_bytes(struct qm_prefetcher *p, uint64_t bytes);

/* Whether block, which the stream's context has just missed, or demanded first since it
 * was prefetched, is one of a file whose extents are known, of which the context has
 * read that many blocks in one run. */
bool qm_readahead_scans_file(const struct qm_stream *stream, uint64_t block,
                             uint32_t blocks);

#endif
