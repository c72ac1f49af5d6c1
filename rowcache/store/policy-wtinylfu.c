/* SPDX-License-Identifier: BSD-3-Clause */
/* policy-wtinylfu.c - W-TinyLFU (Einziger, Friedman and Manes, ACM TOS 2017).
 *
 * A window of 1 % of memory by LRU, and a main part by segmented LRU: `probation`, and
 * `protected`, which entries enter by a second access and which has at most 80 % of it.
 * What leaves the window enters the main part if a sketch of all recent accesses, of
 * keys on disk too, says that it is asked for more often than the main part's victim.
 * A key that is found on disk is restored if it is asked for at least as often, so that
 * a scan of cold keys moves little.
 *
 * The sketch is a count-min sketch of 4-bit counters, four a key, halved after ten
 * times as many accesses as it has counters in a row, so old popularity fades.  Where
 * it ends at once, the keys that were popular would keep others out for as long.  So
 * the sketch is quartered when hits fall suddenly: counters of 15 become 3, which a new
 * key reaches by four accesses.  Only keys that the sketch knows count, so that a scan
 * of cold keys is no such fall, but for those whose counters others share. */
#include <errno.h>
#include <stdlib.h>

#include "rowcache/store/internal.h"

enum { WINDOW = PLACE_FIRST, PROBATION = PLACE_SECOND, PROTECTED = PLACE_THIRD };
enum { ROWS = 4, MOST = 15, BYTES_A_KEY = 64 /* a guess, to size the sketch */ };
enum { KNOWN = 1 };     /* a key's estimate, at least */
enum { PERIOD = 1000 }; /* accesses of such keys, at least; see period() */

#define WINDOW_SHARE    .01
#define PROTECTED_SHARE .8
/* Of the share of hits; three times what chance does in PERIOD accesses. */
#define FALL .05

struct wtinylfu {
    struct entry_list lists[3];
    uint64_t *sketch; /* words of 16 counters; ROWS rows of `width` counters */
    uint64_t width, accesses;
    bool known;             /* whether the key that was seen last is */
    uint64_t sampled, hits; /* accesses of known keys, in this period */
    double rate;            /* hits of such an access, lately */
};

static int init(struct partition *p)
{
    struct wtinylfu *w = calloc(1, sizeof *w);
    uint64_t keys = p->memory / BYTES_A_KEY / 4;

    if (!w)
        return ENOMEM;
    for (w->width = 1024; w->width < keys;)
        w->width *= 2;
    w->sketch = calloc(w->width / 16 * ROWS, sizeof *w->sketch);
    if (!w->sketch) {
        free(w);
        return ENOMEM;
    }
    p->policy = w;
    return 0;
}

static void destroy(struct partition *p)
{
    struct wtinylfu *w = p->policy;

    if (w)
        free(w->sketch);
    free(w);
    p->policy = NULL;
}

static uint64_t *word(struct wtinylfu *w, struct store_hash hash, unsigned row,
                      unsigned *shift)
{
    uint64_t at = hash.low + row * (hash.high | 1);

    at ^= at >> 29;
    at &= w->width - 1;
    *shift = (unsigned)(at % 16) * 4;
    return &w->sketch[row * (w->width / 16) + at / 16];
}

static unsigned estimate(struct wtinylfu *w, struct store_hash hash)
{
    unsigned least = MOST, shift;

    for (unsigned row = 0; row < ROWS; row++) {
        const uint64_t *c = word(w, hash, row, &shift);
        unsigned n = (unsigned)(*c >> shift) & MOST;

        if (n < least)
            least = n;
    }
    return least;
}

/* Divides all counters by two, once or twice. */
static void halve(struct wtinylfu *w, unsigned times)
{
    uint64_t mask =
        times == 1 ? UINT64_C(0x7777777777777777) : UINT64_C(0x3333333333333333);

    for (uint64_t i = 0; i < w->width / 16 * ROWS; i++)
        w->sketch[i] = (w->sketch[i] >> times) & mask;
    w->accesses >>= times;
}

/* An eighth of the keys in memory.  To halve the sketch takes a time that grows with
 * it, so a period also does. */
