/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the store's files share.
 *
 * Layers, from the top:
 *   store.c      opening, configuration, the thread; format.c what a store is;
 *                keys.c calls with keys, which partition a key belongs to
 *   partition.c  where a key is and where it goes: memory, write buffer, disk
 *   policy-*.c   which entry leaves memory, and which may take its place
 *   table.c      entries by hash; their memory
 *   buffer.c     the write buffer: entries on their way to disk
 *   scratch.c    a store whose contents need not last: what it drops
 *   bloom.c      which keys cannot be on disk
 *   cold.c       how often keys on disk were asked for
 *   names.c      what records are called on disk
 *   log.c        the write-ahead log, recover.c its replay, state.c what the last
 *                process was
 *   disk-*.c     the disk layer
 *
 * A partition's lock protects all of it but the log's state, which has a lock of its
 * own (taken after the partition's) so that threads wait for a sync without the former.
 *
 * Invariants, under the partition's lock:
 * - A key has at most one entry.  Its value is the newest; only a key without an entry
 *   is looked for on disk.
 * - An entry is in memory (place < PLACE_BUFFER, known to the policy) or in the write
 *   buffer.  A tombstone is in the write buffer: the key's copy on disk is to be
 *   deleted.
 * - `on_disk`: there is a copy on disk, which counts as absent.  It is the same as the
 *   entry if that is `clean`: in memory, and not changed since it came from there or
 *   was written, so that it leaves memory without a write.  Else the copy is older, and
 *   is overwritten when the entry is written, or deleted when the key is.
 * - An entry that is not clean is in the log with its value.
 * - `used` is what the entries, the table and the filters allocate. */
#ifndef QM_STORE_INTERNAL_H
#define QM_STORE_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rowcache/store/arena.h"
#include "rowcache/store/disk.h"
#include "rowcache/store/log.h"
#include "rowcache/store/qmstore.h"

/* A key's 128 bits of XXH3.  What is inside of a partition depends on the first 96
 * alone: a layer may have no more of them, so that of a damaged record they are all
 * that is known. */
struct store_hash {
    uint64_t high; /* orders keys on disk and in the table */
    uint32_t low;
    uint32_t rest; /* chooses a partition, with low */
};

static inline bool store_hash_same(struct store_hash a, struct store_hash b)
{
    return a.high == b.high && a.low == b.low;
}

enum { PLACE_FIRST, PLACE_SECOND, PLACE_THIRD, PLACE_BUFFER };

struct entry {
    struct entry *next;          /* of the table's chain that it is in */
    struct entry *newer, *older; /* of the list that it is in */
    void *rank;                  /* of the policy lfu: which list */
    uint32_t frequency;
    uint32_t copy; /* clean: its copy's frequency */
    uint32_t value_len;
    uint16_t key_len;
    uint8_t place;
    bool on_disk : 1, dead : 1, clean : 1;
    bool ends : 1;     /* its key's life does: when that is, is behind the value */
    bool in_chunk : 1; /* see arena.h */
    bool changing : 1; /* a batch that the log has changes it: the log's is newer */
    bool found : 1;    /* while the filter is made and `doubtful`: it has a record */
    char bytes[];      /* key, value */
};

struct store_hash store_hash_of(const void *key, size_t len);

/* Not kept: that costs more memory than it saves time. */
static inline struct store_hash store_entry_hash(const struct entry *e)
{
    return store_hash_of(e->bytes, e->key_len);
}

static inline uint64_t store_entry_expires(const struct entry *e)
{
    uint64_t expires = 0;

    if (e->ends)
        memcpy(&expires, e->bytes + e->key_len + e->value_len, sizeof expires);
    return expires;
}

/* 0: it has none. */
static inline void store_entry_set_expires(struct entry *e, uint64_t expires)
{
    if (e->ends)
        memcpy(e->bytes + e->key_len + e->value_len, &expires, sizeof expires);
}

struct entry_list {
    struct entry *newest, *oldest;
    uint64_t bytes;
    size_t count;
};

void store_list_push(struct entry_list *l, struct entry *e);
void store_list_remove(struct entry_list *l, struct entry *e);
void store_list_replace(struct entry_list *l, struct entry *old, struct entry *e);

static inline size_t store_entry_size(const struct entry *e)
{
    return sizeof *e + e->key_len + e->value_len + (e->ends ? sizeof(uint64_t) : 0);
}

/* An entry's memory in bytes, with the arena's overhead. */
static inline uint64_t store_entry_bytes(const struct entry *e)
{
    return (store_entry_size(e) + STORE_ARENA_HEAD + 15) / 16 * 16;
}

enum { TABLE_SLOTS = 7 };

struct table_line {
    _Alignas(64) uint64_t slots[TABLE_SLOTS]; /* see table.c; 0: empty */
    struct entry *chain;                      /* empty while a slot is */
};

struct table {
    struct table_line *lines;
    uint64_t n; /* of them, less than 2^32 */
    size_t count;
    struct arena arena; /* of the entries */
};

/* bytes: that the arena's chunks take, at most. */
int store_table_init(struct table *t, uint64_t bytes);
void store_table_free(struct table *t); /* and all entries */
/* key NULL: any of that hash. */
struct entry *store_table_find(const struct table *t, struct store_hash hash,
                               const void *key, size_t key_len);
/* Whether there is an entry of a key with that hash. */
bool store_table_has(const struct table *t, struct store_hash hash);
/* May enlarge the table; if it cannot, its chains grow. */
void store_table_add(struct table *t, struct entry *e);
void store_table_remove(struct table *t, struct entry *e);
/* An entry that is not in the table, zeroed but for its bytes; NULL: no memory.  ends:
 * with room for when its life does. */
struct entry *store_entry_alloc(struct table *t, uint16_t key_len, uint32_t value_len,
                                bool ends);
void store_entry_free(struct table *t, struct entry *e);
void store_table_replace(struct table *t, struct entry *old, struct entry *e);

/* The line of hashes with that `high`. */
static inline uint64_t store_table_line(const struct table *t, uint64_t high)
{
    return (high >> 32) * t->n >> 32;
}

/* The highest `high` of a line. */
static inline uint64_t store_table_last(const struct table *t, uint64_t line)
{
    if (line + 1 == t->n)
        return UINT64_MAX;
    return ((((line + 1) << 32) + t->n - 1) / t->n << 32) - 1;
}

static inline uint64_t store_table_bytes(const struct table *t)
{
    return sizeof *t->lines * t->n;
}

/* The entries of a line, in no order, while the table does not change; but the entry
 * that came last may be freed. */
struct table_walk {
    const struct table_line *line;
    unsigned at;
    struct entry *next;
};

struct table_walk store_table_walk(const struct table *t, uint64_t line);
struct entry *store_table_next(struct table_walk *w); /* NULL: no more */

struct bloom {
    uint64_t *words;
    uint64_t bits; /* whole words */
    unsigned hashes;
    uint64_t capacity; /* keys for which the false positives are as configured */
    uint64_t added, removed;
};

/* capacity: 1024 at least.  p 0: no filter, which says yes to all. */
int store_bloom_init(struct bloom *b, uint64_t capacity, double p);
void store_bloom_free(struct bloom *b);
void store_bloom_add(struct bloom *b, struct store_hash hash);
bool store_bloom_may_have(const struct bloom *b, struct store_hash hash);
static inline uint64_t store_bloom_bytes(const struct bloom *b)
{
    return b->bits / 8;
}

/* How often keys on disk were asked for since their records were written. */
struct cold {
    uint32_t *slots;
    uint64_t buckets; /* 0: counts nothing */
};

#define COLD_MOST UINT32_C(1023) /* calls of a key */

/* For that many keys, but with no more bytes than that. */
int store_cold_init(struct cold *c, uint64_t keys, uint64_t bytes);
void store_cold_free(struct cold *c);
uint32_t store_cold_count(const struct cold *c, struct store_hash hash);
void store_cold_remove(struct cold *c, struct store_hash hash);
/* false: there is no room, or too many calls; nothing was changed. */
bool store_cold_add(struct cold *c, struct store_hash hash, uint32_t calls);
/* A key was asked for.  Without room, others' counts fade.  false: its count is at its
 * most, or there is no table. */
bool store_cold_seen(struct cold *c, struct store_hash hash);
uint64_t store_cold_bytes(const struct cold *c);

struct partition;

/* Which entry leaves memory.  All functions are called under the partition's lock. */
struct policy_ops {
    const char *name;
    bool counts;     /* an entry's frequency decides, so it is kept on disk, too */
    bool admits_new; /* a new key enters a full memory */
    int (*init)(struct partition *p);
    void (*destroy)(struct partition *p);
    void (*seen)(struct partition *p, struct store_hash hash); /* any access of a key */
    void (*add)(struct partition *p, struct entry *e);
    void (*remove)(struct partition *p, struct entry *e);
    void (*replace)(struct partition *p, struct entry *old, struct entry *e);
    void (*touch)(struct partition *p, struct entry *e); /* after its frequency grew */
    struct entry *(*victim)(struct partition *p);        /* NULL: memory is empty */
    /* Whether a key that is not in memory may take the victim's place. */
    bool (*admit)(struct partition *p, struct store_hash hash, uint32_t frequency);
};

extern const struct policy_ops store_lru, store_mru, store_lfu, store_wtinylfu;

/* What a partition of a store that is scratch (qmstore_open_scratch()) has more. */
struct scratch {
    int refused;      /* why the disk layer refused what it was asked; 0: it did not */
    uint64_t most;    /* bytes that records may take; 0: any */
    uint64_t batches; /* when these were looked at last */
    uint64_t bytes, records; /* that were written, in all: those with a value */
    uint64_t writes;         /* records when batches were */
    int lately;              /* refused, and nothing was written since */
    uint64_t warned;         /* when; ms */
    uint64_t tried;          /* to open the layer anew, in vain; ms */
    struct disk_name at;     /* up to here records were looked at */
    char path[];             /* the layer's directory */
};

struct partition {
    pthread_mutex_t lock;
    struct table table;
    const struct policy_ops *ops;
    void *policy;
    struct entry_list buffer; /* oldest first to disk */
    struct bloom bloom;
    struct cold cold; /* if the policy counts */
    const struct disk_ops *disk_ops;
    struct disk *disk;
    unsigned hash; /* of names on disk: as in disk_config */
    bool has_short;
    struct store_log log;
    int dir;
    bool logs; /* not in QMSTORE_NONE, nor while the log is replayed */

    uint64_t memory;         /* entries in memory, metadata included: at most */
    uint64_t buffer_bytes;   /* in the buffer: at most */
    unsigned buffer_shift;   /* of that, a 2^shift-th part at present (buffer.c) */
    unsigned buffer_calm;    /* so many times it was written without such reads */
    size_t just_read;        /* keys that went to the buffer just after a read */
    uint64_t used;           /* by entries in memory */
    uint64_t disk_copies;    /* records on disk, stale ones included */
    uint64_t damaged_copies; /* of them, when the filter was made */
    uint64_t shadowed;       /* of them, bytes of entries with on_disk */
    size_t dead, memory_keys;
    int disk_error;          /* of the last write to the disk layer */
    uint64_t rests_until;    /* the layer, by store_ticks(): see buffer.c */
    struct scratch *scratch; /* of a store that need not outlive its process; or NULL */
    bool doubtful;           /* one failed, so that `on_disk` may be without a copy */
    bool has_expiry;         /* keys may expire, so they are looked for */
    struct disk_name swept;  /* up to here */

    const struct qmstore_config *config;
    struct qmstore_stats stats; /* counters only */
};

/* Whether memory is over its bound with `more` bytes. */
static inline bool store_is_full(const struct partition *p, uint64_t more)
{
    return p->used + store_table_bytes(&p->table) + more > p->memory;
}

/* Whether the write buffer is over its bound. */
static inline bool store_buffer_is_full(const struct partition *p)
{
    return p->buffer.bytes > p->buffer_bytes >> p->buffer_shift;
}

uint64_t store_now(void);   /* ms since 1970 */
uint64_t store_ticks(void); /* ms, of a clock that nobody sets */
void store_warn(const struct qmstore_config *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* partition.c.  The lock is held, unless said otherwise. */
struct store_key {
    struct store_hash hash;
    const void *bytes;
    uint16_t len;
};

struct store_value {
    const void *bytes;
    uint32_t len;
    uint64_t expires;
};

/* Where a value goes; what is NULL is not told. */
struct store_out {
    void **copy;
    void *head;
    size_t head_size; /* that many bytes of it at most go to head */
    size_t *len;
    uint64_t *expires;
};

/* ENOENT: there is none. */
int store_partition_get(struct partition *p, const struct store_key *key,
                        const struct store_out *out);
/* frequency: for replay, or 0. */
int store_partition_put(struct partition *p, const struct store_key *key,
                        const struct store_value *value, uint32_t frequency);
int store_partition_delete(struct partition *p, const struct store_key *key);
/* Moves entries to the write buffer until memory is within its bound, and writes that
 * if it is over its own. */
int store_partition_balance(struct partition *p);
uint64_t store_partition_keys(const struct partition *p);
/* Looks for keys whose life has ended, in some of the partition at each call. */
void store_partition_sweep(struct partition *p);

/* names.c */
void store_hash_bytes(struct store_hash hash, uint8_t bytes[DISK_HASH]);
struct store_hash store_hash_from(const uint8_t bytes[DISK_HASH]);
struct disk_name store_name_of(const struct partition *p, const struct store_key *key);
/* Where names of keys begin whose hashes have the upper half of that `high`, or more.
 */
struct disk_name store_name_from(uint64_t high);
/* The first 96 bits of the hash of the key with that name.  Of a name that no key has,
 * a hash with the same upper half of `high` as the name. */
struct store_hash store_name_hash(const struct disk_name *name);
/* What the disk layer has for a name, with that hash.  EBADMSG: it is damaged, or
 * another key's. */
int store_record_unpack(const struct disk_name *name, struct store_hash hash,
                        const void *bytes, size_t len, struct disk_record *r);

/* Takes an entry away, wherever it is. */
void store_partition_drop(struct partition *p, struct entry *e);
/* store.c: opens the disk layer in `path`. */
int store_disk_open(struct partition *p, const char *path, char *why, size_t why_len);
/* Sets `memory` to what the rest leaves. */
void store_set_memory(struct partition *p);
uint64_t store_disk_cache(const struct qmstore_config *c); /* bytes, of a partition's */

/* buffer.c */
void store_buffer_add(struct partition *p, struct entry *e);    /* takes it over */
void store_buffer_remove(struct partition *p, struct entry *e); /* gives it back */
int store_buffer_write(struct partition *p);                    /* all of it */
int store_buffer_make_room(struct partition *p); /* writes it if it is full */
/* The layer, asked at that time of store_ticks(), said r: if it refused slowly, it
 * rests for a while, and is not to be asked. */
void store_disk_answered(struct partition *p, uint64_t began, int r);
bool store_disk_rests(const struct partition *p);
int store_filter_make(struct partition *p); /* from what is on disk */

/* scratch.c.  Removes all partitions; the directory stays a store's. */
int store_scratch_remove(int dir);
/* Of a partition that is scratch, when nobody has a pointer into it: if the disk layer
 * has refused something, what is on disk is dropped; if records take more than they
 * may, some of them.  All calls end with it before they unlock. */
void store_scratch_mend(struct partition *p);
/* Changes were carried out by the disk layer. */
void store_scratch_wrote(struct partition *p, const struct disk_record *changes,
                         size_t n);
/* Drops all keys. */
void store_scratch_clear(struct partition *p);

/* Whether the disk layer's error is not the caller's: what is on disk will be dropped.
 */
static inline bool store_scratch_takes(struct partition *p, int error)
{
    if (!p->scratch || error == ENOMEM)
        return false;
    p->scratch->refused = error;
    return true;
}

/* recover.c.  Opens the log in dir and replays it.  *set_aside: the partition's files
 * are damaged, or of a process that was killed in QMSTORE_NONE. */
int store_recover(struct partition *p, int dir, bool *set_aside, uint64_t *lost);
/* A new log with what is in memory; the write buffer goes to disk first. */
int store_checkpoint(struct partition *p);
int store_log_change(struct partition *p, const struct store_key *key,
                     const struct store_value *value, uint32_t frequency, bool more);

#endif
