/* SPDX-License-Identifier: BSD-3-Clause */
/* bdb.c - a Berkeley DB database of one's own (see bdb.h). */
#include "mining/quickmine/bdb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_POOL (UINT64_C(1) << 20)
#define GIB       (UINT64_C(1) << 30)

static int errno_of(int r)
{
    return r == 0 ? 0 : r > 0 ? r : r == DB_NOTFOUND ? ENOENT : EIO;
}

static void keep_message(const DB_ENV *env, const char *prefix, const char *message)
{
    struct qm_bdb *bdb = env->app_private;
    snprintf(bdb->message, sizeof bdb->message, "%s", message);
}

static void drop_message(const DB_ENV *env, const char *message)
{
}

static int open_env(struct qm_bdb *bdb, uint64_t pool)
{
    memset(bdb, 0, sizeof *bdb);
    int r = db_env_create(&bdb->env, 0);
    if (r != 0) {
        bdb->env = NULL;
        return errno_of(r);
    }
    bdb->env->app_private = bdb;
    bdb->env->set_errcall(bdb->env, keep_message);
    bdb->env->set_msgcall(bdb->env, drop_message);
    const char *tmp = getenv("TMPDIR");
    if (tmp && *tmp && access(tmp, W_OK | X_OK) == 0) {
        r = bdb->env->set_tmp_dir(bdb->env, tmp);
    }
    if (r == 0) {
        /* A region of the pool is at most 4 GiB. */
        r = bdb->env->set_cachesize(bdb->env, (u_int32_t)(pool / GIB),
                                    (u_int32_t)(pool % GIB), (int)(pool / GIB / 3 + 1));
    }
    if (r == 0) {
        r = bdb->env->open(bdb->env, NULL, DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL, 0);
    }
    if (r == 0) {
        r = db_create(&bdb->db, bdb->env, 0);
    }
    if (r != 0) {
        bdb->db = NULL;
        qm_bdb_close(bdb);
    }
    return errno_of(r);
}

static int open_db(struct qm_bdb *bdb, const char *path, u_int32_t flags)
{
    int r = bdb->db->open(bdb->db, NULL, path, NULL, DB_BTREE, flags, 0600);
    if (r == 0) {
        r = bdb->db->cursor(bdb->db, NULL, &bdb->cursor, 0);
    }
    return r;
}

int qm_bdb_open_memory(struct qm_bdb *bdb, uint64_t pool)
{
    int r = open_env(bdb, pool);
    if (r != 0) {
        return r;
    }
    r = bdb->db->set_pagesize(bdb->db, QM_BDB_PAGE);
    if (r == 0) {
        r = open_db(bdb, NULL, DB_CREATE);
    }
    if (r != 0) {
        qm_bdb_close(bdb);
    }
    return errno_of(r);
}

int qm_bdb_create_file(struct qm_bdb *bdb, const char *path)
{
    int r = open_env(bdb, FILE_POOL);
    if (r != 0) {
        return r;
    }
    r = bdb->db->set_pagesize(bdb->db, QM_BDB_PAGE);
    if (r == 0) {
        r = open_db(bdb, path, DB_CREATE | DB_EXCL);
    }
    if (r != 0) {
        qm_bdb_close(bdb);
    }
    return errno_of(r);
}

int qm_bdb_open_file(struct qm_bdb *bdb, const char *path)
{
    int r = open_env(bdb, FILE_POOL);
    if (r != 0) {
        return r;
    }
    r = open_db(bdb, path, DB_RDONLY);
    if (r != 0) {
        qm_bdb_close(bdb);
    }
    return errno_of(r);
}

int qm_bdb_close(struct qm_bdb *bdb)
{
    int r = 0;
    if (bdb->cursor) {
        r = bdb->cursor->close(bdb->cursor);
        bdb->cursor = NULL;
    }
    if (bdb->db) {
        int r2 = bdb->db->close(bdb->db, 0);
        bdb->db = NULL;
        r = r != 0 ? r : r2;
    }
    if (bdb->env) {
        int r2 = bdb->env->close(bdb->env, 0);
        bdb->env = NULL;
        r = r != 0 ? r : r2;
    }
    return errno_of(r);
}

