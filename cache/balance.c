/* SPDX-License-Identifier: BSD-3-Clause */
/* balance.c - how a shard's blocks are divided between its main and its prefetch part.
 *
 * A fixed share: each part has a fixed number of blocks and evicts when it holds them
 * all (ATC'08 §4.2).
 *
 * An adaptive share counts only while the cache is full: as long as a block is free,
 * either part takes it.  Then the prefetch part evicts if it has, or would have, more
 * than its share; otherwise the main part does.
 *
 * The value of a further block to a part is learned from the blocks that it evicted
 * last (ghosts, as in ARC, see evict-arc.c).  A demand for a block that the part
 * evicted n blocks ago would have been a hit had the part been larger by n.  Each such
 * demand moves the share a step, up for the prefetch part's ghosts and down for the
 * main part's, until a further block has the same value to both:
 *
 *   - A further block of the prefetch part loses value steeply once the part can hold
 *     the prefetches in flight.  So a demand for a block evicted within half the share
 *     (or 16 blocks) counts in full, and an older one less, by the square of n.  It
 *     must count: a part that is far too small sees no other.
 *   - All ghosts of the main part count the same, for half of all blocks: a policy that
 *     resists scans evicts one block and keeps another of the same value, so the age of
 *     a ghost says little.  A demand counts twice, since a kept block saves a read of
 *     the device, and a prefetched one only the wait for it.  A prefetch of a ghost of
 *     the main part counts a quarter: no reader waits, but the block is read again.
 *
 * The share is at most half of all blocks, and at least 16 or, if that is less, a 64th
 * of all: with fewer, prefetched blocks would leave before any reader could use them,
 * and the share would never grow again.  Prefetched blocks whose fill is in flight are
 * not evicted for the main part, up to half of all blocks.
 *
 * The share is a bound.  Where blocks are used soon after they came, the prefetch part
 * holds far fewer, and the main part has the others: its policy is told so, as it would
 * else keep segments and ghosts for half of the blocks that it has.
 *
 * What is reserved for readers of streams is beside the share, as long as it pays: a
 * block of it must be used as often, of late, as a further block of the main part would
 * have saved a read.  Else short runs that are read again and again, of blocks that the
 * main part would hold, take its place, by which it misses more, and there are more
 * runs to read.
 *
 * A block that nobody has used for far longer than prefetched blocks usually wait is
 * stale, and goes before any of the main part's, whatever the share and what is
 * reserved.  Else those that nobody uses would stay for as long as few others come: on
 * a busy device, which is read ahead of little, they held 2 to 6 % of a cache.  Waiting
 * is counted in blocks that enter the main part, as that is what a place is worth to
 * others, and in its hits, of which HITS count as one: where a hot set nearly fits,
 * next to none enter.  It begins with no limit to speak of, which comes down as blocks
 * are used.
 */
#include <errno.h>

#include "cache/balance.h"

/* The queues of ghosts. */
enum { OF_MAIN = 0, OF_PREFETCH = 1 };

#define LEAST_NEAR 16
#define MISS       2.0 /* weight of a demand for a ghost of the main part */
#define READ       0.5 /* weight of a prefetch of one; found by trying, .5 to 1 */

/* The least share. */
#define LEAST_SHARE 16
#define LEAST_PART  64

/* What the main part has is told anew when it changed by such a part of all blocks. */
#define TOLD_PART 64

/* `usual` grows by LONGER with each use of a block that waited longer, and shrinks by
 * SHORTER with each other: so it stays where the former are one in ten. */
#define LONGER  0.05
#define SHORTER (LONGER / 9)

/* A block is stale when it has waited for more than STALE * usual + WAIT_LEAST
 * arrivals. */
#define STALE      4
#define WAIT_LEAST 16
#define HITS       16

static uint64_t most(const struct qm_balance *b)
{
    return b->blocks / 2 > 0 ? b->blocks / 2 : 1;
}

static uint64_t least(const struct qm_balance *b)
{
    uint64_t n = b->blocks / LEAST_PART;

    return n > LEAST_SHARE ? LEAST_SHARE : n > 1 ? n : 1;
}

/* The number of ghosts kept for each part. */
static uint64_t reach(const struct qm_balance *b)
{
    return b->blocks / 2 + 1;
}

size_t qm_balance_bytes(uint64_t blocks)
{
    return 2 * (blocks / 2 + 1) * QM_GHOST_BYTES + 128;
}

int qm_balance_init(struct qm_balance *b, uint64_t blocks, uint64_t prefetch,
                    bool adapts)
{
    *b = (struct qm_balance){
        .blocks = blocks, .prefetch = prefetch, .main = blocks - prefetch};
    if (!adapts || prefetch == 0)
        return 0;
    b->adapts = true;
    if (b->prefetch > most(b))
        b->prefetch = most(b);
    b->exact = b->prefetch;
    b->usual = blocks;
    b->holds = b->exact;
    b->main = blocks - b->prefetch;
    b->ghosts = qm_ghosts_new(2 * reach(b));
    return b->ghosts ? 0 : ENOMEM;
}

void qm_balance_destroy(struct qm_balance *b)
{
    qm_ghosts_free(b->ghosts);
}

int qm_balance_reserve(struct qm_balance *b, uint64_t blocks)
{
    return b->ghosts ? qm_ghosts_reserve(b->ghosts, 2 * (blocks / 2 + 1)) : 0;
}

static void clamp(struct qm_balance *b)
{
    if (b->exact < least(b))
        b->exact = least(b);
    if (b->exact > most(b))
        b->exact = most(b);
    b->prefetch = b->exact;
}

