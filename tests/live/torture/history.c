/* SPDX-License-Identifier: BSD-3-Clause */
/* history.c - see history.h.
 *
 * Requests and looks are arrays from which room is taken by counting up, so noting
 * takes no lock.  Time is a counter as well: whatever ended before something else began
 * has the smaller number.  To judge, the requests are sorted by cell.
 */
#include "history.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPLAINTS_MAX 10
#define LOSSES_MAX     1024 /* since the last judgement; of more, the last */
#define NONE           UINT32_MAX

struct request {
    uint64_t begin, end; /* 0: has not ended */
    uint32_t first, count;
    uint32_t looks; /* the first of its looks; of a DID_FUA too */
    uint32_t of;    /* of a DID_FUA: the write */
    enum did did;
    bool failed;
    bool torn; /* was in flight at a loss */
};

struct loss {
    uint64_t begin, end; /* end 0: not over */
};

/* A write to a cell, and all who saw it. */
struct zone {
    uint32_t write; /* NONE: what was there in the beginning */
    uint64_t begin, end;
    uint64_t first_end, last_begin; /* of the write and its readers */
    bool zero;                      /* it stored zeros */
    bool seen, failed, torn;
};

struct history {
    uint32_t cells, block, max_requests, max_looks;
    _Atomic uint64_t clock;
    _Atomic uint32_t n_requests, n_looks;
    pthread_mutex_t loss_lock; /* of the following two */
    uint32_t n_losses;
    struct loss losses[LOSSES_MAX];
    struct request *requests;
    uint32_t *looks;

    /* For judging. */
    uint32_t *starts; /* of each cell's part of sorted */
    uint32_t *sorted; /* numbers of requests */
    uint32_t max_sorted;
    struct zone *zones;
    uint32_t max_zones;
    uint64_t violations;
    void (*complain)(void *opaque, const char *text);
    void *opaque;
};

struct history *history_new(uint32_t cells, uint32_t cells_a_block, uint32_t requests,
                            uint32_t looks)
{
    struct history *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    pthread_mutex_init(&h->loss_lock, NULL);
    h->cells = cells;
    h->block = cells_a_block;
    h->max_requests = requests;
    h->max_looks = looks;
    h->requests = calloc(requests, sizeof *h->requests);
    h->looks = calloc(looks, sizeof *h->looks);
    h->starts = calloc(cells + 2, sizeof *h->starts);
    if (!h->requests || !h->looks || !h->starts) {
        history_free(h);
        return NULL;
    }
    atomic_init(&h->clock, 1);
    return h;
}

void history_free(struct history *h)
{
    if (!h)
        return;
    free(h->requests);
    free(h->looks);
    free(h->starts);
    free(h->sorted);
    free(h->zones);
    pthread_mutex_destroy(&h->loss_lock);
    free(h);
}

static bool take(_Atomic uint32_t *counter, uint32_t count, uint32_t max, uint32_t *at)
{
    *at = atomic_fetch_add(counter, count);
    if (*at <= max && max - *at >= count)
        return true;
    atomic_fetch_sub(counter, count);
    return false;
}

uint32_t history_begin(struct history *h, enum did did, uint32_t first, uint32_t count)
{
    uint32_t number, looks = 0, wanted = did == DID_READ || did == DID_FUA ? count : 0;

    if (!take(&h->n_looks, wanted, h->max_looks, &looks))
        return NONE;
    if (!take(&h->n_requests, 1, h->max_requests, &number)) {
        atomic_fetch_sub(&h->n_looks, wanted);
        return NONE;
    }
    h->requests[number] = (struct request){.begin = atomic_fetch_add(&h->clock, 1),
                                           .first = first,
                                           .count = count,
                                           .looks = looks,
                                           .did = did};
    return number;
}

uint32_t history_begin_fua(struct history *h, uint32_t of)
{
    const struct request *write = &h->requests[of];
    uint32_t number = history_begin(h, DID_FUA, write->first, write->count);

    if (number != NONE)
        h->requests[number].of = of;
    return number;
}

void history_range(const struct history *h, uint32_t request, uint32_t *first,
                   uint32_t *count)
{
    *first = h->requests[request].first;
    *count = h->requests[request].count;
}

uint32_t *history_looks(struct history *h, uint32_t request)
{
    return h->looks + h->requests[request].looks;
}

