/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - how rules are written as Berkeley DB's keys and data.
 *
 * Key: a and b, each as one byte that says how many bytes follow, and these, the most
 * significant first and without leading zeros.  Keys compare bytewise as (a, b) does
 * numerically, and common block numbers take 3 or 4 bytes.
 *
 * Record: the number of suffixes, then block, support and grace of each in the order of
 * struct qm_suffixes; all as base-128 numbers, the least significant 7 bits first.
 * Neither depends on the machine's byte order.
 */
#ifndef QM_RECORD_H
#define QM_RECORD_H

#include "mining/quickmine/suffixes.h"

#define QM_KEY_MAX 18

/* Writes the key and returns its size. */
size_t qm_key_encode(uint64_t a, uint64_t b, unsigned char key[QM_KEY_MAX]);
/* Returns 0, or EINVAL if it is not a key. */
int qm_key_decode(const unsigned char *key, size_t size, uint64_t *a, uint64_t *b);

/* The most bytes that a record of n suffixes takes. */
size_t qm_record_bound(size_t n);
/* Writes the record (qm_record_bound() bytes must be there) and returns its size. */
size_t qm_record_encode(const struct qm_suffixes *list, unsigned char *record);
/* Replaces list by the record's.  Returns 0; EINVAL if it is not a record, complete and
 * in order; or ENOMEM.  list is empty then. */
int qm_record_decode(const unsigned char *record, size_t size,
                     struct qm_suffixes *list);

/* How many suffixes the record has, from its first bytes; 0 if it is none. */
uint64_t qm_record_count(const unsigned char *record, size_t size);
/* The record's first blocks, at most max, from its first size bytes. */
unsigned qm_record_top(const unsigned char *record, size_t size, uint64_t *blocks,
                       unsigned max);

#endif
