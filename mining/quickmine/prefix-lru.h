/* SPDX-License-Identifier: BSD-3-Clause */
/* prefix-lru.h - which prefixes there are, in the exact order of their last use.
 *
 * In memory, beside Berkeley DB: 32 bytes a prefix, two in a cache line, and a hash
 * table of numbers, 8 bytes each.  It makes least-recently-used exact at the cost of no
 * record written for a look-up, and what is not there is known without asking Berkeley
 * DB.  A number in the table has its hash beside it, so that neither a search nor a
 * removal reads the entries of others.
 *
 * A prefix has a number (id), from 1 up, for as long as it is there.  Number 0 is the
 * list's head.  A *mark* is an entry of the list that is no prefix: it stands for a
 * time, and what is older in the list was last used before it (the time-outs of ATC'08
 * §4.2).
 *
 * Where a prefix's record is, an entry says for rules-store.c; here is known only
 * whether it is in memory, and about where in the order of use such ones begin.
 *
 * No locking.  The hash has a random seed, so that nobody can choose block numbers that
 * collide.
 */
#ifndef QM_PREFIX_LRU_H
#define QM_PREFIX_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_lru_entry {
    uint64_t a, b;         /* of a mark: its time, and the next newer mark */
    uint32_t older, newer; /* of a free entry: the next free one in older */
    uint32_t record;       /* in memory: its number (cells.h); else 0 */
    uint32_t size : 30;    /* its bytes */
    uint32_t stored : 1;   /* Berkeley DB has one, too */
    uint32_t changed : 1;  /* the one in memory is newer than that */
};

struct qm_lru_slot {
    uint32_t id; /* 0: empty */
    uint32_t hash;
};

struct qm_lru {
    struct qm_lru_entry *entries; /* [0] is the head: newer leads to the oldest */
    uint32_t used, cap;           /* entries that were ever in use, the head included */
    uint32_t free;                /* a list, 0: none */
    struct qm_lru_slot *table;    /* linear probing */
    uint32_t mask;                /* table size - 1 */
    uint64_t count;               /* prefixes */
    uint32_t first_mark, last_mark;
    uint32_t cold; /* what is older than this entry has no record in memory; 0: all */
    uint64_t seed;
};

/* expected: about how many prefixes there will be (room is made at once for up to a
 * million, so that growing never takes long); 0: not known.  Returns 0 or ENOMEM. */
int qm_lru_init(struct qm_lru *lru, uint64_t expected, uint64_t seed);
void qm_lru_fini(struct qm_lru *lru);

/* The number of prefix a & b, or 0. */
uint32_t qm_lru_find(const struct qm_lru *lru, uint64_t a, uint64_t b);

/* Adds a prefix that is not there as the most recently used, without a record; its
 * number goes to *id.  Returns 0 or ENOMEM. */
int qm_lru_insert(struct qm_lru *lru, uint64_t a, uint64_t b, uint32_t *id);

/* Makes it the most recently used. */
void qm_lru_touch(struct qm_lru *lru, uint32_t id);

void qm_lru_remove(struct qm_lru *lru, uint32_t id);

/* The least recently used prefix, or 0.  Drops marks that nothing is older than. */
uint32_t qm_lru_oldest(struct qm_lru *lru);

/* The least recently used prefix that has its record in memory, or 0. */
uint32_t qm_lru_oldest_record(struct qm_lru *lru);

/* Marks the time: what is used from now on is newer.  Returns 0 or ENOMEM. */
int qm_lru_mark(struct qm_lru *lru, uint64_t time);

/* The least recently used prefix if it was last used before a mark whose time is at
 * least `after` before now; else 0. */
uint32_t qm_lru_expired(struct qm_lru *lru, uint64_t now, uint64_t after);

/* Bytes held, as far as they are in use. */
size_t qm_lru_bytes(const struct qm_lru *lru);

/* All prefixes, the oldest first.  Two steps, because only the first needs whatever
 * lock protects lru: qm_lru_copy() copies it raw, and qm_lru_list() makes the list of
 * that and frees the copy.  The list is the caller's, freed with free().  Return 0 or
 * ENOMEM. */
struct qm_lru_place {
    uint64_t a, b;
    uint64_t place; /* from the oldest on: 0, 1, ... */
};
struct qm_lru_copy;
int qm_lru_copy(const struct qm_lru *lru, struct qm_lru_copy **copy);
int qm_lru_list(struct qm_lru_copy *copy, struct qm_lru_place **list, size_t *n);

#endif
