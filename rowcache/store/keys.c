/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - the functions of qmstore.h that are about keys. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/store/store.h"

enum {
    RANGE_KEYS = 64,
    RANGE_BYTES = 1 << 20,
    REMOVED = 4096,
    REMOVED_BYTES = 1 << 20
};

/* A log is begun anew when it is longer than twice what it began with, and that: rarely
 * enough to cost little, and short enough to be replayed in some seconds. */
#define LOG_SLACK_MOST (UINT64_C(64) << 20)

static struct partition *partition_of(struct qmstore *s, const void *key, size_t len,
                                      struct store_key *k)
{
    *k = (struct store_key){store_hash_of(key, len), key, (uint16_t)len};
    return &s->partitions[((uint64_t)k->hash.low << 32 | k->hash.rest) %
                          s->config.partitions];
}

static bool is_key(const void *key, size_t len)
{
    return key && len > 0 && len <= QMSTORE_KEY_MAX;
}

static int get(struct qmstore *s, const void *key, size_t key_len,
               const struct store_out *out)
{
    struct partition *p;
    struct store_key k;
    int r;

    if (!is_key(key, key_len))
        return EINVAL;
    p = partition_of(s, key, key_len, &k);
    pthread_mutex_lock(&p->lock);
    r = store_partition_get(p, &k, out);
    store_scratch_mend(p);
    pthread_mutex_unlock(&p->lock);
    return r;
}

int qmstore_get(struct qmstore *s, const void *key, size_t key_len, void **value,
                size_t *value_len, uint64_t *expires)
{
    struct store_out out = {.copy = value, .len = value_len, .expires = expires};

    return get(s, key, key_len, &out);
}

int qmstore_head(struct qmstore *s, const void *key, size_t key_len, void *head,
                 size_t size, size_t *value_len, uint64_t *expires)
{
    struct store_out out = {NULL, head, size, value_len, expires};

    return get(s, key, key_len, &out);
}

static uint64_t slack(const struct partition *p)
{
    uint64_t bytes = 2 * p->config->memory / p->config->partitions;

    return bytes < LOG_SLACK_MOST ? bytes : LOG_SLACK_MOST;
}

/* One that writes the buffer and syncs the layer: not while that rests. */
static int checkpoint(struct partition *p)
{
    return store_disk_rests(p) ? p->disk_error : store_checkpoint(p);
}

/* A log that failed, or has grown long, is begun anew.  The lock is held. */
static int make_log_ready(struct partition *p)
{
    struct store_log_look log;
    int r;

    if (!p->logs)
        return 0;
    store_log_look(&p->log, &log);
    if (log.error != 0)
        return checkpoint(p);
    /* If the disk refuses, the log goes on; for a while. */
    if (log.offset <= 2 * log.live + slack(p) || (r = checkpoint(p)) == 0)
        return 0;
    return log.offset > 8 * (log.live + slack(p)) ? r : 0;
}

static int carry_out(struct partition *p, const struct qmstore_change *c, bool logged)
{
    struct store_value value = {c->value, (uint32_t)c->value_len, c->expires};
    struct store_key k = {store_hash_of(c->key, c->key_len), c->key,
                          (uint16_t)c->key_len};
    int r;

    if (c->value)
        return store_partition_put(p, &k, &value, 0);
    if ((r = store_buffer_make_room(p)) != 0)
        return r;
    r = store_partition_delete(p, &k);
    if (r == 0 && p->logs && !logged)
        r = store_log_change(p, &k, NULL, 0, false);
    return r;
}

int qmstore_put(struct qmstore *s, const void *key, size_t key_len, const void *value,
                size_t value_len, uint64_t expires)
{
    struct qmstore_change c = {key, value ? value : "", key_len, value_len, expires};

    return qmstore_batch(s, &c, 1);
}

int qmstore_delete(struct qmstore *s, const void *key, size_t key_len)
{
    struct qmstore_change c = {.key = key, .key_len = key_len};
    struct partition *p;
    struct store_key k;
    uint64_t sequence;
    int r;

    if (!is_key(key, key_len))
        return EINVAL;
    p = partition_of(s, key, key_len, &k);
    pthread_mutex_lock(&p->lock);
    r = make_log_ready(p);
    if (r == 0)
        r = carry_out(p, &c, false);
    store_scratch_mend(p);
    sequence = p->log.appended;
    pthread_mutex_unlock(&p->lock);
    if (r == 0 && p->logs)
        r = store_log_commit(&p->log, sequence);
    return r;
}

/* Entries of these keys are `changing`, or no more. */
static void mark(struct partition *p, const struct qmstore_change *changes,
                 const size_t *which, size_t n, bool changing)
{
    for (size_t i = 0; p->logs && i < n; i++) {
        const struct qmstore_change *c = &changes[which[i]];
        struct entry *e = store_table_find(&p->table, store_hash_of(c->key, c->key_len),
                                           c->key, c->key_len);

        if (e)
            e->changing = changing;
    }
}

