/* SPDX-License-Identifier: BSD-3-Clause */
/* alike-notes.c - notes what happens, also by way of the prefetcher, and compares. */
#include <inttypes.h>

#include "alike.h"
#include "mining/core/prefetcher.h"

struct notes of_server, of_sim, *noting;

void note(char what, uint64_t block, uint32_t a, uint32_t b, uint32_t c)
{
    if (!noting)
        return;
    if (noting->count == noting->capacity) {
        noting->capacity = noting->capacity ? 2 * noting->capacity : 1024;
        noting->notes =
            realloc(noting->notes, noting->capacity * sizeof noting->notes[0]);
        assert_non_null(noting->notes);
    }
    noting->notes[noting->count++] = (struct note){what, block, a, b, c};
}

unsigned count_of(const struct notes *notes, char what)
{
    unsigned n = 0;

    for (size_t i = 0; i < notes->count; i++)
        n += notes->notes[i].what == what;
    return n;
}

static void print_note(const char *whose, const struct notes *notes, size_t i)
{
    const struct note *n = &notes->notes[i];

    if (i >= notes->count)
        print_error("%s: the end\n", whose);
    else
        print_error("%s: %zu: %c %" PRIu64 " %u %u %u\n", whose, i, n->what, n->block,
                    n->a, n->b, n->c);
}

void compare_notes(void)
{
    size_t i = 0;

    while (i < of_server.count && i < of_sim.count &&
           of_server.notes[i].what == of_sim.notes[i].what &&
           of_server.notes[i].block == of_sim.notes[i].block &&
           of_server.notes[i].a == of_sim.notes[i].a &&
           of_server.notes[i].b == of_sim.notes[i].b &&
           of_server.notes[i].c == of_sim.notes[i].c)
        i++;
    if (i == of_server.count && i == of_sim.count)
        return;
    for (size_t k = i < 5 ? 0 : i - 5; k < i; k++)
        print_note("both", &of_server, k);
    print_note("server", &of_server, i);
    print_note("simulator", &of_sim, i);
    fail();
}

/* ---- the prefetcher, whichever it is, with an ear at its door */

static const struct qm_prefetcher_ops *heard;
static struct qm_prefetcher_ops ear;

const struct qm_prefetcher_ops *__real_qm_prefetcher_find(const char *name);
const struct qm_prefetcher_ops *__wrap_qm_prefetcher_find(const char *name);

static int ear_create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                      char *err, size_t len)
{
    int error = heard->create(config, p, err, len);

    if (error == 0)
        (*p)->ops = &ear;
    return error;
}

bool level_none;

static struct qm_stream *ear_begin(struct qm_prefetcher *p, uint32_t klass)
{
    if (!level_none)
        note('b', 0, klass, 0, 0);
    return heard->begin(p, klass);
}

static void ear_access(struct qm_prefetcher *p, struct qm_stream *stream,
                       uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    note('a', block, outcome, 0, 0);
    heard->access(p, stream, block, outcome, work);
}

static unsigned ear_candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                               struct qm_candidate *out, unsigned max)
{
    unsigned n = heard->candidates(p, stream, out, max);

    note('n', 0, max, n, 0);
    for (unsigned i = 0; i < n; i++)
        note('c', out[i].block, out[i].count, 0, 0);
    return n;
}

static int ear_learn(struct qm_prefetcher *p, struct qm_work *work)
{
    note('l', 0, 0, 0, 0);
    return heard->learn(p, work);
}

static void ear_ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                      uint32_t user, enum qm_fate fate)
{
    note('e', block, issuer, user, fate);
    heard->ended(p, block, issuer, user, fate);
}

const struct qm_prefetcher_ops *__wrap_qm_prefetcher_find(const char *name)
{
    heard = __real_qm_prefetcher_find(name);
    if (!heard)
        return NULL;
    ear = *heard;
    ear.create = ear_create;
    ear.begin = ear_begin;
    ear.access = ear_access;
    ear.candidates = ear_candidates;
    ear.learn = ear_learn;
    ear.ended = ear_ended;
    return &ear;
}
