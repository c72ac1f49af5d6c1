/* SPDX-License-Identifier: BSD-3-Clause */
/* beginnings.h - whether what a statement reads first follows from what its transaction
 * read last.
 *
 * In one transaction the order's lines follow its customer; in another each statement
 * looks up what the user has typed.  There, rules that lead from one statement to the
 * next are never used again, and take the place of others.  So for each class of
 * statements it is counted how often a rule knew what was read first.  That is counted
 * where rules are always learned, behind one block in QM_BEGINNINGS_SAMPLE; behind the
 * others they are where it pays.
 *
 * All functions may be called by any number of threads at a time, and take no lock: of
 * two that count at the same time, one may be lost.
 */
#ifndef QM_MARKOV_BEGINNINGS_H
#define QM_MARKOV_BEGINNINGS_H

#include <stdbool.h>
#include <stdint.h>

enum { QM_BEGINNINGS = 256, QM_BEGINNINGS_SAMPLE = 8 };

struct qm_beginnings {
    /* By class, hashed: of those counted, the share that was known, of late. */
    _Atomic float known[QM_BEGINNINGS];
};

void qm_beginnings_init(struct qm_beginnings *b);

/* Whether rules that lead on from that block are always learned. */
bool qm_beginnings_samples(uint64_t block);

/* A statement of that class has begun behind a block of the sample. */
void qm_beginnings_count(struct qm_beginnings *b, uint32_t klass, bool known);

/* Whether rules that lead to what statements of that class read first pay. */
bool qm_beginnings_pay(const struct qm_beginnings *b, uint32_t klass);

#endif
