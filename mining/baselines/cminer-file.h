/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-file.h - a file of C-Miner*'s rules.
 *
 * All numbers are little-endian.  A header of 96 bytes:
 *
 *    0  8  "QMCMINER"
 *    8  4  version of the format: 1
 *   12  4  level at which the trace was mined (enum qm_level)
 *   16  8  block size, bytes
 *   24  4  max_gap            32  4  min_support
 *   28  4  segment            36  4  min_confidence, percent
 *   40  8  accesses mined     48  8  segments that they were cut into
 *   56  8  blocks             64  8  prefixes            72  8  rules
 *   80 16  zero
 *
 * then the blocks, 8 bytes each, sorted, none twice: a block's number is its place
 * here. Then the prefixes, sorted by a, then b, each of them followed by its rules,
 * highest support first, of equals the lower block:
 *
 *   prefix  a 4   b + 1 4 (0: the prefix is a alone)   support 4   rules 4 (at least 1)
 *   rule    c 4   support 4
 *
 * and last 8 bytes: XXH3 (64 bits) of the header, its seed being XXH3 of all that is
 * between, so that it can be written in one go.  A file is taken if it is to the last
 * byte what was written; still, what it says is checked as it is read.
 */
#ifndef QM_CMINER_FILE_H
#define QM_CMINER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/baselines/cminer-rules.h"
#include "mining/baselines/cminer.h"
#include "mining/core/context.h"

/* What a file says of itself. */
struct qm_cminer_info {
    enum qm_level level;
    uint64_t block_size;
    struct qm_cminer_config config; /* memory is not in the file */
    uint64_t accesses, segments, blocks, prefixes, rules;
};

struct qm_cminer_writer;

/* Begins a file at path: level, block_size and config of info say what it is of, db is
 * the numbered database that is mined.  It is written beside path and takes its place
 * when it is whole; what is at path must be a plain file, if anything.  Returns 0, or
 * an errno value with one sentence in err. */
int qm_cminer_write(const char *path, const struct qm_cminer_info *info,
                    const struct qm_cminer_db *db, struct qm_cminer_writer **writer,
                    char *err, size_t len);

/* The next prefix; writer is a struct qm_cminer_writer: for qm_cminer_mine().  Returns
 * 0 or an errno value. */
int qm_cminer_write_prefix(void *writer, const struct qm_cminer_prefix *prefix);

/* With keep, completes the file, and syncs it; else removes it, and what was at path
 * stays.  Frees writer.  Returns 0, or an errno value with one sentence in err; then
 * what was at path is still there. */
int qm_cminer_write_end(struct qm_cminer_writer *writer, bool keep, char *err,
                        size_t len);

/* The size of a file, in bytes. */
uint64_t qm_cminer_file_size(uint64_t blocks, uint64_t prefixes, uint64_t rules);

/* Reads a file of rules between blocks of block_size bytes (0: any), for at most degree
 * candidates.  Returns 0, or an errno value with one sentence in err: EINVAL if it is
 * no such file, damaged, of another version or block size. */
int qm_cminer_read(const char *path, uint64_t block_size, unsigned degree,
                   struct qm_cminer_rules **rules, struct qm_cminer_info *info,
                   char *err, size_t len);

#endif
