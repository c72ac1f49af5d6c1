/* SPDX-License-Identifier: BSD-3-Clause */
/* disk-lmdb.c - the disk layer on LMDB.
 *
 * The default: its pages are the kernel's, so a look-up of a key that is on disk copies
 * nothing but the value, and its files need no recovery.  A batch is a transaction.  It
 * is synced, although the store's own log makes changes durable: without that, the end
 * of the machine could damage LMDB's file.  That is one sync a write buffer; in
 * QMSTORE_NONE, where a file is set aside after any crash, none; and a batch is several
 * transactions there, as LMDB's time for a page grows with the pages of a transaction,
 * and so does its memory: it keeps each page until the transaction ends. */
#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/store/disk-lmdb.h"

enum { PAGE = 4096, PAGES_MOST = 128 * PAGE };

struct disk {
    MDB_env *env;
    MDB_dbi db;
    MDB_txn *reading; /* kept, and renewed for each read */
    bool sync;
    uint64_t pages; /* bytes of pages of a transaction that is not synced, about */
};

static int error_of(int r)
{
    switch (r) {
    case MDB_NOTFOUND:
        return ENOENT;
    case MDB_MAP_FULL:
        return ENOSPC;
    default:
        return r < 0 ? EIO : r;
    }
}

/* Of an open that fails.  EBADMSG: the file is damaged. */
static int error_at_opening(int r)
{
    switch (r) {
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_NOTFOUND:
    case MDB_PANIC:
        return EBADMSG;
    case MDB_VERSION_MISMATCH:
        return ENOTSUP;
    default:
        return error_of(r);
    }
}

/* The order of LMDB's own comparison, for hashes mostly without a call: a look-up makes
 * some twenty of them. */
static int by_hash(const MDB_val *a, const MDB_val *b)
{
    size_t least = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
    uint64_t x, y;
    int r;

    if (least >= sizeof x) {
        memcpy(&x, a->mv_data, sizeof x);
        memcpy(&y, b->mv_data, sizeof y);
        if (x != y)
            return be64toh(x) > be64toh(y) ? 1 : -1;
    }
    r = memcmp(a->mv_data, b->mv_data, least);
    return r ? r : (a->mv_size > b->mv_size) - (a->mv_size < b->mv_size);
}

static void lmdb_close(struct disk *d)
{
    if (d->reading)
        mdb_txn_abort(d->reading);
    if (d->env)
        mdb_env_close(d->env);
    free(d);
}

static int lmdb_open(const struct disk_config *c, struct disk **disk)
{
    struct disk *d = calloc(1, sizeof *d);
    char name[PATH_MAX];
    MDB_txn *txn = NULL;
    int r;

    if (!d)
        return ENOMEM;
    if ((size_t)snprintf(name, sizeof name, "%s/data.mdb", c->dir) >= sizeof name)
        r = ENAMETOOLONG;
    else
        r = store_lmdb_check(name, c->hash, c->has_short);
    if (r != 0) {
        free(d);
        return r;
    }
    d->sync = c->sync;
    d->pages = c->cache < PAGE ? PAGE : c->cache < PAGES_MOST ? c->cache : PAGES_MOST;
    r = mdb_env_create(&d->env);
    if (r == 0)
        r = mdb_env_set_mapsize(d->env, LMDB_MAP_SIZE);
    /* The store has its own lock, and one thread at a time. */
    if (r == 0)
        r = mdb_env_open(
            d->env, c->dir,
            MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD | (d->sync ? 0 : MDB_NOSYNC), 0600);
    if (r == 0)
        r = mdb_txn_begin(d->env, NULL, 0, &txn);
    if (r == 0 && (r = mdb_dbi_open(txn, NULL, 0, &d->db)) == 0 &&
        (r = mdb_set_compare(txn, d->db, by_hash)) == 0)
        r = mdb_txn_commit(txn);
    else if (txn)
        mdb_txn_abort(txn);
    if (r == 0 && (r = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &d->reading)) == 0)
        mdb_txn_reset(d->reading);
    if (r != 0) {
        lmdb_close(d);
        return error_at_opening(r);
    }
    *disk = d;
    return 0;
}

static MDB_val key_of(const struct disk_name *name)
{
    return (MDB_val){name->len, (void *)(uintptr_t)name->bytes};
}