/* What the main part has, without what may be noise: at least what it has for sure. */
static uint64_t main_now(const struct qm_balance *b)
{
    uint64_t now = b->blocks - (uint64_t)(b->holds < b->exact ? b->holds : b->exact);
    uint64_t change = now > b->main ? now - b->main : b->main - now;

    if (b->main < b->blocks - b->prefetch || change > b->blocks / TOLD_PART)
        return now;
    return b->main;
}

void qm_balance_resize(struct qm_balance *b, uint64_t blocks, uint64_t prefetch)
{
    b->blocks = blocks;
    if (!b->adapts) {
        b->prefetch = prefetch;
        b->main = blocks - prefetch;
        return;
    }
    for (int queue = OF_MAIN; queue <= OF_PREFETCH; queue++)
        while (qm_ghosts_count(b->ghosts, queue) > reach(b))
            qm_ghosts_drop(b->ghosts, queue);
    clamp(b);
    b->main = blocks; /* far from what it was, or right */
    b->main = main_now(b);
}

/* The change of the share when a ghost enters `part`: of the main part, or of the
 * prefetch part, which evicted it age blocks ago.  A prefetch of one of the latter
 * changes nothing: no reader missed it. */
static double step(const struct qm_balance *b, enum qm_part part, int queue,
                   uint32_t age)
{
    uint64_t half = b->prefetch / 2;
    double near = (double)half;

    if (near < LEAST_NEAR)
        near = LEAST_NEAR;
    if (queue == OF_MAIN)
        return -(part == QM_PART_MAIN ? MISS : READ) * near / reach(b);
    if (part != QM_PART_MAIN)
        return 0;
    return age > near ? near / age * (near / age) : 1;
}

/* `used` or `missed` has grown: a cache's worth of both is what counts. */
static void fade(struct qm_balance *b)
{
    if (b->used + b->missed > b->blocks) {
        b->used /= 2;
        b->missed /= 2;
    }
}

/* How much of what is reserved is worth its place. */
static uint64_t worth(const struct qm_balance *b, uint64_t reserved)
{
    double most = b->used * reach(b);

    return reserved * b->missed > most ? (uint64_t)(most / b->missed) : reserved;
}

bool qm_balance_arrival(struct qm_balance *b, enum qm_part part, uint64_t block,
                        const struct qm_held *held)
{
    const uint64_t share = b->prefetch, main = b->main;
    uint32_t age;
    int queue;

    if (!b->adapts)
        return false;
    if (part == QM_PART_MAIN) {
        b->arrivals++;
        b->holds += ((double)held->prefetch - b->holds) / (double)b->blocks;
    }
    queue = qm_ghosts_take_aged(b->ghosts, block, &age);
    if (queue == OF_MAIN) {
        b->missed += part == QM_PART_MAIN ? MISS : READ;
        fade(b);
    }
    if (queue != QM_GHOST_NONE) {
        b->exact += step(b, part, queue, age);
        clamp(b);
    }
    b->main = main_now(b);
    return b->prefetch != share || b->main != main;
}

enum qm_part qm_balance_victim(const struct qm_balance *b, enum qm_part part,
                               const struct qm_held *held, uint64_t reserved)
{
    uint64_t incoming = part == QM_PART_PREFETCH, share = b->prefetch;
    uint64_t needed = held->filling + incoming;

    if (!b->adapts) {
        if (part == QM_PART_MAIN)
            return held->main < b->blocks - share ? QM_PART_NONE : QM_PART_MAIN;
        return held->prefetch < share ? QM_PART_NONE : QM_PART_PREFETCH;
    }
    if (held->main + held->prefetch < b->blocks)
        return QM_PART_NONE;
    if (held->main == 0 || held->prefetch == 0)
        return held->main == 0 ? QM_PART_PREFETCH : QM_PART_MAIN;
    reserved = worth(b, reserved);
    if (needed < reserved)
        needed = reserved;
    if (share < needed)
        share = needed < most(b) ? needed : most(b);
    return held->prefetch + incoming > share ? QM_PART_PREFETCH : QM_PART_MAIN;
}

void qm_balance_hits(struct qm_balance *b, uint32_t hits)
{
    b->hits += hits;
    b->arrivals += b->hits / HITS;
    b->hits %= HITS;
}

void qm_balance_used(struct qm_balance *b, uint32_t came)
{
    uint32_t age = b->arrivals - came;

    b->used++;
    fade(b);
    if (age > b->usual)
        b->usual *= 1 + LONGER;
    else if (b->usual > 1)
        b->usual *= 1 - SHORTER;
}

bool qm_balance_is_stale(const struct qm_balance *b, uint32_t came)
{
    return b->adapts && b->arrivals - came > STALE * b->usual + WAIT_LEAST;
}

enum qm_part qm_balance_excess(const struct qm_balance *b, const struct qm_held *held)
{
    if (!b->adapts) {
        if (held->main > b->blocks - b->prefetch)
            return QM_PART_MAIN;
        return held->prefetch > b->prefetch ? QM_PART_PREFETCH : QM_PART_NONE;
    }
    if (held->main + held->prefetch <= b->blocks)
        return QM_PART_NONE;
    if (held->main == 0 || held->prefetch == 0)
        return held->main == 0 ? QM_PART_PREFETCH : QM_PART_MAIN;
    return held->prefetch > b->prefetch ? QM_PART_PREFETCH : QM_PART_MAIN;
}

void qm_balance_evicted(struct qm_balance *b, enum qm_part part, uint64_t block)
{
    int queue = part == QM_PART_MAIN ? OF_MAIN : OF_PREFETCH;

    if (!b->adapts)
        return;
    if (qm_ghosts_count(b->ghosts, queue) == reach(b))
        qm_ghosts_drop(b->ghosts, queue);
    qm_ghosts_add(b->ghosts, queue, block);
}
