/* SPDX-License-Identifier: BSD-3-Clause */
/* table-file.h - policy ppm's file in a rules directory (rules-dir.h).
 *
 * All numbers are little-endian.  A header of 64 bytes:
 *
 *    0  8  "QMPAIRS\n"
 *    8  4  version of the format: 1
 *   12  4  bytes of the device's name
 *   16  8  block size, bytes
 *   24  8  lines that the table can have (qm_markov_lines())
 *   32  8  keys            40  8  pairs
 *   48 16  zero
 *
 * then the device's name.  Then the keys, sorted by line, then tag, none twice, each of
 * them followed by its pairs, none twice:
 *
 *   key   line 8   tag 4   pairs 4 (1 to QM_MARKOV_FOUND_MAX)
 *   pair  block 6  count 2
 *
 * and last, in every version, 8 bytes: XXH3 (64 bits) of the header's 64 bytes, its
 * seed being XXH3 of all that is between, so that the file can be written in one go.
 *
 * A file is used if it is to the last byte what was written; what it says is checked
 * all the same, before any of it is used.  Pairs that were seen once are not saved: few
 * of them come back, and most pairs are such.  A table of another size than the one
 * that was saved adopts its pairs (qm_markov_adopt()).
 */
#ifndef QM_MARKOV_TABLE_FILE_H
#define QM_MARKOV_TABLE_FILE_H

#include "mining/markov/table.h"
#include "mining/core/prefetcher.h"
#include "mining/core/rules-dir.h"

/* Opens config->rules_dir and loads what is there.  Returns 0, with a sentence in err
 * if something was set aside, else ""; or an errno value with a sentence in err. */
int qm_markov_load(struct qm_markov *pairs, const struct qm_mining_config *config,
                   struct qm_rules_dir **dir, char *err, size_t len);

/* Reads the file that is open on fd, and closes that.  device, block_size: what the
 * pairs must be of (NULL, 0: anything).  Returns 0; EINVAL, with what is wrong with the
 * file in why, and pairs as they were; ENOMEM if there is no memory for a table as
 * large as the one that was saved. */
int qm_markov_read(struct qm_markov *pairs, int fd, const char *device,
                   uint64_t block_size, char *why, size_t len);

/* Saves; pairs may be used meanwhile.  One at a time.  Returns 0 or an errno value:
 * then what was saved before is still there. */
int qm_markov_save(const struct qm_markov *pairs, struct qm_rules_dir *dir);

#endif
