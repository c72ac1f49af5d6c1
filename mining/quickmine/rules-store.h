/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-store.h - where the records of prefixes are: in memory, as far as there is
 * room, else in Berkeley DB (ATC'08 §4.2).
 *
 * Learning reads, changes and writes a record or more an access, mostly one that was
 * used a moment ago or one that is new, and of the new ones most are never used again.
 * So Berkeley DB, whose B-tree takes some microseconds each time, sees only what does
 * not fit into memory: records are kept in cells (cells.h) and written when their room
 * is wanted, those of the least recently used prefixes first.  What is never used again
 * and goes before that is never written; what changes several times is written once.
 *
 * An entry of the order of use (prefix-lru.h) says where its record is:
 *   record  stored  changed
 *   0       yes     no       in Berkeley DB alone
 *   number  yes     no       in both, alike
 *   number  yes     yes      in both; the one in memory counts
 *   number  no      yes      in memory alone
 * A record that is read from Berkeley DB to be changed is written there at once,
 * because that costs least while it is at hand, and stays in memory.  Records of more
 * than QM_STORE_MOST bytes are in Berkeley DB alone.
 *
 * Calls are serialized by the caller.  Functions return 0, ENOMEM and nothing changed,
 * or another errno value: then Berkeley DB failed, and the store is to be given up.
 */
#ifndef QM_RULES_STORE_H
#define QM_RULES_STORE_H

#include "mining/quickmine/bdb.h"
#include "mining/quickmine/cells.h"
#include "mining/quickmine/prefix-lru.h"

#define QM_STORE_MOST 512

#define QM_STORE_START 2048

struct qm_store {
    struct qm_lru lru; /* the prefixes */
    struct qm_cells cells;
    struct qm_bdb bdb;
    unsigned char *record; /* where records are read to and written from */
    size_t record_cap;
};

/* pool: bytes of memory for records; a quarter of them are Berkeley DB's, but at least
 * QM_POOL_MIN.  expected and seed: as qm_lru_init().  When it fails, bdb.message may
 * say why. */
int qm_store_open(struct qm_store *store, uint64_t pool, uint64_t expected,
                  uint64_t seed);
void qm_store_close(struct qm_store *store);

/* Makes store->record at least so large. */
int qm_store_reserve(struct qm_store *store, size_t size);

/* Reads the record of a prefix into store->record. */
int qm_store_read(struct qm_store *store, uint32_t id, size_t *size);

/* Replaces the record that was read last, of prefix id, by the first bytes of
 * store->record, and makes it the most recently used. */
int qm_store_update(struct qm_store *store, uint32_t id, size_t size);

/* Adds a prefix that is not there, as the most recently used, with the first bytes of
 * store->record. */
int qm_store_add(struct qm_store *store, uint64_t a, uint64_t b, size_t size);

/* The same for one that qm_lru_insert() added, which stays where it is in the order of
 * use: for loading, before anything else is called. */
int qm_store_load(struct qm_store *store, uint32_t id, size_t size);

/* Reads the first bytes of a record, at most QM_STORE_MOST, into start, and makes its
 * prefix the most recently used. */
int qm_store_look(struct qm_store *store, uint32_t id, unsigned char *start,
                  size_t *size);

/* Reads a record into *buf, of *cap bytes, which is made larger by realloc(). */
int qm_store_copy(struct qm_store *store, uint32_t id, unsigned char **buf, size_t *cap,
                  size_t *size);

/* Removes a prefix, and says how many suffixes it had. */
int qm_store_remove(struct qm_store *store, uint32_t id, uint64_t *suffixes);

/* Bytes of memory that it takes beside Berkeley DB (qm_bdb_bytes()). */
size_t qm_store_bytes(const struct qm_store *store);

#endif