/* The changes of one partition: all are logged, then all are made. */
static int change_partition(struct partition *p, const struct qmstore_change *changes,
                            const size_t *which, size_t n)
{
    uint64_t sequence;
    int r, first = 0;

    pthread_mutex_lock(&p->lock);
    r = make_log_ready(p);
    /* Nothing is logged that cannot be made. */
    if (r == 0)
        r = store_buffer_make_room(p);
    for (size_t i = 0; p->logs && i < n && r == 0; i++) {
        const struct qmstore_change *c = &changes[which[i]];
        struct store_value value = {c->value, (uint32_t)c->value_len, c->expires};
        struct store_key k = {store_hash_of(c->key, c->key_len), c->key,
                              (uint16_t)c->key_len};

        r = store_log_change(p, &k, c->value ? &value : NULL, 0, i + 1 < n);
    }
    mark(p, changes, which, n, true);
    for (size_t i = 0; i < n && r == 0; i++) {
        int error = carry_out(p, &changes[which[i]], true);

        if (error != 0 && error != ENOENT && first == 0)
            first = error;
    }
    mark(p, changes, which, n, false);
    store_scratch_mend(p);
    sequence = p->log.appended;
    pthread_mutex_unlock(&p->lock);
    if (r == 0 && p->logs)
        r = store_log_commit(&p->log, sequence);
    return r ? r : first;
}

int qmstore_batch(struct qmstore *s, const struct qmstore_change *changes, size_t n)
{
    size_t one = 0, *which = &one;
    struct store_key k;
    int first = 0;

    for (size_t i = 0; i < n; i++)
        if (!is_key(changes[i].key, changes[i].key_len) ||
            changes[i].value_len > QMSTORE_VALUE_MAX)
            return EINVAL;
    if (n == 1)
        return change_partition(partition_of(s, changes[0].key, changes[0].key_len, &k),
                                changes, which, 1);
    if (n == 0)
        return 0;
    if (!(which = malloc(n * sizeof *which)))
        return ENOMEM;
    for (unsigned at = 0; at < s->config.partitions; at++) {
        size_t count = 0;
        int r;

        for (size_t i = 0; i < n; i++)
            if (partition_of(s, changes[i].key, changes[i].key_len, &k) ==
                &s->partitions[at])
                which[count++] = i;
        if (count > 0 &&
            (r = change_partition(&s->partitions[at], changes, which, count)) != 0 &&
            first == 0)
            first = r;
    }
    free(which);
    return first;
}

/* A range of hashes of a partition, copied under its lock. */
struct range {
    struct partition *p;
    uint64_t to;
    struct copy {
        char *bytes;
        size_t key_len, value_len;
        uint64_t expires;
    } * copies;
    size_t count, size;
    uint64_t from, bytes; /* bytes: of the copies */
};

/* Of records with the same upper half of `high`, the order on disk is not that of their
 * hashes, so a range has all or none of them. */
#define RANGE_UNIT (UINT64_C(1) << 32)

/* Halves a range whose copies take too much memory, until they do not, or it cannot be
 * less.  What is behind it is not copied, then. */
static void narrow(struct range *r)
{
    while (r->bytes > RANGE_BYTES && r->to - r->from >= RANGE_UNIT) {
        size_t kept = 0;

        r->to = (r->from + (r->to - r->from) / 2) & ~(RANGE_UNIT - 1);
        r->to += RANGE_UNIT - 1;
        for (size_t i = 0; i < r->count; i++) {
            struct copy c = r->copies[i];

            if (store_hash_of(c.bytes, c.key_len).high <= r->to) {
                r->copies[kept++] = c;
                continue;
            }
            r->bytes -= c.key_len + c.value_len;
            free(c.bytes);
        }
        r->count = kept;
    }
}

static int copy(struct range *r, const void *key, size_t key_len, const void *value,
                size_t value_len, uint64_t expires)
{
    struct copy *c;

    if (expires != 0 && expires <= store_now())
        return 0;
    if (r->count == r->size) {
        size_t size = r->size ? r->size * 2 : RANGE_KEYS;

        if (!(c = realloc(r->copies, size * sizeof *c)))
            return ENOMEM;
        r->copies = c;
        r->size = size;
    }
    c = &r->copies[r->count];
    *c = (struct copy){malloc(key_len + value_len + 1), key_len, value_len, expires};
    if (!c->bytes)
        return ENOMEM;
    memcpy(c->bytes, key, key_len);
    if (value_len > 0)
        memcpy(c->bytes + key_len, value, value_len);
    r->count++;
    r->bytes += key_len + value_len;
    narrow(r);
    return 0;
}

