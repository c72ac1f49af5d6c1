/* SPDX-License-Identifier: BSD-3-Clause */
/* mine.h - mines the rules of a trace, without a cache.
 *
 * For each sequence s of blocks that a context read, and lookahead G: every i < j < k
 * with j-i < G and k-i < G, s[i] != s[j] and s[k] not in {s[i], s[j]} adds 1 to the
 * support of s[i]&s[j] -> s[k].  The level picks which contexts give sequences.
 */
#ifndef QM_SIM_MINE_H
#define QM_SIM_MINE_H

#include <stddef.h>
#include <stdint.h>

#include "mining/core/context.h"
#include "mining/core/prefetcher.h"
#include "trace/trace.h"

struct qm_mine;

/* Makes a miner.  block_size: bytes, not 0.  Returns NULL with a sentence in err. */
struct qm_mine *qm_mine_new(const struct qm_mining_config *config, enum qm_level level,
                            uint64_t block_size, char *err, size_t len);

/* The trace's events, in its order.  Returns 0 or an errno value: no memory, or an
 * error of the rule cache. */
int qm_mine_event(struct qm_mine *mine, const struct qm_event *event);

/* The trace has ended, and at level none its one sequence with it.  No more events.
 * Returns as above. */
int qm_mine_finish(struct qm_mine *mine);

/* Calls each() for every rule, sorted by number, until it returns non-zero.  Returns
 * that, 0, or a negative errno value. */
int qm_mine_rules(struct qm_mine *mine,
                  int (*each)(void *opaque, const struct qm_rule *rule), void *opaque);

void qm_mine_free(struct qm_mine *mine); /* NULL is fine */

#endif