void history_end(struct history *h, uint32_t request, bool ok)
{
    h->requests[request].failed = !ok;
    h->requests[request].end = atomic_fetch_add(&h->clock, 1);
}

void history_loss_begin(struct history *h)
{
    pthread_mutex_lock(&h->loss_lock);
    if (h->n_losses == LOSSES_MAX)
        memmove(h->losses, h->losses + 1, --h->n_losses * sizeof *h->losses);
    h->losses[h->n_losses++] = (struct loss){.begin = atomic_fetch_add(&h->clock, 1)};
    pthread_mutex_unlock(&h->loss_lock);
}

void history_loss_end(struct history *h)
{
    pthread_mutex_lock(&h->loss_lock);
    if (h->n_losses > 0)
        h->losses[h->n_losses - 1].end = atomic_fetch_add(&h->clock, 1);
    pthread_mutex_unlock(&h->loss_lock);
}

/* Says what a request was. */
static void describe(const struct history *h, uint32_t request, char *text,
                     unsigned len)
{
    static const char *const names[] = {"read", "write", "zeroing", "look after"};
    const struct request *r = &h->requests[request];

    if (request == SAW_ZERO)
        snprintf(text, len, "zeros");
    else if (request == SAW_GARBAGE)
        snprintf(text, len, "garbage");
    else if (request == SAW_INITIAL)
        snprintf(text, len, "what was there before");
    else
        snprintf(text, len, "%s #%u of cells %u to %u, from %llu to %llu%s%s",
                 names[r->did], request, r->first, r->first + r->count - 1,
                 (unsigned long long)r->begin, (unsigned long long)r->end,
                 r->failed ? ", failed" : "", r->torn ? ", torn" : "");
}

/* A violation at a cell, of two requests. */
static void violated(struct history *h, uint32_t cell, const char *what, uint32_t a,
                     uint32_t b)
{
    char text[600], first[200], second[200];

    if (h->violations++ >= COMPLAINTS_MAX)
        return;
    describe(h, a, first, sizeof first);
    describe(h, b, second, sizeof second);
    snprintf(text, sizeof text, "cell %u: %s: %s; %s", cell, what, first, second);
    h->complain(h->opaque, text);
}

static bool stores(const struct request *r)
{
    return r->did == DID_WRITE || r->did == DID_ZERO;
}

static bool sees(const struct request *r)
{
    return (r->did == DID_READ && !r->failed) || r->did == DID_FUA;
}

/* Notes which changes were in flight at a loss. */
static void find_torn(struct history *h, uint32_t n)
{
    pthread_mutex_lock(&h->loss_lock);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = &h->requests[i];

        r->torn = false;
        for (uint32_t k = 0; stores(r) && k < h->n_losses; k++) {
            const struct loss *loss = &h->losses[k];

            if (loss->begin < r->end && (loss->end == 0 || r->begin < loss->end))
                r->torn = true;
        }
    }
    pthread_mutex_unlock(&h->loss_lock);
}

/* Nothing is in flight: only a loss that is not over can concern later requests. */
static void forget_losses(struct history *h)
{
    pthread_mutex_lock(&h->loss_lock);
    if (h->n_losses > 0 && h->losses[h->n_losses - 1].end == 0) {
        h->losses[0] = h->losses[h->n_losses - 1];
        h->n_losses = 1;
    } else
        h->n_losses = 0;
    pthread_mutex_unlock(&h->loss_lock);
}

/* Whether what a read saw of a change says nothing: see history.h. */
static bool may_have_been_lost(const struct request *w, const struct request *read)
{
    return w->torn && read->begin < w->end;
}

/* Whether request a had ended before b began. */
static bool before(const struct history *h, uint32_t a, uint32_t b)
{
    return h->requests[a].end < h->requests[b].begin;
}

/* Sorts the requests by cell: counts, adds up, and puts in place, which moves the start
 * of each cell's part to its end, where the next one starts.  False: no memory. */
static bool sort(struct history *h)
{
    uint32_t n = atomic_load(&h->n_requests), *at = h->starts;
    uint64_t total = 0;

    memset(at, 0, (h->cells + 2) * sizeof *at);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < h->requests[i].count; c++)
            at[h->requests[i].first + c + 2]++, total++;
    for (uint32_t c = 2; c < h->cells + 2; c++)
        at[c] += at[c - 1];
    if (total > h->max_sorted) {
        free(h->sorted);
        h->sorted = malloc(total * sizeof *h->sorted);
        h->max_sorted = h->sorted ? total : 0;
        if (!h->sorted)
            return false;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < h->requests[i].count; c++)
            h->sorted[at[h->requests[i].first + c + 1]++] = i;
    return true;
}

