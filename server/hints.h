/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.h - joins clients' hints about reads with the reads themselves.
 *
 * A client may use the plain export through a device driver that knows no contexts, and
 * say over the tagged export in which context each of those reads is made
 * (QM_WIRE_READS of quickmine-protocol(7)).  A hint and its read travel on different
 * connections, so either may come first.  Here they meet: for each block first in,
 * first out.  A hint or a read that meets no partner is *left alone* and handed back;
 * such a read counts as one without a context.
 *
 * Hints and reads arrive in about the order in which the reads were submitted.  A hint
 * or read is therefore left alone when a later pair has met: both arrived
 * QMS_HINT_WINDOW after it, and one of them has its source (a connection that reads, or
 * a session that sends hints).  While its source is silent it waits, however busy other
 * sources are: an agent that gets no processor for two seconds loses no context.
 * QMS_HINT_PATIENCE bounds the wait.
 *
 * A client may lie in its hints.  A lie can falsify the statistics and the learning of
 * its own session's contexts and of reads without a context; nothing else depends on
 * hints.  A client that guesses what another connection reads can make that
 * connection's reads be left alone.
 *
 * Memory is fixed: STRIPES times two rings.  Where they are full, the source that has
 * most in one loses its oldest there, which count as left alone.  Blocks are spread
 * over the stripes, each with a lock of its own, which is a leaf; none is taken while
 * no session sends hints.
 *
 * Times are nanoseconds of one clock that does not go back.  All functions may be
 * called by any thread at any time.
 */
#ifndef QMS_HINTS_H
#define QMS_HINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "server/contexts.h"

/* ns.  A read comes long after its hint where requests queue in between: in the driver,
 * in the network, and for a thread of the server. */
#define QMS_HINT_WINDOW   UINT64_C(1000000000)
#define QMS_HINT_PATIENCE UINT64_C(5000000000)

struct qms_hints;

/* The classes that a read counts for: its context's, and those of enclosing contexts.
 */
struct qms_hint {
    uint32_t klass; /* index */
    struct qms_around around;
};

/* A read that no hint came for in time, and that was not counted before. */
typedef void qms_hints_alone(void *opaque, uint64_t block, enum qm_outcome outcome);

/* alone() is called by functions below, without a lock held.  NULL if memory is out. */
struct qms_hints *qms_hints_new(qms_hints_alone *alone, void *opaque);
/* Reads that are still waiting are forgotten. */
void qms_hints_free(struct qms_hints *hints);

/* Sources are numbers.  Those that are in use at the same time differ, but for
 * QMS_HINTS_SHARED, which all have that come when there are no others left: hints cover
 * none of these, and what is theirs waits for as long as all others'. */
#define QMS_HINTS_SHARED 4096u

/* A connection begins, and ends: no hints have come for it yet. */
unsigned qms_hints_enter(struct qms_hints *hints);
void qms_hints_leave(struct qms_hints *hints, unsigned source);

/* A session sends its first hint, and has ended. */
unsigned qms_hints_session_enter(struct qms_hints *hints);
void qms_hints_session_leave(struct qms_hints *hints, unsigned source);

/* Whether any session sends hints: else reads need not be told of here. */
bool qms_hints_active(const struct qms_hints *hints);

/* Whether hints come for nearly all reads of a connection: then what it reads is not of
 * its own context.  Hints for some of its reads, which a stranger can guess, do not do.
 * That says nothing of time: a connection that has not read for long is as it was. */
bool qms_hints_covers(const struct qms_hints *hints, unsigned connection);

/* A read of a connection has found a block.  True: it is *hint's.  False: it waits for
 * one.  counted: it counts for its connection's own context, and is not to be counted
 * again. */
bool qms_hints_read(struct qms_hints *hints, uint64_t now, unsigned connection,
                    uint64_t block, const struct qm_lookup *lookup, bool counted,
                    struct qms_hint *hint);

/* A hint of a session says that a block is read.  True: it has been, and was found so
 * (an outcome, and whether the hit was an early one; nothing else of *found is set).
 * False: the hint waits for the read. */
bool qms_hints_said(struct qms_hints *hints, uint64_t now, unsigned session,
                    uint64_t block, const struct qms_hint *hint,
                    struct qm_lookup *found, bool *counted);

/* Hands back what has waited for too long, in all stripes. */
void qms_hints_expire(struct qms_hints *hints, uint64_t now);

struct qms_hints_stats {
    uint64_t sessions; /* that have sent hints and are there */
    uint64_t blocks;   /* hints, one a block */
    uint64_t joined;   /* of these, those that met their read */
    uint64_t unread;   /* hints whose read did not come in time */
    uint64_t unhinted; /* reads whose hint did not */
    uint64_t waiting;  /* hints, and blocks read, at present */
};

void qms_hints_get_stats(struct qms_hints *hints, struct qms_hints_stats *stats);

#endif
