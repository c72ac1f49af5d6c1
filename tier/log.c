/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - segments: filled one after the other, evicted as a whole.
 *
 * Of the oldest EYE segments, the one with the fewest live blocks is evicted, so what
 * writes and trims have emptied goes first.  Its hot blocks, a third of its slots at
 * most, are the first of the segment that takes its place.
 *
 * The order in an eviction keeps invariant (I) of format.h: read hot blocks; zero the
 * footer, durably; remove the blocks from the index; wait for pins; fill. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EYE           8
#define BATCH         (1u << 20) /* bytes of a write */
#define NO_SPACE_WAIT UINT64_C(10000000000)

int log_new(struct qm_tier *t)
{
    uint32_t per_page =
        t->g.block_size < QM_TIER_PAGE ? QM_TIER_PAGE / t->g.block_size : 1;
    uint32_t batch = BATCH / t->g.block_size;
    size_t footer = qm_tier_footer_bytes(t->g.slots);

    if (batch < per_page)
        batch = per_page;
    t->log.batch_slots = batch < t->g.slots ? batch : t->g.slots;
    t->log.hot_slots = t->g.slots / 3 / per_page * per_page;
    t->log.filling = NO_SEGMENT;
    t->log.free.head = t->log.free.tail = NO_SEGMENT;
    t->log.sealed = t->log.free;
    t->log.footer = tier_alloc(t, footer);
    t->log.victim = tier_alloc(t, footer);
    t->log.tags = tier_alloc(t, t->g.slots);
    t->log.hot_items = tier_alloc(t, sizeof(struct item) * (t->log.hot_slots + 1));
    if (t->config.data) {
        t->log.staging = tier_pages(t, (size_t)t->log.batch_slots * t->g.block_size);
        t->log.hot =
            tier_pages(t, (size_t)(t->log.hot_slots + per_page) * t->g.block_size);
    }
    t->chunks_max = (uint32_t)(UINT32_MAX / t->g.slots / CHUNK + 1);
    if (t->chunks_max > 4096)
        t->chunks_max = 4096;
    t->chunks = tier_alloc(t, t->chunks_max * sizeof t->chunks[0]);
    if (!t->log.footer || !t->log.victim || !t->log.tags || !t->log.hot_items ||
        !t->chunks || (t->config.data && (!t->log.staging || !t->log.hot)))
        return ENOMEM;
    return log_add_segments(t, 0, t->g.segments);
}

void log_free(struct qm_tier *t)
{
    for (uint32_t i = 0; t->chunks && i < t->chunks_max; i++)
        free(t->chunks[i]);
    free((void *)t->chunks);
    free(t->log.footer);
    free(t->log.victim);
    free(t->log.tags);
    free(t->log.hot_items);
    free(t->log.staging);
    free(t->log.hot);
}

int log_add_segments(struct qm_tier *t, uint32_t from, uint32_t to)
{
    if (to > t->chunks_max * CHUNK)
        return EINVAL;
    for (uint32_t i = from >> CHUNK_BITS; i <= (to - 1) >> CHUNK_BITS; i++)
        if (!t->chunks[i]) {
            uint32_t n = CHUNK;
            struct segment *chunk;

            chunk = calloc(n, sizeof *chunk);
            if (!chunk)
                return ENOMEM;
            atomic_fetch_add(&t->index_memory, n * sizeof *chunk);
            atomic_store_explicit(&t->chunks[i], chunk, memory_order_release);
        }
    return 0;
}

void log_push(struct qm_tier *t, struct list *list, uint32_t number)
{
    struct segment *s = segment_of(t, number);

    s->next = NO_SEGMENT;
    s->prev = list->tail;
    if (list->tail != NO_SEGMENT)
        segment_of(t, list->tail)->next = number;
    else
        list->head = number;
    list->tail = number;
    list->n++;
}

void log_unlink(struct qm_tier *t, struct list *list, uint32_t number)
{
    struct segment *s = segment_of(t, number);

    if (s->prev != NO_SEGMENT)
        segment_of(t, s->prev)->next = s->next;
    else
        list->head = s->next;
    if (s->next != NO_SEGMENT)
        segment_of(t, s->next)->prev = s->prev;
    else
        list->tail = s->prev;
    list->n--;
}

int log_kill(struct qm_tier *t, uint32_t segment, uint32_t slot, uint32_t n)
{
    static const uint8_t dead[64];
    int r = 0;

    while (n > 0 && r == 0) {
        uint32_t k = n < sizeof dead ? n : sizeof dead;

        r = tier_write(t, QM_TIER_META, dead, k, qm_tier_tag_at(&t->g, segment, slot),
                       false);
        slot += k;
        n -= k;
    }
    return r;
}