enum { ENOUGH = -1 };

static int copy_record(void *opaque, const struct disk_name *name, const void *bytes,
                       size_t len)
{
    struct range *r = opaque;
    struct store_hash h = store_name_hash(name);
    struct disk_record record;

    if (h.high > r->to)
        return ENOUGH;
    if (store_record_unpack(name, h, bytes, len, &record) != 0) {
        r->p->stats.damaged++;
        return 0; /* the others are there */
    }
    if (store_table_find(&r->p->table, h, record.key, record.key_len))
        return 0;
    return copy(r, record.key, record.key_len, record.value, record.value_len,
                record.expires);
}

static int copy_range(struct range *r, uint64_t from)
{
    const struct table *t = &r->p->table;
    struct disk_name first = store_name_from(from);
    int error = 0;

    for (uint64_t l = store_table_line(t, from);
         l <= store_table_line(t, r->to) && error == 0; l++) {
        struct table_walk w = store_table_walk(t, l);

        for (struct entry *e; error == 0 && (e = store_table_next(&w));) {
            uint64_t high = store_entry_hash(e).high;

            if (!e->dead && high >= from && high <= r->to)
                error = copy(r, e->bytes, e->key_len, e->bytes + e->key_len,
                             e->value_len, store_entry_expires(e));
        }
    }
    if (error != 0)
        return error;
    if (r->p->disk)
        error = r->p->disk_ops->walk(r->p->disk, &first, copy_record, r);
    return error == ENOUGH || (error != 0 && store_scratch_takes(r->p, error)) ? 0
                                                                               : error;
}

/* Cursors leave out that many of the hashes' last values, for the partition. */
#define SCAN_UNIT UINT64_C(256)

typedef int each_key(void *opaque, const void *key, size_t key_len, const void *value,
                     size_t value_len, uint64_t expires);

/* Walks the keys whose hashes begin at *from; sets it to where the next range begins, 0
 * at the end. */
static int walk_range(struct range *r, uint64_t *from, each_key *each, void *opaque)
{
    int error;

    *from &= ~(RANGE_UNIT - 1);
    pthread_mutex_lock(&r->p->lock);
    r->to = (*from + UINT64_MAX / (store_partition_keys(r->p) / RANGE_KEYS + 1)) |
            (RANGE_UNIT - 1);
    if (r->to < *from)
        r->to = UINT64_MAX;
    r->from = *from;
    r->count = r->bytes = 0;
    error = copy_range(r, *from);
    store_scratch_mend(r->p);
    pthread_mutex_unlock(&r->p->lock);
    for (size_t i = 0; i < r->count; i++) {
        struct copy *c = &r->copies[i];

        if (error == 0)
            error = each(opaque, c->bytes, c->key_len, c->bytes + c->key_len,
                         c->value_len, c->expires);
        free(c->bytes);
    }
    *from = r->to + 1;
    return error;
}

static int walk_partition(struct partition *p, each_key *each, void *opaque)
{
    struct range r = {.p = p};
    uint64_t from = 0;
    int error;

    do
        error = walk_range(&r, &from, each, opaque);
    while (error == 0 && from != 0);
    free(r.copies);
    return error;
}

int qmstore_scan(struct qmstore *s, uint64_t *cursor,
                 int (*each)(void *opaque, const void *key, size_t key_len,
                             const void *value, size_t value_len, uint64_t expires),
                 void *opaque)
{
    uint64_t partition = *cursor / (UINT64_MAX / SCAN_UNIT + 1);
    uint64_t from = *cursor * SCAN_UNIT;
    struct range r;
    int error;

    if (partition >= s->config.partitions)
        return EINVAL;
    r = (struct range){.p = &s->partitions[partition]};
    error = walk_range(&r, &from, each, opaque);
    free(r.copies);
    if (error != 0) /* none is left out when the call is made again */
        return error;
    if (from == 0)
        *cursor = partition + 1 < s->config.partitions
                      ? (partition + 1) * (UINT64_MAX / SCAN_UNIT + 1)
                      : 0;
    else
        *cursor = partition * (UINT64_MAX / SCAN_UNIT + 1) + from / SCAN_UNIT;
    return 0;
}

int qmstore_each(struct qmstore *s,
                 int (*each)(void *opaque, const void *key, size_t key_len,
                             const void *value, size_t value_len, uint64_t expires),
                 void *opaque)
{
    int r = 0;

    for (unsigned i = 0; i < s->config.partitions && r == 0; i++)
        r = walk_partition(&s->partitions[i], each, opaque);
    return r;
}

/* Keys that are removed in one batch, so that each does not take a sync. */
struct removal {
    struct qmstore *store;
    struct qmstore_change changes[REMOVED];
    size_t n, bytes;
};

