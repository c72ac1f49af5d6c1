/* SPDX-License-Identifier: BSD-3-Clause */
/* alike.h - parts of test-alike.c: the notes of what the server and the simulator
 * decide (alike-notes.c), and the events that both are given (alike-events.c). */
#ifndef QM_TESTS_ENGINE_ALIKE_H
#define QM_TESTS_ENGINE_ALIKE_H

#include <stdbool.h>

#include "tests/harness.h"

#include "sim/sim.h"

#define BLOCK       UINT64_C(4096)
#define SLOTS       12
#define EVENTS      2500
#define REQUEST_MAX 6 /* blocks */
#define CLASSES     7
#define SCRIPTS     20
#define LENGTH      12

struct note {
    char what; /* b: begins, d: demanded, a: access, n: asked for candidates, c: one,
                * p: prefetched, e: ended, l: learns, t: a token was taken or not */
    uint64_t block;
    uint32_t a, b, c;
};

struct notes {
    struct note *notes;
    size_t count, capacity;
};

extern struct notes of_server, of_sim, *noting; /* NULL: nothing is noted */
extern bool level_none; /* the server begins streams then that nothing is read in */

void note(char what, uint64_t block, uint32_t a, uint32_t b, uint32_t c);
unsigned count_of(const struct notes *notes, char what);

/* Fails, and shows where, if they differ. */
void compare_notes(void);

extern struct qm_event events[EVENTS];
extern size_t event_count;
/* Blocks that are read one after the other, again and again; some runs, too. */
extern uint64_t scripts[SCRIPTS][LENGTH];

void make_scripts(unsigned seed);
void make_events(unsigned seed); /* and its scripts */

#endif
