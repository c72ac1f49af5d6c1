/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.h - the disk layer: what the store asks of whatever keeps its cold keys.
 *
 * A record is found by its key's hash and holds the key, so that a layer needs no long
 * keys.  A layer is used by one thread at a time.  To add one: a file
 * disk-NAME.c with a `const struct disk_ops`, and its line in disks[] of disk.c. */
#ifndef QM_STORE_DISK_H
#define QM_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of a hash, in the order of memcmp(); and how many of the first of them are a
 * record's name: of a billion keys, two have the same with a chance of 1 in 10^11. */
#define DISK_HASH      16u
#define DISK_HASH_NAME 12u /* 16 in a store of version 1 */

struct disk; /* each layer's own */

struct disk_record {
    const uint8_t *hash;
    uint64_t expires;
    uint32_t frequency;
    const void *key, *value;
    uint32_t value_len;
    uint16_t key_len;
    bool dead; /* of a change: the record is deleted, if it is there */
};

struct disk_config {
    const char *dir; /* of this layer alone */
    unsigned hash;   /* bytes of it that are a record's name: DISK_HASH_NAME, or 16 */
    uint64_t cache;  /* bytes of memory that it may use */
    bool sync;       /* apply() makes durable */
    char *why;       /* what the layer's library says of an open that fails; or NULL */
    size_t why_len;
};

/* Called with a record's bytes, which are valid during the call.  What of the hash is
 * not in the record's name is 0.  Not 0 ends the walk. */
typedef int disk_visit(void *opaque, const uint8_t *hash, const void *bytes,
                       size_t len);

/* A hash for that, of a name's bytes. */
static inline const uint8_t *store_disk_hash(uint8_t hash[DISK_HASH], const void *name,
                                             unsigned len)
{
    memset(hash, 0, DISK_HASH);
    memcpy(hash, name, len);
    return hash;
}

struct disk_ops {
    const char *name;
    bool has_pages; /* of several records that are next to each other in their order */
    /* Bytes of cache that it makes use of while apply() need not make durable, at most;
     * 0: any. */
    uint64_t unsynced_most;
    /* Recovers after a crash.  EBADMSG: the files are damaged, for certain, and are set
     * aside.  Any other error leaves them where they are. */
    int (*open)(const struct disk_config *config, struct disk **d);
    /* *bytes is the caller's, to free().  ENOENT: none. */
    int (*get)(struct disk *d, const uint8_t *hash, void **bytes, size_t *len);
    /* Writes records, each as store_disk_pack() makes it, one a hash, in ascending
     * order of hash.  Carries out all or none, also after a crash, or those that it
     * carried out may be carried out again. */
    int (*apply)(struct disk *d, const struct disk_record *changes, size_t n);
    /* In ascending order of hash, from `from` on. */
    int (*walk)(struct disk *d, const uint8_t *from, disk_visit *visit, void *opaque);
    /* Makes all that was applied durable, and the next recovery short. */
    int (*checkpoint)(struct disk *d);
    /* What the layer's library said first of an error; NULL: nothing.  Valid until
     * close().  NULL itself: the library says nothing. */
    const char *(*words)(const struct disk *d);
    void (*close)(struct disk *d);
};

extern const struct disk_ops disk_bdb, disk_lmdb, disk_files;

/* The layer of that name, or NULL. */
const struct disk_ops *store_disk_find(const char *name);

/* A record's bytes on disk: a head with a checksum, key, value. */
size_t store_disk_size(const struct disk_record *r);
void store_disk_pack(const struct disk_record *r, void *bytes);
/* Points r into the bytes.  EBADMSG: they are no record. */
int store_disk_unpack(const void *bytes, size_t len, struct disk_record *r);
/* The same of a record as stores of version 1 have them. */
int store_disk_unpack_1(const void *bytes, size_t len, struct disk_record *r);

#endif
