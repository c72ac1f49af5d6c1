/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.c - where a key is, and where it goes (the thesis, 4.4.2).
 *
 * A key in memory is touched.  One in the write buffer or on disk is restored, if
 * memory has room or the policy gives it the victim's place; else its frequency is kept
 * where it is.  A new key enters memory, if there is room or the policy lets new keys
 * in; else it goes to disk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/store/internal.h"

enum { SWEEP_RECORDS = 64, SWEEP_LINES = 16 };

static struct entry *make(struct partition *p, const struct store_key *key,
                          const struct store_value *value, uint32_t frequency)
{
    uint32_t len = value ? value->len : 0;
    struct entry *e =
        store_entry_alloc(&p->table, key->len, len, value && value->expires);

    if (!e)
        return NULL;
    e->frequency = frequency;
    e->dead = !value;
    memcpy(e->bytes, key->bytes, key->len);
    if (len > 0)
        memcpy(e->bytes + key->len, value->bytes, len);
    if (value)
        store_entry_set_expires(e, value->expires);
    return e;
}

static bool is_over(uint64_t expires)
{
    return expires != 0 && expires <= store_now();
}

static void leave_memory(struct partition *p, struct entry *e)
{
    p->ops->remove(p, e);
    p->used -= store_entry_bytes(e);
    p->memory_keys--;
}

/* An entry is, or becomes, another than its copy on disk. */
static void dirty(struct entry *e)
{
    e->clean = false;
    e->copy = 0;
}

/* The log has an entry before its copy on disk is written again.  A log that fails
 * keeps the buffer from being written, until a new one has all entries.  What the log
 * has of a batch is newer, and must stay the last. */
static void log_again(struct partition *p, const struct entry *e)
{
    struct store_key key = {{0}, e->bytes, e->key_len}; /* no use of the hash */
    struct store_value value = {e->bytes + e->key_len, e->value_len,
                                store_entry_expires(e)};

    if (p->logs && !e->changing)
        (void)store_log_change(p, &key, &value, e->frequency, false);
}

/* From memory to disk, by way of the write buffer if its copy there is older, or its
 * frequency cannot be kept elsewhere. */
static void evict(struct partition *p, struct entry *e)
{
    bool stays =
        e->clean && (!p->ops->counts || store_cold_add(&p->cold, store_entry_hash(e),
                                                       e->frequency - e->copy));

    leave_memory(p, e);
    p->stats.evictions++;
    if (!stays) {
        if (e->clean)
            log_again(p, e);
        dirty(e);
        store_buffer_add(p, e);
        return;
    }
    p->shadowed--;
    store_table_remove(&p->table, e);
    store_entry_free(&p->table, e);
}

/* Evicts until memory has room for `bytes` more. */
static void make_room(struct partition *p, uint64_t bytes)
{
    struct entry *v;

    while (store_is_full(p, bytes) && (v = p->ops->victim(p)))
        evict(p, v);
}

/* The victim is chosen before: else, under MRU, it would be the entry itself. */
static void enter_memory(struct partition *p, struct entry *e)
{
    make_room(p, store_entry_bytes(e));
    p->used += store_entry_bytes(e);
    p->memory_keys++;
    p->ops->add(p, e);
}

/* The disk does not take what memory evicts: nothing more may come in. */
static int check_room(struct partition *p)
{
    return store_buffer_make_room(p);
}

int store_partition_balance(struct partition *p)
{
    uint64_t writes = p->stats.disk_writes;
    int r;

    make_room(p, 0);
    r = check_room(p);
    /* Twice as many records as were written are looked at, so that those whose life has
     * ended do not pile up, however fast they come. */
    writes = p->stats.disk_writes - writes;
    for (uint64_t n = 0; r == 0 && n < 2 * writes; n += SWEEP_RECORDS)
        store_partition_sweep(p);
    return r;
}

static bool may_enter(struct partition *p, struct store_hash hash, uint64_t bytes,
                      uint32_t frequency)
{
    return !store_is_full(p, bytes) || p->ops->admit(p, hash, frequency);
}

void store_partition_drop(struct partition *p, struct entry *e)
{
    if (e->place == PLACE_BUFFER)
        store_buffer_remove(p, e);
    else
        leave_memory(p, e);
    if (e->on_disk)
        p->shadowed--;
    store_table_remove(&p->table, e);
    store_entry_free(&p->table, e);
}

/* The record on disk, if the key has no entry.  *bytes is to be freed. */
static int find_on_disk(struct partition *p, const struct store_key *key, void **bytes,
                        struct disk_record *r)
{
    struct disk_name name;
    uint32_t calls;
    size_t len;
    int error;

