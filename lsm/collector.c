/* SPDX-License-Identifier: BSD-3-Clause */
/* collector.c - see collector.h.
 *
 * `lock` orders those that replace the table and those that end an interval; readers
 * reach the table inside an epoch.  The rates are floats, stored and loaded
 * whole by relaxed atomics, without a lock: a thread that builds a file may read a rate
 * of the interval before, which does as well. */
#include "lsm/collector.h"
#include "lsm/epoch.h"
#include "lsm/feature.h"
#include "lsm/ranges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DECAY        .6f
#define MATRIX_ROWS  16u
#define MATRIX_BYTES (1u << 20)

struct collector {
    _Atomic(struct table *) table;
    struct epoch epoch;
    pthread_mutex_t lock, pages;
    uint32_t max_ranges, threshold; /* a random number below it: the access counts */
    _Atomic uint32_t spacing;
    double sample;
    uint64_t intervals;
    _Atomic uint64_t reads, writes; /* of ended intervals */
    uint8_t *matrix;                /* of the last MATRIX_ROWS intervals */
    uint32_t matrix_rows, matrix_columns;
};

static struct table *table_new(struct keys *keys, bool follow)
{
    static _Atomic uint64_t serial;
    struct table *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    t->n = keys->n + 1;
    t->keys = malloc(t->n * sizeof *t->keys);
    t->pages = calloc(t->n / COLLECTOR_PAGE + 1, sizeof *t->pages);
    t->fences = t->keys && t->pages ? fences_build(keys) : NULL;
    if (!t->fences) {
        free(t->keys);
        free(t->pages);
        free(t);
        return NULL;
    }
    t->serial = atomic_fetch_add(&serial, 1);
    t->follow = follow ? follow_new(t->n) : NULL;
    return t;
}

void table_put(struct table *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    for (uint32_t i = 0; i <= t->n / COLLECTOR_PAGE; i++)
        free(atomic_load(&t->pages[i]));
    free(t->pages);
    free(t->keys);
    fences_free(t->fences);
    follow_free(t->follow);
    free(t);
}

struct collector *collector_new(uint32_t max_ranges, double sample)
{
    struct collector *c = aligned_alloc(64, (sizeof *c + 63) & ~(size_t)63);
    struct keys none = {0};
    struct table *t;

    if (!c)
        return NULL;
    memset(c, 0, sizeof *c);
    t = table_new(&none, false);
    if (!t) {
        free(c);
        return NULL;
    }
    t->keys[0] = INFINITY; /* nothing is known of them */
    atomic_init(&c->table, t);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->pages, NULL);
    pthread_mutex_init(&c->epoch.writers, NULL);
    c->max_ranges = max_ranges < 16 ? 16 : max_ranges;
    c->sample = sample;
    c->threshold = sample >= 1 ? UINT32_MAX : (uint32_t)(sample * UINT32_MAX);
    atomic_init(&c->spacing, RANGES_A);
    return c;
}

void collector_free(struct collector *c)
{
    if (!c)
        return;
    table_put(atomic_load(&c->table));
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->pages);
    pthread_mutex_destroy(&c->epoch.writers);
    free(c->matrix);
    free(c);
}

/* Makes the counters of 64 ranges, if nobody has meanwhile. */
static struct range *touch(struct collector *c, struct table *t, uint32_t i)
{
    struct range *r = table_range(t, i);
    struct range_page *page;

    if (r)
        return r;
    pthread_mutex_lock(&c->pages);
    r = table_range(t, i);
    if (!r && (page = calloc(1, sizeof *page))) {
        atomic_store_explicit(&t->pages[i / COLLECTOR_PAGE], page,
                              memory_order_release);
        r = &page->range[i % COLLECTOR_PAGE];
    }
    pthread_mutex_unlock(&c->pages);
    return r;
}

