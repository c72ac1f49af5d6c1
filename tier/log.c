/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - segments: filled one after the other, and when none is free, filled again.
 *
 * A segment that is filled again keeps the blocks that are worth it where they are:
 * only the other slots are written to.  So a hot block costs no write, and the slot of
 * one that was changed or trimmed is used again.
 *
 * Which segment: a hand goes round over the segments, as CLOCK's over pages.  Slots
 * whose blocks were not read since it came by last, and those that hold none, are
 * filled anew; the others' blocks become a degree cooler.  But the segment that holds
 * the fewest blocks comes first if one in ROOM of its slots is empty, and loses none.
 *
 * The order keeps invariant (I) of format.h: write a footer that lists those blocks
 * that stay, or zeros if there is none, durably; remove from the index the blocks that
 * leave; wait for the threads that had pinned the segment; make the tags of all slots
 * that are free live; fill.  A crash at any moment loses none that stay, unless it
 * tears a footer.  The tags of those that stay are not touched, since a change may kill
 * them at any time: the new incarnation has the same live tag.  A slot is written to
 * once in an incarnation, and no footer of another one is ever there with it, so what a
 * footer lists is in its slot or has the wrong checksum. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EYE           8  /* segments that the hand looks at for one */
#define ROOM          16 /* a segment with a 16th of its slots empty is filled first */
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
    t->log.filling = NO_SEGMENT;
    t->log.free.head = t->log.free.tail = NO_SEGMENT;
    t->log.sealed = t->log.free;
    t->log.footer = tier_alloc(t, footer);
    t->log.victim = tier_alloc(t, footer);
    t->log.tags = tier_alloc(t, t->g.slots);
    t->log.taken = tier_alloc(t, t->g.slots);
    if (t->config.data)
        t->log.staging = tier_pages(t, (size_t)t->log.batch_slots * t->g.block_size);
    t->chunks_max = (uint32_t)(UINT32_MAX / t->g.slots / CHUNK + 1);
    if (t->chunks_max > 4096)
        t->chunks_max = 4096;
    t->chunks = tier_alloc(t, t->chunks_max * sizeof t->chunks[0]);
    if (!t->log.footer || !t->log.victim || !t->log.tags || !t->log.taken ||
        !t->chunks || (t->config.data && !t->log.staging))
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
    free(t->log.taken);
    free(t->log.staging);
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

    if (t->log.filling == NO_SEGMENT || t->log.unlisted == 0)
        return 0;
    f->count = t->g.slots;
    qm_tier_footer_seal(f, t->g.slots);
    r = tier_write(t, QM_TIER_META, f, qm_tier_footer_bytes(t->g.slots),
                   qm_tier_footer_at(&t->g, t->log.filling), false);
    /* Half a footer is none, and its blocks are in the index: no rule is broken. */
    if (r != 0)
        tier_error(t, WARN_WRITE, r);
    else
        t->log.unlisted = 0;
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

/* Whether log.victim has all blocks of the segment that are in the index: the last
 * footer may not have been written.  Blocks may leave meanwhile, none enters. */
static bool is_whole(struct qm_tier *t, uint32_t number)
{
    const struct qm_tier_entry *entries = (const void *)(t->log.victim + 1);
    uint32_t n = 0;
    struct slot s;

    for (uint32_t i = 0; i < t->log.victim->count; i++)
        n += entries[i].block != QM_TIER_VOID &&
             index_is_at(t, entries[i].block, number, i, &s);
    return n >= segment_of(t, number)->live;
}

/* The blocks of a segment into log.victim: from its footer, or if that cannot be read
 * or lacks some, from the index.  Returns whether it is the footer, which has
 * checksums, too. */
