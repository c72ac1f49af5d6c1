/* SPDX-License-Identifier: BSD-3-Clause */
/* qmstore.h - a key-value store whose hot keys are in memory and whose cold keys are on
 * disk.
 *
 * After "a caching platform for data-intensive applications" (the thesis): a key is in
 * memory or on disk.  What memory evicts goes to disk through a write buffer, is found
 * there behind a Bloom filter, and is restored to memory when it is hot again: under
 * LFU, when its frequency is at least the next victim's.
 *
 * A key is a sequence of 1 to QMSTORE_KEY_MAX bytes, a value of 0 to QMSTORE_VALUE_MAX.
 * Each key has one value: the newest that qmstore_put() has acknowledged, wherever it
 * lies.
 *
 * Partitions.  The keys are hashed to partitions, each with a lock, a share of the
 * memory and a directory of its own.  Operations on different partitions do not wait
 * for each other.
 *
 * Durability (enum qmstore_durability).  QMSTORE_SYNC: a change is on stable storage
 * when the function returns; a group of threads that change a partition at a time
 * shares a sync.  QMSTORE_LAZY: the end of the process loses at most the last
 * `log_buffer` bytes of changes of a partition, and the next qmstore_open() says how
 * many changes that were; the end of the machine loses what the kernel had not written.
 * QMSTORE_NONE: only qmstore_close() makes the contents outlive the process.  After a
 * crash, a partition holds a prefix of its changes in the order in which they were
 * made, never an older value of one key beside a newer one of another.
 *
 * Memory.  `memory` bounds what the store allocates, metadata, write buffer, filters
 * and the disk layer's cache included, but for the value that a call hands out.
 *
 * Threads: all functions but qmstore_open() and qmstore_close() may be called by any
 * number of threads.  There is no global state.  A child of fork() must not use a store
 * of its parent.
 *
 * Errors are errno values; 0 is success.  After an error of qmstore_put() or
 * qmstore_delete() the change may or may not have been made; it is made in memory for
 * the process that goes on, and qmstore_open() may find it or not.  ENOSPC, EIO: the
 * disk refuses; keys in memory are still served, and changes are accepted again when
 * the disk takes them.  EBADMSG: a record on disk is damaged.  Nothing here prints or
 * exits. */
#ifndef QM_STORE_H
#define QM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QMSTORE_KEY_MAX   65535u
#define QMSTORE_VALUE_MAX (UINT32_C(512) << 20)

#define QMSTORE_PUBLIC __attribute__((visibility("default")))

struct qmstore;

enum qmstore_durability { QMSTORE_SYNC, QMSTORE_LAZY, QMSTORE_NONE };

struct qmstore_config {
    const char *path; /* a directory: new, empty, or a store's */
    uint64_t memory;  /* bytes in all, 1 MiB at least for each partition; 64 MiB */
    unsigned
        partitions; /* 1 to 256; 1.  A store keeps the number that it was made with */
    const char *policy; /* "lru", "mru", "lfu" or "wtinylfu"; "wtinylfu" */
    const char *disk;   /* "bdb", "lmdb" or "files", as the store was made; "lmdb" */
    enum qmstore_durability durability; /* QMSTORE_LAZY */
    double false_positives; /* of the Bloom filter, 0 < p < 1; .01.  0: no filter */
    uint64_t write_buffer;  /* bytes of evicted values in memory; memory / 128, but
                               64 KiB a partition at least; less is used with
                               QMSTORE_NONE where page cache is short */
    uint64_t log_buffer;    /* bytes, of a partition; 256 KiB.  0: none */
    uint64_t disk_cache;    /* bytes of the disk layer's own cache; memory / 8, and with
                               lmdb and QMSTORE_NONE 512 KiB a partition at most */
    bool threadless; /* the store has no thread of its own: nothing happens but in calls
                      */

    /* Tells that something was set aside, lost or damaged.  Called in qmstore_open()
     * and in whatever call finds it, under a lock: it must not call the store. */
    void (*warn)(void *opaque, const char *message);
    void *opaque;
};

/* The defaults above; path is NULL. */
QMSTORE_PUBLIC void qmstore_config_init(struct qmstore_config *config);

/* Opens or makes a store.  What a crash left is recovered.  Files that are damaged are
 * set aside (renamed to NAME.damaged) with a warning, and the partition starts without
 * them; where that is not certain, as with EIO, nothing is moved.  Returns 0, or an
 * errno value with a sentence in err:
 *   EINVAL     a value is out of range, or another than the store was made with
 *   ENOTEMPTY  the directory is neither empty nor a store's; nothing was changed
 *   EBUSY      another process has the store open */
QMSTORE_PUBLIC int qmstore_open(const struct qmstore_config *config,
                                struct qmstore **store, char *err, size_t err_len);

/* Makes all contents durable, in any durability, and frees the store.  On an error it
 * is freed, too, and the next qmstore_open() recovers it as after a crash. */
QMSTORE_PUBLIC int qmstore_close(struct qmstore *store);