/* Makes the zones of one cell's writes, of which the first is the beginning.  Returns
 * how many, or 0 without memory. */
static uint32_t make_zones(struct history *h, const uint32_t *numbers, uint32_t n,
                           bool initial_zero)
{
    uint32_t made = 1;

    if (n + 1 > h->max_zones) {
        free(h->zones);
        h->max_zones = 2 * n + 64;
        h->zones = malloc(h->max_zones * sizeof *h->zones);
        if (!h->zones) {
            h->max_zones = 0;
            return 0;
        }
    }
    h->zones[0] = (struct zone){.write = NONE, .zero = initial_zero, .seen = true};
    for (uint32_t i = 0; i < n; i++) {
        const struct request *r = &h->requests[numbers[i]];

        if (stores(r))
            h->zones[made++] = (struct zone){.write = numbers[i],
                                             .begin = r->begin,
                                             .end = r->end,
                                             .first_end = r->end,
                                             .last_begin = r->begin,
                                             .zero = r->did == DID_ZERO,
                                             .seen = !r->failed,
                                             .failed = r->failed,
                                             .torn = r->torn};
    }
    return made;
}

static void saw(struct zone *zone, const struct request *r)
{
    zone->seen = true;
    if (r->end < zone->first_end)
        zone->first_end = r->end;
    if (r->begin > zone->last_begin)
        zone->last_begin = r->begin;
}

/* Whether a request that ended at some moment, and begun at another, cannot have seen
 * zone, since another write was carried out in between. */
static bool is_too_old(const struct zone *zones, uint32_t n, const struct zone *zone,
                       uint64_t begin)
{
    for (uint32_t i = 1; i < n; i++)
        if (!zones[i].failed && zones[i].begin > zone->end && zones[i].end < begin)
            return true;
    return false;
}

/* Zeros, which may be of several requests. */
static void saw_zeros(struct history *h, uint32_t cell, uint32_t number, uint32_t n)
{
    const struct request *r = &h->requests[number];
    struct zone *only = NULL;
    bool some = false, fresh = false;

    for (uint32_t i = 0; i < n; i++) {
        struct zone *zone = &h->zones[i];

        if (!zone->zero || zone->begin > r->end)
            continue;
        if (zone->torn && r->begin < zone->end)
            return;
        only = some ? NULL : zone;
        some = true;
        fresh = fresh || !is_too_old(h->zones, n, zone, r->begin);
    }
    if (only && !only->failed)
        saw(only, r);
    else if (!fresh)
        violated(h, cell, some ? "stale zeros" : "zeros that nobody wrote", number,
                 SAW_ZERO);
}

/* What is durable may be newer than the write that asked for it, but no older. */
static void judge_durable(struct history *h, uint32_t cell, uint32_t number, uint32_t n,
                          uint32_t value)
{
    const struct request *look = &h->requests[number];
    const uint64_t begin = h->requests[look->of].begin;

    if (value == SAW_ZERO) {
        for (uint32_t i = 0; i < n; i++)
            if (h->zones[i].zero && h->zones[i].end > begin)
                return;
    } else if (value < SAW_GARBAGE && h->requests[value].end > begin) {
        return;
    }
    violated(h, cell, "not durable after FUA", look->of, value);
}

static void judge_read(struct history *h, uint32_t cell, uint32_t number, uint32_t n)
{
    const struct request *r = &h->requests[number];
    uint32_t value = h->looks[r->looks + (cell - r->first)];
    const struct request *w;
    uint32_t i = 1;

    if (r->did == DID_FUA) {
        judge_durable(h, cell, number, n, value);
        return;
    }
    if (value == SAW_ZERO) {
        saw_zeros(h, cell, number, n);
        return;
    }
    if (value == SAW_GARBAGE) {
        violated(h, cell, "garbage", number, value);
        return;
    }
    if (value == SAW_INITIAL) {
        saw(&h->zones[0], r);
        return;
    }
    w = &h->requests[value];
    if (may_have_been_lost(w, r) && w->begin <= r->end)
        return;
    while (i < n && h->zones[i].write != value)
        i++;
    if (i == n || w->begin > r->end)
        violated(h, cell, "bytes of another place or time", number, value);
    else
        saw(&h->zones[i], r);
}

