/* SPDX-License-Identifier: BSD-3-Clause */
/* pidfile.h - the file that a command in the background writes its number to.
 *
 * Its name may be mistyped, or lie in a directory of another user.  Therefore only an
 * empty file or a pid file is written over, no link is followed, and only the file that
 * was opened is removed.
 */
#ifndef QMCTX_PIDFILE_H
#define QMCTX_PIDFILE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#pragma GCC visibility push(default)

struct qm_pidfile {
    int dir, fd; /* -1: none */
    char name[NAME_MAX + 1];
    dev_t dev;
    ino_t ino;
    bool ours; /* it was not there before, or has our number */
};

#define QM_PIDFILE_NONE ((struct qm_pidfile){.dir = -1, .fd = -1})

/* Opens the file, or makes it.  What is in it stays.  Returns NULL, or what is wrong
 * with it, a text that stays. */
const char *qm_pidfile_open(struct qm_pidfile *file, const char *path);
/* Writes this process' number. */
void qm_pidfile_write(struct qm_pidfile *file);
/* Removes the file if it is ours, and still there.  A signal handler may call it. */
void qm_pidfile_remove(const struct qm_pidfile *file);

#pragma GCC visibility pop

#endif
