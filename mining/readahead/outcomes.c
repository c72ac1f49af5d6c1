/* SPDX-License-Identifier: BSD-3-Clause */
/* outcomes.c - see outcomes.h. */
#include "mining/readahead/outcomes.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of all blocks there can be. */
#define BYTES (sizeof(uint64_t) << QM_OUTCOMES_MOST_BITS)

static unsigned bits_of(const struct qm_outcomes *noted)
{
    return atomic_load_explicit(&noted->bits, memory_order_relaxed);
}

/* The memory of places from n on, which nobody needs any more, is the system's. */
static void give_back(struct qm_outcomes *noted, unsigned n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t kept = n * sizeof *noted->blocks + page - 1;

    kept -= kept % page;
    if (kept < BYTES)
        (void)madvise((char *)noted->blocks + kept, BYTES - kept, MADV_DONTNEED);
}

static _Atomic uint64_t *reserve(void)
{
    void *blocks =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return blocks == MAP_FAILED ? NULL : blocks;
}

bool qm_outcomes_resize(struct qm_outcomes *noted, unsigned bits)
{
    const unsigned before = noted->blocks ? 1u << bits_of(noted) : 0;
    struct qm_note *notes = calloc(1u << bits, sizeof *notes);

    if (notes && !noted->blocks)
        noted->blocks = reserve();
    if (!notes || !noted->blocks) {
        free(notes);
        return false;
    }
    for (unsigned i = 0; i < before; i++)
        atomic_store_explicit(&noted->blocks[i], 0, memory_order_relaxed);
    atomic_store_explicit(&noted->bits, bits, memory_order_relaxed);
    if (1u << bits < before)
        give_back(noted, 1u << bits);
    free(noted->notes);
    noted->notes = notes;
    return true;
}

void qm_outcomes_free(struct qm_outcomes *noted)
{
    if (noted->blocks)
        (void)munmap((void *)noted->blocks, BYTES);
    free(noted->notes);
}

static unsigned place_of(uint64_t block, unsigned choice, unsigned bits)
{
    uint64_t hash = block * UINT64_C(0x9e3779b97f4a7c15);

    return (unsigned)(hash >> (choice ? 32 : 64 - bits)) & ((1u << bits) - 1);
}

static uint64_t at(struct qm_outcomes *noted, unsigned place)
{
    return atomic_load_explicit(&noted->blocks[place], memory_order_relaxed);
}

bool qm_outcomes_has(struct qm_outcomes *noted, uint64_t block)
{
    const unsigned bits = bits_of(noted);

    return at(noted, place_of(block, 0, bits)) == block + 1 ||
           at(noted, place_of(block, 1, bits)) == block + 1;
}

struct qm_note *qm_outcomes_find(struct qm_outcomes *noted, uint64_t block)
{
    for (unsigned choice = 0; choice < 2; choice++) {
        unsigned place = place_of(block, choice, bits_of(noted));

        if (at(noted, place) == block + 1)
            return &noted->notes[place];
    }
    return NULL;
}

/* Whether a place may be taken by block. */
static bool yields(struct qm_outcomes *noted, unsigned place, bool only_free)
{
    return at(noted, place) == 0 || (!only_free && !noted->notes[place].marker);
}

void qm_outcomes_add(struct qm_outcomes *noted, uint64_t block, struct qm_note note)
{
    const unsigned places[2] = {place_of(block, 0, bits_of(noted)),
                                place_of(block, 1, bits_of(noted))};
    unsigned place;
    bool second; /* one that is free comes first, then one without a marker */

    qm_outcomes_remove(noted, block);
    second = !yields(noted, places[0], true) &&
             (yields(noted, places[1], true) || !yields(noted, places[0], false));
    if (second && !yields(noted, places[1], false) && !note.marker)
        return;
    place = places[second];
    noted->notes[place] = note;
    atomic_store_explicit(&noted->blocks[place], block + 1, memory_order_relaxed);
}

void qm_outcomes_remove(struct qm_outcomes *noted, uint64_t block)
{
    for (unsigned choice = 0; choice < 2; choice++) {
        unsigned place = place_of(block, choice, bits_of(noted));

        if (at(noted, place) == block + 1)
            atomic_store_explicit(&noted->blocks[place], 0, memory_order_relaxed);
    }
}