/* Opens a store for this process alone, as for a cache of what is elsewhere.  What an
 * earlier process left in the directory is removed first, if it was a store, whatever
 * its settings; durability is QMSTORE_NONE; qmstore_close() removes all but what says
 * that the directory is a store's.  If the disk refuses (ENOSPC, EIO, EBADMSG), keys on
 * disk are dropped, with a warning, and the store goes on without them: no such error
 * is returned. disk_most: bytes that keys on disk may take, about; some are dropped at
 * random when they take more.  0: any; QMSTORE_DISK_HALF: half of what is free when the
 * earlier contents have been removed. */
#define QMSTORE_DISK_HALF UINT64_MAX
QMSTORE_PUBLIC int qmstore_open_scratch(const struct qmstore_config *config,
                                        uint64_t disk_most, struct qmstore **store,
                                        char *err, size_t err_len);

/* The value of a key: *value is the caller's, to free(); a value has a NUL byte behind
 * it that does not count.  value may be NULL: whether there is the key.  *expires may
 * be NULL; it is set to when the key's life ends, in ms since 1970, or 0.  ENOENT:
 * none. */
QMSTORE_PUBLIC int qmstore_get(struct qmstore *store, const void *key, size_t key_len,
                               void **value, size_t *value_len, uint64_t *expires);

/* As qmstore_get(), but copies only the first bytes of the value to head, which has
 * room for size of them.  *value_len, if value_len is not NULL, is set to how long the
 * whole value is. */
QMSTORE_PUBLIC int qmstore_head(struct qmstore *store, const void *key, size_t key_len,
                                void *head, size_t size, size_t *value_len,
                                uint64_t *expires);

/* Sets a key.  expires: when its life ends, in ms since 1970; 0: never. */
QMSTORE_PUBLIC int qmstore_put(struct qmstore *store, const void *key, size_t key_len,
                               const void *value, size_t value_len, uint64_t expires);

/* Removes a key.  ENOENT: there was none. */
QMSTORE_PUBLIC int qmstore_delete(struct qmstore *store, const void *key,
                                  size_t key_len);

struct qmstore_change {
    const void *key, *value; /* value NULL: the key is removed, if there is one */
    size_t key_len, value_len;
    uint64_t expires;
};

/* Carries out n changes in their order, and makes them durable with one sync a
 * partition.  Those of one partition become visible together and survive a crash
 * together or not at all; those of different partitions do not. */
QMSTORE_PUBLIC int qmstore_batch(struct qmstore *store,
                                 const struct qmstore_change *changes, size_t n);

/* Calls each for all keys, in no order, once for each; for keys that are changed
 * meanwhile, with one of their values or not at all.  each is called without a lock and
 * may call the store.  What it returns, if not 0, ends the walk and is returned. */
QMSTORE_PUBLIC int qmstore_each(struct qmstore *store,
                                int (*each)(void *opaque, const void *key,
                                            size_t key_len, const void *value,
                                            size_t value_len, uint64_t expires),
                                void *opaque);

/* As qmstore_each(), a part of the keys at a time: begins where *cursor says, 0 at
 * first, and sets it to where to go on, 0 at the end.  A key that is there from the
 * first call to the last is told once.  On an error, and if `each` ends the walk,
 * *cursor stays: the next call tells the same part again.  EINVAL: there is no such
 * cursor. */
QMSTORE_PUBLIC int qmstore_scan(struct qmstore *store, uint64_t *cursor,
                                int (*each)(void *opaque, const void *key,
                                            size_t key_len, const void *value,
                                            size_t value_len, uint64_t expires),
                                void *opaque);

/* Removes all keys. */
QMSTORE_PUBLIC int qmstore_clear(struct qmstore *store);

/* Makes all that was changed before durable, in any durability but QMSTORE_NONE, where
 * it writes the write buffer to the disk layer. */
QMSTORE_PUBLIC int qmstore_flush(struct qmstore *store);

struct qmstore_stats {
    uint64_t keys;        /* in all */
    uint64_t memory_keys; /* of them in memory */
    uint64_t buffer_keys; /* in the write buffer */
    uint64_t disk_keys;   /* on disk */
    uint64_t memory;      /* bytes allocated */
    uint64_t disk;        /* bytes of the store's files */
    uint64_t gets, puts, deletes;
    uint64_t memory_hits, buffer_hits, disk_hits, misses; /* of gets and puts, where the
                                                             key was */
    uint64_t evictions, restorations;
    uint64_t disk_reads, false_positives; /* look-ups of the disk layer; those that the
                                             filter let through in vain */
    uint64_t disk_writes, disk_batches;   /* records, and writes of the buffer */
    uint64_t syncs, log_bytes;
    uint64_t filter_rebuilds, expired;
    uint64_t lost;    /* changes that an earlier process had acknowledged, and that are
                         not there; known after the end of a process only */
    uint64_t damaged; /* records on disk whose checksum is wrong: found at opening, and
                         each time that one was asked for */
    int error;        /* why changes are refused just now, or 0 */
};

QMSTORE_PUBLIC void qmstore_get_stats(struct qmstore *store,
                                      struct qmstore_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