static int lmdb_get(struct disk *d, const struct disk_name *name, void **bytes,
                    size_t *len)
{
    MDB_val key = key_of(name), data;
    int r = mdb_txn_renew(d->reading);

    if (r != 0)
        return error_of(r);
    r = mdb_get(d->reading, d->db, &key, &data);
    if (r == 0) {
        *len = data.mv_size;
        if ((*bytes = malloc(data.mv_size ? data.mv_size : 1)))
            memcpy(*bytes, data.mv_data, data.mv_size);
        else
            r = ENOMEM;
    }
    mdb_txn_reset(d->reading);
    return error_of(r);
}

static int apply_some(struct disk *d, const struct disk_record *changes, size_t n)
{
    MDB_cursor *cursor;
    MDB_txn *txn;
    int r = mdb_txn_begin(d->env, NULL, 0, &txn);

    if (r != 0)
        return error_of(r);
    r = mdb_cursor_open(txn, d->db, &cursor);
    if (r != 0) {
        mdb_txn_abort(txn);
        return error_of(r);
    }
    /* A cursor finds a key that is on the page of the last without a way from the root.
     */
    for (size_t i = 0; i < n && r == 0; i++) {
        MDB_val key = key_of(changes[i].name), data = {0};

        if (changes[i].dead) {
            r = mdb_cursor_get(cursor, &key, &data, MDB_SET);
            if (r == 0)
                r = mdb_cursor_del(cursor, 0);
            if (r == MDB_NOTFOUND)
                r = 0;
            continue;
        }
        data.mv_size = store_disk_size(&changes[i]);
        r = mdb_cursor_put(cursor, &key, &data, MDB_RESERVE);
        if (r == 0)
            store_disk_pack(&changes[i], data.mv_data);
    }
    mdb_cursor_close(cursor);
    if (r != 0)
        mdb_txn_abort(txn);
    else
        r = mdb_txn_commit(txn);
    return error_of(r);
}

static int lmdb_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    int r = 0;

    if (d->sync)
        return apply_some(d, changes, n);
    for (size_t from = 0, i; from < n && r == 0; from = i) {
        uint64_t bytes = 0;

        for (i = from; i < n && bytes < d->pages; i++)
            bytes += PAGE + (changes[i].dead ? 0 : store_disk_size(&changes[i]));
        r = apply_some(d, &changes[from], i - from);
    }
    return r;
}

static int lmdb_walk(struct disk *d, const struct disk_name *from, disk_visit *visit,
                     void *opaque)
{
    MDB_val key = key_of(from), data;
    MDB_cursor *cursor;
    int r = mdb_txn_renew(d->reading), stopped = 0;

    if (r != 0)
        return error_of(r);
    r = mdb_cursor_open(d->reading, d->db, &cursor);
    if (r == 0) {
        r = mdb_cursor_get(cursor, &key, &data, from->len ? MDB_SET_RANGE : MDB_FIRST);
        while (r == 0 && stopped == 0) {
            struct disk_name name;

            if (store_disk_set_name(&name, key.mv_data, key.mv_size))
                stopped = visit(opaque, &name, data.mv_data, data.mv_size);
            if (stopped == 0)
                r = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
        }
        mdb_cursor_close(cursor);
    }
    mdb_txn_reset(d->reading);
    return stopped ? stopped : r == MDB_NOTFOUND ? 0 : error_of(r);
}

static uint64_t lmdb_used(struct disk *d)
{
    MDB_stat st = {0};

    if (mdb_txn_renew(d->reading) != 0)
        return 0;
    (void)mdb_stat(d->reading, d->db, &st);
    mdb_txn_reset(d->reading);
    return (st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages) *
           (uint64_t)st.ms_psize;
}

static int lmdb_checkpoint(struct disk *d)
{
    return error_of(mdb_env_sync(d->env, 1));
}

const struct disk_ops disk_lmdb = {
    .name = "lmdb",
    .has_pages = true,
    .unsynced_most = PAGES_MOST,
    .bytes_most = LMDB_MAP_SIZE,
    .open = lmdb_open,
    .get = lmdb_get,
    .apply = lmdb_apply,
    .walk = lmdb_walk,
    .used = lmdb_used,
    .checkpoint = lmdb_checkpoint,
    .close = lmdb_close,
};
