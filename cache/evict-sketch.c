/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-sketch.c - how often blocks were accessed of late, about: see evict-sketch.h.
 */
#include <stdlib.h>

#include "cache/evict-sketch.h"
#include "cache/hash.h"

#define ROWS      4
#define MAX_COUNT 15 /* of a counter */
#define PER_WORD  16 /* counters */
#define HALVES    UINT64_C(0x7777777777777777)

/* Odd numbers, one a row: the high bits of a product are a hash of the other factor. */
static const uint64_t row_factor[ROWS] = {
    UINT64_C(0xc3a5c85c97cb3127), UINT64_C(0xb492b66fbe98f273),
    UINT64_C(0x9ae16a3b2f90404f), UINT64_C(0xc949c7defebe6f8d)};

int qm_sketch_init(struct qm_sketch *sketch, uint64_t capacity)
{
    unsigned bits = 4;

    while ((UINT64_C(1) << bits) / 2 < capacity)
        bits++;
    sketch->bits = bits;
    sketch->words = (ROWS << bits) / PER_WORD;
    sketch->accesses = 0;
    sketch->counters = calloc(sketch->words, sizeof(sketch->counters[0]));
    qm_sketch_resize(sketch, capacity);
    return sketch->counters ? 0 : -1;
}

void qm_sketch_destroy(struct qm_sketch *sketch)
{
    free(sketch->counters);
}

void qm_sketch_resize(struct qm_sketch *sketch, uint64_t capacity)
{
    sketch->sample = 10 * capacity;
}

/* The number of the counter of a block's hash in row. */
static uint64_t position(const struct qm_sketch *sketch, uint64_t hash, unsigned row)
{
    return ((uint64_t)row << sketch->bits) +
           (hash * row_factor[row] >> (64 - sketch->bits));
}

static unsigned counter(const struct qm_sketch *sketch, uint64_t at)
{
    return sketch->counters[at / PER_WORD] >> at % PER_WORD * 4 & MAX_COUNT;
}

unsigned qm_sketch_estimate(const struct qm_sketch *sketch, uint64_t block)
{
    uint64_t hash = qm_hash(block);
    unsigned least = MAX_COUNT;

    for (unsigned row = 0; row < ROWS; row++) {
        unsigned count = counter(sketch, position(sketch, hash, row));

        if (count < least)
            least = count;
    }
    return least;
}

static void sketch_halve(struct qm_sketch *sketch)
{
    for (uint64_t i = 0; i < sketch->words; i++)
        sketch->counters[i] = sketch->counters[i] >> 1 & HALVES;
    sketch->accesses /= 2;
}

void qm_sketch_count(struct qm_sketch *sketch, uint64_t block)
{
    uint64_t hash = qm_hash(block), at[ROWS];
    unsigned count[ROWS], least = MAX_COUNT;

    for (unsigned row = 0; row < ROWS; row++) {
        at[row] = position(sketch, hash, row);
        count[row] = counter(sketch, at[row]);
        if (count[row] < least)
            least = count[row];
    }
    for (unsigned row = 0; row < ROWS && least < MAX_COUNT; row++)
        if (count[row] == least)
            sketch->counters[at[row] / PER_WORD] += UINT64_C(1)
                                                    << at[row] % PER_WORD * 4;
    if (++sketch->accesses >= sketch->sample)
        sketch_halve(sketch);
}
