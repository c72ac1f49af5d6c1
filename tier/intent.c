/* SPDX-License-Identifier: BSD-3-Clause */
/* intent.c - the write-intent map, as md RAID and DRBD have one: which regions of the
 * volume may have changed since the file was last known to be right about them.
 *
 * A bit is *wanted*, then *marked*: durable in the file.  A change marks its regions
 * before it goes on; a thread that writes a page of the map writes all wanted bits in
 * it, so writers that come together wait for one disk write.
 *
 * A bit is cleared when (1) no change of the region is in flight, (2) a flush of the
 * volume that began after its last change has succeeded, (3) the file was synced after
 * that. Regions that were changed within the last round of clearing stay marked, so
 * that a region that is often written to is not marked again and again (DRBD has its
 * activity log for that).
 *
 * A writer sets busy, then looks at marked; clearing unmarks, then looks at busy, and
 * marks again.  Both are sequentially consistent, so one of them sees the other. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_NS                                                                       \
    UINT64_C(30000000000) /* unmarks what was not changed for one to two               \
                           */

static bool get(const _Atomic uint64_t *map, uint64_t region)
{
    return atomic_load(&map[region / 64]) >> (region % 64) & 1;
}

static void set(_Atomic uint64_t *map, uint64_t region)
{
    if (!get(map, region))
        atomic_fetch_or(&map[region / 64], UINT64_C(1) << (region % 64));
}

static _Atomic uint32_t *busy_of(struct qm_tier *t, uint64_t region)
{
    return &t->intent.busy[region % BUSY];
}

int intent_new(struct qm_tier *t)
{
    uint64_t words = (uint64_t)t->g.map_pages * QM_TIER_MAP_WORDS;

    t->intent.words = words;
    t->intent.marked = tier_alloc(t, words * 8);
    t->intent.wanted = tier_alloc(t, words * 8);
    t->intent.uncovered = tier_alloc(t, words * 8);
    t->intent.warm = tier_alloc(t, words * 8);
    t->intent.changed = tier_alloc(t, words * 8);
    t->intent.candidates = tier_alloc(t, words * 8);
    t->intent.busy = tier_alloc(t, BUSY * sizeof(uint32_t));
    t->intent.page = tier_pages(t, QM_TIER_PAGE);
    if (!t->intent.marked || !t->intent.wanted || !t->intent.uncovered ||
        !t->intent.warm || !t->intent.changed || !t->intent.candidates ||
        !t->intent.busy || !t->intent.page)
        return ENOMEM;
    return 0;
}

void intent_free(struct qm_tier *t)
{
    free((void *)t->intent.marked);
    free((void *)t->intent.wanted);
    free((void *)t->intent.uncovered);
    free((void *)t->intent.warm);
    free((void *)t->intent.changed);
    free(t->intent.candidates);
    free((void *)t->intent.busy);
    free(t->intent.page);
}

/* With intent.lock, or alone. */
static int write_page(struct qm_tier *t, uint32_t number, bool durable)
{
    struct qm_tier_map_page *page = t->intent.page;
    const _Atomic uint64_t *from = t->intent.wanted + number * QM_TIER_MAP_WORDS;

    for (uint32_t i = 0; i < QM_TIER_MAP_WORDS; i++)
        page->bits[i] = atomic_load(&from[i]);
    qm_tier_map_seal(page, number, t->super.uuid);
    return tier_write(t, QM_TIER_META, page, QM_TIER_PAGE,
                      QM_TIER_SUPERS + (uint64_t)number * QM_TIER_PAGE, durable);
}

int intent_format(struct qm_tier *t)
{
    int r = 0;

    intent_forget(t);
    for (uint32_t i = 0; i < t->g.map_pages && r == 0; i++)
        r = write_page(t, i, false);
    return r;
}

static void recount(struct qm_tier *t)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < t->intent.words; i++)
        n += (unsigned)__builtin_popcountll(t->intent.marked[i]);
    t->intent.regions = n;
}

