/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.h - the disk layer: what the store asks of whatever keeps its cold keys.
 *
 * A record is found by a name, which is made of its key and the key's hash (names.c)
 * and has 17 bytes at most.  A layer is used by one thread at a time.  To add one: a
 * file disk-NAME.c with a `const struct disk_ops`, and its line in disks[] of disk.c.
 */
#ifndef QM_STORE_DISK_H
#define QM_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of a hash, in the order of memcmp(); and how many of the first of them are the
 * name of a record that holds its key: of a billion keys, two have the same with a
 * chance of 1 in 10^11. */
#define DISK_HASH      16u
#define DISK_HASH_NAME 12u /* 16 in a store of version 1 */

/* A short key is in its record's name, and not in the record: so many of the first
 * bytes of its hash, which put names in an order as good as that of hashes, and the
 * key, of up to so many bytes.  Such a name is shorter than the others. */
#define DISK_PLACE     4u
#define DISK_SHORT_KEY 7u

_Static_assert(DISK_PLACE + DISK_SHORT_KEY < DISK_HASH_NAME, "kinds of names");

/* Of all records, names begin with the key's hash, so that a range of DISK_PLACE bytes
 * of hashes is a range of names.  The order is that of memcmp(), and a name comes after
 * one that it begins with. */
struct disk_name {
    uint8_t len;                  /* 0: comes before all names */
    uint8_t bytes[DISK_HASH + 1]; /* 1: for what comes next after a name */
};

struct disk; /* each layer's own */

struct disk_record {
    const struct disk_name *name; /* NULL, where that is said: it holds its key */
    uint64_t expires;
    uint32_t frequency;
    const void *key, *value;
    uint32_t value_len;
    uint16_t key_len;
    bool dead; /* of a change: the record is deleted, if it is there */
};

struct disk_config {
    const char *dir; /* of this layer alone */
    unsigned hash;   /* bytes of names that are hashes: DISK_HASH_NAME, or 16 */
    bool has_short;  /* there are names with keys, too */
    uint64_t cache;  /* bytes of memory that it may use */
    bool sync;       /* apply() makes durable */
    char *why;       /* what the layer's library says of an open that fails; or NULL */
    size_t why_len;
};

/* Called with a record's name and bytes, which are valid during the call.  Not 0 ends
 * the walk. */
typedef int disk_visit(void *opaque, const struct disk_name *name, const void *bytes,
                       size_t len);

/* Whether a store has names of that length. */
static inline bool store_disk_is_name(unsigned hash, bool has_short, size_t len)
{
    return len == hash ||
           (has_short && len > DISK_PLACE && len <= DISK_PLACE + DISK_SHORT_KEY);
}

/* Whether the key is in the name. */
static inline bool store_disk_has_key(const struct disk_name *name)
{
    return name && name->len < DISK_HASH_NAME;
}

static inline int store_disk_compare(const struct disk_name *a,
                                     const struct disk_name *b)
{
    int r = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);

    return r ? r : (a->len > b->len) - (a->len < b->len);
}

/* A name that a layer has found.  false: it is too long for one. */
static inline bool store_disk_set_name(struct disk_name *name, const void *bytes,
                                       size_t len)
{
    if (len > DISK_HASH)
        return false;
    *name = (struct disk_name){.len = (uint8_t)len};
    memcpy(name->bytes, bytes, len);
    return true;
}

struct disk_ops {
    const char *name;
    bool has_pages; /* of several records that are next to each other in their order */
    /* Bytes of cache that it makes use of while apply() need not make durable, at most;
     * 0: any. */
    uint64_t unsynced_most;
    uint64_t bytes_most; /* that it can hold; 0: any */
    /* Recovers after a crash.  EBADMSG: the files are damaged, for certain, and are set
     * aside.  Any other error leaves them where they are. */
    int (*open)(const struct disk_config *config, struct disk **d);
    /* *bytes is the caller's, to free().  ENOENT: none. */
    int (*get)(struct disk *d, const struct disk_name *name, void **bytes, size_t *len);
    /* Writes records, each as store_disk_pack() makes it, one a name, in ascending
     * order of names.  Carries out all or none, also after a crash, or those that it
     * carried out may be carried out again. */
    int (*apply)(struct disk *d, const struct disk_record *changes, size_t n);
    /* In ascending order of names, from `from` on, which may be none of them. */
    int (*walk)(struct disk *d, const struct disk_name *from, disk_visit *visit,
                void *opaque);
    /* Bytes that records take on disk; NULL: what was written tells. */
    uint64_t (*used)(struct disk *d);
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

/* A record's bytes on disk: a head with a checksum, the key unless its name has it, and
 * the value.  The name may be NULL. */
size_t store_disk_size(const struct disk_record *r);
void store_disk_pack(const struct disk_record *r, void *bytes);
/* Points r into the bytes, and the name.  EBADMSG: they are no record of that name. */
int store_disk_unpack(const struct disk_name *name, const void *bytes, size_t len,
                      struct disk_record *r);
/* The same of a record as stores of version 1 have them. */
int store_disk_unpack_1(const void *bytes, size_t len, struct disk_record *r);

#endif
