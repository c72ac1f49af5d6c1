/* SPDX-License-Identifier: BSD-3-Clause */
/* naive.c - see naive.h.  The sources are named in the files of the real ones. */
#include <stdlib.h>
#include <string.h>

#include "cache/hash.h"
#include "naive.h"

struct item {
    uint64_t block;
    uint64_t count; /* accesses, as the policy counts them */
    uint64_t time;  /* of the last one */
};

/* The latest first, where there is an order. */
struct list {
    struct item item[2 * NAIVE_MAX];
    size_t n;
};

#define SKETCH_ROWS  4
#define SKETCH_WIDTH 4096

struct rules;

struct naive {
    const struct rules *rules;
    size_t capacity;
    uint64_t clock;
    struct list a, b;   /* what is there: T1 and T2; S and M; window and probation */
    struct list c;      /* protected */
    struct list ga, gb; /* what is remembered */
    double p;
    unsigned char sketch[SKETCH_ROWS][SKETCH_WIDTH];
    unsigned width_bits;
    size_t counted;
};

struct rules {
    const char *policy;
    void (*hit)(struct naive *n, uint64_t block);
    bool (*enter)(struct naive *n, uint64_t block, uint64_t *left);
};

static int where(const struct list *l, uint64_t block)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->item[i].block == block)
            return (int)i;
    return -1;
}

static bool has(const struct list *l, uint64_t block)
{
    return where(l, block) >= 0;
}

static struct item take_at(struct list *l, size_t i)
{
    struct item item = l->item[i];

    memmove(&l->item[i], &l->item[i + 1], (l->n - i - 1) * sizeof(item));
    l->n--;
    return item;
}

static struct item take(struct list *l, uint64_t block)
{
    return take_at(l, where(l, block));
}

static struct item take_last(struct list *l)
{
    return take_at(l, l->n - 1);
}

static void put_first(struct list *l, struct item item)
{
    memmove(&l->item[1], &l->item[0], l->n * sizeof(item));
    l->item[0] = item;
    l->n++;
}

static bool is_full(const struct naive *n)
{
    return naive_size(n) == n->capacity;
}

/* ---- lru, mru, lfu: one heap of blocks, the one to go is searched */

static void count_hit(struct naive *n, uint64_t block)
{
    struct item *item = &n->a.item[where(&n->a, block)];

    item->count++;
    item->time = n->clock;
}

static bool enter_heap(struct naive *n, uint64_t block, uint64_t *left,
                       bool (*sooner)(const struct item *, const struct item *))
{
    bool full = is_full(n);

    if (full) {
        size_t first = 0;

        for (size_t i = 1; i < n->a.n; i++)
            if (sooner(&n->a.item[i], &n->a.item[first]))
                first = i;
        *left = take_at(&n->a, first).block;
    }
    n->a.item[n->a.n++] = (struct item){block, 1, n->clock};
    return full;
}

static bool older(const struct item *x, const struct item *y)
{
    return x->time < y->time;
}

static bool newer(const struct item *x, const struct item *y)
{
    return x->time > y->time;
}

static bool rarer(const struct item *x, const struct item *y)
{
    return x->count < y->count || (x->count == y->count && x->time < y->time);
}

static bool lru_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    return enter_heap(n, block, left, older);
}

static bool mru_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    return enter_heap(n, block, left, newer);
}

static bool lfu_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    return enter_heap(n, block, left, rarer);
}

/* ---- arc: a = T1, b = T2, ga = B1, gb = B2 */

static void arc_hit(struct naive *n, uint64_t block) /* case I */
{
    put_first(&n->b, take(has(&n->a, block) ? &n->a : &n->b, block));
}

static uint64_t arc_replace(struct naive *n, uint64_t block)
{
    size_t t1 = n->a.n;
    struct item item;

    if (t1 > 0 && ((double)t1 > n->p || (has(&n->gb, block) && (double)t1 == n->p))) {
        item = take_last(&n->a);
        put_first(&n->ga, item);
    } else {
        item = take_last(&n->b);
        put_first(&n->gb, item);
    }
    return item.block;
}

static bool arc_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    struct item item = {.block = block};
    bool full = is_full(n);
    double c = n->capacity;

    if (has(&n->ga, block)) { /* case II */
        double d = n->ga.n >= n->gb.n ? 1 : (double)n->gb.n / n->ga.n;

        n->p = n->p + d < c ? n->p + d : c;
        if (full)
            *left = arc_replace(n, block);
        put_first(&n->b, take(&n->ga, block));
    } else if (has(&n->gb, block)) { /* case III */
        double d = n->gb.n >= n->ga.n ? 1 : (double)n->ga.n / n->gb.n;

        n->p = n->p - d > 0 ? n->p - d : 0;
        if (full)
            *left = arc_replace(n, block);
        put_first(&n->b, take(&n->gb, block));
    } else { /* case IV */
        size_t l1 = n->a.n + n->ga.n, l2 = n->b.n + n->gb.n;

        if (l1 == n->capacity) {
            if (n->a.n < n->capacity) {
                take_last(&n->ga);
                if (full)
                    *left = arc_replace(n, block);
            } else {
                *left = take_last(&n->a).block;
            }
        } else if (full) {
            if (l1 + l2 == 2 * n->capacity)
                take_last(&n->gb);
            *left = arc_replace(n, block);
        }
        put_first(&n->a, item);
    }
    return full;
}

/* ---- s3fifo: a = S, b = M, ga = G; count = touches */

