/* SPDX-License-Identifier: BSD-3-Clause */
/* own-fd.h - descriptors that are ours, in a process that is not.
 *
 * A program may close all descriptors that it knows nothing of, and its next file gets
 * the number of one of ours.  What is done with that number then happens to its file.
 * So before anything is done that a file of the program's would suffer from, it is
 * looked at whether the number is still ours.  Another thread that closes descriptors
 * in just that moment is its program's to prevent.
 */
#ifndef QMCTX_OWN_FD_H
#define QMCTX_OWN_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* What tells a descriptor's file from all others, as long as it is open. */
struct qm_own_fd {
    uint64_t dev, inode;
};

static inline struct qm_own_fd qm_own_fd(int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return (struct qm_own_fd){0, 0};
    return (struct qm_own_fd){st.st_dev, st.st_ino};
}

/* The rest may be called in a child of fork(). */

static inline bool qm_own_fd_is(int fd, const struct qm_own_fd *own)
{
    struct stat st;

    return fd != -1 && fstat(fd, &st) == 0 && st.st_dev == own->dev &&
           st.st_ino == own->inode;
}

static inline void qm_own_fd_close(int fd, const struct qm_own_fd *own)
{
    if (qm_own_fd_is(fd, own))
        close(fd);
}

#endif
