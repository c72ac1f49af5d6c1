/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-db.h - policy quickmine's file in a rules directory (rules-dir.h).
 *
 * The file is a Berkeley DB B-tree with a checksum over the whole of it (seal.h): the
 * records of record.h, each with its prefix's place in the order of last use in front
 * (8 bytes, little-endian), and one record that says what it is (magic, format version,
 * block size, device).
 */
#ifndef QM_RULES_DB_H
#define QM_RULES_DB_H

#include "mining/core/rules-dir.h"

struct qm_rules_save;

/* Loads what is saved there, of more than max (0: no limit) prefixes only those used
 * last: calls prefix() for each of them, the least recently used first, and then
 * record() for each, sorted by a, b, until one returns non-zero.  The records are
 * checked: qm_record_decode() takes them, none has a block twice, and each of its
 * blocks is possible() after a, b (NULL: all are); else the file is set aside.  Returns
 * 0 (with a sentence in err if a file was set aside, else err is ""), or an errno value
 * (theirs, too) with a sentence in err. */
int qm_rules_db_load(struct qm_rules_dir *dir, uint64_t max,
                     bool (*possible)(uint64_t a, uint64_t b, uint64_t c),
                     int (*prefix)(void *opaque, uint64_t a, uint64_t b),
                     int (*record)(void *opaque, uint64_t a, uint64_t b,
                                   const unsigned char *record, size_t size),
                     void *opaque, char *err, size_t len);

/* Saves: begin, then put() the records in order of a, b, then end(), which frees save;
 * with keep false, what was there before stays.  Return 0 or an errno value. */
int qm_rules_save_begin(struct qm_rules_dir *dir, struct qm_rules_save **save);
int qm_rules_save_put(struct qm_rules_save *save, uint64_t a, uint64_t b,
                      uint64_t place, const unsigned char *record, size_t size);
int qm_rules_save_end(struct qm_rules_save *save, bool keep);

#endif