static void s3fifo_hit(struct naive *n, uint64_t block)
{
    struct list *l = has(&n->a, block) ? &n->a : &n->b;
    struct item *item = &l->item[where(l, block)];

    item->count = item->count + 1 < 3 ? item->count + 1 : 3;
}

static uint64_t s3fifo_evict_m(struct naive *n)
{
    for (;;) {
        struct item item = take_last(&n->b);

        if (item.count == 0)
            return item.block;
        item.count--;
        put_first(&n->b, item);
    }
}

static uint64_t s3fifo_evict(struct naive *n, size_t s_share)
{
    if (n->a.n < s_share)
        return s3fifo_evict_m(n);
    while (n->a.n > 0) {
        struct item item = take_last(&n->a);

        if (item.count <= 1) {
            if (n->capacity > s_share) {
                if (n->ga.n == n->capacity - s_share)
                    take_last(&n->ga);
                put_first(&n->ga, item);
            }
            return item.block;
        }
        item.count = 0;
        put_first(&n->b, item);
        if (n->b.n > n->capacity - s_share)
            return s3fifo_evict_m(n);
    }
    abort(); /* S had more than its share of a full cache, and M less */
}

static bool s3fifo_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    size_t s_share = n->capacity < 10 ? 1 : n->capacity / 10;
    bool full = is_full(n);

    if (full)
        *left = s3fifo_evict(n, s_share);
    if (has(&n->ga, block)) {
        take(&n->ga, block);
        put_first(&n->b, (struct item){.block = block});
    } else {
        put_first(&n->a, (struct item){.block = block});
    }
    return full;
}

/* ---- wtinylfu: a = window, b = probation, c = protected */

static unsigned char *counter(struct naive *n, uint64_t block, int row)
{
    static const uint64_t factor[SKETCH_ROWS] = {
        0xc3a5c85c97cb3127, 0xb492b66fbe98f273, 0x9ae16a3b2f90404f, 0xc949c7defebe6f8d};

    return &n->sketch[row][qm_hash(block) * factor[row] >> (64 - n->width_bits)];
}

static unsigned estimate(struct naive *n, uint64_t block)
{
    unsigned least = 255;

    for (int row = 0; row < SKETCH_ROWS; row++)
        if (*counter(n, block, row) < least)
            least = *counter(n, block, row);
    return least;
}

static void count(struct naive *n, uint64_t block)
{
    unsigned least = estimate(n, block);

    for (int row = 0; row < SKETCH_ROWS; row++)
        if (*counter(n, block, row) == least && least < 15)
            ++*counter(n, block, row);
    if (++n->counted == 10 * n->capacity) {
        n->counted /= 2;
        for (int row = 0; row < SKETCH_ROWS; row++)
            for (int i = 0; i < SKETCH_WIDTH; i++)
                n->sketch[row][i] /= 2;
    }
}

static size_t window_share(const struct naive *n)
{
    return n->capacity < 67 ? 1 : n->capacity * 3 / 100;
}

static void wtinylfu_hit(struct naive *n, uint64_t block)
{
    size_t protected_share = (n->capacity - window_share(n)) * 80 / 100;

    count(n, block);
    if (has(&n->a, block)) {
        put_first(&n->a, take(&n->a, block));
    } else if (has(&n->b, block)) {
        put_first(&n->c, take(&n->b, block));
        if (n->c.n > protected_share)
            put_first(&n->b, take_last(&n->c));
    } else {
        put_first(&n->c, take(&n->c, block));
    }
}

static bool wtinylfu_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    bool full = is_full(n);

    put_first(&n->a, (struct item){.block = block});
    if (n->a.n > window_share(n)) {
        struct item candidate = take_last(&n->a);

        if (!full) {
            put_first(&n->b, candidate);
        } else if (n->b.n > 0 && estimate(n, candidate.block) >
                                     estimate(n, n->b.item[n->b.n - 1].block)) {
            *left = take_last(&n->b).block;
            put_first(&n->b, candidate);
        } else {
            *left = candidate.block;
        }
    }
    count(n, block);
    return full;
}

/* ---- */

static const struct rules all[] = {
    {"lru", count_hit, lru_enter},        {"mru", count_hit, mru_enter},
    {"lfu", count_hit, lfu_enter},        {"arc", arc_hit, arc_enter},
    {"s3fifo", s3fifo_hit, s3fifo_enter}, {"wtinylfu", wtinylfu_hit, wtinylfu_enter},
};

struct naive *naive_new(const char *policy, size_t capacity)
{
    struct naive *n = calloc(1, sizeof(*n));

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (n && !strcmp(all[i].policy, policy))
            n->rules = &all[i];
    if (!n || !n->rules || capacity > NAIVE_MAX)
        abort();
    n->capacity = capacity;
    n->width_bits = 4;
    while (1u << n->width_bits < 2 * capacity)
        n->width_bits++;
    return n;
}

void naive_free(struct naive *n)
{
    free(n);
}

bool naive_has(const struct naive *n, uint64_t block)
{
    return has(&n->a, block) || has(&n->b, block) || has(&n->c, block);
}

size_t naive_size(const struct naive *n)
{
    return n->a.n + n->b.n + n->c.n;
}

void naive_hit(struct naive *n, uint64_t block)
{
    n->clock++;
    n->rules->hit(n, block);
}

bool naive_enter(struct naive *n, uint64_t block, uint64_t *left)
{
    n->clock++;
    return n->rules->enter(n, block, left);
}

void naive_drop(struct naive *n, uint64_t block)
{
    take(has(&n->a, block) ? &n->a : has(&n->b, block) ? &n->b : &n->c, block);
}
