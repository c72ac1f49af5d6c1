/* files.h - open routed files, by file descriptor.
 *
 * To the kernel the descriptor is a placeholder: an O_PATH descriptor, of a symbolic
 * link.  It can be duplicated, passed to fork() and closed as any, and whatever is done
 * with it that is not known here fails with EBADF: never is anything else read or
 * written than the device.
 *
 * A struct file is what open(2) calls an open file description: descriptors that were
 * duplicated share it.  Its memory stays one's for good, so that a thread that uses a
 * descriptor while another closes it finds an open file, if perhaps another one, as it
 * would with the kernel.
 */
#ifndef QM_PRELOAD_FILES_H
#define QM_PRELOAD_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "client-patches/preload/route.h"

struct file {
    struct route *route;
    _Atomic int flags;       /* of open(2) */
    _Atomic int refs;        /* descriptors */
    _Atomic unsigned losses; /* see qm_route_flush() */
    pthread_mutex_t lock;
    off_t at;          /* lock */
    int local;         /* lock; of the path itself, for locks; -1: none yet */
    struct file *next; /* the pool's lock; unused ones */
};

/* Descriptors that can be routed are below this. */
#define QM_MAX_FD 65536

extern _Atomic(struct file *) qm_files[QM_MAX_FD];

/* The routed file that fd is of, or NULL. */
static inline struct file *qm_file(int fd)
{
    return fd >= 0 && fd < QM_MAX_FD
               ? atomic_load_explicit(&qm_files[fd], memory_order_acquire)
               : NULL;
}

/* Opens the route's file; returns a descriptor, or -1 with errno, as open(2). */
int qm_file_open(struct route *route, int flags);
/* copy is another descriptor of file from now on.  Returns copy, or -1 with errno,
 * after which it is closed. */
int qm_file_dup(struct file *file, int copy);
/* fd is about to be closed. */
void qm_file_forget(int fd);

#endif
