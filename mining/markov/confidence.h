/* SPDX-License-Identifier: BSD-3-Clause */
/* confidence.h - how probable it is that a block will be demanded if it is prefetched
 * now.
 *
 * A count's share says little: whether 3 of 5 is good depends on where the rule comes
 * from, how far ahead it looks, whose it is, and on what the caches hold.  So
 * probabilities are learned from what became of prefetches.  Each proposal comes with
 * *features*; each value that a feature can have has a weight, and the proposal's
 * probability is the logistic function of their sum.  When it is known how the proposal
 * ended, the weights move a little towards the truth (logistic regression by stochastic
 * gradient; to filter prefetches by learned weights of features is from Bhatia et al.,
 * ISCA'19).
 *
 * A proposal is accepted if its probability is at least the *threshold*.  The threshold
 * moves so that the share of accepted proposals that is used, the accuracy, comes to
 * ACCURACY: adaptive thresholds, in one number.
 *
 * Proposals that are not accepted are watched as well: if the block is missed soon,
 * accepting would have been right.  So what looked useless comes back without probes.
 *
 * All functions may be called by any number of threads at a time.  There are no locks:
 * weights that two threads move at the same time may miss one of the moves.
 */
#ifndef QM_CONFIDENCE_H
#define QM_CONFIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/markov/ages.h"

struct qm_confidence;

/* What is known of a proposal. */
struct qm_features {
    bool after_two; /* it follows the last two blocks, not the last one alone */
    bool both;      /* it follows the last one as well, or the last two are unknown */
    unsigned count; /* of its pair; 0 to 15 */
    unsigned since; /* 0 to 3 */
    unsigned rest;  /* counts of its rivals */
    unsigned depth; /* steps ahead: 0 is the next block */
    unsigned age;   /* of its block, see ages.h */
    float path;     /* the probability of the step before it; 1 if it is the next */
    bool promoted;  /* the reader found its block prefetched: it is on a known path */
    uint32_t klass; /* of the reader */
    uint64_t previous; /* the block that it follows: how far it is counts */
    uint64_t block;
};

/* Watches the proposals that fit into `bytes` at a time; more are forgotten.  Returns
 * NULL if memory is out. */
struct qm_confidence *qm_confidence_new(uint64_t bytes);
/* Sets its size to `bytes`, at most what it was made for.  A large change forgets what
 * was watched.  0 forgets the weights, too, and nothing is learned until it has bytes
 * again.  Any thread. */
void qm_confidence_set_bytes(struct qm_confidence *j, uint64_t bytes);
/* Whether it was 0 last.  And the least that it takes otherwise. */
bool qm_confidence_sleeps(const struct qm_confidence *j);
uint64_t qm_confidence_least(void);
void qm_confidence_free(struct qm_confidence *j); /* NULL is fine */

/* Others prefetch as well, and how that ends is told too.  Of what was not proposed,
 * the threshold goes down by half as much where it is used, since the accuracy is for
 * all that is prefetched; and stays where it is not, since it could not be helped.
 * Before the first proposal. */
void qm_confidence_beside(struct qm_confidence *j);

/* Where the weights of a proposal's features are: found once for a proposal, which is
 * weighed for each candidate and then perhaps remembered. */
uint64_t qm_confidence_weights(const struct qm_features *features);

/* How likely the proposal with these weights is to be used, 0 to 1. */
float qm_confidence_probability(const struct qm_confidence *j, uint64_t weights);

/* What a proposal's probability must be, at least. */
float qm_confidence_threshold(const struct qm_confidence *j);

/* The accuracy that the threshold is to come to from now on. */
void qm_confidence_set_accuracy(struct qm_confidence *j, float accuracy);

/* Records that block, which is not cached, is proposed; accepted: it will be
 * prefetched.
 */
void qm_confidence_propose(struct qm_confidence *j, uint64_t block, uint64_t weights,
                           bool accepted);

/* Block was missed. */
void qm_confidence_missed(struct qm_confidence *j, uint64_t block);

/* How a block that was prefetched ended. */
void qm_confidence_ended(struct qm_confidence *j, uint64_t block, bool used);

uint64_t qm_confidence_bytes(const struct qm_confidence *j);

#endif
