/* SPDX-License-Identifier: BSD-3-Clause */
/* witness.h - the file that says which state of a tier's file is the right one
 * (format.h).
 *
 * All return errno values; EEXIST: there is a file that is neither empty nor a witness,
 * or its own name with ".new" is one, and stays as it is. */
#ifndef QM_TIER_WITNESS_H
#define QM_TIER_WITNESS_H

#include <stdbool.h>

struct qm_tier_testimony;

/* A witness that is ours alone, by an OFD lock on the file, until it is unlocked or the
 * process ends.  It goes over to each file that takes the place of the one before. */
struct qm_tier_witness {
    int fd;    /* -1: it is not locked */
    bool made; /* the file was not there */
};
#define QM_TIER_WITNESS_NONE ((struct qm_tier_witness){.fd = -1})

/* Makes the file, empty, if it is not there, and locks it.  EBUSY: another has it.
 * Where it cannot be opened or locked, it stays unlocked, and the result is 0. */
int qm_tier_witness_lock(const char *path, struct qm_tier_witness *lock);
/* A file that was made and not written to is removed. */
void qm_tier_witness_unlock(const char *path, struct qm_tier_witness *lock);

int qm_tier_witness_check(const char *path);
/* ENOENT: it is not there, or empty. */
int qm_tier_witness_read(const char *path, struct qm_tier_testimony *t);
/* Replaces it durably, by one that is locked, too.  lock may be NULL. */
int qm_tier_witness_write(const char *path, const struct qm_tier_testimony *t,
                          struct qm_tier_witness *lock);

#endif
