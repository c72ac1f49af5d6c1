/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - a ring of noted blocks for each kind, the oldest first, with a hash table
 * over both; see watch.h. */
#include "engine/watch.h"

#include <string.h>

/* A kind is proven when its blocks would have saved PROOF_USED reads, and at least
 * PROOF_PART of all blocks that were noted of late.  A stream shows it
 * within a few misses.  Found by trying, on patterns and recordings, from a quarter to
 * a half. */
#define PROOF_USED 4.0
#define PROOF_PART 0.35

/* Ends that count at most, as a multiple of the blocks that are noted; and at least. */
#define PROOF_FADE  2
#define PROOF_LEAST 64

void qm_watch_init(struct qm_watch *w)
{
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
}

void qm_watch_destroy(struct qm_watch *w)
{
    pthread_mutex_destroy(&w->lock);
}

/* The lock is held. */
static void publish(struct qm_watch *w)
{
    atomic_store_explicit(&w->noted, w->kinds[0].noted + w->kinds[1].noted,
                          memory_order_relaxed);
}

void qm_watch_reset(struct qm_watch *w)
{
    pthread_mutex_lock(&w->lock);
    memset(w->lists, 0, sizeof w->lists);
    for (unsigned stream = 0; stream < 2; stream++) {
        struct qm_watch_kind *kind = &w->kinds[stream];

        kind->used = kind->ended = 0;
        kind->first = kind->count = kind->noted = 0;
        atomic_store_explicit(&w->proven[stream], false, memory_order_relaxed);
    }
    publish(w);
    pthread_mutex_unlock(&w->lock);
}

static uint16_t *list_of(struct qm_watch *w, uint64_t block)
{
    return &w->lists[(block * UINT64_C(0x9e3779b97f4a7c15) >> 32) % QM_WATCH_LISTS];
}

/* The place of a number that is not 0. */
static struct qm_watched *place_of(struct qm_watch *w, unsigned number)
{
    return &w->kinds[(number - 1) / QM_WATCH_PLACES]
                .places[(number - 1) % QM_WATCH_PLACES];
}

/* The link to block's place, or to the end of its list. */
static uint16_t *find(struct qm_watch *w, uint64_t block)
{
    uint16_t *link = list_of(w, block);

    while (*link && place_of(w, *link)->block != block)
        link = &place_of(w, *link)->next;
    return link;
}

void qm_watch_add(struct qm_watch *w, uint64_t block, uint32_t klass, bool stream)
{
    struct qm_watch_kind *kind = &w->kinds[stream];
    const uint64_t now = w->clock ? w->clock(w->opaque) : 0;
    uint16_t *link;
    unsigned at;

    pthread_mutex_lock(&w->lock);
    link = find(w, block);
    /* If it is noted, it would be there, or on its way. */
    if (!*link && kind->count < QM_WATCH_PLACES) {
        at = (kind->first + kind->count) % QM_WATCH_PLACES;
        kind->places[at] = (struct qm_watched){
            .block = block,
            .time = now,
            .misses = w->misses,
            .klass = klass,
        };
        *link = (uint16_t)(stream * QM_WATCH_PLACES + at + 1);
        kind->count++;
        kind->noted++;
        publish(w);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Counts the end of a block of that kind.  The lock is held. */
static void learn(struct qm_watch *w, bool stream, double used)
{
    struct qm_watch_kind *kind = &w->kinds[stream];

    kind->used += used;
    kind->ended += 1;
    if (kind->ended >= PROOF_LEAST + PROOF_FADE * kind->noted) {
        kind->used /= 2;
        kind->ended /= 2;
    }
    if (kind->used >= PROOF_USED &&
        kind->used >= PROOF_PART * (kind->ended + kind->noted))
        atomic_store_explicit(&w->proven[stream], true, memory_order_relaxed);
}

/* Takes the block of a link out.  The lock is held. */
static struct qm_watch_end take(struct qm_watch *w, uint16_t *link, double used,
                                enum qm_fate fate)
{
    const bool stream = *link > QM_WATCH_PLACES;
    struct qm_watched *place = place_of(w, *link);

    *link = place->next;
    place->ended = true;
    w->kinds[stream].noted--;
    learn(w, stream, used);
    if (fate == QM_FATE_UNUSED) {
        w->counts.unused++;
    } else {
        w->counts.used += used;
        w->counts.uses++;
        w->counts.waited += w->misses - place->misses;
    }
    return (struct qm_watch_end){place->block, place->klass, fate};
}

/* The part of a read's time that reading it would have saved its reader now. */
static double saves(const struct qm_watched *place, uint64_t now, double took)
{
    double earlier;

    if (took <= 0 || place->time == 0)
        return 1;
    earlier = now > place->time ? (double)(now - place->time) : 0;
    return earlier < took ? earlier / took : 1;
}

/* Takes out what has waited for more than horizon misses.  Returns how many ends there
 * are then.  The lock is held. */
static unsigned expire(struct qm_watch *w, struct qm_watch_kind *kind, uint32_t horizon,
                       struct qm_watch_end *ends, unsigned n)
{
    while (kind->count > 0 && n < QM_WATCH_ENDS) {
        struct qm_watched *oldest = &kind->places[kind->first];

        if (!oldest->ended && w->misses - oldest->misses <= horizon)
            break;
        if (!oldest->ended)
            ends[n++] = take(w, find(w, oldest->block), 0, QM_FATE_UNUSED);
        kind->first = (kind->first + 1) % QM_WATCH_PLACES;
        kind->count--;
    }
    return n;
}

unsigned qm_watch_missed(struct qm_watch *w, uint64_t block, double took,
                         const uint32_t horizons[2],
                         struct qm_watch_end ends[QM_WATCH_ENDS])
{
    const uint64_t now = w->clock ? w->clock(w->opaque) : 0;
    unsigned n = 0;
    uint16_t *link;

    pthread_mutex_lock(&w->lock);
    w->misses++;
    link = find(w, block);
    if (*link) {
        double part = saves(place_of(w, *link), now, took);

        ends[n++] = take(w, link, part, part < 1 ? QM_FATE_LATE : QM_FATE_USED);
    }
    for (unsigned stream = 0; stream < 2; stream++)
        n = expire(w, &w->kinds[stream], horizons[stream], ends, n);
    publish(w);
    pthread_mutex_unlock(&w->lock);
    return n;
}

void qm_watch_get(struct qm_watch *w, struct qm_watch_counts *counts)
{
    pthread_mutex_lock(&w->lock);
    *counts = w->counts;
    pthread_mutex_unlock(&w->lock);
}