static bool read_footer(struct qm_tier *t, uint32_t number)
{
    struct qm_tier_footer *f = t->log.victim;
    struct qm_tier_entry *entries = (void *)(f + 1);
    struct search search = {t, number, 0};
    int r = 0;

    if (segment_of(t, number)->live > 0) { /* else there may be no footer */
        r = t->io.read(t->io.opaque, QM_TIER_META, f, qm_tier_footer_bytes(t->g.slots),
                       qm_tier_footer_at(&t->g, number));
        if (r != 0 || !qm_tier_footer_ok(f, &t->g, t->super.uuid, number) ||
            f->incarnation != segment_of(t, number)->incarnation)
            tier_error(t, WARN_READ, r ? r : EILSEQ);
        else if (is_whole(t, number))
            return true;
    }
    for (uint32_t i = 0; i < t->g.slots; i++)
        entries[i].block = QM_TIER_VOID;
    f->count = t->g.slots;
    index_each(t, collect, &search);
    return false;
}

/* How hot a slot of the segment in log.victim is, from 1; 0: it may be filled anew. */
static unsigned heat_of(struct qm_tier *t, uint32_t number, uint32_t i, struct slot *s)
{
    const struct qm_tier_entry *entries = (const void *)(t->log.victim + 1);

    if (i >= t->log.victim->count || entries[i].block == QM_TIER_VOID ||
        !index_is_at(t, entries[i].block, number, i, s))
        return 0;
    if (s->restored && t->config.mode == QM_TIER_EXCLUSIVE)
        return 1;
    return s->heat + 1;
}

/* Those that are hotter than limit stay: into log.taken.  A page is kept as a whole.
 * cool: the hand comes by.  Returns how many slots are free. */
static uint32_t choose(struct qm_tier *t, uint32_t number, unsigned limit, bool cool)
{
    uint32_t per_page =
        t->g.block_size < QM_TIER_PAGE ? QM_TIER_PAGE / t->g.block_size : 1;
    uint32_t free_slots = 0;

    for (uint32_t i = 0; i < t->g.slots; i += per_page) {
        bool stays = false;
        struct slot s;

        for (uint32_t k = i; k < i + per_page; k++) {
            unsigned heat = heat_of(t, number, k, &s);

            stays = stays || heat > limit;
            if (cool && heat > 1)
                index_cool(t, &s);
        }
        memset(t->log.taken + i, stays, per_page);
        free_slots += stays ? 0 : per_page;
    }
    return free_slots;
}

/* Waits until all threads that had pinned the segment at the call have let go. */
static void wait_for_pins(struct segment *s)
{
    const struct timespec wait = {0, 20000};

    for (unsigned i = 0; i < 2; i++) {
        uint8_t was = atomic_fetch_xor(&s->phase, 1);

        while (atomic_load(&s->pins[was]) > 0)
            nanosleep(&wait, NULL);
    }
}

/* Removes the blocks of a segment, but for those in taken, which log.footer lists
 * (NULL: none stays); log.victim has its footer.  When this returns nobody uses their
 * slots, and the file has no footer of it, or log.footer. */
static int evict(struct qm_tier *t, uint32_t number, const uint8_t *taken)
{
    const struct qm_tier_entry *entries = (const void *)(t->log.victim + 1);
    static const struct qm_tier_footer none;
    uint32_t gone = 0, sum = 0;
    int r = tier_write(t, QM_TIER_META, taken ? t->log.footer : &none,
                       taken ? qm_tier_footer_bytes(t->g.slots) : sizeof none,
                       qm_tier_footer_at(&t->g, number), true);

    if (r != 0)
        return r;
    if (taken)
        segment_of(t, number)->incarnation = t->log.footer->incarnation;
    segment_of(t, number)->state = SEGMENT_EVICTING;
    for (uint32_t i = 0; i < t->log.victim->count; i++)
        if (!(taken && taken[i]) && entries[i].block != QM_TIER_VOID &&
            index_remove_from(t, entries[i].block, number, i)) {
            sum += admit_frequency(t, entries[i].block);
            reuse_left(t, entries[i].block);
            gone++;
        }
    wait_for_pins(segment_of(t, number));
    if (gone > 0)
        admit_learn(t, sum, gone);
    ADD(t, evicted, gone);
    return 0;
}

