/* SPDX-License-Identifier: BSD-3-Clause */
/* witness.h - the file that says which state of a tier's file is the right one
 * (format.h). */
#ifndef QM_TIER_WITNESS_H
#define QM_TIER_WITNESS_H

/* The witness file: read it, or replace it durably.  Return errno values; EEXIST: there
 * is a file that is neither empty nor a witness, or its own name with ".new" is one,
 * and stays as it is. */
struct qm_tier_testimony;
int qm_tier_witness_check(const char *path);
int qm_tier_witness_read(const char *path, struct qm_tier_testimony *t);
int qm_tier_witness_write(const char *path, const struct qm_tier_testimony *t);

#endif
