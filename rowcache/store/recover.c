/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - the log's replay, and a new log that is as short as memory is.
 *
 * The log has every change since the last checkpoint, so it overrules the disk layer.
 * What the disk layer has of it already is written again: that changes nothing. */
#include <errno.h>

#include "rowcache/store/internal.h"

int store_log_change(struct partition *p, const struct store_key *key,
                     const struct store_value *value, uint32_t frequency, bool more)
{
    struct store_log_record r = {
        .frequency = frequency,
        .key = key->bytes,
        .key_len = key->len,
        .dead = !value,
        .more = more,
    };

    if (value) {
        r.expires = value->expires;
        r.value = value->bytes;
        r.value_len = value->len;
    }
    return store_log_append(&p->log, &r);
}

static int append_memory(void *opaque,
                         int (*append)(struct store_log *, struct store_log_record *))
{
    struct partition *p = opaque;

    for (uint64_t i = 0; i < p->table.n; i++) {
        struct table_walk w = store_table_walk(&p->table, i);

        for (struct entry *e; (e = store_table_next(&w));) {
            struct store_log_record r = {
                .expires = store_entry_expires(e),
                .frequency = e->frequency,
                .key = e->bytes,
                .key_len = e->key_len,
                .value = e->bytes + e->key_len,
                .value_len = e->value_len,
                .dead = e->dead,
            };
            int error = append(&p->log, &r);

            if (error != 0)
                return error;
        }
    }
    return 0;
}

int store_checkpoint(struct partition *p)
{
    struct store_log_look log;
    int r = 0;

    store_log_look(&p->log, &log);
    /* A log that failed cannot be written before the disk layer; the new one has what
     * is in the write buffer, too. */
    if (log.error == 0)
        r = store_buffer_write(p);
    if (r == 0) {
        uint64_t began = store_ticks();

        r = p->disk_error = p->disk_ops->checkpoint(p->disk);
        store_disk_answered(p, began, r);
    }
    return r ? r : store_log_restart(&p->log, append_memory, p);
}

static int replay(void *opaque, const struct store_log_record *r)
{
    struct partition *p = opaque;
    struct store_value value = {r->value, r->value_len, r->expires};
    struct store_key key = {store_hash_of(r->key, r->key_len), r->key, r->key_len};
    int error;

    if (!r->dead)
        return store_partition_put(p, &key, &value, r->frequency);
    error = store_partition_delete(p, &key);
    if ((error == 0 || error == ENOENT) && store_buffer_is_full(p))
        error = store_buffer_write(p);
    return error == ENOENT ? 0 : error;
}

/* A damaged record whose key has an entry is overruled. */
static int count_damaged(void *opaque, const struct disk_name *name, const void *bytes,
                         size_t len)
{
    struct partition *p = opaque;
    struct store_hash h = store_name_hash(name);
    struct disk_record r;

    if (store_record_unpack(name, h, bytes, len, &r) != 0 &&
        !store_table_has(&p->table, h))
        p->stats.damaged++;
    return 0;
}

int store_recover(struct partition *p, int dir, bool *set_aside, uint64_t *lost)
{
    static const struct disk_name first; /* of all */
    enum qmstore_durability durability = p->config->durability, was;
    bool clean, damaged;
    uint64_t checks = p->config->log_buffer;
    int r;

    /* Nothing was on disk before the state was. */
    *set_aside = false;
    p->logs = false;
    r = store_log_open(&p->log, dir, "log", "state", durability, checks, replay, p,
                       lost, &clean, &was, &damaged);
    if (r == EBADMSG || (r == 0 && (damaged || (!clean && was == QMSTORE_NONE) ||
                                    (p->log.is_new && p->disk_copies > 0)))) {
        *set_aside = true;
        return 0;
    }
    if (r != 0)
        return r;
    /* What was read is no use of the store. */
    p->stats = (struct qmstore_stats){.filter_rebuilds = 0, .lost = *lost};
    p->logs = durability != QMSTORE_NONE;
    if (p->damaged_copies > 0)
        r = p->disk_ops->walk(p->disk, &first, count_damaged, p);
    return r;
}