int log_empty(struct qm_tier *t, uint32_t number)
{
    /* Not log.taken, which is of the segment that is being filled. */
    (void)read_footer(t, number);
    return evict(t, number, NULL);
}

/* The segment with the fewest blocks, if wanted slots hold none; else NO_SEGMENT. */
static uint32_t emptiest(struct qm_tier *t, uint32_t wanted)
{
    uint32_t least = t->g.slots - wanted + 1, best = NO_SEGMENT;

    for (uint32_t i = t->log.sealed.head; i != NO_SEGMENT; i = segment_of(t, i)->next)
        if (segment_of(t, i)->live < least) {
            least = segment_of(t, i)->live;
            best = i;
        }
    return best;
}

/* A footer for what is filled now, with what is taken already. */
static void new_footer(struct qm_tier *t, uint32_t number, uint64_t incarnation)
{
    const struct qm_tier_entry *old = (const void *)(t->log.victim + 1);
    struct qm_tier_footer *f = t->log.footer;
    struct qm_tier_entry *entries = (void *)(f + 1);

    memset(f, 0, sizeof *f);
    memcpy(f->uuid, t->super.uuid, 16);
    f->segment = number;
    f->incarnation = incarnation;
    f->count = t->g.slots;
    for (uint32_t i = 0; i < t->g.slots; i++)
        entries[i] = t->log.taken[i] && i < t->log.victim->count
                         ? old[i]
                         : (struct qm_tier_entry){.block = QM_TIER_VOID};
    qm_tier_footer_seal(f, t->g.slots);
}

/* A number above all others, and of the same live tag as that of before if that stays
 * (not 0). */
static uint64_t next_incarnation(struct qm_tier *t, uint64_t before)
{
    do
        t->log.incarnation++;
    while (before != 0 &&
           qm_tier_live_tag(t->log.incarnation) != qm_tier_live_tag(before));
    return t->log.incarnation;
}

/* Whether all that stays has been read, and was right, since the tier was opened. */
static bool was_read(struct qm_tier *t, uint32_t number)
{
    struct slot s;

    for (uint32_t i = 0; i < t->g.slots; i++)
        if (t->log.taken[i] && heat_of(t, number, i, &s) > 0 && !s.restored)
            return false;
    return true;
}

/* Chooses a segment and empties it as far as it is to be.  What stays is in log.taken,
 * and kept is how many; if not 0, log.footer is its footer. */
static int make_room(struct qm_tier *t, uint32_t *number, uint32_t *kept)
{
    uint32_t wanted = t->g.slots < ROOM ? 1 : t->g.slots / ROOM, n;
    bool footer = false;
    int r;

    *number = emptiest(t, wanted);
    if (*number != NO_SEGMENT) {
        footer = read_footer(t, *number);
        if (choose(t, *number, 0, false) < wanted)
            *number = NO_SEGMENT;
    }
    for (unsigned i = 1; *number == NO_SEGMENT; i++) {
        unsigned limit = 1;

        *number = t->log.sealed.head;
        if (*number == NO_SEGMENT)
            return ENOSPC;
        footer = read_footer(t, *number);
        n = choose(t, *number, limit, false);
        while (i >= EYE && n < wanted)
            n = choose(t, *number, ++limit, false);
        if (choose(t, *number, limit, true) < wanted) {
            log_unlink(t, &t->log.sealed, *number);
            log_push(t, &t->log.sealed, *number);
            *number = NO_SEGMENT;
        }
    }
    if (!footer)
        memset(t->log.taken, 0, t->g.slots);
    for (uint32_t i = 0; i < t->g.slots; i++)
        *kept += t->log.taken[i];
    if (*kept > 0)
        new_footer(t, *number,
                   next_incarnation(t, segment_of(t, *number)->incarnation));
    log_unlink(t, &t->log.sealed, *number);
    r = evict(t, *number, *kept > 0 ? t->log.taken : NULL);
    if (r != 0)
        log_push(t, &t->log.sealed, *number);
    else if (was_read(t, *number))
        segment_of(t, *number)->doubtful = 0;
    return r;
}

