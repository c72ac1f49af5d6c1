/* SPDX-License-Identifier: BSD-3-Clause */
/* bdb.h - a Berkeley DB database of one's own, that keeps quiet.
 *
 * One private environment with one database in it, either unnamed (in the pool, and
 * what does not fit into that in a temporary file) or a file.  Berkeley DB's messages
 * never reach a terminal: the last one is kept.
 *
 * No locking and no transactions: calls are serialized by the caller, and after an
 * error other than those named here the database may be half changed and is to be given
 * up.
 *
 * Functions return 0 or an errno value; Berkeley DB's own errors become EIO.
 */
#ifndef QM_BDB_H
#define QM_BDB_H

#include <stddef.h>
#include <stdint.h>

#include <db.h>

#define QM_BDB_PAGE 4096

struct qm_bdb {
    DB_ENV *env;
    DB *db;
    DBC *cursor;       /* where qm_bdb_get() found something */
    char message[160]; /* Berkeley DB's last one, or "" */
};

/* An unnamed database, with a pool of that many bytes; Berkeley DB adds a quarter to
 * pools below 500 MB.  A B-tree, because the prefixes that begin with the same block
 * are neighbours in it, and those of an access are written soon after each other:
 * within the pool it costs more than a hash table, beyond it half as much, for records
 * of a rule's size that are read, changed and written at random. */
int qm_bdb_open_memory(struct qm_bdb *bdb, uint64_t pool);

/* A database file: a new one to be written, or an old one to be read, which must be
 * whole (seal.h). */
int qm_bdb_create_file(struct qm_bdb *bdb, const char *path);
int qm_bdb_open_file(struct qm_bdb *bdb, const char *path);

/* Closes it; a new file is on disk then. */
int qm_bdb_close(struct qm_bdb *bdb);

/* Reads at most max bytes of a record into buf, and how many were read into *size.
 * ENOENT if there is none. */
int qm_bdb_get_start(struct qm_bdb *bdb, const void *key, size_t key_size, void *buf,
                     size_t max, size_t *size);

/* Reads a record into *buf, which has *cap bytes and is made larger by realloc().  The
 * record becomes the current one, until the next call of any function.  ENOENT if there
 * is none. */
int qm_bdb_get(struct qm_bdb *bdb, const void *key, size_t key_size,
               unsigned char **buf, size_t *cap, size_t *size);

/* Replaces the current record: cheaper than finding it again. */
int qm_bdb_put_current(struct qm_bdb *bdb, const void *data, size_t size);

int qm_bdb_put(struct qm_bdb *bdb, const void *key, size_t key_size, const void *data,
               size_t size);

/* Deletes a record, whose beginning it reads as qm_bdb_get_start() does. */
int qm_bdb_delete(struct qm_bdb *bdb, const void *key, size_t key_size, void *buf,
                  size_t max, size_t *size);

/* Calls each() for all records, in order of their keys, until that
 * returns non-zero.  Returns that, 0 or an errno value. */
int qm_bdb_each(struct qm_bdb *bdb,
                int (*each)(void *opaque, const void *key, size_t key_size,
                            const void *data, size_t size),
                void *opaque);

/* Bytes of its pages, in the pool or in a file. */
int qm_bdb_bytes(struct qm_bdb *bdb, uint64_t *bytes);

#endif
