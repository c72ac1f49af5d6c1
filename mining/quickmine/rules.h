/* SPDX-License-Identifier: BSD-3-Clause */
/* rules.h - the rule cache: prefix -> suffixes, in Berkeley DB (ATC'08 §3.3, §4.2).
 *
 * Records (record.h) are in memory as far as rules_pool allows, and else in an unnamed
 * B-tree, what does not fit into whose pool is in a temporary file, as the paper let it
 * be (rules-store.h).  Beside them, in memory, is the order of last use (prefix-lru.h),
 * 44 to 56 bytes a prefix, which also spares the look-up of what is not there.
 *
 * A prefix is used when it is created, strengthened or matched.  At most max_prefix are
 * kept, the least recently used goes; of each at most max_suffix suffixes (suffixes.h).
 *
 * All functions may be called by any number of threads.  One lock protects the lot; it
 * is held for one prefix at a time (less than a microsecond; more where Berkeley DB has
 * the record, or must read a page of its temporary file), and a thread that adds lets
 * look-ups go first.  Two things take longer, both about a millisecond for 100,000
 * prefixes: copying the order of use for qm_rules_each() and for saving, and, without
 * max_prefix, growing the table.
 *
 * When Berkeley DB fails (its temporary file cannot be written, say), the database may
 * be half changed: then the rule cache is off for good.  Look-ups find nothing, adding
 * returns the error, nothing is saved any more, and what was saved stays.
 */
#ifndef QM_RULES_H
#define QM_RULES_H

#include "mining/core/prefetcher.h"

struct qm_rules;

/* config must have passed qm_mining_check().  Returns as qm_prefetcher_ops.create(). */
int qm_rules_open(const struct qm_mining_config *config, struct qm_rules **rules,
                  char *err, size_t len);

/* Saves, if there is a directory, and frees.  Returns 0, or an errno value if the rules
 * could not be saved: then those saved before are still there. */
int qm_rules_close(struct qm_rules *rules);

/* a & b was followed by these n blocks, in this order.  Returns 0 or an errno value. */
int qm_rules_add(struct qm_rules *rules, uint64_t a, uint64_t b,
                 const uint64_t *suffixes, unsigned n);

/* The likeliest to follow a & b: fills in at most max (at most 64) and returns how
 * many. Gives up (0) when others hold the lock for 5 ms. */
unsigned qm_rules_lookup(struct qm_rules *rules, uint64_t a, uint64_t b,
                         uint64_t *blocks, unsigned max);

/* Removes what was last used config.purge_after or longer ago, by the caller's clock.
 * The time of a use is known from the first purge() after it only, so it stays up to
 * one interval between calls longer.  Returns 0 or an errno value. */
int qm_rules_purge(struct qm_rules *rules, uint64_t now);

/* Saves, if there is a directory and rules have changed since that was last done (their
 * order of use does not count).  It takes as long as writing all the rules.  Returns 0
 * or an errno value: then it is tried again the next time. */
int qm_rules_save(struct qm_rules *rules);

/* Fills in what the rule cache knows, and leaves the rest. */
void qm_rules_stats(struct qm_rules *rules, struct qm_mining_stats *stats);

/* As qm_prefetcher_ops.rules().  What is added or removed meanwhile may be seen or not.
 * No lock is held while each() runs. */
int qm_rules_each(struct qm_rules *rules,
                  int (*each)(void *opaque, const struct qm_rule *rule), void *opaque);

#endif
