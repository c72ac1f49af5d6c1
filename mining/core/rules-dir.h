/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-dir.h - a directory in which rules survive a restart.
 *
 * The rules in use are in memory.  The directory has a copy of them, the file rules.db,
 * which is always whole: a new one is written beside it, synced, and renamed over it.
 * So whenever a server is killed, it finds the rules again as they were last saved.
 *
 * What is in the file is the policy's affair: see table-file.h (policy ppm) and
 * rules-db.h (policy quickmine).  A file that is damaged, of another policy, format
 * version, device or block size is *set aside*: renamed to rules.db.bad-1 ... -9 (the
 * last is replaced when all are there).
 *
 * The directory is locked (flock) as long as it is open: it has one server at a time.
 */
#ifndef QM_RULES_DIR_H
#define QM_RULES_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

/* The first bytes of policy ppm's file, which policy quickmine recognizes. */
#define QM_MARKOV_MAGIC      "QMPAIRS\n"
#define QM_MARKOV_MAGIC_SIZE (sizeof QM_MARKOV_MAGIC - 1)

struct qm_rules_dir;

/* Opens config->rules_dir, making it if it does not exist (but its parent must).
 * Returns 0, or an errno value with one sentence in err. */
int qm_rules_dir_open(const struct qm_mining_config *config, struct qm_rules_dir **dir,
                      char *err, size_t len);
void qm_rules_dir_close(struct qm_rules_dir *dir);

/* Finds out whether qm_rules_dir_open() would succeed now, and leaves all as it was.
 * Returns 0, or an errno value with one sentence in err. */
int qm_rules_dir_try(const char *name, char *err, size_t len);

/* What the rules are of: the device's name (NULL: any) and the block size (0: any). */
const char *qm_rules_dir_device(const struct qm_rules_dir *dir);
uint64_t qm_rules_dir_block_size(const struct qm_rules_dir *dir);

/* Says in why what is wrong with rules of a device (n bytes, without a zero at their
 * end) and block size where those of wanted and block_size are expected (NULL, 0: any);
 * "" if nothing is. */
void qm_rules_compare(const char *wanted, uint64_t block_size, const char *device,
                      size_t n, uint64_t device_block_size, char *why, size_t len);

/* Opens rules.db for reading.  Returns 0 and *fd, ENOENT if there is none, or another
 * errno value.  What is wrong with it, if that is for setting it aside, is said in why;
 * else why is "". */
int qm_rules_dir_read(struct qm_rules_dir *dir, int *fd, char *why, size_t len);

/* Renames rules.db, and says so in err, with why.  Returns 0, or an errno value if it
 * cannot be renamed. */
int qm_rules_dir_set_aside(struct qm_rules_dir *dir, const char *why, char *err,
                           size_t len);

/* Says in err that rules.db cannot be loaded, for that errno value; returns it. */
int qm_rules_dir_explain(const struct qm_rules_dir *dir, int error, char *err,
                         size_t len);

/* The absolute paths of rules.db and of the file that is written beside it. */
int qm_rules_dir_path(const struct qm_rules_dir *dir, bool new, char *path, size_t len);

/* Saving: creates the new file and opens it for reading and writing; or removes what is
 * there of one. */
int qm_rules_dir_create(struct qm_rules_dir *dir, int *fd);
int qm_rules_dir_remove_new(struct qm_rules_dir *dir);

/* Puts the new file, which is whole and synced, in the place of rules.db.  Returns 0 or
 * an errno value. */
int qm_rules_dir_commit(struct qm_rules_dir *dir);

#endif