int log_footer(struct qm_tier *t)
{
    struct qm_tier_footer *f = t->log.footer;
    int r;

    if (t->log.filling == NO_SEGMENT || t->log.used == t->log.in_footer)
        return 0;
    f->count = t->log.used;
    qm_tier_footer_seal(f, t->g.slots);
    r = tier_write(t, QM_TIER_META, f, qm_tier_footer_bytes(t->g.slots),
                   qm_tier_footer_at(&t->g, t->log.filling), false);
    /* Half a footer is none, and its blocks are in the index: no rule is broken. */
    if (r != 0)
        tier_error(t, WARN_WRITE, r);
    else
        t->log.in_footer = t->log.used;
    return r;
}

static void seal(struct qm_tier *t)
{
    uint32_t number = t->log.filling;

    (void)log_footer(t);
    segment_of(t, number)->state = SEGMENT_SEALED;
    segment_of(t, number)->filled = tier_now(t);
    log_push(t, &t->log.sealed, number);
    t->log.filling = NO_SEGMENT;
}

static uint32_t choose_victim(struct qm_tier *t)
{
    uint32_t best = t->log.sealed.head, at = best;

    for (unsigned i = 0; i < EYE && at != NO_SEGMENT; i++) {
        if (segment_of(t, at)->live < segment_of(t, best)->live)
            best = at;
        at = segment_of(t, at)->next;
    }
    return best;
}

/* Reads the hot blocks of a segment whose footer is in log.victim; returns how many. */
static uint32_t read_hot(struct qm_tier *t, uint32_t number)
{
    const struct qm_tier_entry *entries = (const void *)(t->log.victim + 1);
    uint32_t n = 0, spare, limit = t->log.hot_slots, of_heat[8] = {0};
    size_t size = t->g.block_size;
    struct slot s;
    unsigned least = 8;

    /* The hottest that there is room for. */
    for (uint32_t i = 0; i < t->log.victim->count; i++)
        if (entries[i].block != QM_TIER_VOID &&
            index_is_at(t, entries[i].block, number, i, &s))
            of_heat[s.heat]++;
    while (least > 1 && n + of_heat[least - 1] <= limit)
        n += of_heat[--least];
    spare = limit - n; /* for some that are one degree cooler */
    n = 0;
    for (uint32_t i = 0; i < t->log.victim->count && n < limit; i++) {
        uint64_t at = qm_tier_data_at(&t->g, number, i);
        char *to = t->log.hot ? (char *)t->log.hot + n * size : NULL;
        int r = 0;

        if (entries[i].block == QM_TIER_VOID ||
            !index_is_at(t, entries[i].block, number, i, &s) || s.heat < 1 ||
            verify_pending(t, number, i) || s.heat + 1 < least ||
            (s.heat + 1 == least && spare == 0) ||
            (s.restored && t->config.mode == QM_TIER_EXCLUSIVE))
            continue;
        spare -= s.heat + 1 == least;
        if (to && size >= QM_TIER_PAGE) {
            r = t->io.read(t->io.opaque, QM_TIER_DATA, to, size, at);
        } else if (to) {
            /* A page, of which the block is then moved to its place. */
            char *page = (char *)t->log.hot + t->log.hot_slots * size;

            r = t->io.read(t->io.opaque, QM_TIER_DATA, page, QM_TIER_PAGE,
                           at / QM_TIER_PAGE * QM_TIER_PAGE);
            memcpy(to, page + at % QM_TIER_PAGE, size);
        }
        if (r != 0 || qm_tier_checksum(s.block, to, size) != s.check)
            continue; /* who reads it next will count the error */
        t->log.hot_items[n++] =
            (struct item){.block = s.block, .data = to, .ticket = i};
    }
    return n;
}

struct search {
    struct qm_tier *t;
    uint32_t segment, n;
};

static void collect(void *opaque, const struct slot *slot)
{
    struct search *search = opaque;
    struct qm_tier_entry *entries = (void *)(search->t->log.victim + 1);

    if (slot->segment == search->segment) {
        entries[slot->slot].block = slot->block;
        search->n++;
    }
}

/* The blocks of a segment into log.victim: from its footer, or if that cannot be read,
 * from the index. */
static void read_footer(struct qm_tier *t, uint32_t number)
{
    struct qm_tier_footer *f = t->log.victim;
    struct qm_tier_entry *entries = (void *)(f + 1);
    struct search search = {t, number, 0};
    int r = t->io.read(t->io.opaque, QM_TIER_META, f, qm_tier_footer_bytes(t->g.slots),
                       qm_tier_footer_at(&t->g, number));

    if (r == 0 && qm_tier_footer_ok(f, &t->g, t->super.uuid, number) &&
        f->incarnation == segment_of(t, number)->incarnation)
        return;
    tier_error(t, WARN_READ, r ? r : EILSEQ);
    for (uint32_t i = 0; i < t->g.slots; i++)
        entries[i].block = QM_TIER_VOID;
    f->count = t->g.slots;
    index_each(t, collect, &search);
}

