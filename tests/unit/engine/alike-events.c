/* SPDX-License-Identifier: BSD-3-Clause */
/* alike-events.c - random reads in contexts, nested and not. */
#include "alike.h"
#include "tests/unit/random.h"

struct qm_event events[EVENTS];
size_t event_count;

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    return rnd_below(&state, below);
}

static const char *const class_names[CLASSES] = {"a", "b", "c", "d", "e", "f", "g"};

uint64_t scripts[SCRIPTS][LENGTH];

void make_scripts(unsigned seed)
{
    state = seed;
    for (unsigned i = 0; i < SCRIPTS; i++) {
        uint64_t run = i % 4 == 0 ? 1000 + draw(100000) : 0;

        for (unsigned k = 0; k < LENGTH; k++)
            scripts[i][k] = run ? run + k : draw(500);
    }
}

/* A context that is open in the trace; slot 0 is none. */
static struct {
    bool open;
    uint32_t parent;
    unsigned script, at;
} contexts[SLOTS + 1];

static void add_end(uint32_t slot)
{
    for (uint32_t i = 1; i <= SLOTS; i++)
        if (contexts[i].open && contexts[i].parent == slot)
            contexts[i].parent = UINT32_MAX; /* ends with it */
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 1; i <= SLOTS; i++) {
            if (!contexts[i].open || contexts[i].parent != UINT32_MAX)
                continue;
            contexts[i].open = false;
            for (uint32_t k = 1; k <= SLOTS; k++)
                if (contexts[k].open && contexts[k].parent == i) {
                    contexts[k].parent = UINT32_MAX;
                    again = true;
                }
        }
    }
    contexts[slot].open = false;
    events[event_count++] = (struct qm_event){.type = QM_TRACE_END, .slot = slot};
}

static void add_begin(uint32_t slot)
{
    uint32_t parent = (uint32_t)draw(SLOTS + 1);
    unsigned klass = (unsigned)draw(CLASSES);

    if (parent == slot || !contexts[parent].open)
        parent = 0;
    contexts[slot].open = true;
    contexts[slot].parent = parent;
    contexts[slot].script = (unsigned)draw(SCRIPTS);
    contexts[slot].at = 0;
    events[event_count++] = (struct qm_event){
        .type = QM_TRACE_BEGIN,
        .slot = slot,
        .kind = klass % 2 ? QM_QUERY : QM_TRANSACTION,
        .parent_slot = parent,
        .klass = class_names[klass],
    };
}

static void add_read(uint32_t slot)
{
    uint64_t block = draw(3000), skip = draw(4) ? 0 : draw(BLOCK);
    uint64_t blocks = draw(3) ? 1 : 1 + draw(REQUEST_MAX);

    if (slot > 0 && draw(10) > 0)
        block = scripts[contexts[slot].script][contexts[slot].at++ % LENGTH];
    events[event_count++] = (struct qm_event){
        .type = QM_TRACE_READ,
        .slot = slot,
        .offset = block * BLOCK + skip,
        .length = blocks * BLOCK - skip - (draw(4) ? 0 : draw(BLOCK - skip)),
    };
}

/* A context mostly reads some blocks before another does: else too few prefetches would
 * be of use to be made at all. */
void make_events(unsigned seed)
{
    uint32_t slot = 0;

    event_count = 0;
    memset(contexts, 0, sizeof contexts);
    make_scripts(seed);
    while (event_count < EVENTS - 1) {
        if (draw(4) == 0)
            slot = (uint32_t)draw(SLOTS + 1);
        if (slot > 0 && !contexts[slot].open)
            add_begin(slot);
        else if (slot > 0 && draw(25) == 0)
            add_end(slot);
        else if (slot > 0 || draw(4) == 0)
            add_read(slot);
    }
}
