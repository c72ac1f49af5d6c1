/* balance.c - how a shard's blocks are divided between its main and its prefetch part.
 *
 * If the share does not adapt, each part has its blocks, and gives one up when it has
 * them all (ATC'08 §4.2).
 *
 * If it does, the share is the prefetch part's only when both want room: a block enters
 * either as long as there is a free one, and then the prefetch part gives one up if it
 * has more than its share, or would have, and else the main part does.
 *
 * What a further block would be worth to a part is learned from what it gave up last
 * (ghosts, as in ARC, see evict-arc.c).  A demand for a block that the part gave up n
 * blocks ago would not have missed had the part been larger by n.  The share moves a
 * step for each, up for the prefetch part's and down for the main part's, and comes to
 * rest where both are worth the same:
 *
 *   - What the prefetch part is worth falls steeply once there is room for what is in
 *     flight.  So a demand for what it gave up long ago counts for less, by the square
 * of n, than one for what it gave up within half its share (or 16), and yet it counts:
 *     a part that is far too small sees no other.
 *   - Of the main part, each demand counts the same, for half of all blocks: a policy
 * that resists scans gives up one block and keeps another of the same worth, and when
 * they come back says nothing of their order.  It counts twice, since a block that is
 * kept saves reading it, and one that is prefetched saves waiting for it only.
 * Likewise a prefetch of what the main part gave up counts once: nobody waits, but the
 * block is read again.
 *
 * The share is at most half of all, and at least room for some readers' next blocks, a
 * 64th of all being enough: with less, what is prefetched is gone before anybody can
 * ask for it, whatever it is worth, and the share would never grow again.  Prefetched
 * blocks that are still on their way are not given up for the main part, up to that.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/balance.h"

/* The queues of ghosts. */
enum { OF_MAIN = 0, OF_PREFETCH = 1 };

#define LEAST_NEAR 16
#define MISS       2 /* of a block that the main part gave up: it is waited for, and read */
#define READ       1 /* a prefetch of such a block */

/* The least share. */
#define LEAST_SHARE 16
#define LEAST_PART  64

static uint64_t most(const struct qm_balance *b)
{
    return b->blocks / 2 > 0 ? b->blocks / 2 : 1;
}

static uint64_t least(const struct qm_balance *b)
{
    uint64_t n = b->blocks / LEAST_PART;

    return n > LEAST_SHARE ? LEAST_SHARE : n > 1 ? n : 1;
}

/* So many that a part gave up are remembered. */
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
    *b = (struct qm_balance){.blocks = blocks, .prefetch = prefetch};
    if (!adapts || prefetch == 0)
        return 0;
    b->adapts = true;
    if (b->prefetch > most(b))
        b->prefetch = most(b);
    b->exact = b->prefetch;
    b->ghosts = qm_ghosts_new(2 * reach(b));
    return b->ghosts ? 0 : ENOMEM;
}

void qm_balance_destroy(struct qm_balance *b)
{
    qm_ghosts_free(b->ghosts);
}

/* By how much the share moves when a block enters part that the main part gave up, or
 * that the prefetch part gave up age blocks ago.  A prefetch of the latter says
 * nothing: nobody has missed it. */
static double step(const struct qm_balance *b, enum qm_part part, int queue,
                   uint32_t age)
{
    double near = b->prefetch / 2;

    if (near < LEAST_NEAR)
        near = LEAST_NEAR;
    if (queue == OF_MAIN)
        return -(part == QM_PART_MAIN ? MISS : READ) * near / reach(b);
    if (part != QM_PART_MAIN)
        return 0;
    return age > near ? near / age * (near / age) : 1;
}

bool qm_balance_arrival(struct qm_balance *b, enum qm_part part, uint64_t block)
{
    uint64_t before = b->prefetch;
    uint32_t age;
    int queue;

    if (!b->adapts)
        return false;
    queue = qm_ghosts_take_aged(b->ghosts, block, &age);
    if (queue == QM_GHOST_NONE)
        return false;
    b->exact += step(b, part, queue, age);
    if (b->exact < least(b))
        b->exact = least(b);
    if (b->exact > most(b))
        b->exact = most(b);
    b->prefetch = b->exact;
    return b->prefetch != before;
}

enum qm_part qm_balance_victim(const struct qm_balance *b, enum qm_part part,
                               const struct qm_held *held)
{
    uint64_t incoming = part == QM_PART_PREFETCH, share = b->prefetch;

    if (!b->adapts) {
        if (part == QM_PART_MAIN)
            return held->main < b->blocks - share ? QM_PART_NONE : QM_PART_MAIN;
        return held->prefetch < share ? QM_PART_NONE : QM_PART_PREFETCH;
    }
    if (held->main + held->prefetch < b->blocks)
        return QM_PART_NONE;
    if (held->main == 0 || held->prefetch == 0)
        return held->main == 0 ? QM_PART_PREFETCH : QM_PART_MAIN;
    if (share < held->filling + incoming)
        share = held->filling + incoming < most(b) ? held->filling + incoming : most(b);
    return held->prefetch + incoming > share ? QM_PART_PREFETCH : QM_PART_MAIN;
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