int log_evict(struct qm_tier *t, uint32_t number, uint32_t *hot)
{
    const struct qm_tier_entry *entries = (const void *)(t->log.victim + 1);
    static const struct qm_tier_footer none;
    struct segment *s = segment_of(t, number);
    uint64_t before = s->live, ticket;
    uint32_t n = 0, kept = 0, gone = 0, sum = 0, i;
    int r;

    read_footer(t, number);
    if (hot)
        n = read_hot(t, number);
    r = tier_write(t, QM_TIER_META, &none, sizeof none,
                   qm_tier_footer_at(&t->g, number), true);
    if (r != 0)
        return r;
    s->state = SEGMENT_EVICTING;
    ticket = atomic_load(&t->journal.now);
    for (i = 0; i < t->log.victim->count; i++) {
        bool was, hotter;

        if (entries[i].block == QM_TIER_VOID)
            continue;
        was = index_remove_from(t, entries[i].block, number, i);
        /* hot_items are in the order of slots; their tickets have been their slots. */
        hotter = kept < n && t->log.hot_items[kept].ticket == i;
        if (was && !hotter) {
            sum += admit_frequency(t, entries[i].block);
            gone++;
        }
        if (hotter) {
            if (was) {
                t->log.hot_items[kept++].ticket = ticket;
            } else {
                n--;
                memmove(&t->log.hot_items[kept], &t->log.hot_items[kept + 1],
                        (n - kept) * sizeof(struct item));
            }
        }
    }
    while (atomic_load(&s->pins) > 0) {
        struct timespec wait = {0, 20000};

        nanosleep(&wait, NULL);
    }
    if (gone > 0)
        admit_learn(t, sum, gone);
    ADD(t, evicted, before > n ? before - n : 0);
    if (hot)
        *hot = n;
    return 0;
}

/* Takes a free segment, or evicts one, to be filled.  *hot: how many of log.hot_items
 * are to be its first blocks. */
static int open_segment(struct qm_tier *t, uint32_t *hot)
{
    struct qm_tier_entry *entries = (void *)(t->log.footer + 1);
    uint32_t number = t->log.free.head;
    struct segment *s;
    uint64_t incarnation;
    int r;

    *hot = 0;
    if (number != NO_SEGMENT) {
        log_unlink(t, &t->log.free, number);
    } else {
        number = choose_victim(t);
        if (number == NO_SEGMENT)
            return ENOSPC;
        log_unlink(t, &t->log.sealed, number);
        r = log_evict(t, number, hot);
        if (r != 0) {
            log_push(t, &t->log.sealed, number);
            return r;
        }
    }
    s = segment_of(t, number);
    incarnation = ++t->log.incarnation;
    r = t->io.reserve(t->io.opaque, qm_tier_footer_at(&t->g, number), t->g.meta_bytes);
    if (r == 0) {
        memset(t->log.tags, qm_tier_live_tag(incarnation), t->g.slots);
        r = tier_write(t, QM_TIER_META, t->log.tags, t->g.slots,
                       qm_tier_tag_at(&t->g, number, 0), false);
    }
    if (r != 0) {
        s->state = SEGMENT_FREE;
        log_push(t, &t->log.free, number);
        return r;
    }
    s->state = SEGMENT_FILLING;
    s->doubtful = 0;
    s->incarnation = incarnation;
    memset(t->log.footer, 0, qm_tier_footer_bytes(t->g.slots));
    memcpy(t->log.footer->uuid, t->super.uuid, 16);
    t->log.footer->segment = number;
    t->log.footer->incarnation = incarnation;
    for (uint32_t i = 0; i < t->g.slots; i++)
        entries[i].block = QM_TIER_VOID;
    t->log.filling = number;
    t->log.used = t->log.in_footer = 0;
    t->filled = t->log.free.n == 0;
    return 0;
}

static void pay(struct qm_tier *t, uint64_t bytes)
{
    ADD(t, bytes_written, bytes);
    admit_pay(t, bytes);
}

/* Appends n blocks whose data lies one after the other at data (NULL: no data), which
 * all fit; the write is rounded up to pages, and so are the slots that are used. */
