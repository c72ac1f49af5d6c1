/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c - the write buffer: entries that have left memory, and deletions, on their
 * way to disk in one batch; and the filter of what is there.
 *
 * The log is synced before the disk layer is written, in QMSTORE_LAZY, too, so that no
 * crash finds a change on disk whose predecessors are lost.
 *
 * A key that is changed on disk is read there first, for its frequency, and its page is
 * mostly still in the page cache when the buffer is written.  If pages of such keys are
 * read again, there is less page cache than the buffer has pages: it is written when it
 * is half as full; if none is for some time, when it is twice as full again.  Not where
 * each write is synced, which takes longer than to read some pages.
 *
 * A disk that refuses is asked again by the next call, unless the refusal took long:
 * Berkeley DB takes seconds to give up on a page of its cache that it cannot write, and
 * others wait for the lock.  Then the disk rests, and calls return its error. */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "rowcache/store/internal.h"

enum {
    COLD_SHARE = 16,    /* of a partition's memory, the most that counts of keys on disk
                           take */
    ALONG_MOST = 512,   /* bytes of an entry: several of them are on a page */
    ALONG_REACH = 2048, /* of records between two that are likely on one page */
    SLICE_LEAST = 1024, /* entries */
    WORN_LEAST = 256,   /* keys that left the disk */
    BUFFER_LEAST = 8 << 10,
    READ_AGAIN = 8, /* of so many keys, one whose page is */
    CALM = 64,      /* times that the buffer is written */
    SLOW_MS = 1000,
    REST_MS = 10000,
};

void store_buffer_add(struct partition *p, struct entry *e)
{
    e->place = PLACE_BUFFER;
    store_list_push(&p->buffer, e);
    p->dead += e->dead;
}

void store_buffer_remove(struct partition *p, struct entry *e)
{
    store_list_remove(&p->buffer, e);
    p->dead -= e->dead;
}

struct making {
    struct partition *p;
    struct cold cold; /* the one before */
};

static int add_record(void *opaque, const struct disk_name *name, const void *bytes,
                      size_t len)
{
    struct making *m = opaque;
    struct partition *p = m->p;
    struct store_hash h = store_name_hash(name);
    struct disk_record r;
    struct entry *e;

    if (p->doubtful && (e = store_table_find(&p->table, h, NULL, 0)))
        e->found = true;
    store_bloom_add(&p->bloom, h);
    (void)store_cold_add(&p->cold, h, store_cold_count(&m->cold, h));
    if (store_record_unpack(name, h, bytes, len, &r) == 0)
        p->has_expiry |= r.expires != 0;
    else
        p->damaged_copies++;
    p->disk_copies++;
    return 0;
}

/* After a walk of all records, which marks the entries that have one: what counts as a
 * copy is one.  Else a key whose copy was counted, and was not there, would be written
 * and not be in the filter. */
static void end_doubt(struct partition *p, bool walked)
{
    for (uint64_t i = 0; p->doubtful && i < p->table.n; i++) {
        struct table_walk w = store_table_walk(&p->table, i);

        for (struct entry *e; (e = store_table_next(&w)); e->found = false) {
            if (!walked || e->found == e->on_disk)
                continue;
            p->shadowed += e->found ? 1 : UINT64_MAX;
            e->on_disk = e->found;
        }
    }
    p->doubtful &= !walked;
}

int store_filter_make(struct partition *p)
{
    static const struct disk_name first; /* of all */
    struct making m = {p, p->cold};
    struct bloom old = p->bloom;
    uint64_t copies = p->disk_copies;
    int r = store_bloom_init(&p->bloom, copies * 2, p->config->false_positives);

    p->cold = (struct cold){0};
    if (r == 0 && p->ops->counts)
        r = store_cold_init(&p->cold, p->bloom.capacity,
                            p->config->memory / p->config->partitions / COLD_SHARE);
    p->disk_copies = p->damaged_copies = 0;
    if (r == 0)
        r = p->disk_ops->walk(p->disk, &first, add_record, &m);
    end_doubt(p, r == 0);
    if (r != 0) { /* the old ones are still right */
        store_bloom_free(&p->bloom);
        store_cold_free(&p->cold);
        p->bloom = old;
        p->cold = m.cold;
        p->disk_copies = copies;
        return r;
    }
    store_bloom_free(&old);
    store_cold_free(&m.cold);
    p->stats.filter_rebuilds++;
    store_set_memory(p);
    return 0;
}

static struct disk_record record_of(const struct entry *e, const struct disk_name *name)
{
    return (struct disk_record){
        .name = name,
        .expires = store_entry_expires(e),
        .frequency = e->frequency,
        .key = e->bytes,
        .key_len = e->key_len,
        .value = e->bytes + e->key_len,
        .value_len = e->value_len,
        .dead = e->dead,
    };
}

