/* rules-dir.h - a directory in which rules survive a restart.
 *
 * The rules in use are in memory (rules.h).  The directory has a copy of them,
 * rules.db, which is always whole: a new one is written beside it, synced, and renamed
 * over it.  So whenever a server is killed, it finds the rules again as they were last
 * saved.
 *
 * rules.db is a Berkeley DB B-tree with a checksum on each page: the records of
 * record.h, each with its prefix's place in the order of last use in front (8 bytes,
 * little-endian), and one record that says what it is (magic, format version, block
 * size, device).  A file that is damaged, of another format version, device or block
 * size is *set aside*: renamed to rules.db.bad-1 ... -9 (the last is replaced when all
 * are there).
 *
 * The directory is locked (flock) as long as it is open: it has one server at a time.
 */
#ifndef QM_RULES_DIR_H
#define QM_RULES_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/prefetcher.h"

struct qm_rules_dir;
struct qm_rules_save;

/* Opens config->rules_dir, making it if it does not exist (but its parent must).
 * Returns 0, or an errno value with one sentence in err. */
int qm_rules_dir_open(const struct qm_mining_config *config, struct qm_rules_dir **dir,
                      char *err, size_t len);
void qm_rules_dir_close(struct qm_rules_dir *dir);

/* Finds out whether qm_rules_dir_open() would succeed now, and leaves all as it was.
 * Returns 0, or an errno value with one sentence in err. */
int qm_rules_dir_try(const char *name, char *err, size_t len);

/* Loads what is saved there, of more than max (0: no limit) prefixes only those used
 * last: calls prefix() for each of them, the least recently used first, and then
 * record() for each, sorted by a, b, until one returns non-zero.  The records are
 * checked: qm_record_decode() takes them, none has a block twice, and each of its
 * blocks is possible() after a, b (NULL: all are); else the file is set aside.  Returns
 * 0 (with a sentence in err if a file was set aside, else err is ""), or an errno value
 * (theirs, too) with a sentence in err. */
int qm_rules_dir_load(struct qm_rules_dir *dir, uint64_t max,
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