static uint64_t period(const struct partition *p, const struct wtinylfu *w)
{
    uint64_t keys = p->memory_keys / 8, counters = w->width / 16;
    uint64_t most = keys > counters ? keys : counters;

    return most > PERIOD ? most : PERIOD;
}

/* A period has ended.  See FALL. */
static void judge(struct wtinylfu *w)
{
    double rate = (double)w->hits / (double)w->sampled;

    if (rate < w->rate - FALL) {
        halve(w, 2);
        w->rate = rate;
    }
    w->rate += (rate - w->rate) / 4; /* of some four periods */
    w->sampled = w->hits = 0;
}

static void seen(struct partition *p, struct store_hash hash)
{
    struct wtinylfu *w = p->policy;
    unsigned shift;

    w->known = estimate(w, hash) >= KNOWN;
    w->sampled += w->known;
    if (w->sampled >= period(p, w))
        judge(w);
    for (unsigned row = 0; row < ROWS; row++) {
        uint64_t *c = word(w, hash, row, &shift);

        if (((*c >> shift) & MOST) < MOST)
            *c += UINT64_C(1) << shift;
    }
    if (++w->accesses < w->width * 10)
        return;
    halve(w, 1);
}

static void move(struct wtinylfu *w, struct entry *e, unsigned place)
{
    store_list_remove(&w->lists[e->place], e);
    e->place = (uint8_t)place;
    store_list_push(&w->lists[place], e);
}

static void add(struct partition *p, struct entry *e)
{
    struct wtinylfu *w = p->policy;

    e->place = WINDOW;
    store_list_push(&w->lists[WINDOW], e);
    /* While memory has room, nothing has to be asked for more often than another. */
    while (!store_is_full(p, 0) && w->lists[WINDOW].count > 1 &&
           (double)w->lists[WINDOW].bytes > (double)p->memory * WINDOW_SHARE)
        move(w, w->lists[WINDOW].oldest, PROBATION);
}

static void discard(struct partition *p, struct entry *e)
{
    struct wtinylfu *w = p->policy;

    store_list_remove(&w->lists[e->place], e);
}

static void replace(struct partition *p, struct entry *old, struct entry *e)
{
    struct wtinylfu *w = p->policy;

    store_list_replace(&w->lists[old->place], old, e);
}

static void touch(struct partition *p, struct entry *e)
{
    struct wtinylfu *w = p->policy;
    struct entry_list *protected = &w->lists[PROTECTED];

    w->hits += w->known;
    move(w, e, e->place == WINDOW ? WINDOW : PROTECTED);
    while (protected->count > 1 && (double)protected->bytes > (double)p->memory *
                                                                  (1 - WINDOW_SHARE) *
                                                                  PROTECTED_SHARE)
        move(w, protected->oldest, PROBATION);
}

/* The main part's. */
static struct entry *main_victim(struct wtinylfu *w)
{
    return w->lists[PROBATION].oldest ? w->lists[PROBATION].oldest
                                      : w->lists[PROTECTED].oldest;
}

/* Called when memory is full.  A candidate of the window's that is asked for more often
 * than the main part's victim enters that part in its place. */
static struct entry *victim(struct partition *p)
{
    struct wtinylfu *w = p->policy;
    struct entry *candidate = w->lists[WINDOW].oldest, *v = main_victim(w);

    if (!candidate || !v)
        return candidate ? candidate : v;
    if (w->lists[WINDOW].count == 1 ||
        (double)w->lists[WINDOW].bytes <= (double)p->memory * WINDOW_SHARE)
        return v;
    if (estimate(w, store_entry_hash(candidate)) <= estimate(w, store_entry_hash(v)))
        return candidate;
    move(w, candidate, PROBATION);
    return v;
}

static bool admit(struct partition *p, struct store_hash hash, uint32_t frequency)
{
    struct wtinylfu *w = p->policy;
    struct entry *v = main_victim(w);

    return !v || estimate(w, hash) >= estimate(w, store_entry_hash(v));
}

const struct policy_ops store_wtinylfu = {
    .name = "wtinylfu",
    .admits_new = true,
    .init = init,
    .destroy = destroy,
    .seen = seen,
    .add = add,
    .remove = discard,
    .replace = replace,
    .touch = touch,
    .victim = victim,
    .admit = admit,
};