/* A copy on disk is gone. */
static void forget_copy(struct partition *p, struct entry *e)
{
    if (!e->on_disk)
        return;
    e->on_disk = false;
    p->disk_copies--;
    p->shadowed--;
    p->bloom.removed++;
}

/* A part of what is being written: entries in ascending order of their records' names.
 */
struct slice {
    struct placed {
        struct store_hash hash;
        struct disk_name name;
        struct entry *entry;
    } * entries;
    struct disk_record *changes;
    size_t count, size;
};

/* The disk layer may have carried out some of the changes: each entry counts as one
 * that has a copy, so that what becomes of it deletes or overwrites that; until the
 * filter is made, which looks. */
static void suspect(struct partition *p, const struct slice *s)
{
    p->doubtful = true;
    for (size_t i = 0; i < s->count; i++) {
        struct entry *e = s->entries[i].entry;

        if (e->dead || e->on_disk)
            continue;
        e->on_disk = true;
        p->disk_copies++;
        p->shadowed++;
        store_bloom_add(&p->bloom, s->entries[i].hash);
    }
}

static void written(struct partition *p, const struct placed *at)
{
    struct entry *e = at->entry;

    if (e->dead) {
        forget_copy(p, e);
    } else if (!e->on_disk) {
        e->on_disk = true;
        p->disk_copies++;
        p->shadowed++;
        store_bloom_add(&p->bloom, at->hash);
    }
    if (e->place != PLACE_BUFFER) {
        e->clean = true;
        e->copy = e->frequency;
        return;
    }
    if (!e->dead)
        p->shadowed--;
    store_buffer_remove(p, e);
    store_table_remove(&p->table, e);
    store_entry_free(&p->table, e);
}

static int write_slice(struct partition *p, struct slice *s)
{
    int r;

    if (s->count == 0)
        return 0;
    for (size_t i = 0; i < s->count; i++)
        s->changes[i] = record_of(s->entries[i].entry, &s->entries[i].name);
    p->disk_error = r = p->disk_ops->apply(p->disk, s->changes, s->count);
    if (r != 0) {
        suspect(p, s);
        return r;
    }
    if (p->scratch)
        store_scratch_wrote(p, s->changes, s->count);
    p->stats.disk_writes += s->count;
    p->stats.disk_batches++;
    for (size_t i = 0; i < s->count; i++)
        written(p, &s->entries[i]);
    s->count = 0;
    return 0;
}

/* Whether an entry in memory is written with one of the buffer that is next to it: it
 * will be on the same page on disk, and then leaves memory without a write.  Not if it
 * is large, when it has pages of its own, or hotter than the victim, when others leave
 * first and it is changed again before. */
static bool goes_along(const struct partition *p, const struct entry *e,
                       const struct entry *victim)
{
    return p->disk_ops->has_pages && e->place != PLACE_BUFFER && !e->clean &&
           store_entry_size(e) <= ALONG_MOST &&
           (!victim || e->frequency <= victim->frequency);
}

/* Whether an entry is likely on one page with another of these: hashes are spread
 * evenly, and a record is about as long as an entry.  Where memory has few of the keys,
 * even the next one on the line is pages away, and takes a write of its own. */
static bool is_near(const struct partition *p, const struct placed *at,
                    const struct placed *others, size_t n)
{
    uint64_t records = p->disk_copies + p->buffer.count;
    uint64_t between = ALONG_REACH / store_entry_size(at->entry);

    if (records <= between)
        return true;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = at->hash.high, y = others[i].hash.high;

        if ((x > y ? x - y : y - x) <= UINT64_MAX / records * between)
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;

    return store_disk_compare(&x->name, &y->name);
}

static struct placed place(const struct partition *p, struct entry *e)
{
    struct store_key key = {store_entry_hash(e), e->bytes, e->key_len};

    return (struct placed){key.hash, store_name_of(p, &key), e};
}