    if (p->disk_copies == 0 || !store_bloom_may_have(&p->bloom, key->hash))
        return ENOENT;
    name = store_name_of(p, key);
    p->stats.disk_reads++;
    error = p->disk_ops->get(p->disk, &name, bytes, &len);
    if (error == ENOENT)
        p->stats.false_positives++;
    if (error != 0)
        return error != ENOENT && store_scratch_takes(p, error) ? ENOENT : error;
    error = store_record_unpack(&name, key->hash, *bytes, len, r);
    if (error == 0 &&
        (r->key_len != key->len || memcmp(r->key, key->bytes, key->len) != 0))
        error = EBADMSG;
    if (error != 0) {
        p->stats.damaged++;
        free(*bytes);
        return store_scratch_takes(p, error) ? ENOENT : error;
    }
    r->key = key->bytes; /* not of the name, which ends here */
    calls = store_cold_count(&p->cold, key->hash);
    r->frequency =
        r->frequency < UINT32_MAX - calls ? r->frequency + calls : UINT32_MAX;
    return 0;
}

/* Marks that the key's copy on disk is not its value any more. */
static void shadow(struct partition *p, struct entry *e)
{
    e->on_disk = true;
    p->shadowed++;
    store_cold_remove(&p->cold, store_entry_hash(e));
}

/* Enters an entry of a key that had none. */
static void settle(struct partition *p, struct entry *e, bool enters)
{
    store_table_add(&p->table, e);
    if (enters)
        enter_memory(p, e);
    else
        store_buffer_add(p, e);
}

static int bury(struct partition *p, const struct store_key *key)
{
    struct entry *e = make(p, key, NULL, 0);

    if (!e)
        return ENOMEM;
    shadow(p, e);
    settle(p, e, false);
    return 0;
}

static int hand_out(const void *bytes, size_t bytes_len, uint64_t ends,
                    const struct store_out *out)
{
    if (out->len)
        *out->len = bytes_len;
    if (out->expires)
        *out->expires = ends;
    if (out->head && bytes_len > 0)
        memcpy(out->head, bytes,
               bytes_len < out->head_size ? bytes_len : out->head_size);
    if (!out->copy)
        return 0;
    if (!(*out->copy = malloc(bytes_len + 1)))
        return ENOMEM;
    if (bytes_len > 0)
        memcpy(*out->copy, bytes, bytes_len);
    ((char *)*out->copy)[bytes_len] = 0;
    return 0;
}

/* A key in the write buffer was asked for. */
static void get_buffered(struct partition *p, struct entry *e)
{
    uint32_t f = e->frequency;

    if (f < UINT32_MAX)
        e->frequency++;
    if (!may_enter(p, store_entry_hash(e), store_entry_bytes(e), f))
        return;
    store_buffer_remove(p, e);
    enter_memory(p, e);
    p->stats.restorations++;
    (void)store_partition_balance(p);
}

/* A key on disk was asked for: whether it takes a place in memory, and if not, that it
 * was asked for.  Without memory, or while the disk refuses writes, it stays as it is.
 */
static void restore(struct partition *p, const struct store_key *key,
                    const struct disk_record *r)
{
    struct store_value value = {r->value, r->value_len, r->expires};
    uint64_t bytes = sizeof(struct entry) + key->len + r->value_len;
    bool enters = may_enter(p, key->hash, bytes, r->frequency);
    uint32_t calls = store_cold_count(&p->cold, key->hash);
    struct entry *e;

    if (!enters && (!p->ops->counts || store_cold_seen(&p->cold, key->hash)))
        return;
    if (check_room(p) != 0)
        return;
    e = make(p, key, &value,
             r->frequency < UINT32_MAX ? r->frequency + 1 : r->frequency);
    if (!e)
        return;
    e->clean = enters;
    e->copy = enters ? r->frequency - calls : 0;
    if (!enters)
        log_again(p, e);
    shadow(p, e);
    settle(p, e, enters);
    p->stats.restorations += enters;
    (void)store_partition_balance(p);
}

/* An entry that is about to move in its list: its neighbours are written. */
static void fetch_neighbours(const struct entry *e)
{
    __builtin_prefetch(e->newer, 1);
    __builtin_prefetch(e->older, 1);
}