static int append(struct qm_tier *t, const struct item *items, const uint64_t *checks,
                  uint32_t n, const void *data, bool rewritten)
{
    struct qm_tier_entry *entries = (void *)(t->log.footer + 1);
    size_t size = t->g.block_size;
    uint32_t per_page = size < QM_TIER_PAGE ? QM_TIER_PAGE / (uint32_t)size : 1;
    uint32_t taken = (n + per_page - 1) / per_page * per_page;
    uint32_t first = t->log.used;
    int r = 0;

    if (data)
        r = tier_write(t, QM_TIER_DATA, data, taken * size,
                       qm_tier_data_at(&t->g, t->log.filling, first), false);
    else
        pay(t, taken * size);
    if (r != 0) {
        /* What the slots hold now is not known, so they are not used again. */
        t->log.used += taken;
        return r;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct slot s = {
            .block = items[i].block,
            .check = checks[i],
            .segment = t->log.filling,
            .slot = first + i,
        };

        /* The footer has it only after the index: see (I). */
        if (index_add(t, &s, items[i].ticket) == 0) {
            entries[first + i] =
                (struct qm_tier_entry){.block = s.block, .check = s.check};
            if (rewritten)
                COUNT(t, rewritten);
            else
                COUNT(t, inserted);
        } else if (!rewritten) {
            COUNT(t, voided);
        }
    }
    t->log.used += taken;
    return 0;
}

static void append_hot(struct qm_tier *t, uint32_t n)
{
    uint32_t most = t->log.batch_slots;

    for (uint32_t i = 0; i < n; i += most) {
        uint32_t k = n - i < most ? n - i : most;
        uint64_t checks[2048]; /* 1 MiB of 512 bytes */
        int r;

        for (uint32_t j = 0; j < k; j++)
            checks[j] = qm_tier_checksum(t->log.hot_items[i + j].block,
                                         t->log.hot_items[i + j].data, t->g.block_size);
        r = append(t, &t->log.hot_items[i], checks, k,
                   t->config.data ? t->log.hot_items[i].data : NULL, true);
        if (r != 0)
            tier_error(t, WARN_WRITE, r);
    }
}

static void close_up_hot(struct qm_tier *t, uint32_t n)
{
    size_t size = t->g.block_size;

    for (uint32_t i = 0; t->log.hot && i < n; i++) {
        char *to = (char *)t->log.hot + i * size;

        if (t->log.hot_items[i].data != to)
            memcpy(to, t->log.hot_items[i].data, size);
        t->log.hot_items[i].data = to;
    }
}

/* Writes up to n items into one segment.  Returns how many it is done with. */
static uint32_t write_some(struct qm_tier *t, const struct item *items, uint32_t n)
{
    struct item chosen[64];
    uint64_t checks[64];
    size_t size = t->g.block_size;
    uint32_t k = 0, i, hot, room;
    int r = 0;

    if (t->log.filling != NO_SEGMENT && t->log.used == t->g.slots)
        seal(t);
    if (t->log.filling == NO_SEGMENT) {
        if (tier_now(t) < t->log.no_space_until)
            r = ENOSPC;
        else
            r = open_segment(t, &hot);
        if (r == 0 && hot > 0) {
            close_up_hot(t, hot);
            append_hot(t, hot);
        }
    }
    if (r == 0) {
        room = t->g.slots - t->log.used;
        if (room > t->log.batch_slots)
            room = t->log.batch_slots;
        if (room > 64)
            room = 64;
        for (i = 0; i < n && k < room; i++) {
            if (journal_is_stale(t, items[i].block, items[i].ticket) ||
                index_contains(t, items[i].block)) {
                COUNT(t, voided);
                continue;
            }
            checks[k] = qm_tier_checksum(items[i].block, items[i].data, size);
            if (t->log.staging)
                memcpy((char *)t->log.staging + k * size, items[i].data, size);
            chosen[k++] = items[i];
        }
        if (k > 0)
            r = append(t, chosen, checks, k, t->log.staging, false);
    } else {
        i = n;
        k = n;
    }
    if (r == ENOSPC) {
        tier_warn(t, WARN_SPACE,
                  "no space left for the tier: it is kept, but takes no blocks now");
        t->log.no_space_until = tier_now(t) + NO_SPACE_WAIT;
    } else if (r != 0) {
        tier_error(t, WARN_WRITE, r);
    }
    if (r != 0)
        ADD(t, failed, k);
    return i;
}

void log_write(struct qm_tier *t, const struct item *items, uint32_t n)
{
    uint32_t done = 0;

    pthread_mutex_lock(&t->log.lock);
    while (done < n && !tier_dead(t))
        done += write_some(t, items + done, n - done);
    ADD(t, failed, n - done);
    if (!tier_dead(t) && t->log.filling != NO_SEGMENT &&
        (t->log.used == t->g.slots || t->log.used - t->log.in_footer > t->g.slots / 8))
        (void)log_footer(t);
    pthread_mutex_unlock(&t->log.lock);
    for (uint32_t i = 0; i < n; i++)
        if (items[i].release)
            items[i].release(items[i].cookie);
    admit_bloom_refresh(t);
}
