/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-rules.h - C-Miner*'s rules, to be looked up.
 *
 * A set is filled once, and then only read.  It consists of sorted arrays: the blocks,
 * whose places there are their numbers; the prefixes, grouped by their first block, and
 * sorted by the second within a group; and the suffixes of each, the likeliest first. A
 * prefix takes 8 bytes, a suffix 4, a block 12.
 *
 * Of a prefix only as many suffixes are kept as can ever become candidates, the
 * strongest.
 *
 * No locking: filling it belongs to one thread; then any number may look up.
 */
#ifndef QM_CMINER_RULES_H
#define QM_CMINER_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/baselines/cminer.h"

struct qm_cminer_rules;

/* Begins a set that gives at most degree (1 to 64) candidates for the rules between
 * these blocks, of which it takes a copy: sorted, none twice, fewer than 2^31.  Returns
 * NULL if memory is out. */
struct qm_cminer_rules *qm_cminer_rules_new(const uint64_t *blocks, uint32_t distinct,
                                            unsigned degree);

/* Adds a prefix's rules; the prefixes come in the order of qm_cminer_mine().  Returns
 * 0; EINVAL if that is not so, if a number is that of no block, or if a prefix has no
 * suffix; EFBIG with 2^32 prefixes or suffixes; or ENOMEM. */
int qm_cminer_rules_add(struct qm_cminer_rules *rules,
                        const struct qm_cminer_prefix *prefix);

/* All are added.  It cannot fail, but takes less memory after it. */
void qm_cminer_rules_finish(struct qm_cminer_rules *rules);

void qm_cminer_rules_free(struct qm_cminer_rules *rules); /* NULL is fine */

/* What should be prefetched after the last n blocks of a stream (n is 1 or 2), last[1]
 * the very last: the suffixes of last[0] & last[1], then those of last[1], each from
 * the most confident to the least; none twice, and neither of the two.  Fills in at
 * most max, at most degree; returns how many.  *found says whether a prefix was found
 * at all. */
unsigned qm_cminer_rules_lookup(const struct qm_cminer_rules *rules,
                                const uint64_t last[2], unsigned n, uint64_t *blocks,
                                unsigned max, bool *found);

struct qm_cminer_rules_size {
    uint64_t prefixes, rules, bytes; /* rules: prefix-suffix pairs kept */
};

void qm_cminer_rules_size(const struct qm_cminer_rules *rules,
                          struct qm_cminer_rules_size *size);

#endif
