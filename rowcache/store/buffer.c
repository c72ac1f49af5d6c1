/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c - the write buffer: entries that have left memory, and deletions, on their
 * way to disk in one batch; and the filter of what is there.
 *
 * The log is synced before the disk layer is written, in QMSTORE_LAZY, too, so that no
 * crash finds a change on disk whose predecessors are lost. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/store/internal.h"

void store_hash_bytes(struct store_hash hash, uint8_t bytes[DISK_HASH])
{
    uint64_t high = htobe64(hash.high), low = htobe64(hash.low);

    memcpy(bytes, &high, 8);
    memcpy(bytes + 8, &low, 8);
}

struct store_hash store_hash_from(const uint8_t *bytes)
{
    uint64_t high, low;

    memcpy(&high, bytes, 8);
    memcpy(&low, bytes + 8, 8);
    return (struct store_hash){be64toh(high), be64toh(low)};
}

/* A file that was given another's name has a checksum that is right. */
int store_record_unpack(struct store_hash hash, const void *bytes, size_t len,
                        struct disk_record *r)
{
    int error = store_disk_unpack(bytes, len, r);
    struct store_hash right;

    if (error != 0)
        return error;
    right = store_hash_of(r->key, r->key_len);
    return right.high == hash.high && right.low == hash.low ? 0 : EBADMSG;
}

/* Of a partition's memory, the most that counts of keys on disk take. */
enum { COLD_SHARE = 16 };

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

void store_stale_add(struct partition *p, struct entry *e)
{
    if (p->stale_count == p->stale_size) {
        uint32_t size = p->stale_size ? p->stale_size * 2 : 64;
        struct entry **stale = realloc(p->stale, size * sizeof *stale);

        if (!stale)
            return; /* its copy stays until it is overwritten or deleted: it is shadowed
                     */
        p->stale = stale;
        p->stale_size = size;
    }
    p->stale[p->stale_count++] = e;
    e->copy = p->stale_count;
}

void store_stale_remove(struct partition *p, struct entry *e)
{
    struct entry *last;

    if (e->clean || e->copy == 0)
        return;
    last = p->stale[--p->stale_count];
    p->stale[e->copy - 1] = last;
    last->copy = e->copy;
    e->copy = 0;
}

struct making {
    struct partition *p;
    struct cold cold; /* the one before */
};

static int add_hash(void *opaque, const uint8_t *hash, const void *bytes, size_t len)
{
    struct making *m = opaque;
    struct partition *p = m->p;
    struct store_hash h = store_hash_from(hash);
    struct disk_record r;

    store_bloom_add(&p->bloom, h);
    (void)store_cold_add(&p->cold, h, store_cold_count(&m->cold, h));
    if (store_record_unpack(h, bytes, len, &r) == 0)
        p->has_expiry |= r.expires != 0;
    else
        p->damaged_copies++;
    p->disk_copies++;
    return 0;
}

int store_filter_make(struct partition *p)
{
    static const uint8_t first[DISK_HASH];
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
        r = p->disk_ops->walk(p->disk, first, add_hash, &m);
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

static struct disk_record record_of(const struct entry *e, uint8_t *hash)
{
    store_hash_bytes(e->hash, hash);
    return (struct disk_record){
        .hash = hash,
        .expires = e->expires,
        .frequency = e->frequency,
        .key = e->bytes,
        .key_len = e->key_len,
        .value = e->bytes + e->key_len,
        .value_len = e->value_len,
        .dead = e->dead || e->place != PLACE_BUFFER,
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

/* The disk layer may have carried out some of the changes: each entry counts as one
 * that has a copy, so that what becomes of it deletes or overwrites that. */
static void suspect(struct partition *p)
{
    for (struct entry *e = p->buffer.oldest; e; e = e->newer) {
        if (e->dead || e->on_disk)
            continue;
        e->on_disk = true;
        p->disk_copies++;
        p->shadowed++;
        store_bloom_add(&p->bloom, e->hash);
    }
}

static void done(struct partition *p)
{
    struct entry *e;

    while (p->stale_count > 0) {
        e = p->stale[p->stale_count - 1];
        store_stale_remove(p, e);
        forget_copy(p, e);
    }
    free(p->stale);
    p->stale = NULL;
    p->stale_size = 0;
    while ((e = p->buffer.oldest)) {
        if (e->dead) {
            forget_copy(p, e);
        } else if (e->on_disk) {
            p->shadowed--;
        } else {
            p->disk_copies++;
            store_bloom_add(&p->bloom, e->hash);
        }
        store_buffer_remove(p, e);
        store_table_remove(&p->table, e);
        store_entry_free(&p->table, e);
    }
}

static int by_hash(const void *a, const void *b)
{
    const struct disk_record *x = a, *y = b;

    return memcmp(x->hash, y->hash, DISK_HASH);
}

int store_buffer_write(struct partition *p)
{
    size_t n = p->buffer.count + p->stale_count, i = 0;
    struct disk_record *changes;
    uint8_t(*hashes)[DISK_HASH];
    int r;

    if (n == 0)
        return 0;
    if (p->logs && (r = store_log_write(&p->log, true)) != 0)
        return p->disk_error = r;
    changes = malloc(n * sizeof *changes);
    hashes = malloc(n * sizeof *hashes);
    if (!changes || !hashes) {
        free(changes);
        free(hashes);
        return ENOMEM;
    }
    for (uint32_t s = 0; s < p->stale_count; s++, i++)
        changes[i] = record_of(p->stale[s], hashes[i]);
    for (struct entry *e = p->buffer.oldest; e; e = e->newer, i++)
        changes[i] = record_of(e, hashes[i]);
    qsort(changes, n, sizeof *changes, by_hash);
    r = p->disk_ops->apply(p->disk, changes, n);
    free(changes);
    free(hashes);
    p->disk_error = r;
    if (r != 0) {
        suspect(p);
        return r;
    }
    p->stats.disk_writes += n;
    p->stats.disk_batches++;
    done(p);
    /* Too many keys for the filter, or too many of its bits are of keys that left. */
    if ((p->bloom.words || p->ops->counts) &&
        (p->bloom.added - p->bloom.removed > p->bloom.capacity ||
         p->bloom.removed > p->bloom.capacity / 2))
        (void)store_filter_make(p);
    return 0;
}