static DBT thing(const void *data, size_t size)
{
    return (DBT){.data = (void *)data, .size = (u_int32_t)size};
}

static DBT start_of(void *buf, size_t max)
{
    return (DBT){.data = buf,
                 .ulen = (u_int32_t)max,
                 .dlen = (u_int32_t)max,
                 .flags = DB_DBT_USERMEM | DB_DBT_PARTIAL};
}

int qm_bdb_get_start(struct qm_bdb *bdb, const void *key, size_t key_size, void *buf,
                     size_t max, size_t *size)
{
    DBT k = thing(key, key_size), d = start_of(buf, max);
    int r = bdb->cursor->get(bdb->cursor, &k, &d, DB_SET);
    *size = d.size;
    return errno_of(r);
}

int qm_bdb_get(struct qm_bdb *bdb, const void *key, size_t key_size,
               unsigned char **buf, size_t *cap, size_t *size)
{
    DBT k = thing(key, key_size);
    DBT d = {.data = *buf, .ulen = (u_int32_t)*cap, .flags = DB_DBT_USERMEM};
    int r = bdb->cursor->get(bdb->cursor, &k, &d, DB_SET);
    if (r == DB_BUFFER_SMALL) {
        unsigned char *larger = realloc(*buf, d.size);
        if (!larger) {
            return ENOMEM;
        }
        *buf = larger;
        *cap = d.size;
        d.data = larger;
        d.ulen = d.size;
        r = bdb->cursor->get(bdb->cursor, &k, &d, DB_SET);
    }
    *size = d.size;
    return errno_of(r);
}

int qm_bdb_put_current(struct qm_bdb *bdb, const void *data, size_t size)
{
    if (size > UINT32_MAX) {
        return EFBIG;
    }
    DBT k = {0}, d = thing(data, size);
    return errno_of(bdb->cursor->put(bdb->cursor, &k, &d, DB_CURRENT));
}

int qm_bdb_put(struct qm_bdb *bdb, const void *key, size_t key_size, const void *data,
               size_t size)
{
    if (size > UINT32_MAX) {
        return EFBIG;
    }
    DBT k = thing(key, key_size), d = thing(data, size);
    return errno_of(bdb->db->put(bdb->db, NULL, &k, &d, 0));
}

int qm_bdb_delete(struct qm_bdb *bdb, const void *key, size_t key_size, void *buf,
                  size_t max, size_t *size)
{
    DBT k = thing(key, key_size), d = start_of(buf, max);
    int r = bdb->cursor->get(bdb->cursor, &k, &d, DB_SET);
    *size = d.size;
    if (r == 0) {
        r = bdb->cursor->del(bdb->cursor, 0);
    }
    return errno_of(r);
}

int qm_bdb_each(struct qm_bdb *bdb,
                int (*each)(void *opaque, const void *key, size_t key_size,
                            const void *data, size_t size),
                void *opaque)
{
    DBT k = {0}, d = {0};
    u_int32_t where = DB_FIRST;
    int stop = 0, r = 0;
    while (stop == 0 && (r = bdb->cursor->get(bdb->cursor, &k, &d, where)) == 0) {
        stop = each(opaque, k.data, k.size, d.data, d.size);
        where = DB_NEXT;
    }
    return stop != 0 ? stop : r == DB_NOTFOUND ? 0 : errno_of(r);
}

int qm_bdb_bytes(struct qm_bdb *bdb, uint64_t *bytes)
{
    DB_BTREE_STAT *stat;
    int r = bdb->db->stat(bdb->db, NULL, &stat, DB_FAST_STAT);
    if (r != 0) {
        return errno_of(r);
    }
    *bytes = (uint64_t)stat->bt_pagecnt * stat->bt_pagesize;
    free(stat);
    return 0;
}
