/* SPDX-License-Identifier: BSD-3-Clause */
/* old.h - what is there already where a recording is to be written. */
#ifndef QM_TRACE_OLD_H
#define QM_TRACE_OLD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Whether a recording may take the place of what path is and fd has open for writing: a
 * file that is empty or a trace, plain or compressed; a pipe, terminal or the like.
 * Returns 0, or -1 with a sentence in err. */
int qm_old_check(int fd, const char *path, char *err, size_t len);

/* The sentence of a path that open(2) did not open for a recording, without waiting
 * (O_NONBLOCK), with this errno value. */
void qm_old_unopened(const char *path, int error, char *err, size_t len);

/* Whether what the path names is not ours to rename: what a descriptor is of, as
 * standard output. */
bool qm_old_is_anothers(const char *path);

/* Gives the file that fd has open the mode, owner and group that another one has.
 * False: another owner or group, and no rights for others then. */
bool qm_old_rights(int fd, const struct stat *old);

/* A file that has made way for another of its name. */
struct qm_old {
    int dir;    /* of both; -1: none has */
    char *name; /* within it */
    char *kept; /* the old one's name now */
};

/* Renames the regular file that path is and fd has open and locked (flock) to PATH.1,
 * or the next number that is free, and makes a new one under the name, with the same
 * mode, owner and group.  A symbolic link stays: what it leads to is renamed.  Nothing
 * that qm_old_is_anothers() is.  Returns the new file's descriptor, open for
 * writing; -1: the file keeps its name, with a sentence in err, or "" if it is one that
 * is not renamed. */
int qm_old_keep(struct qm_old *old, int fd, const char *path, char *err, size_t len);
/* Gives the old file its name back, if the new one, which fd has open, is still empty.
 */
void qm_old_restore(struct qm_old *old, int fd);
/* Frees what is in old.  Before qm_old_keep() it is {.dir = -1}. */
void qm_old_forget(struct qm_old *old);

#endif