int store_partition_get(struct partition *p, const struct store_key *key,
                        const struct store_out *out)
{
    struct entry *e = store_table_find(&p->table, key->hash, key->bytes, key->len);
    struct disk_record r;
    void *bytes;
    int error;

    p->stats.gets++;
    p->ops->seen(p, key->hash);
    if (e && !e->dead && !is_over(store_entry_expires(e))) {
        fetch_neighbours(e);
        error =
            hand_out(e->bytes + e->key_len, e->value_len, store_entry_expires(e), out);
        if (error != 0)
            return error;
        if (e->place == PLACE_BUFFER) {
            p->stats.buffer_hits++;
            get_buffered(p, e);
        } else {
            p->stats.memory_hits++;
            if (e->frequency < UINT32_MAX)
                e->frequency++;
            p->ops->touch(p, e);
        }
        return 0;
    }
    p->stats.misses++;
    if (e) {
        if (e->dead)
            return ENOENT;
        p->stats.expired++;
        (void)store_partition_delete(p, key);
        (void)check_room(p);
        return ENOENT;
    }
    error = find_on_disk(p, key, &bytes, &r);
    if (error != 0)
        return error;
    if (is_over(r.expires)) {
        free(bytes);
        p->stats.expired++;
        if (check_room(p) == 0)
            (void)bury(p, key);
        return ENOENT;
    }
    p->stats.misses--;
    p->stats.disk_hits++;
    error = hand_out(r.value, r.value_len, r.expires, out);
    if (error == 0)
        restore(p, key, &r);
    free(bytes);
    return error;
}

/* Gives an entry another value; it may move. */
static int change_value(struct partition *p, struct entry **at,
                        const struct store_value *value)
{
    struct entry *old = *at, *e;
    bool in_memory = old->place != PLACE_BUFFER, in_chunk;

    if (old->value_len != value->len || old->ends != (value->expires != 0)) {
        if (!(e = store_entry_alloc(&p->table, old->key_len, value->len,
                                    value->expires != 0)))
            return ENOMEM;
        in_chunk = e->in_chunk;
        memcpy(e, old, sizeof *e + old->key_len);
        e->in_chunk = in_chunk;
        e->value_len = value->len;
        e->ends = value->expires != 0;
        store_table_replace(&p->table, old, e);
        if (in_memory) {
            p->used += store_entry_bytes(e) - store_entry_bytes(old);
            p->ops->replace(p, old, e);
        } else {
            store_list_replace(&p->buffer, old, e);
        }
        store_entry_free(&p->table, old);
        *at = e;
    }
    e = *at;
    if (value->len > 0)
        memcpy(e->bytes + e->key_len, value->bytes, value->len);
    store_entry_set_expires(e, value->expires);
    return 0;
}

static int put_known(struct partition *p, struct entry *e,
                     const struct store_value *value, uint32_t frequency)
{
    uint32_t f = e->frequency;
    int error;

    fetch_neighbours(e);
    error = change_value(p, &e, value);

    if (error != 0)
        return error;
    e->frequency = frequency ? frequency : f < UINT32_MAX ? f + 1 : f;
    dirty(e);
    if (e->place != PLACE_BUFFER) {
        p->stats.memory_hits++;
        p->ops->touch(p, e);
        return 0;
    }
    p->stats.buffer_hits++;
    store_buffer_remove(p, e);
    if (may_enter(p, store_entry_hash(e), store_entry_bytes(e), f)) {
        enter_memory(p, e);
        p->stats.restorations++;
    } else {
        store_buffer_add(p, e);
    }
    return 0;
}

/* dead: the key's tombstone, or NULL. */
static int put_absent(struct partition *p, const struct store_key *key,
                      const struct store_value *value, uint32_t frequency,
                      struct entry *dead)
{
    bool on_disk = dead && dead->on_disk;
    uint64_t bytes = sizeof(struct entry) + key->len + value->len;
    bool enters = !store_is_full(p, bytes) || p->ops->admits_new;
    bool was_read = false;
    struct disk_record r;
    struct entry *e;
    uint32_t f = 1;

    if (!on_disk) {
        void *old;
        int error = find_on_disk(p, key, &old, &r);

        if (error == 0) {
            on_disk = was_read = true;
            if (!is_over(r.expires)) {
                f = r.frequency < UINT32_MAX ? r.frequency + 1 : r.frequency;
                enters = may_enter(p, key->hash, bytes, r.frequency);
                p->stats.disk_hits++;
                p->stats.restorations += enters;
            } else {
                p->stats.misses++;
            }
            free(old);
        } else if (error == EBADMSG) {
            on_disk = true; /* it is overwritten */
        } else if (error != ENOENT) {
            return error;
        } else {
            p->stats.misses++;
        }
    }
    e = make(p, key, value, frequency ? frequency : f);
    if (!e)
        return ENOMEM;
    if (dead)
        store_partition_drop(p, dead);
    if (on_disk)
        shadow(p, e);
    settle(p, e, enters);
    p->just_read += was_read && !enters;
    return 0;
}