/* Sets the tags of the slots that are to be filled. */
static int revive(struct qm_tier *t, uint32_t number)
{
    uint32_t i = 0;
    int r = 0;

    while (i < t->g.slots && r == 0) {
        uint32_t n = 0;

        while (i + n < t->g.slots && !t->log.taken[i + n])
            n++;
        if (n > 0)
            r = tier_write(t, QM_TIER_META, t->log.tags, n,
                           qm_tier_tag_at(&t->g, number, i), false);
        i += n + 1;
    }
    return r;
}

/* Takes a free segment, or makes room in one, to be filled. */
static int open_segment(struct qm_tier *t)
{
    uint32_t number = t->log.free.head, kept = 0;
    struct segment *s;
    int r = 0;

    if (number != NO_SEGMENT) {
        log_unlink(t, &t->log.free, number);
        memset(t->log.taken, 0, t->g.slots);
    } else {
        r = make_room(t, &number, &kept);
        if (r != 0)
            return r;
    }
    s = segment_of(t, number);
    if (kept == 0) {
        s->incarnation = next_incarnation(t, 0);
        s->doubtful = 0;
        new_footer(t, number, s->incarnation);
    }
    r = t->io.reserve(t->io.opaque, qm_tier_footer_at(&t->g, number), t->g.meta_bytes);
    memset(t->log.tags, qm_tier_live_tag(s->incarnation), t->g.slots);
    s->state = SEGMENT_FILLING;
    t->log.filling = number;
    t->log.used = 0;
    t->log.unlisted = 0;
    if (r == 0)
        r = revive(t, number);
    if (r != 0 && kept == 0) {
        s->state = SEGMENT_FREE;
        log_push(t, &t->log.free, number);
        t->log.filling = NO_SEGMENT;
        return r;
    }
    if (r != 0) {
        seal(t);
        return r;
    }
    ADD(t, kept, kept);
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
                  uint32_t n, const void *data)
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
        t->log.unlisted += taken;
        return r;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct slot s = {
            .block = items[i].block,
            .check = checks[i],
            .segment = t->log.filling,
            .slot = first + i,
            .heat = items[i].heat,
        };

        /* The footer has it only after the index: see (I). */
        if (index_add(t, &s, items[i].ticket) == 0) {
            entries[first + i] =
                (struct qm_tier_entry){.block = s.block, .check = s.check};
            COUNT(t, inserted);
        } else {
            COUNT(t, voided);
        }
    }
    t->log.used += taken;
    t->log.unlisted += taken;
    return 0;
}

/* How many slots can be written to together, from log.used on, which passes those that
 * are taken. */
static uint32_t room(struct qm_tier *t)
{
    uint32_t n = 0;

    while (t->log.used < t->g.slots && t->log.taken[t->log.used])
        t->log.used++;
    while (n < t->log.batch_slots && t->log.used + n < t->g.slots &&
           !t->log.taken[t->log.used + n])
        n++;
    return n;
}

/* Writes up to n items into one segment.  Returns how many it is done with. */
static uint32_t write_some(struct qm_tier *t, const struct item *items, uint32_t n)
{
    struct item chosen[64];
    uint64_t checks[64];
    size_t size = t->g.block_size;
    uint32_t k = 0, i, most;
    int r = 0;

    if (t->log.filling != NO_SEGMENT && room(t) == 0)
        seal(t);
    if (t->log.filling == NO_SEGMENT)
        r = tier_now(t) < t->log.no_space_until ? ENOSPC : open_segment(t);
    if (r == 0) {
        most = room(t) < 64 ? room(t) : 64;
        for (i = 0; i < n && k < most; i++) {
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
            r = append(t, chosen, checks, k, t->log.staging);
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
        (t->log.used == t->g.slots || t->log.unlisted > t->g.slots / 8))
        (void)log_footer(t);
    pthread_mutex_unlock(&t->log.lock);
    for (uint32_t i = 0; i < n; i++)
        if (items[i].release)
            items[i].release(items[i].cookie);
    admit_bloom_refresh(t);
}
