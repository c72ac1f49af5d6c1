/* SPDX-License-Identifier: BSD-3-Clause */
/* join.h - whose is a request: joins reads that were seen being submitted with the
 * requests that come of them.
 *
 * The kernel tells of a read when a thread submits it (an event), and sends a request
 * for it later, perhaps together with others for the bytes beside it, or in parts.  So
 * what is joined is bytes: each byte of a request belongs to the oldest event for it
 * that no request has taken yet.  Requests nearly always come after their events.  One
 * that came first is kept, too, for QM_JOIN_ASKED: an event that was submitted before
 * it arrived is its, and must not be taken for the next read's.
 *
 * An event whose request never comes (a read that failed on its way) would be taken for
 * the next one of the same bytes.  It is dropped when requests have come for reads that
 * were submitted QM_JOIN_LATE after it.  While the device stands still, nothing is.
 *
 * Bounds: QM_JOIN_MOST pieces in all, QM_JOIN_REGION_MOST of one region; the oldest go
 * first.  What is missing makes a request of no context, never of a wrong one.
 *
 * Threads: one at a time.
 */
#ifndef QM_ATTACH_JOIN_H
#define QM_ATTACH_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_JOIN_LATE        UINT64_C(1000000000) /* ns */
#define QM_JOIN_ASKED       UINT64_C(1000000000) /* ns; longer than requests wait */
#define QM_JOIN_MOST        65536
#define QM_JOIN_REGION_MOST 1024
#define QM_JOIN_REGION      (UINT64_C(1) << 17) /* bytes */

/* A context is a number that is not 0, of which each event brings a reference. */
struct qm_join_calls {
    void (*hold)(void *opaque, uint64_t context); /* one more reference */
    void (*release)(void *opaque, uint64_t context);
    void *opaque;
};

struct qm_join;

/* NULL if memory is out. */
struct qm_join *qm_join_new(const struct qm_join_calls *calls);
/* Releases what it holds.  May be NULL. */
void qm_join_free(struct qm_join *join);

/* A read of the bytes from offset on was submitted at ns, in a context or in none (0),
 * whose reference is the joiner's from now on. */
void qm_join_event(struct qm_join *join, uint64_t context, uint64_t offset,
                   uint64_t bytes, uint64_t ns);

/* Whether there are events for all of these bytes. */
bool qm_join_knows(const struct qm_join *join, uint64_t offset, uint64_t bytes);

/* A part of a request. */
struct qm_join_piece {
    uint64_t offset, bytes;
    uint64_t context; /* 0: none; else a reference that is the caller's */
};

/* A request that arrived at ns: writes into pieces what it consists of, in order and
 * without gaps, and takes the events for it.  Returns how many; what does not fit into
 * `most` pieces goes to the last of them, of no context. */
size_t qm_join_request(struct qm_join *join, uint64_t offset, uint64_t bytes,
                       uint64_t ns, struct qm_join_piece *pieces, size_t most);

struct qm_join_stats {
    uint64_t requests;
    uint64_t split;   /* requests of more than one piece */
    uint64_t unknown; /* requests with bytes of which no event told */
    uint64_t late;    /* events that came after their requests */
    uint64_t aged;    /* events whose requests never came, or pieces of these */
    uint64_t dropped; /* for want of room or memory */
};

void qm_join_get_stats(const struct qm_join *join, struct qm_join_stats *stats);

#endif
