/* SPDX-License-Identifier: BSD-3-Clause */
/* outcomes.h - prefetched blocks whose fate is wanted.
 *
 * A stream wants to know when its reader comes by a certain block that was prefetched
 * for it, its *marker*, and of some others, its *samples*, whether they were of use.
 * Both are told block by block, by any thread, and of most blocks nobody wants to know.
 * So those are in a table, where each block has two places to choose
 * from.  A sample never replaces a marker, and what it replaces teaches nothing.  A
 * stream has one marker, so the table has places enough for all.
 *
 * qm_outcomes_has() may be called at any time, by any thread, without a lock: it reads
 * two words.  It is a hint.  All else needs the caller's lock.  For that, addresses are
 * reserved for as many blocks as there can ever be.
 */
#ifndef QM_OUTCOMES_H
#define QM_OUTCOMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { QM_OUTCOMES_MOST_BITS = 11 };

struct qm_note {
    uint32_t generation; /* of the track that it is of */
    uint16_t track;
    uint8_t bucket, distance; /* of yield.h: what its prefetch was thought to be */
    bool marker;
};

struct qm_outcomes {
    _Atomic unsigned bits;    /* of the number of places; 0: there is no memory yet */
    _Atomic uint64_t *blocks; /* number + 1; 0: none */
    struct qm_note *notes;
};

/* From now on there are 1 << bits places, at most QM_OUTCOMES_MOST_BITS, and all notes
 * are forgotten.  False: memory is out, and nothing has changed.  The structure is all
 * 0 before the first time, when nobody may look into it. */
bool qm_outcomes_resize(struct qm_outcomes *noted, unsigned bits);
void qm_outcomes_free(struct qm_outcomes *noted);

/* Whether block is noted, about. */
bool qm_outcomes_has(struct qm_outcomes *noted, uint64_t block);

/* The block's note, which is void when another is added; or NULL. */
struct qm_note *qm_outcomes_find(struct qm_outcomes *noted, uint64_t block);

/* Notes a block; a note that it has already is replaced. */
void qm_outcomes_add(struct qm_outcomes *noted, uint64_t block, struct qm_note note);

void qm_outcomes_remove(struct qm_outcomes *noted, uint64_t block);

#endif