int intent_load(struct qm_tier *t)
{
    struct qm_tier_map_page *page = t->intent.page;

    for (uint32_t i = 0; i < t->g.map_pages; i++) {
        uint64_t word = (uint64_t)i * QM_TIER_MAP_WORDS;
        int r = t->io.read(t->io.opaque, QM_TIER_META, page, QM_TIER_PAGE,
                           QM_TIER_SUPERS + (uint64_t)i * QM_TIER_PAGE);
        bool ok = r == 0 && qm_tier_map_ok(page, i, t->super.uuid);

        if (r != 0 && r != EIO)
            return r;
        for (uint32_t k = 0; k < QM_TIER_MAP_WORDS; k++) {
            uint64_t bits = ok ? page->bits[k] : UINT64_MAX, at = (word + k) * 64;

            if (at >= t->g.regions)
                bits = 0;
            else if (t->g.regions - at < 64)
                bits &= (UINT64_C(1) << (t->g.regions - at)) - 1;
            /* What was changed before is covered by no flush that we know of. */
            t->intent.marked[word + k] = t->intent.wanted[word + k] =
                t->intent.uncovered[word + k] = t->intent.warm[word + k] = bits;
        }
    }
    recount(t);
    return 0;
}

bool intent_is_marked(struct qm_tier *t, uint64_t block)
{
    uint64_t first = block * t->g.block_size >> QM_TIER_REGION_BITS;
    uint64_t last = ((block + 1) * t->g.block_size - 1) >> QM_TIER_REGION_BITS;

    for (; first <= last && first < t->g.regions; first++)
        if (get(t->intent.marked, first))
            return true;
    return false;
}

void intent_forget(struct qm_tier *t)
{
    for (uint64_t i = 0; i < t->intent.words; i++)
        t->intent.marked[i] = t->intent.wanted[i] = t->intent.uncovered[i] =
            t->intent.warm[i] = 0;
    t->intent.regions = 0;
}

/* Makes all that is wanted in the page of a region durable. */
static int mark_page(struct qm_tier *t, uint64_t region)
{
    uint32_t number = (uint32_t)(region / QM_TIER_MAP_BITS);
    uint64_t first = (uint64_t)number * QM_TIER_MAP_WORDS;
    int r = 0;

    pthread_mutex_lock(&t->intent.lock);
    if (!get(t->intent.marked, region)) {
        r = write_page(t, number, true);
        for (uint64_t i = 0; r == 0 && i < QM_TIER_MAP_WORDS; i++) {
            uint64_t now = t->intent.page->bits[i];
            uint64_t was = atomic_fetch_or(&t->intent.marked[first + i], now);
            unsigned n = (unsigned)__builtin_popcountll(now & ~was);

            if (n > 0) {
                atomic_fetch_add(&t->intent.regions, n);
                ADD(t, regions_marked, n);
            }
        }
        COUNT(t, stalls);
    }
    pthread_mutex_unlock(&t->intent.lock);
    return r;
}

void intent_begin(struct qm_tier *t, uint64_t offset, uint64_t count)
{
    uint64_t first = offset >> QM_TIER_REGION_BITS;
    uint64_t last = (offset + count - 1) >> QM_TIER_REGION_BITS;
    bool all = true;
    int r = 0;

    /* More regions than counters: each counter once is enough. */
    for (uint64_t i = first; i <= last && i - first < BUSY; i++)
        atomic_fetch_add(busy_of(t, i), 1);
    for (uint64_t i = first; i <= last; i++) {
        all = all && get(t->intent.marked, i);
        set(t->intent.uncovered, i);
        set(t->intent.changed, i);
        set(t->intent.warm, i);
    }
    if (all || tier_dead(t))
        return;
    for (uint64_t i = first; i <= last; i++)
        set(t->intent.wanted, i);
    for (uint64_t i = first; i <= last && r == 0; i++)
        if (!get(t->intent.marked, i))
            r = mark_page(t, i);
    if (r != 0)
        tier_die(t, "cannot mark a region: %s", strerror(r));
}

void intent_end(struct qm_tier *t, uint64_t offset, uint64_t count)
{
    uint64_t first = offset >> QM_TIER_REGION_BITS;
    uint64_t last = (offset + count - 1) >> QM_TIER_REGION_BITS;

    for (uint64_t i = first; i <= last; i++) {
        set(t->intent.uncovered, i);
        set(t->intent.changed, i);
    }
    for (uint64_t i = first; i <= last && i - first < BUSY; i++)
        atomic_fetch_sub(busy_of(t, i), 1);
}

