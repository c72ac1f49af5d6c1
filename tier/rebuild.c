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

static struct rebuild_run *run_at(struct rebuild_run *runs, uint64_t block)
{
    return &runs[block * UINT64_C(0x9e3779b97f4a7c15) >> 56];
}

/* n blocks from first on go on with a run, or begin one.  Returns its length; *gap: how
 * many blocks before first it left out, at most `most`. */
static uint64_t extend(struct rebuild_run *runs, uint64_t first, uint64_t n,
                       uint64_t most, uint64_t *gap)
{
    struct rebuild_run *run;
    uint64_t blocks = n;

    for (*gap = 0; *gap <= most && *gap <= first; ++*gap) {
        run = run_at(runs, first - *gap);
        if (run->blocks > 0 && run->next == first - *gap) {
            blocks += run->blocks + *gap;
            run->blocks = 0;
            break;
        }
    }
    if (blocks == n)
        *gap = 0;
    *run_at(runs, first + n) =
        (struct rebuild_run){.next = first + n, .blocks = blocks};
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
static uint64_t *sampled(struct qm_tier *t, uint64_t block)
{
    uint64_t h = mix(block);
    uint64_t one_in = atomic_load_explicit(&t->rebuild.one_in, memory_order_relaxed);

    return (h >> 32) % one_in == 0 ? &t->rebuild.sample[h >> 8 & (REBUILD_SAMPLE - 1)]
                                   : NULL;
}

static void judge(struct rebuild *r, bool was_used)
{
    r->used += was_used;
    r->unused += !was_used;
    if (r->used + r->unused >= OF_LATE) {
        r->used /= 2;
        r->unused /= 2;
    }
}

static void judge_read(struct qm_tier *t, uint64_t block)
{
    uint64_t *place = sampled(t, block);

    if (place && *place == block + 1) {
        *place = 0;
        judge(&t->rebuild, true);
    }
}

static void run_read(struct qm_tier *t, uint64_t first, uint64_t n, uint64_t hot)
{
    struct rebuild *r = &t->rebuild;
    uint64_t gap, length = extend(r->reads, first, n, GAP, &gap);

    if (length < in_blocks(t, RUN_BYTES))
        return;
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
}

void rebuild_read(struct qm_tier *t, const struct qm_tier_read *reads, size_t n)
{
    if (t->config.admit != QM_TIER_ADMIT_AUTO)
        return;
    pthread_mutex_lock(&t->rebuild.lock);
    for (size_t i = 0, from, hot; i < n;) {
        hot = 0;
        from = i;
        do {
            judge_read(t, reads[i].block);
            hot += reads[i++].hit;
        } while (i < n && reads[i].block == reads[i - 1].block + 1);
        run_read(t, reads[from].block, i - from, hot);
    }
    pthread_mutex_unlock(&t->rebuild.lock);
}

bool rebuild_moved(struct qm_tier *t, const struct qm_tier_write *w)
{
    struct rebuild *r = &t->rebuild;
    uint64_t n = w->last - w->first + 1, gap, length;
    bool moved = false;

    if (t->config.admit != QM_TIER_ADMIT_AUTO)
        return false;
    pthread_mutex_lock(&r->lock);
    length = extend(r->writes, w->first, n, 0, &gap);
    if (r->owed > 0 && tier_now(t) - r->last > WITHIN_NS)
        r->owed = r->seen = r->hot = 0;
    if (length >= in_blocks(t, RUN_BYTES)) {
        moved = r->owed > 0 && 2 * r->hot >= r->seen;
        r->owed -= r->owed < n ? r->owed : n;
    }
    pthread_mutex_unlock(&r->lock);
    return moved;
}

bool rebuild_wants(struct qm_tier *t, uint64_t block)
{
    struct rebuild *r = &t->rebuild;
    bool known, pays;

    pthread_mutex_lock(&r->lock);
    known = r->used + r->unused >= ENOUGH;
    pays = r->used >= r->unused;
    pthread_mutex_unlock(&r->lock);
    if (known && pays)
        return true;
    /* Where it does not, one in 8 of the sample will do. */
    return sampled(t, block) && (!known || mix(block) >> 61 == 0);
}

void rebuild_handed_on(struct qm_tier *t, uint64_t block)
{
    struct rebuild *r = &t->rebuild;
    uint64_t *place = sampled(t, block);

    if (!place)
        return;
    pthread_mutex_lock(&r->lock);
    if (*place)
        judge(r, false);
    *place = block + 1;
    pthread_mutex_unlock(&r->lock);
}