static int remove_gathered(struct removal *m)
{
    int r = qmstore_batch(m->store, m->changes, m->n);

    for (size_t i = 0; i < m->n; i++)
        free((void *)(uintptr_t)m->changes[i].key);
    m->n = m->bytes = 0;
    return r;
}

static int gather(void *opaque, const void *key, size_t key_len, const void *value,
                  size_t value_len, uint64_t expires)
{
    struct removal *m = opaque;
    void *copy = malloc(key_len);

    if (!copy)
        return ENOMEM;
    memcpy(copy, key, key_len);
    m->changes[m->n++] = (struct qmstore_change){.key = copy, .key_len = key_len};
    m->bytes += key_len;
    return m->n == REMOVED || m->bytes >= REMOVED_BYTES ? remove_gathered(m) : 0;
}

static int clear_scratch(struct qmstore *s)
{
    for (unsigned i = 0; i < s->config.partitions; i++) {
        struct partition *p = &s->partitions[i];

        pthread_mutex_lock(&p->lock);
        store_scratch_clear(p);
        pthread_mutex_unlock(&p->lock);
    }
    return 0;
}

int qmstore_clear(struct qmstore *s)
{
    struct removal *m;
    int r, last;

    if (s->scratch)
        return clear_scratch(s);
    m = calloc(1, sizeof *m);
    if (!m)
        return ENOMEM;
    m->store = s;
    r = qmstore_each(s, gather, m);
    last = remove_gathered(m);
    free(m);
    return r ? r : last;
}

int qmstore_flush(struct qmstore *s)
{
    int first = 0;

    for (unsigned i = 0; i < s->config.partitions; i++) {
        struct partition *p = &s->partitions[i];
        int r;

        if (p->logs) {
            r = store_log_write(&p->log, true);
            if (r != 0) {
                pthread_mutex_lock(&p->lock);
                r = make_log_ready(p);
                pthread_mutex_unlock(&p->lock);
            }
        } else {
            pthread_mutex_lock(&p->lock);
            r = store_buffer_write(p);
            store_scratch_mend(p);
            pthread_mutex_unlock(&p->lock);
        }
        if (first == 0)
            first = r;
    }
    return first;
}

/* What the files below a directory take on disk. */
static uint64_t bytes_below(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *stream = fd == -1 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    struct dirent *e;
    struct stat st;

    if (!stream) {
        if (fd != -1)
            close(fd);
        return 0;
    }
    while ((e = readdir(stream))) {
        if (e->d_name[0] == '.' ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1)
            continue;
        bytes += (uint64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode))
            bytes += bytes_below(fd, e->d_name);
    }
    closedir(stream);
    return bytes;
}

static uint64_t memory_of(const struct partition *p, const struct store_log_look *log)
{
    uint64_t bytes = p->used + p->buffer.bytes + store_table_bytes(&p->table) +
                     store_bloom_bytes(&p->bloom) + store_cold_bytes(&p->cold) +
                     log->memory;
    return bytes + store_disk_cache(p->config);
}

void qmstore_get_stats(struct qmstore *s, struct qmstore_stats *stats)
{
    *stats = (struct qmstore_stats){0};
    for (unsigned i = 0; i < s->config.partitions; i++) {
        struct partition *p = &s->partitions[i];
        const struct qmstore_stats *of = &p->stats;
        struct store_log_look log;

        pthread_mutex_lock(&p->lock);
        stats->keys += store_partition_keys(p);
        stats->memory_keys += p->memory_keys;
        stats->buffer_keys += p->buffer.count - p->dead;
        stats->disk_keys += p->disk_copies - p->shadowed;
        store_log_look(&p->log, &log);
        stats->memory += memory_of(p, &log);
        stats->gets += of->gets;
        stats->puts += of->puts;
        stats->deletes += of->deletes;
        stats->memory_hits += of->memory_hits;
        stats->buffer_hits += of->buffer_hits;
        stats->disk_hits += of->disk_hits;
        stats->misses += of->misses;
        stats->evictions += of->evictions;
        stats->restorations += of->restorations;
        stats->disk_reads += of->disk_reads;
        stats->false_positives += of->false_positives;
        stats->disk_writes += of->disk_writes;
        stats->disk_batches += of->disk_batches;
        stats->filter_rebuilds += of->filter_rebuilds;
        stats->expired += of->expired;
        stats->lost += of->lost;
        stats->damaged += of->damaged;
        stats->syncs += log.syncs;
        stats->log_bytes += log.bytes;
        if (stats->error == 0)
            stats->error = p->disk_error ? p->disk_error
                           : p->scratch  ? p->scratch->lately
                                         : log.error;
        pthread_mutex_unlock(&p->lock);
        /* Many files take long, and others need the lock. */
        stats->disk += bytes_below(p->dir, ".");
    }
}
