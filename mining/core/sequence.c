/* SPDX-License-Identifier: BSD-3-Clause */
/* sequence.c - the blocks that one context read (see sequence.h). */
#include "mining/core/sequence.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

void qm_sequence_init(struct qm_sequence *sequence)
{
    memset(sequence, 0, sizeof *sequence);
}

void qm_sequence_fini(struct qm_sequence *sequence)
{
    free(sequence->work);
    sequence->work = NULL;
}

static struct qm_work *resize(struct qm_work *work, size_t cap)
{
    if (cap > (SIZE_MAX - sizeof *work) / sizeof work->blocks[0]) {
        return NULL;
    }
    bool is_new = !work;
    work = realloc(work, sizeof *work + cap * sizeof work->blocks[0]);
    if (work) {
        work->cap = cap;
        if (is_new) {
            work->n = work->old = 0;
        }
    }
    return work;
}

static void push(struct qm_sequence *sequence, uint64_t block)
{
    struct qm_work *work = sequence->work;
    if (!work || work->n == work->cap) {
        struct qm_work *larger = resize(work, work ? 2 * work->cap : FIRST_CAPACITY);
        if (!larger) {
            free(work);
            sequence->work = NULL;
            return;
        }
        sequence->work = work = larger;
    }
    work->blocks[work->n++] = block;
}

bool qm_sequence_append(struct qm_sequence *sequence, uint64_t block)
{
    if (sequence->seen > 0 && sequence->last[1] == block) {
        return false;
    }
    sequence->last[0] = sequence->last[1];
    sequence->last[1] = block;
    if (sequence->seen < 2) {
        sequence->seen++;
    }
    push(sequence, block);
    return true;
}

size_t qm_sequence_fresh(const struct qm_sequence *sequence)
{
    return sequence->work ? sequence->work->n - sequence->work->old : 0;
}

struct qm_work *qm_sequence_detach(struct qm_sequence *sequence, size_t carry)
{
    struct qm_work *work = sequence->work;
    if (!work || work->n == work->old || work->n < 3) {
        return NULL;
    }
    sequence->work = NULL;
    if (carry > work->n) {
        carry = work->n;
    }
    if (carry > 0) {
        /* Without memory for it, the rules that span the border are lost: advice. */
        struct qm_work *next = resize(NULL, carry + FIRST_CAPACITY);
        if (next) {
            memcpy(next->blocks, work->blocks + (work->n - carry),
                   carry * sizeof next->blocks[0]);
            next->n = next->old = carry;
        }
        sequence->work = next;
    }
    return work;
}

void qm_sequence_keep(struct qm_sequence *sequence, size_t keep)
{
    struct qm_work *work = sequence->work;
    if (!work) {
        return;
    }
    if (work->n > keep) {
        memmove(work->blocks, work->blocks + (work->n - keep),
                keep * sizeof work->blocks[0]);
        work->n = keep;
    }
    work->old = work->n;
}

struct qm_work *qm_sequence_take(struct qm_sequence *sequence)
{
    struct qm_work *work = sequence->work;
    sequence->work = NULL;
    return work;
}