int store_partition_put(struct partition *p, const struct store_key *key,
                        const struct store_value *value, uint32_t frequency)
{
    int error = check_room(p); /* frees what is in the buffer */
    struct entry *e;

    if (error != 0)
        return error;
    e = store_table_find(&p->table, key->hash, key->bytes, key->len);
    p->stats.puts++;
    p->has_expiry |= value->expires != 0;
    p->ops->seen(p, key->hash);
    if (e && !e->dead)
        error = put_known(p, e, value, frequency);
    else
        error = put_absent(p, key, value, frequency, e);
    return error ? error : store_partition_balance(p);
}

int store_partition_delete(struct partition *p, const struct store_key *key)
{
    struct entry *e = store_table_find(&p->table, key->hash, key->bytes, key->len);
    struct entry *tombstone = NULL;
    struct disk_record r;
    void *bytes;
    int error;

    p->stats.deletes++;
    if (e && e->dead)
        return ENOENT;
    if (!e) {
        error = find_on_disk(p, key, &bytes, &r);
        if (error == 0)
            free(bytes);
        else if (error != EBADMSG) /* a damaged one can be removed */
            return error;
        else
            r.expires = 0;
        error = bury(p, key);
        return error ? error : is_over(r.expires) ? ENOENT : 0;
    }
    error = is_over(store_entry_expires(e)) ? ENOENT : 0;
    if (e->on_disk && !(tombstone = make(p, key, NULL, 0)))
        return ENOMEM; /* without it, the older value would be back */
    store_partition_drop(p, e);
    if (tombstone) {
        shadow(p, tombstone);
        settle(p, tombstone, false);
    }
    return error;
}

uint64_t store_partition_keys(const struct partition *p)
{
    return p->memory_keys + (p->buffer.count - p->dead) +
           (p->disk_copies - p->shadowed);
}

struct sweep {
    struct partition *p;
    unsigned records;
    struct disk_name last; /* where it ended */
    struct expired {
        struct store_hash hash;
        uint16_t key_len;
        char *key;
    } found[SWEEP_RECORDS];
    unsigned count;
};

static int look_at(void *opaque, const struct disk_name *name, const void *bytes,
                   size_t len)
{
    struct sweep *s = opaque;
    struct store_hash h = store_name_hash(name);
    struct disk_record r;

    s->last = *name;
    if (store_record_unpack(name, h, bytes, len, &r) == 0 && is_over(r.expires)) {
        struct expired *x = &s->found[s->count];

        *x = (struct expired){h, r.key_len, malloc(r.key_len)};
        if (x->key) {
            memcpy(x->key, r.key, r.key_len);
            s->count++;
        }
    }
    return ++s->records == SWEEP_RECORDS;
}

void store_partition_sweep(struct partition *p)
{
    struct sweep s = {.p = p};
    uint64_t from = store_name_hash(&p->swept).high, until = UINT64_MAX, first, last;

    if (!p->has_expiry || p->disk_error != 0 || !p->disk)
        return;
    if (p->disk_ops->walk(p->disk, &p->swept, look_at, &s) != 0 &&
        s.records < SWEEP_RECORDS) {
        for (unsigned i = 0; i < s.count; i++)
            free(s.found[i].key);
        return;
    }
    p->swept = (struct disk_name){0};
    if (s.records == SWEEP_RECORDS) {
        until = store_name_hash(&s.last).high;
        p->swept = s.last;
        p->swept.bytes[p->swept.len++] = 0; /* the next name that can be */
    }
    for (unsigned i = 0; i < s.count; i++) {
        struct expired *x = &s.found[i];
        struct store_key key = {x->hash, x->key, x->key_len};

        /* One that has an entry has another value. */
        if (!store_table_find(&p->table, x->hash, x->key, x->key_len) &&
            bury(p, &key) == 0)
            p->stats.expired++;
        free(x->key);
    }
    /* The same part of memory. */
    first = store_table_line(&p->table, from);
    last = store_table_line(&p->table, until);
    if (last - first >= SWEEP_LINES) {
        last = first + SWEEP_LINES - 1;
        p->swept = store_name_from(store_table_last(&p->table, last) + 1);
    }
    for (uint64_t l = first; l <= last; l++) {
        struct table_walk w = store_table_walk(&p->table, l);

        for (struct entry *e; (e = store_table_next(&w));) {
            struct store_key key;
            struct entry *copy;

            if (e->dead || !is_over(store_entry_expires(e)))
                continue;
            key = (struct store_key){store_entry_hash(e), e->bytes, e->key_len};
            copy = e->on_disk ? make(p, &key, NULL, 0) : NULL;
            if (e->on_disk && !copy)
                continue;
            p->stats.expired++;
            store_partition_drop(p, e);
            if (copy) {
                shadow(p, copy);
                settle(p, copy, false);
            }
            w = store_table_walk(&p->table, l); /* the line, or the table, is another */
        }
    }
    (void)check_room(p);
}
