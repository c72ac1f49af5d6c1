/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-sketch.c - how often blocks were accessed of late, about: see evict-sketch.h.
 */
#include <errno.h>
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

/* Of the number of a counter in its row. */
static unsigned bits_for(uint64_t capacity)
{
    unsigned bits = 4;

    while ((UINT64_C(1) << bits) / 2 < capacity)
        bits++;
    return bits;
}

int qm_sketch_init(struct qm_sketch *sketch, uint64_t capacity)
{
    unsigned bits = bits_for(capacity);

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

static void raise(struct qm_sketch *sketch, uint64_t at, uint64_t count)
{
    uint64_t *word = &sketch->counters[at / PER_WORD];
    unsigned shift = at % PER_WORD * 4;

    if ((*word >> shift & MAX_COUNT) < count)
        *word = (*word & ~((uint64_t)MAX_COUNT << shift)) | count << shift;
}

/* The number of a counter is the high bits of a hash: of a sketch with a bit more, two
 * counters take the place of one; of one with a bit less, one that of two, of which the
 * greater counts. */
int qm_sketch_reserve(struct qm_sketch *sketch, uint64_t capacity)
{
    struct qm_sketch to = {.accesses = sketch->accesses, .sample = sketch->sample};
    unsigned more;

    to.bits = bits_for(capacity);
    if (to.bits == sketch->bits)
        return 0;
    to.words = ((uint64_t)ROWS << to.bits) / PER_WORD;
    to.counters = calloc(to.words, sizeof(to.counters[0]));
    if (!to.counters)
        return ENOMEM;
    more = to.bits > sketch->bits ? to.bits - sketch->bits : 0;
    for (uint64_t i = 0; i < (uint64_t)ROWS << (more ? to.bits : sketch->bits); i++)
        if (more)
            raise(&to, i, counter(sketch, i >> more));
        else
            raise(&to, i >> (sketch->bits - to.bits), counter(sketch, i));
    free(sketch->counters);
    *sketch = to;
    return 0;
}
