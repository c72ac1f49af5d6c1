/* SPDX-License-Identifier: BSD-3-Clause */
/* reading.h - what a read means: for its context, for classes, for what is prefetched.
 *
 * io.c finds the blocks of a read; here each outcome updates the statistics, extends
 * the context's sequence, and issues what that makes likely.  A read whose context is
 * known from hints only (hints.h) extends no sequence: its hint does.
 */
#ifndef QMS_READING_H
#define QMS_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "server/contexts.h"
#include "server/hints.h"

struct qms_server;
struct qms_connection;

/* A request, from its arrival to its end; its thread's. */
struct qms_reading {
    struct qms_server *s;
    struct qms_ref ref;
    uint64_t last;                  /* block */
    uint64_t start;                 /* ns */
    uint64_t outcomes[QM_MISS + 1]; /* blocks that count for ref */
    bool hintable;                  /* hints may come for it, ... */
    bool hinted;                    /* ... and usually do: ref is of no context */
    unsigned connection;
    bool named;           /* a hint was there for one of its blocks, ... */
    struct qms_hint hint; /* ... first, this */
};

/* A request of count bytes at offset arrives, in slot's context (NULL: none), over a
 * connection. */
void qms_reading_begin(struct qms_reading *r, struct qms_server *s,
                       struct qms_connection *c, struct qms_slot *slot, uint32_t count,
                       uint64_t offset);
/* A block of it was found. */
void qms_reading_found(struct qms_reading *r, uint64_t block,
                       const struct qm_lookup *found);
/* It has ended. */
void qms_reading_end(struct qms_reading *r, uint32_t count);

/* Receives the sessions' hints about reads (struct qms_sessions); opaque is the server.
 */
void qms_reading_hinted(void *opaque, unsigned source, struct qms_slot *slot,
                        uint64_t offset, uint32_t length);
unsigned qms_reading_hinting(void *opaque);
void qms_reading_hinting_ended(void *opaque, unsigned source);
void qms_reading_told(void *opaque, const struct qm_bytes *extents, unsigned n);
/* Receives the blocks that the engine does not prefetch (struct qm_engine); opaque is
 * the server.  Without the read lock. */
void qms_reading_refused(void *opaque, uint64_t number, uint64_t block, uint32_t count);
/* For qms_hints_new(). */
void qms_reading_alone(void *opaque, uint64_t block, enum qm_outcome outcome);

#endif
