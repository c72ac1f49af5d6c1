/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-amp.c - AMP, adaptive multi-stream prefetching (Gill, Bathen; FAST'07).
 *
 * Each sequential stream has a degree p, how many blocks are prefetched at a time (a
 * set), and a trigger distance g.  A miss that continues a sequence prefetches the p
 * blocks behind it.  When p is above a threshold (APT, 4), prefetching becomes
 * asynchronous: the block at distance g from the last one of a set is its trigger, and
 * when that is read, the next p blocks are prefetched.  The rules by which p and g
 * adapt:
 *
 * - The last block of a set is found in the cache: p grows by 1, the size of a read.
 * - A prefetched block leaves the cache unused: p shrinks by 1, and g with it:
 *   g = min(g - 1, p - 1).
 * - A demand waits for the first block of a set that a trigger began: g grows by 1.
 *   When the next set is made, p is at least g + 1.
 *
 * p is 1 at first, and g is APT / 2 at least when p rises above the APT.  p goes up to
 * DEGREE_MAX, and the paper names no limit.
 *
 * Deviations.  The paper keeps p and g with the last page of a set in the cache; here
 * they are kept with the sequential stream, of which each context remembers the 64 that
 * it used last (one that has read a single block counts).  There, a block that is about
 * to leave unused is given a second chance; our cache gives none, so p shrinks when the
 * block has left.  Requests come block by block, so the size of a read is 1.  And what
 * a request finds contiguous with the block before it is sequential, which in the paper
 * is a matter of what is in the cache.
 *
 * The paper's AMP sees all reads of the server at once, which is level none.
 *
 * Threads.  ended() names only a block and comes from any thread, so the blocks that
 * were asked for are in a ledger: a hash table of fixed size, one block a place, where
 * a newer block replaces another.  A block that lost its place, or was never
 * prefetched because it is cached, teaches nothing.  An entry points to its stream's
 * *pace*: p and g, with a count of references, since the stream may end first.  The
 * lock guards the ledger and all paces; nothing is called with it held but free().  It
 * is taken per set, not per access.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/recent.h"
#include "mining/core/registry.h"
#include "mining/core/span.h"

#define TRACKS      64
#define APT         4
#define DEGREE_MAX  64 /* blocks */
#define LEDGER_BITS 13

struct pace {
    unsigned refs; /* the track's, and one of each entry */
    unsigned p, g;
};

struct entry {
    uint64_t block;
    struct pace *pace; /* NULL: there is none */
    bool first;        /* of a set that a trigger began */
};

struct amp {
    struct qm_prefetcher base;
    pthread_mutex_t lock;
    struct entry *ledger;
};

/* A sequential stream.  Sets follow each other without gaps, so there are two at most
 * that have not been read to their ends: a trigger is within the newest set. */
struct track {
    uint64_t last;       /* the block read last */
    unsigned sets;       /* that were asked for and not read to their ends: 0 to 2 */
    uint64_t set_end[2]; /* their last blocks */
    bool armed;          /* there is a trigger */
    uint64_t trigger;
    struct pace *pace; /* NULL until a set is made */
};

struct qm_stream {
    struct qm_recent tracks;
    struct qm_span wanted; /* to be prefetched: a set of the first track */
    bool triggered;        /* it was begun by a trigger */
};

static struct amp *of(struct qm_prefetcher *p)
{
    return (struct amp *)p;
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    struct amp *amp = calloc(1, sizeof *amp);
    struct entry *ledger = calloc((size_t)1 << LEDGER_BITS, sizeof *ledger);

    if (!amp || !ledger || pthread_mutex_init(&amp->lock, NULL) != 0) {
        free(amp);
        free(ledger);
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    amp->base.ops = &qm_prefetcher_amp;
    amp->ledger = ledger;
    *p = &amp->base;
    err[0] = '\0';
    return 0;
}

/* The lock is held. */
static void release(struct pace *pace)
{
    if (pace && --pace->refs == 0) {
        free(pace);
    }
}

static int destroy(struct qm_prefetcher *p)
{
    struct amp *amp = of(p);

    for (size_t i = 0; i < (size_t)1 << LEDGER_BITS; i++) {
        release(amp->ledger[i].pace);
    }
    pthread_mutex_destroy(&amp->lock);
    free(amp->ledger);
    free(amp);
    return 0;
}

static struct entry *entry_of(struct amp *amp, uint64_t block)
{
    return &amp->ledger[block * UINT64_C(0x9e3779b97f4a7c15) >> (64 - LEDGER_BITS)];
}

static void grow(struct pace *pace)
{
    if (pace->p < DEGREE_MAX) {
        pace->p++;
    }
    if (pace->p == APT + 1 && pace->g < APT / 2) {
        pace->g = APT / 2;
    }
}

static void shrink(struct pace *pace)
{
    if (pace->p > 1) {
        pace->p--;
    }
    if (pace->g > 0) {
        pace->g--;
    }
    if (pace->g > pace->p - 1) {
        pace->g = pace->p - 1;
    }
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    struct amp *amp = of(p);
    struct entry *entry = entry_of(amp, block);

    pthread_mutex_lock(&amp->lock);
    if (entry->pace && entry->block == block) {
        if (fate == QM_FATE_UNUSED) {
            shrink(entry->pace);
        } else if (fate == QM_FATE_LATE && entry->first &&
                   entry->pace->g < DEGREE_MAX - 1) {
            entry->pace->g++;
        }
        release(entry->pace);
        entry->pace = NULL;
    }
    pthread_mutex_unlock(&amp->lock);
}

/* The track that block continues or repeats, which is the first now; or NULL. */
static struct track *find(struct qm_recent *tracks, uint64_t block)
{
    for (unsigned i = 0; i < tracks->n; i++) {
        const struct track *track = qm_recent_at(tracks, i, sizeof *track);

        if (block == track->last + 1 || block == track->last) {
            return qm_recent_use(tracks, i, sizeof *track);
        }
    }
    return NULL;
}

static void add(struct amp *amp, struct qm_recent *tracks, uint64_t block)
{
    struct track *track = qm_recent_add(tracks, TRACKS, sizeof *track);

    if (!track) {
        return;
    }
    if (track->pace) {
        pthread_mutex_lock(&amp->lock);
        release(track->pace);
        pthread_mutex_unlock(&amp->lock);
    }
    *track = (struct track){.last = block};
}

/* Makes the set of the p blocks from from on; the lock is held. */
static void make_set(struct qm_stream *s, struct track *track, uint64_t from)
{
    struct pace *pace = track->pace;
    uint64_t last;

    if (pace->p < pace->g + 1) {
        pace->p = pace->g + 1;
    }
    last = from + pace->p - 1;
    track->set_end[track->sets++] = last;
    track->armed = pace->p > APT;
    track->trigger = last - pace->g;
    s->wanted = (struct qm_span){from, last + 1};
}

/* The track has got on to block, which was in the cache. */
static void advance(struct amp *amp, struct qm_stream *s, struct track *track,
                    uint64_t block)
{
    bool ends = track->sets > 0 && block == track->set_end[0];
    bool triggers = track->armed && block == track->trigger;
    uint64_t next;

    if (!ends && !triggers) {
        return;
    }
    next = track->set_end[track->sets - 1] + 1;
    pthread_mutex_lock(&amp->lock);
    if (ends) {
        grow(track->pace);
        track->set_end[0] = track->set_end[1];
        track->sets--;
    }
    if (triggers) {
        make_set(s, track, next);
        s->triggered = true;
    }
    pthread_mutex_unlock(&amp->lock);
}

/* The track has got on to block, which was not in the cache: prefetching begins, or
 * begins again behind it. */
static void restart(struct amp *amp, struct qm_stream *s, struct track *track,
                    uint64_t block)
{
    if (!track->pace) {
        track->pace = malloc(sizeof *track->pace);
        if (!track->pace) {
            return;
        }
        *track->pace = (struct pace){.refs = 1, .p = 1};
    }
    track->sets = 0;
    pthread_mutex_lock(&amp->lock);
    make_set(s, track, block + 1);
    pthread_mutex_unlock(&amp->lock);
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return calloc(1, sizeof(struct qm_stream));
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    struct amp *amp = of(p);
    struct track *track = find(&s->tracks, block);

    *work = NULL;
    s->wanted = (struct qm_span){0};
    s->triggered = false;
    if (!track) {
        add(amp, &s->tracks, block);
    } else if (block != track->last) {
        track->last = block;
        if (outcome == QM_ACCESS_MISS) {
            restart(amp, s, track, block);
        } else {
            advance(amp, s, track, block);
        }
    }
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    struct amp *amp = of(p);
    struct track *track;

    if (qm_span_take(&s->wanted, out) == 0) {
        return 0;
    }
    track = qm_recent_at(&s->tracks, 0, sizeof *track);
    pthread_mutex_lock(&amp->lock);
    for (unsigned i = 0; i < out->count; i++) {
        struct entry *entry = entry_of(amp, out->block + i);

        track->pace->refs++;
        release(entry->pace);
        entry->block = out->block + i;
        entry->pace = track->pace;
        entry->first = s->triggered && i == 0;
    }
    pthread_mutex_unlock(&amp->lock);
    s->triggered = false;
    return 1;
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    struct amp *amp = of(p);

    *work = NULL;
    if (s->tracks.n > 0) {
        pthread_mutex_lock(&amp->lock);
        for (unsigned i = 0; i < s->tracks.n; i++) {
            struct track *track = qm_recent_at(&s->tracks, i, sizeof *track);

            release(track->pace);
        }
        pthread_mutex_unlock(&amp->lock);
    }
    qm_recent_fini(&s->tracks);
    free(s);
}

const struct qm_prefetcher_ops qm_prefetcher_amp = {
    .name = "amp",
    .summary = "sequential, with adaptive degree and trigger distance (FAST'07)",
    .flags = QM_ASK_ALWAYS,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .ended = ended,
    .purge = qm_idle_purge,
    .stats = qm_idle_stats,
    .rules = NULL,
};