static int by_first_end(const void *a, const void *b)
{
    const struct zone *x = a, *y = b;

    return x->first_end < y->first_end ? -1 : x->first_end > y->first_end;
}

static bool is_forward(const struct zone *zone)
{
    return zone->first_end < zone->last_begin;
}

/* The zones in order of their first end.  Of those that are forward, this is where they
 * start, and none may start before the one before it is over. */
static void judge_zones(struct history *h, uint32_t cell, uint32_t n)
{
    const struct zone *last = NULL;

    qsort(h->zones, n, sizeof *h->zones, by_first_end);
    for (uint32_t i = 0; i < n; i++) {
        const struct zone *zone = &h->zones[i];

        if (!zone->seen || !is_forward(zone))
            continue;
        if (last && zone->first_end < last->last_begin)
            violated(h, cell, "a stale read: seen in turns",
                     last->write == NONE ? SAW_INITIAL : last->write, zone->write);
        if (!last || zone->last_begin > last->last_begin)
            last = zone;
        /* The backward ones that are inside: these start after it. */
        for (uint32_t k = i + 1; k < n; k++) {
            const struct zone *other = &h->zones[k];

            if (other->first_end > zone->last_begin)
                break;
            if (other->seen && !is_forward(other) &&
                other->last_begin > zone->first_end)
                violated(h, cell, "a stale read: seen before and after",
                         zone->write == NONE ? SAW_INITIAL : zone->write, other->write);
        }
    }
}

static void judge_cell(struct history *h, uint32_t cell, bool initial_zero)
{
    uint32_t start = h->starts[cell], end = h->starts[cell + 1];
    uint32_t n = make_zones(h, h->sorted + start, end - start, initial_zero);

    if (n == 0)
        return;
    for (uint32_t i = start; i < end; i++)
        if (sees(&h->requests[h->sorted[i]]))
            judge_read(h, cell, h->sorted[i], n);
    judge_zones(h, cell, n);
}

/* A read of cells [from, to), all in one block: if one shows a write, none that this
 * write stored too may show anything older. */
static void judge_whole(struct history *h, uint32_t number, uint32_t from, uint32_t to)
{
    const struct request *r = &h->requests[number];
    const uint32_t *saw = h->looks + r->looks - r->first;

    for (uint32_t c = from; c < to; c++) {
        const struct request *w;

        if (saw[c] >= SAW_GARBAGE || (c > from && saw[c] == saw[c - 1]))
            continue;
        w = &h->requests[saw[c]];
        if (may_have_been_lost(w, r))
            continue;
        for (uint32_t d = from; d < to; d++)
            if (saw[d] != saw[c] && d - w->first < w->count && saw[d] != SAW_ZERO &&
                (saw[d] == SAW_INITIAL ||
                 (saw[d] < SAW_GARBAGE && before(h, saw[d], saw[c]))) &&
                !w->failed) {
                violated(h, d, "half of a write", number, saw[c]);
                return;
            }
    }
}

uint64_t history_judge(struct history *h, bool (*is_zero)(void *opaque, uint32_t cell),
                       void (*complain)(void *opaque, const char *text), void *opaque)
{
    uint32_t n = atomic_load(&h->n_requests);

    h->violations = 0;
    h->complain = complain;
    h->opaque = opaque;
    find_torn(h, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct request *r = &h->requests[i];
        uint32_t end = r->first + r->count, next;

        if (r->end == 0) {
            violated(h, r->first, "it has not ended", i, SAW_INITIAL);
            return h->violations;
        }
        if (r->did == DID_READ && !r->failed)
            for (uint32_t c = r->first; c < end; c = next) {
                next = (c / h->block + 1) * h->block;
                judge_whole(h, i, c, next < end ? next : end);
            }
    }
    if (!sort(h)) {
        complain(opaque, "no memory to judge by");
        h->violations++;
    } else {
        for (uint32_t c = 0; c < h->cells; c++)
            judge_cell(h, c, is_zero(opaque, c));
    }
    atomic_store(&h->n_requests, 0);
    atomic_store(&h->n_looks, 0);
    forget_losses(h);
    return h->violations;
}
