/* SPDX-License-Identifier: BSD-3-Clause */
/* files.h - open routed files, by file descriptor.
 *
 * To the kernel the descriptor is a placeholder: an O_PATH descriptor, of a symbolic
 * link.  It can be duplicated, passed to fork() and closed as any, and whatever is done
 * with it that is not known here fails with EBADF: never is anything else read or
 * written than the device.
 *
 * A descriptor can also be closed, and its number used again, where this library does
 * not see it: by a raw system call, or by a child of vfork(), which has descriptors of
 * its own but shares all memory, this table included.  The table is therefore a hint,
 * and qm_file_get() asks the kernel before anything is done with a routed file:
 *
 *   - In a process other than the table's, no descriptor is routed, and the table is
 *     never changed.  Calls there go to the kernel, for which the descriptor is the
 *     placeholder.
 *   - A descriptor that is no placeholder any more is not routed.
 *
 * A struct file is what open(2) calls an open file description: descriptors that were
 * duplicated share it.  Descriptors and calls that use it hold references.  Its memory
 * is never freed, so that a thread that has found it in the table can look whether it
 * is still there.
 *
 * No function here but qm_file_open() takes a lock or allocates memory: close(), dup()
 * and their like may be called in a signal handler, and in a child of fork() or vfork()
 * whatever other threads of the parent were doing.
 */
#ifndef QM_PRELOAD_FILES_H
#define QM_PRELOAD_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "clients/preload/route.h"

struct file {
    struct file *older; /* constant; in the list of all files */
    struct route *route;
    _Atomic int flags;       /* of open(2) */
    _Atomic int refs;        /* 0: free */
    _Atomic unsigned losses; /* see qm_device_flush() */
    _Atomic int local;       /* of the path itself, for locks; -1: none yet */
    pthread_mutex_t lock;    /* held while reading or writing at the position */
    off_t at;                /* lock */
};

/* Descriptors that can be routed are below this. */
#define QM_MAX_FD 65536

/* Whether the calling process is the one that the table is of.  False in a child of
 * vfork() or clone(2), until it executes another program.  Costs a system call. */
bool qm_files_ours(void);

extern _Atomic(struct file *) qm_files[QM_MAX_FD]; /* private to the two below */
struct file *qm_file_find(int fd);
void qm_file_put(struct file *file);

/* The routed file that fd is of, with a reference, or NULL. */
static inline struct file *qm_file_get(int fd)
{
    return fd >= 0 && fd < QM_MAX_FD &&
                   atomic_load_explicit(&qm_files[fd], memory_order_relaxed)
               ? qm_file_find(fd)
               : NULL;
}

static inline void qm_file_put_(struct file **file)
{
    if (*file)
        qm_file_put(*file);
}

/* Declares a variable: the routed file that a descriptor is of, or NULL.  The reference
 * ends with the block. */
#define QM_FILE(name, fd)                                                              \
    struct file *name __attribute__((cleanup(qm_file_put_))) = qm_file_get(fd)

static inline bool qm_is_routed(int fd)
{
    QM_FILE(file, fd);

    return file != NULL;
}

/* Opens the route's file; returns a descriptor, or -1 with errno, as open(2). */
int qm_file_open(struct route *route, int flags);
/* copy is another descriptor of file from now on.  Returns copy, or -1 with errno,
 * after which it is closed. */
int qm_file_dup(struct file *file, int copy);
/* fd is about to be closed, or is something else now. */
void qm_file_forget(int fd);

#endif
