/* SPDX-License-Identifier: BSD-3-Clause */
/* noted.c - see noted.h. */
#include "mining/readahead/noted.h"

#include <stddef.h>

#define PLACES (1u << QM_NOTED_BITS)

static unsigned place_of(uint64_t block, unsigned choice)
{
    uint64_t hash = block * UINT64_C(0x9e3779b97f4a7c15);

    return (unsigned)(hash >> (choice ? 32 : 64 - QM_NOTED_BITS)) % PLACES;
}

static uint64_t at(struct qm_noted *noted, unsigned place)
{
    return atomic_load_explicit(&noted->blocks[place], memory_order_relaxed);
}

bool qm_noted_has(struct qm_noted *noted, uint64_t block)
{
    return at(noted, place_of(block, 0)) == block + 1 ||
           at(noted, place_of(block, 1)) == block + 1;
}

struct qm_note *qm_noted_find(struct qm_noted *noted, uint64_t block)
{
    for (unsigned choice = 0; choice < 2; choice++) {
        unsigned place = place_of(block, choice);

        if (at(noted, place) == block + 1)
            return &noted->notes[place];
    }
    return NULL;
}

/* Whether a place may be taken by block. */
static bool yields(struct qm_noted *noted, unsigned place, bool only_free)
{
    return at(noted, place) == 0 || (!only_free && !noted->notes[place].marker);
}

void qm_noted_add(struct qm_noted *noted, uint64_t block, struct qm_note note)
{
    const unsigned places[2] = {place_of(block, 0), place_of(block, 1)};
    unsigned place;
    bool second; /* one that is free comes first, then one without a marker */

    qm_noted_remove(noted, block);
    second = !yields(noted, places[0], true) &&
             (yields(noted, places[1], true) || !yields(noted, places[0], false));
    if (second && !yields(noted, places[1], false) && !note.marker)
        return;
    place = places[second];
    noted->notes[place] = note;
    atomic_store_explicit(&noted->blocks[place], block + 1, memory_order_relaxed);
}

void qm_noted_remove(struct qm_noted *noted, uint64_t block)
{
    for (unsigned choice = 0; choice < 2; choice++) {
        unsigned place = place_of(block, choice);

        if (at(noted, place) == block + 1)
            atomic_store_explicit(&noted->blocks[place], 0, memory_order_relaxed);
    }
}
