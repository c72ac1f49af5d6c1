/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-store.c - where the records of prefixes are (see rules-store.h). */
#include "mining/quickmine/rules-store.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/prefetcher.h"
#include "mining/quickmine/record.h"

#define BDB_PART 4 /* of the pool */

int qm_store_open(struct qm_store *store, uint64_t pool, uint64_t expected,
                  uint64_t seed)
{
    uint64_t part = pool / BDB_PART;

    memset(store, 0, sizeof *store);
    int r = qm_bdb_open_memory(&store->bdb, part > QM_POOL_MIN ? part : QM_POOL_MIN);
    if (r == 0) {
        r = qm_lru_init(&store->lru, expected, seed);
    }
    if (r == 0) {
        r = qm_cells_init(&store->cells, pool - part);
    }
    return r;
}

void qm_store_close(struct qm_store *store)
{
    (void)qm_bdb_close(&store->bdb); /* an unnamed database has nothing to lose */
    qm_cells_fini(&store->cells);
    qm_lru_fini(&store->lru);
    free(store->record);
}

int qm_store_reserve(struct qm_store *store, size_t size)
{
    if (size <= store->record_cap) {
        return 0;
    }
    unsigned char *larger = realloc(store->record, 2 * size);
    if (!larger) {
        return ENOMEM;
    }
    store->record = larger;
    store->record_cap = 2 * size;
    return 0;
}

/* What Berkeley DB could not finish, for whatever reason, is not "nothing changed". */
static int half_done(int error)
{
    return error == ENOMEM ? EIO : error;
}

static int put(struct qm_store *store, uint32_t id, const unsigned char *record,
               size_t size)
{
    struct qm_lru_entry *e = &store->lru.entries[id];
    unsigned char key[QM_KEY_MAX];
    int r = qm_bdb_put(&store->bdb, key, qm_key_encode(e->a, e->b, key), record, size);

    if (r == 0) {
        e->stored = 1;
        e->changed = 0;
    }
    return half_done(r);
}

static void leave_memory(struct qm_store *store, struct qm_lru_entry *e)
{
    if (e->record != 0) {
        qm_cells_free(&store->cells, e->record, e->size);
        e->record = 0;
        e->size = 0;
    }
}

/* Makes room: the record of the least recently used prefix leaves memory. */
static int spill(struct qm_store *store, uint32_t id)
{
    struct qm_lru_entry *e = &store->lru.entries[id];
    unsigned char record[QM_STORE_MOST];
    int r = 0;

    if (e->changed) {
        size_t size =
            qm_cells_read(&store->cells, e->record, e->size, record, sizeof record);
        r = put(store, id, record, size);
    }
    if (r == 0) {
        leave_memory(store, e);
    }
    return r;
}

/* Writes store->record into memory, if there is room or can be: *kept. */
static int keep(struct qm_store *store, uint32_t id, size_t size, bool *kept)
{
    int r = 0;

    *kept = false;
    while (r == 0 && size <= QM_STORE_MOST) {
        struct qm_lru_entry *e = &store->lru.entries[id];
        if (e->record != 0) {
            *kept = qm_cells_replace(&store->cells, e->record, e->size, store->record,
                                     size);
        } else {
            e->record = qm_cells_add(&store->cells, store->record, size);
            *kept = e->record != 0;
        }
        if (*kept) {
            e->size = (uint32_t)size;
            break;
        }
        uint32_t oldest = qm_lru_oldest_record(&store->lru);
        if (oldest == 0 || oldest == id) {
            break;
        }
        r = spill(store, oldest);
    }
    return r;
}

/* Stores store->record, which Berkeley DB does not have. */
static int set(struct qm_store *store, uint32_t id, size_t size)
{
    bool kept;
    int r = keep(store, id, size, &kept);

    if (r == 0 && kept) {
        store->lru.entries[id].changed = 1;
    } else if (r == 0) {
        leave_memory(store, &store->lru.entries[id]);
        r = put(store, id, store->record, size);
    }
    return r;
}

int qm_store_read(struct qm_store *store, uint32_t id, size_t *size)
{
    return qm_store_copy(store, id, &store->record, &store->record_cap, size);
}

int qm_store_update(struct qm_store *store, uint32_t id, size_t size)
{
    bool kept;

    qm_lru_touch(&store->lru, id);
    if (store->lru.entries[id].record != 0) {
        return set(store, id, size);
    }
    int r = qm_bdb_put_current(&store->bdb, store->record, size);
    return r == 0 ? keep(store, id, size, &kept) : half_done(r);
}

int qm_store_add(struct qm_store *store, uint64_t a, uint64_t b, size_t size)
{
    uint32_t id;
    int r = qm_lru_insert(&store->lru, a, b, &id);

    return r == 0 ? set(store, id, size) : r;
}

int qm_store_load(struct qm_store *store, uint32_t id, size_t size)
{
    struct qm_lru_entry *e = &store->lru.entries[id];

    if (size <= QM_STORE_MOST) {
        e->record = qm_cells_add(&store->cells, store->record, size);
    }
    if (e->record == 0) {
        return put(store, id, store->record, size);
    }
    e->size = (uint32_t)size;
    e->changed = 1;
    return 0;
}

int qm_store_look(struct qm_store *store, uint32_t id, unsigned char *start,
                  size_t *size)
{
    const struct qm_lru_entry *e = &store->lru.entries[id];
    int r = 0;

    if (e->record != 0) {
        *size = qm_cells_read(&store->cells, e->record, e->size, start, QM_STORE_START);
    } else {
        unsigned char key[QM_KEY_MAX];
        r = qm_bdb_get_start(&store->bdb, key, qm_key_encode(e->a, e->b, key), start,
                             QM_STORE_START, size);
    }
    if (r == 0) {
        qm_lru_touch(&store->lru, id);
    }
    return r;
}

int qm_store_copy(struct qm_store *store, uint32_t id, unsigned char **buf, size_t *cap,
                  size_t *size)
{
    const struct qm_lru_entry *e = &store->lru.entries[id];

    if (e->record == 0) {
        unsigned char key[QM_KEY_MAX];
        return qm_bdb_get(&store->bdb, key, qm_key_encode(e->a, e->b, key), buf, cap,
                          size);
    }
    if (*cap < e->size) {
        unsigned char *larger = realloc(*buf, QM_STORE_MOST);
        if (!larger) {
            return ENOMEM;
        }
        *buf = larger;
        *cap = QM_STORE_MOST;
    }
    *size = qm_cells_read(&store->cells, e->record, e->size, *buf, *cap);
    return 0;
}

int qm_store_remove(struct qm_store *store, uint32_t id, uint64_t *suffixes)
{
    struct qm_lru_entry *e = &store->lru.entries[id];
    unsigned char key[QM_KEY_MAX], start[16];
    size_t size = 0;
    int r = 0;

    if (e->stored) {
        r = qm_bdb_delete(&store->bdb, key, qm_key_encode(e->a, e->b, key), start,
                          sizeof start, &size);
    }
    if (r == 0) {
        if (e->record != 0) {
            size =
                qm_cells_read(&store->cells, e->record, e->size, start, sizeof start);
            leave_memory(store, e);
        }
        *suffixes = qm_record_count(start, size);
        qm_lru_remove(&store->lru, id);
    }
    return r;
}

size_t qm_store_bytes(const struct qm_store *store)
{
    return qm_lru_bytes(&store->lru) + qm_cells_bytes(&store->cells) +
           store->record_cap;
}
