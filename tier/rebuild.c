/* SPDX-License-Identifier: BSD-3-Clause */
/* rebuild.c - see rebuild.h. */
#include "tier/rebuild.h"

#include "tier/internal.h"

#define RUN_BYTES    (256 << 10)
#define WINDOW_BYTES (4 << 20)
#define OWED_BYTES   (256 << 20) /* at most: a compaction of large files */
#define WITHIN_NS    (UINT64_C(60) * 1000000000)
#define GAP          3
#define ONE_IN       16 /* of the sample, at least */
#define ENOUGH       16 /* of the sample, to judge by */
#define OF_LATE      128
#define LONGEST      UINT64_C(65536) /* a run's length is below, 32 MiB and more */

static _Atomic uint64_t *run_at(_Atomic uint64_t *runs, uint64_t block)
{
    return &runs[block * UINT64_C(0x9e3779b97f4a7c15) >> 56];
}

/* n blocks from first on go on with a run, or begin one.  Returns its length; *gap: how
 * many blocks before first it left out, at most `most`. */
static uint64_t extend(_Atomic uint64_t *runs, uint64_t first, uint64_t n,
                       uint64_t most, uint64_t *gap)
{
    uint64_t blocks = n;

    for (*gap = 0; *gap <= most && *gap <= first; ++*gap) {
        _Atomic uint64_t *run = run_at(runs, first - *gap);
        uint64_t was = atomic_load_explicit(run, memory_order_relaxed);

        /* One thread goes on with it. */
        if (was % LONGEST > 0 && was / LONGEST == first - *gap &&
            atomic_compare_exchange_strong_explicit(run, &was, 0, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            blocks += was % LONGEST + *gap;
            break;
        }
    }
    if (blocks == n)
        *gap = 0;
    atomic_store_explicit(run_at(runs, first + n),
                          (first + n) * LONGEST +
                              (blocks < LONGEST ? blocks : LONGEST - 1),
                          memory_order_relaxed);
    return blocks;
}

static uint64_t in_blocks(const struct qm_tier *t, uint64_t bytes)
{
    return (bytes + t->g.block_size - 1) / t->g.block_size;
}

static uint64_t mix(uint64_t block)
{
    block *= UINT64_C(0x9e3779b97f4a7c15);
    return (block ^ block >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* Of a large tier fewer are in the sample, so that they have the time in which a
 * sixteenth of it or more is written to be read. */
void rebuild_size(struct qm_tier *t)
{
    uint64_t capacity = (uint64_t)t->g.slots * t->g.segments;
    uint64_t one_in = capacity / (16 * REBUILD_SAMPLE);

    atomic_store(&t->rebuild.one_in, one_in < ONE_IN ? ONE_IN : one_in);
}

/* Where block is in the sample, NULL: it is not of it. */
static _Atomic uint64_t *sampled(struct qm_tier *t, uint64_t block)
{
    uint64_t h = mix(block);
    uint64_t one_in = atomic_load_explicit(&t->rebuild.one_in, memory_order_relaxed);

    return (h >> 32) % one_in == 0 ? &t->rebuild.sample[h >> 8 & (REBUILD_SAMPLE - 1)]
                                   : NULL;
}

static int verdict(struct qm_tier *t)
{
    return atomic_load_explicit(&t->rebuild.verdict, memory_order_relaxed);
}

/* With the lock. */
static void judge(struct rebuild *r, bool was_used)
{
    int now = REBUILD_UNKNOWN;

    r->used += was_used;
    r->unused += !was_used;
    if (r->used + r->unused >= OF_LATE) {
        r->used /= 2;
        r->unused /= 2;
    }
    if (r->used + r->unused >= ENOUGH)
        now = r->used >= r->unused ? REBUILD_PAYS : REBUILD_PAYS_NOT;
    atomic_store_explicit(&r->verdict, now, memory_order_relaxed);
}

static void judge_read(struct qm_tier *t, uint64_t block)
{
    _Atomic uint64_t *place = sampled(t, block);

    if (!place || atomic_load_explicit(place, memory_order_relaxed) != block + 1)
        return;
    pthread_mutex_lock(&t->rebuild.lock);
    if (atomic_load_explicit(place, memory_order_relaxed) == block + 1) {
        atomic_store_explicit(place, 0, memory_order_relaxed);
        judge(&t->rebuild, true);
    }
    pthread_mutex_unlock(&t->rebuild.lock);
}

/* What was read too long ago does not count.  With the lock. */
static void forget_old(struct qm_tier *t)
{
    struct rebuild *r = &t->rebuild;

    if (r->owed > 0 && tier_now(t) - r->last > WITHIN_NS)
        r->owed = r->seen = r->hot = 0;
}

static void run_read(struct qm_tier *t, uint64_t first, uint64_t n, uint64_t hot)
{
    struct rebuild *r = &t->rebuild;
    uint64_t gap, length = extend(r->reads, first, n, GAP, &gap);

    if (length < in_blocks(t, RUN_BYTES))
        return;
    pthread_mutex_lock(&r->lock);
    forget_old(t);
    r->seen += n + gap;
    r->hot += hot + gap;
    while (r->seen > in_blocks(t, WINDOW_BYTES)) {
        r->seen /= 2;
        r->hot /= 2;
    }
    r->owed += n + gap;
    if (r->owed > in_blocks(t, OWED_BYTES))
        r->owed = in_blocks(t, OWED_BYTES);
    r->last = tier_now(t);
    pthread_mutex_unlock(&r->lock);
}

void rebuild_read(struct qm_tier *t, const struct qm_tier_read *reads, size_t n)
{
    if (t->config.admit != QM_TIER_ADMIT_AUTO)
        return;
    for (size_t i = 0, from, hot; i < n;) {
        hot = 0;
        from = i;
        do {
            judge_read(t, reads[i].block);
            hot += reads[i++].hit;
        } while (i < n && reads[i].block == reads[i - 1].block + 1);
        run_read(t, reads[from].block, i - from, hot);
    }
}

bool rebuild_moved(struct qm_tier *t, const struct qm_tier_write *w)
{
    struct rebuild *r = &t->rebuild;
    uint64_t n = w->last - w->first + 1, gap;
    bool moved;

    if (t->config.admit != QM_TIER_ADMIT_AUTO ||
        extend(r->writes, w->first, n, 0, &gap) < in_blocks(t, RUN_BYTES))
        return false;
    pthread_mutex_lock(&r->lock);
    forget_old(t);
    moved = r->owed > 0 && 2 * r->hot >= r->seen;
    r->owed -= r->owed < n ? r->owed : n;
    pthread_mutex_unlock(&r->lock);
    return moved;
}

bool rebuild_wants(struct qm_tier *t, uint64_t block)
{
    int known = verdict(t);

    if (known == REBUILD_PAYS)
        return true;
    /* Where it does not, one in 8 of the sample will do. */
    return sampled(t, block) && (known == REBUILD_UNKNOWN || mix(block) >> 61 == 0);
}

void rebuild_handed_on(struct qm_tier *t, uint64_t block)
{
    struct rebuild *r = &t->rebuild;
    _Atomic uint64_t *place = sampled(t, block);

    if (!place)
        return;
    pthread_mutex_lock(&r->lock);
    if (atomic_load_explicit(place, memory_order_relaxed) != 0)
        judge(r, false);
    atomic_store_explicit(place, block + 1, memory_order_relaxed);
    pthread_mutex_unlock(&r->lock);
}