/* Adds a line's entries of the buffer, and what goes along as far as there is room. */
static int add_line(struct partition *p, struct slice *s, uint64_t line)
{
    const struct entry *victim = p->ops->counts ? p->ops->victim(p) : NULL;
    size_t buffered = 0, along = 0, from;

    for (struct table_walk w = store_table_walk(&p->table, line);;) {
        const struct entry *e = store_table_next(&w);

        if (!e)
            break;
        buffered += e->place == PLACE_BUFFER;
        along += goes_along(p, e, victim);
    }
    if (s->count + buffered + along > s->size) {
        int r = write_slice(p, s);

        if (r != 0)
            return r;
    }
    from = s->count;
    for (struct table_walk w = store_table_walk(&p->table, line);;) {
        struct entry *e = store_table_next(&w);

        if (!e)
            break;
        if (e->place == PLACE_BUFFER)
            s->entries[s->count++] = place(p, e);
    }
    for (struct table_walk w = store_table_walk(&p->table, line); along > 0;) {
        struct entry *e = store_table_next(&w);
        struct placed at;

        if (!e || s->count == s->size)
            break;
        if (!goes_along(p, e, victim))
            continue;
        at = place(p, e);
        if (is_near(p, &at, &s->entries[from], buffered))
            s->entries[s->count++] = at;
    }
    qsort(&s->entries[from], s->count - from, sizeof(struct placed), by_name);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* A table's lines are in the order of the disk layer's records. */
static int write_lines(struct partition *p, struct slice *s, uint32_t *lines)
{
    size_t n = 0;
    int r = 0;

    for (const struct entry *e = p->buffer.oldest; e; e = e->newer)
        lines[n++] = (uint32_t)store_table_line(&p->table, store_entry_hash(e).high);
    qsort(lines, n, sizeof *lines, by_number);
    for (size_t i = 0; i < n && r == 0; i++)
        if (i == 0 || lines[i] != lines[i - 1])
            r = add_line(p, s, lines[i]);
    return r ? r : write_slice(p, s);
}

/* Too many keys for the filter, or too many of its bits are of keys that left. */
static bool is_worn(const struct bloom *b)
{
    uint64_t keys = b->added - b->removed;

    return keys > b->capacity || (b->removed > WORN_LEAST && b->removed > keys / 2);
}

/* Pages that this thread has read from disk. */
static uint64_t pages_read(void)
{
    struct rusage used;

    return getrusage(RUSAGE_THREAD, &used) == 0 ? (uint64_t)used.ru_inblock / 8 : 0;
}

/* After a write of n records, for which so many pages were read.  Those of keys that
 * had left memory may have been; what is more is of keys that had just been read.
 * Where none had been, more pages than records say nothing. */
static void adapt(struct partition *p, size_t n, uint64_t pages)
{
    size_t just_read = p->just_read < n ? p->just_read : n;
    uint64_t again = pages > n - just_read ? pages - (n - just_read) : 0;

    p->just_read = 0;
    if (p->config->durability != QMSTORE_NONE || p->config->write_buffer)
        return;
    if (just_read == 0 && again > 0)
        return;
    if (again * READ_AGAIN > just_read) {
        p->buffer_calm = 0;
        p->buffer_shift += p->buffer_bytes >> p->buffer_shift >= 2 * BUFFER_LEAST;
    } else if (p->buffer_shift > 0 && ++p->buffer_calm == CALM) {
        p->buffer_calm = 0;
        p->buffer_shift--;
    }
}

static int write_buffer(struct partition *p)
{
    size_t n = p->buffer.count;
    uint64_t pages = pages_read();
    struct slice s = {.size = n < SLICE_LEAST ? SLICE_LEAST : n};
    uint32_t *lines;
    int r;

    if (n == 0)
        return 0;
    if (!p->disk) { /* scratch: the buffer is dropped, or there is a disk again */
        p->scratch->refused = p->disk_error;
        return 0;
    }
    if (p->logs && (r = store_log_write(&p->log, true)) != 0)
        return p->disk_error = r;
    lines = malloc(n * sizeof *lines);
    s.entries = malloc(s.size * sizeof *s.entries);
    s.changes = malloc(s.size * sizeof *s.changes);
    r = lines && s.entries && s.changes ? write_lines(p, &s, lines) : ENOMEM;
    free(lines);
    free(s.entries);
    free(s.changes);
    if (r == 0)
        adapt(p, n, pages_read() - pages);
    if (r == 0 && (p->bloom.words || p->ops->counts) && is_worn(&p->bloom))
        (void)store_filter_make(p);
    return r != 0 && store_scratch_takes(p, r) ? 0 : r;
}

void store_disk_answered(struct partition *p, uint64_t began, int r)
{
    uint64_t now = store_ticks();

    if (r != 0 && now - began >= SLOW_MS)
        p->rests_until = now + REST_MS;
}

bool store_disk_rests(const struct partition *p)
{
    return p->disk_error != 0 && store_ticks() < p->rests_until;
}

int store_buffer_write(struct partition *p)
{
    uint64_t began = store_ticks();
    int r = write_buffer(p);

    store_disk_answered(p, began, r);
    return r;
}

int store_buffer_make_room(struct partition *p)
{
    if (!store_buffer_is_full(p))
        return 0;
    return store_disk_rests(p) ? p->disk_error : store_buffer_write(p);
}