static uint32_t chance(void)
{
    static _Thread_local uint64_t state;

    if (state == 0)
        state = (uintptr_t)&state * UINT64_C(0x9e3779b97f4a7c15) | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static inline void count(struct collector *c, const void *key, size_t len, bool write)
{
    unsigned token = epoch_enter(&c->epoch);
    struct table *t = atomic_load_explicit(&c->table, memory_order_acquire);
    uint32_t i = fences_find(t->fences, key, len);
    struct range *r = touch(c, t, i);

    if (t->follow && !write)
        follow_read(t->follow, i);
    if (r) {
        _Atomic uint32_t *counter = write ? &r->writes : &r->reads;
        if (c->threshold == UINT32_MAX ||
            atomic_load_explicit(counter, memory_order_relaxed) == 0 ||
            chance() < c->threshold)
            atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    }
    epoch_leave(&c->epoch, token);
}

void collector_read(struct collector *c, const void *key, size_t len)
{
    count(c, key, len, false);
}

void collector_write(struct collector *c, const void *key, size_t len)
{
    count(c, key, len, true);
}

void collector_saw(struct collector *c, const void *key, size_t len)
{
    unsigned token = epoch_enter(&c->epoch);
    struct table *t = atomic_load_explicit(&c->table, memory_order_acquire);

    if (t->follow)
        follow_read(t->follow, fences_find(t->fences, key, len));
    epoch_leave(&c->epoch, token);
}

static void store(float *f, float value)
{
    __atomic_store(f, &value, __ATOMIC_RELAXED);
}

void collector_spread(struct collector *c, const void *first, size_t first_len,
                      const void *last, size_t last_len, double n)
{
    struct table *t;
    uint32_t from, to;

    pthread_mutex_lock(&c->lock);
    t = atomic_load(&c->table);
    from = fences_find(t->fences, first, first_len);
    to = last_len > 0 ? fences_find(t->fences, last, last_len) : from;
    if (to < from)
        to = from;
    for (uint32_t i = from; i <= to; i++) {
        struct range *r = touch(c, t, i);
        if (r)
            r->spread += (float)(n / (to - from + 1));
    }
    pthread_mutex_unlock(&c->lock);
}

static double estimate(const struct collector *c, uint32_t counted)
{
    return counted == 0 ? 0 : (counted - 1) / c->sample + 1;
}

static void shift(float *slots, float value)
{
    for (int i = COLLECTOR_SLOTS - 1; i > 0; i--)
        store(&slots[i], slots[i - 1]);
    store(&slots[0], value);
}

static struct table *coarser(struct table *old, uint32_t factor);
static struct table *spliced(struct table *old, const struct keys *sample,
                             uint32_t from, uint32_t to, float spacing);

/* One row of Algorithm 1's matrix; when it is full, asks whether ranges may grow. */
static uint32_t matrix_row(struct collector *c, struct table *t)
{
    uint32_t row = c->intervals % MATRIX_ROWS, factor = 1;

    if (c->matrix_columns != t->n || !c->matrix) {
        free(c->matrix);
        c->matrix = (uint64_t)t->n * MATRIX_ROWS <= 16 * MATRIX_BYTES
                        ? calloc(MATRIX_ROWS, t->n)
                        : NULL;
        c->matrix_columns = t->n;
        c->matrix_rows = 0;
    }
    if (!c->matrix)
        return 1;
    for (uint32_t i = 0; i < t->n; i++) {
        struct range *r = table_range(t, i);
        c->matrix[(uint64_t)row * t->n + i] = r && r->slot_reads[0] > 0;
    }
    if (++c->matrix_rows >= MATRIX_ROWS) {
        c->matrix_rows = 0;
        factor = ranges_choose(c->matrix, MATRIX_ROWS, t->n, RANGES_ALPHA);
    }
    return factor;
}

static void install(struct collector *c, struct table *t)
{
    struct table *old = atomic_exchange(&c->table, t);

    epoch_wait(&c->epoch);
    table_put(old);
}

void collector_tick(struct collector *c, uint32_t largest)
{
    struct table *t, *next;
    double reads = 0, writes = 0;
    uint32_t factor, spacing;

    pthread_mutex_lock(&c->lock);
    t = atomic_load(&c->table);
    for (uint32_t i = 0; i < t->n; i++) {
        struct range *r = table_range(t, i);
        double read, written;
        if (!r) {
            i |= COLLECTOR_PAGE - 1;
            continue;
        }
        read =
            estimate(c, atomic_exchange_explicit(&r->reads, 0, memory_order_relaxed)) +
            r->spread;
        written =
            estimate(c, atomic_exchange_explicit(&r->writes, 0, memory_order_relaxed));
        r->spread = 0;
        reads += read;
        writes += written;
        shift(r->slot_reads, (float)read);
        shift(r->slot_writes, (float)written);
        store(&r->rate, DECAY * r->rate + (1 - DECAY) * (float)read);
    }
    c->intervals++;
    if (t->follow)
        follow_choose(t->follow, t);
    atomic_fetch_add(&c->reads, (uint64_t)reads);
    atomic_fetch_add(&c->writes, (uint64_t)writes);
    factor = matrix_row(c, t);
    spacing = atomic_load(&c->spacing);
    if (factor > 1 && largest > spacing) {
        if (factor > largest / spacing)
            factor = largest / spacing;
        if (factor > 1 && (next = coarser(t, factor))) {
            atomic_store(&c->spacing, spacing * factor);
            install(c, next);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

void collector_follow(struct collector *c)
{
    struct keys none = {0};
    struct table *t;

    pthread_mutex_lock(&c->lock);
    t = atomic_load(&c->table);
    /* What is known already, of a table that was made without. */
    t = t->follow ? NULL : spliced(t, &none, 0, 0, (float)atomic_load(&c->spacing));
    if (t) {
        t->follow = follow_new(t->n);
        install(c, t);
    }
    pthread_mutex_unlock(&c->lock);
}

struct table *collector_table(struct collector *c)
{
    unsigned token = epoch_enter(&c->epoch);
    struct table *t = atomic_load(&c->table);

    atomic_fetch_add(&t->refs, 1);
    epoch_leave(&c->epoch, token);
    return t;
}

uint32_t collector_spacing(struct collector *c)
{
    return atomic_load(&c->spacing);
}

static void add(struct range *to, struct range *from, float share)
{
    uint32_t reads = atomic_load_explicit(&from->reads, memory_order_relaxed),
             writes = atomic_load_explicit(&from->writes, memory_order_relaxed);

    atomic_fetch_add_explicit(&to->reads, (uint32_t)((float)reads * share),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&to->writes, (uint32_t)((float)writes * share),
                              memory_order_relaxed);
    to->spread += from->spread * share;
    to->rate += from->rate * share;
    for (int i = 0; i < COLLECTOR_SLOTS; i++) {
        to->slot_reads[i] += from->slot_reads[i] * share;
        to->slot_writes[i] += from->slot_writes[i] * share;
    }
}

static void add_range(struct table *to, uint32_t j, struct table *from, uint32_t i,
                      float share)
{
    struct range *source = table_range(from, i);
    struct range_page *page = atomic_load(&to->pages[j / COLLECTOR_PAGE]);

    if (!source)
        return;
    if (!page) {
        page = calloc(1, sizeof *page);
        if (!page)
            return;
        atomic_store(&to->pages[j / COLLECTOR_PAGE], page);
    }
    add(&page->range[j % COLLECTOR_PAGE], source, share);
}

/* Hands the counts on: an old range is shared by the new ones that begin in it, and a
 * new one has all of the old ones that it covers. */
static void hand_on(struct table *to, struct table *from)
{
    uint32_t i = 0; /* of the old ranges, those below i are handed on */

    for (uint32_t j = 0; j < to->n;) {
        uint32_t same = 1, start = 0;
        size_t len;
        const uint8_t *key;
        if (j > 0) {
            key = keys_get(&to->fences->keys, j - 1, &len);
            start = fences_find(from->fences, key, len);
        }
        for (; i < start; i++)
            if (j > 0)
                add_range(to, j - 1, from, i, 1);
        while (j + same < to->n) {
            key = keys_get(&to->fences->keys, j + same - 1, &len);
            if (fences_find_from(from->fences, start, key, len) != start)
                break;
            same++;
        }
        for (uint32_t k = 0; i == start && k < same; k++)
            add_range(to, j + k, from, start, 1.f / (float)same);
        i = start + 1;
        j += same;
    }
    for (; i < from->n; i++)
        add_range(to, to->n - 1, from, i, 1);
}

static struct table *coarser(struct table *old, uint32_t factor)
{
    struct keys keys = {0};
    struct table *t;

    for (uint32_t i = factor - 1; i < old->fences->n; i += factor) {
        size_t len;
        const uint8_t *key = keys_get(&old->fences->keys, i, &len);
        if (keys_add(&keys, key, len) != 0) {
            keys_free(&keys);
            return NULL;
        }
    }
    t = table_new(&keys, old->follow);
    keys_free(&keys);
    if (!t)
        return NULL;
    for (uint32_t j = 0; j < t->n; j++) {
        t->keys[j] = 0;
        for (uint32_t i = j * factor; i < (j + 1) * factor && i < old->n; i++)
            if (isfinite(old->keys[i]))
                t->keys[j] += old->keys[i];
        if (t->keys[j] == 0)
            t->keys[j] = INFINITY;
    }
    hand_on(t, old);
    return t;
}

/* What is known, with the fences from first to last replaced. */
static struct table *spliced(struct table *old, const struct keys *sample,
                             uint32_t from, uint32_t to, float spacing)
{
    struct keys keys = {0};
    const struct keys *known = &old->fences->keys;
    struct table *t;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < from; i++)
        r = keys_add(&keys, known->bytes + known->at[i],
                     known->at[i + 1] - known->at[i]);
    for (uint32_t i = 0; r == 0 && i < sample->n; i++)
        r = keys_add(&keys, sample->bytes + sample->at[i],
                     sample->at[i + 1] - sample->at[i]);
    for (uint32_t i = to; r == 0 && i < old->fences->n; i++)
        r = keys_add(&keys, known->bytes + known->at[i],
                     known->at[i + 1] - known->at[i]);
    t = r == 0 ? table_new(&keys, old->follow) : NULL;
    keys_free(&keys);
    if (!t)
        return NULL;
    for (uint32_t j = 0; j < t->n; j++)
        if (j < from)
            t->keys[j] = old->keys[j];
        else if (j <= from + sample->n)
            t->keys[j] = spacing;
        else
            t->keys[j] = old->keys[j - sample->n - from + to];
    hand_on(t, old);
    return t;
}

void collector_learn(struct collector *c, const struct keys *sample, uint64_t total,
                     const void *first, size_t first_len, const void *last,
                     size_t last_len)
{
    struct table *t, *next;
    uint32_t from, to, spacing;

    pthread_mutex_lock(&c->lock);
    t = atomic_load(&c->table);
    spacing = atomic_load(&c->spacing);
    from = fences_find(t->fences, first, first_len);
    to = fences_find(t->fences, last, last_len);
    if (sample->n > 0 && (double)total / (to - from + 1) > 1.5 * spacing &&
        (next = spliced(t, sample, from, to, (float)spacing))) {
        while (next->n > c->max_ranges) {
            struct table *half = coarser(next, 2);
            if (!half)
                break;
            table_put(next);
            next = half;
            atomic_store(&c->spacing, atomic_load(&c->spacing) * 2);
        }
        install(c, next);
    }
    pthread_mutex_unlock(&c->lock);
}

void collector_get_stats(struct collector *c, struct collector_stats *stats)
{
    struct table *t = collector_table(c);

    memset(stats, 0, sizeof *stats);
    stats->reads = atomic_load(&c->reads);
    stats->writes = atomic_load(&c->writes);
    stats->ranges = t->n;
    stats->spacing = atomic_load(&c->spacing);
    stats->bytes = sizeof *c + t->n * (sizeof(float) + 12) + t->fences->keys.bytes_room;
    for (uint32_t i = 0; i < t->n; i += COLLECTOR_PAGE)
        if (table_range(t, i)) {
            stats->bytes += sizeof(struct range_page);
            stats->touched += t->n - i < COLLECTOR_PAGE ? t->n - i : COLLECTOR_PAGE;
        }
    table_put(t);
    pthread_mutex_lock(&c->lock);
    stats->intervals = c->intervals;
    stats->bytes += c->matrix ? (uint64_t)MATRIX_ROWS * c->matrix_columns : 0;
    pthread_mutex_unlock(&c->lock);
}
