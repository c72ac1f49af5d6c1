/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.h - why reads were missed: what a prefetcher could have known, and what it
 * did.
 *
 * It stands between the engine and a prefetcher, passes on every call, and remembers,
 * without bound, which block followed which in a sequence.  A miss is counted by the
 * first reason that applies, in the order of enum qm_reason.  It changes nothing of
 * what the prefetcher sees or says, so the results are those without it; a simulation
 * that does not ask for it has no part of it.
 *
 * What "followed" means is by what the prefetcher is told: one with QM_NO_HITS learns
 * from misses and prefetch hits only, one with QM_EARLY_HITS from early hits, too, and
 * so a block follows the last of these.
 *
 * Memory: 8 to 16 bytes for each distinct block and for each pair of blocks that were
 * FAR accesses of a sequence apart or less.
 */
#ifndef QM_SIM_EXPLAIN_H
#define QM_SIM_EXPLAIN_H

#include <stdint.h>

#include "mining/core/prefetcher.h"

/* Nothing could be known: */
#define QM_REASONS(X)                                                                  \
    X(QM_REASON_NO_CONTEXT, "no_context", "the read had no context")                   \
    X(QM_REASON_NEW_BLOCK, "new_block", "no context had read the block before")        \
    X(QM_REASON_BEGINNING, "beginning", "there was nothing before it in its sequence") \
    /* What was proposed, but was not there: */                                        \
    X(QM_REASON_LEFT, "left", "it was proposed to this sequence, and had left again")  \
    X(QM_REASON_KEPT_BACK, "kept_back", "the throttle let nothing be proposed")        \
    /* What had never followed the block before it: */                                 \
    X(QM_REASON_NEW_PAIR, "new_pair", "it had followed none of the few before it")     \
    X(QM_REASON_FAR, "far", "it had followed one of these, but not the last")          \
    /* What had: */                                                                    \
    X(QM_REASON_LOST_ONCE, "lost_once", "it had followed once, and no rule says so")   \
    X(QM_REASON_LOST, "lost", "more often, and no rule says so")                       \
    X(QM_REASON_UNLIKELY_ONCE, "unlikely_once",                                        \
      "it had followed once, but was not proposed")                                    \
    X(QM_REASON_UNLIKELY, "unlikely", "more often, but was not proposed")

enum qm_reason {
#define X(reason, name, text) reason,
    QM_REASONS(X)
#undef X
        QM_REASON_COUNT,
};

/* As in JSON, and a line of what it means. */
const char *qm_reason_name(enum qm_reason reason);
const char *qm_reason_text(enum qm_reason reason);

struct qm_explain;

/* Stands before a prefetcher, which is its own from then on (also if memory is out:
 * then it is destroyed, and NULL returned). */
struct qm_explain *qm_explain_new(struct qm_prefetcher *prefetcher);

/* To be used, and destroyed, instead of it. */
struct qm_prefetcher *qm_explain_prefetcher(struct qm_explain *explain);

/* Misses of contexts until now, by reason; QM_REASON_NO_CONTEXT is not seen here. */
void qm_explain_counts(const struct qm_explain *explain,
                       uint64_t counts[QM_REASON_COUNT]);

/* 0, or ENOMEM: memory was out, and the counts say nothing. */
int qm_explain_error(const struct qm_explain *explain);

#endif
