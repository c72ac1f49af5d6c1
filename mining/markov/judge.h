/* judge.h - how probable it is that a block will be demanded if it is prefetched now.
 *
 * A count's share says little: whether 3 of 5 is good depends on where the rule comes
 * from, how far ahead it looks, whose it is, and on what the caches hold.  So
 * probabilities are learned from what became of prefetches.  Each proposal comes with
 * *clues*; each value that a clue can have has a weight, and the proposal's probability
 * is the logistic function of their sum.  When it is known how the proposal ended, the
 * weights move a little towards the truth (logistic regression by stochastic gradient;
 * to filter prefetches by learned weights of clues is from Bhatia et al., ISCA'19).
 *
 * A proposal is accepted if its probability is at least the *price*.  The price moves
 * so that the share of accepted proposals that is used, the accuracy, comes to
 * ACCURACY: adaptive thresholds, in one number.
 *
 * Proposals that are not accepted are watched as well: if the block is missed soon,
 * accepting would have been right.  So what looked useless comes back without probes.
 *
 * All functions may be called by any number of threads at a time.  There are no locks:
 * weights that two threads move at the same time may miss one of the moves.
 */
#ifndef QM_JUDGE_H
#define QM_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

struct qm_judge;

/* What is known of a proposal. */
struct qm_clues {
    bool after_two; /* it follows the last two blocks, not the last one alone */
    bool both;      /* it follows the last one as well, or the last two are unknown */
    unsigned count; /* of its pair; 0 to 15 */
    unsigned since; /* 0 to 3 */
    unsigned rest;  /* counts of its rivals */
    unsigned depth; /* steps ahead: 0 is the next block */
    float path;     /* the probability of the step before it; 1 if it is the next */
    bool promoted;  /* the reader found its block prefetched: it is on a known path */
    uint32_t klass; /* of the reader */
    uint64_t previous; /* the block that it follows: how far it is counts */
    uint64_t block;
};

/* Watches so many bytes' worth of proposals at a time; more are forgotten.  Returns
 * NULL if memory is out. */
struct qm_judge *qm_judge_new(uint64_t bytes);
void qm_judge_free(struct qm_judge *j); /* NULL is fine */

/* How likely the proposal is to be used, 0 to 1. */
float qm_judge_probability(const struct qm_judge *j, const struct qm_clues *clues);

/* What a proposal's probability must be, at least. */
float qm_judge_price(const struct qm_judge *j);

/* The accuracy that the price is to come to from now on. */
void qm_judge_aim(struct qm_judge *j, float accuracy);

/* Clues' block, which is not cached, is proposed; accepted: and will be prefetched. */
void qm_judge_propose(struct qm_judge *j, const struct qm_clues *clues, bool accepted);

/* Block was missed. */
void qm_judge_missed(struct qm_judge *j, uint64_t block);

/* How a block that was prefetched ended. */
void qm_judge_ended(struct qm_judge *j, uint64_t block, bool used);

uint64_t qm_judge_bytes(const struct qm_judge *j);

#endif