void qm_tier_unflushed(struct qm_tier *t)
{
    intent_begin(t, 0, t->config.identity.size);
    intent_end(t, 0, t->config.identity.size);
}

uint64_t qm_tier_flush_begin(struct qm_tier *t)
{
    uint64_t token = 0;

    pthread_mutex_lock(&t->intent.lock);
    /* One at a time: what a second covers would have to be kept for it. */
    if (t->intent.flushing == 0) {
        token = t->intent.flushing = ++t->intent.token;
        t->intent.covered = false;
        for (uint64_t i = 0; i < t->intent.words; i++)
            if (atomic_load_explicit(&t->intent.uncovered[i], memory_order_relaxed))
                atomic_store(&t->intent.uncovered[i], 0);
    }
    pthread_mutex_unlock(&t->intent.lock);
    return token;
}

void qm_tier_flush_end(struct qm_tier *t, uint64_t token, bool success)
{
    pthread_mutex_lock(&t->intent.lock);
    if (token != 0 && token == t->intent.flushing) {
        t->intent.flushing = 0;
        t->intent.covered = success;
        /* Nothing is known of any region now. */
        for (uint64_t i = 0; !success && i < t->intent.words; i++)
            atomic_fetch_or(&t->intent.uncovered[i], atomic_load(&t->intent.wanted[i]));
    }
    pthread_mutex_unlock(&t->intent.lock);
}

/* Which regions a flush has covered.  With intent.lock.  Returns whether there are
 * some. */
static bool choose(struct qm_tier *t, bool urgent)
{
    bool some = false;

    for (uint64_t i = 0; i < t->intent.words; i++) {
        uint64_t bits = atomic_load(&t->intent.marked[i]);

        atomic_store(&t->intent.changed[i], 0);
        bits &= ~atomic_load(&t->intent.uncovered[i]);
        if (!urgent)
            bits &= ~atomic_exchange(&t->intent.warm[i], 0);
        for (uint64_t left = bits; left; left &= left - 1) {
            unsigned k = (unsigned)__builtin_ctzll(left);

            if (atomic_load(busy_of(t, i * 64 + k)) > 0)
                bits &= ~(UINT64_C(1) << k);
        }
        t->intent.candidates[i] = bits;
        some = some || bits;
    }
    return some;
}

/* Unmarks those candidates that nobody has changed since, or is about to. */
static uint64_t unmark(struct qm_tier *t, uint64_t word)
{
    uint64_t bits = t->intent.candidates[word], back = 0;

    atomic_fetch_and(&t->intent.wanted[word], ~bits);
    atomic_fetch_and(&t->intent.marked[word], ~bits);
    for (uint64_t left = bits; left; left &= left - 1) {
        unsigned k = (unsigned)__builtin_ctzll(left);
        uint64_t region = word * 64 + k;

        if (atomic_load(busy_of(t, region)) > 0 || get(t->intent.changed, region))
            back |= UINT64_C(1) << k;
    }
    /* The file still has them, durably. */
    atomic_fetch_or(&t->intent.wanted[word], back);
    atomic_fetch_or(&t->intent.marked[word], back);
    return bits & ~back;
}

int intent_clear(struct qm_tier *t, bool urgent)
{
    uint64_t now = tier_now(t);
    bool some = false;
    int r;

    pthread_mutex_lock(&t->intent.lock);
    if (t->intent.covered && (urgent || now - t->intent.round >= ROUND_NS)) {
        t->intent.round = now;
        some = choose(t, urgent);
    }
    pthread_mutex_unlock(&t->intent.lock);
    if (!some)
        return 0;
    r = tier_sync(t);
    if (r != 0)
        return r;
    pthread_mutex_lock(&t->intent.lock);
    for (uint32_t p = 0; p < t->g.map_pages && r == 0; p++) {
        uint64_t n = 0;

        for (uint32_t k = 0; k < QM_TIER_MAP_WORDS; k++)
            n += (unsigned)__builtin_popcountll(
                unmark(t, (uint64_t)p * QM_TIER_MAP_WORDS + k));
        if (n > 0) {
            /* Should it fail, the file has bits too many. */
            r = write_page(t, p, false);
            atomic_fetch_sub(&t->intent.regions, n);
            ADD(t, regions_cleared, n);
        }
    }
    pthread_mutex_unlock(&t->intent.lock);
    return r;
}
