/* SPDX-License-Identifier: BSD-3-Clause */
/* io.h - reading and writing a routed file, as pread(2) and pwrite(2) say it.
 *
 * Its size is fixed: reads end there, writes beyond it get ENOSPC.
 */
#ifndef QM_PRELOAD_IO_H
#define QM_PRELOAD_IO_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "clients/preload/files.h"

/* How many of count bytes at offset a request may transfer, and by which device; or -1
 * with errno: EBADF (not open for that), EINVAL, ENOSPC, or there is no way to the
 * server. */
ssize_t qm_io_clamp(struct file *file, bool write, size_t count, off_t offset,
                    struct qm_device **device);

/* Whether writes are to be on stable storage when they are done; flags: of pwritev2().
 */
bool qm_io_fua(struct file *file, int flags);
/* flags are some that can be had; else errno is EOPNOTSUPP. */
bool qm_io_flags(int flags);

ssize_t qm_io_rw(struct file *file, bool write, void *buf, size_t count, off_t offset,
                 int flags);
ssize_t qm_io_rwv(struct file *file, bool write, const struct iovec *iov, int count,
                  off_t offset, int flags);
/* 0 or an errno value. */
int qm_io_flush(struct file *file);
int qm_io_allocate(struct file *file, int mode, off_t offset, off_t length);

/* The bytes of an iovec; -1 with EINVAL if it makes no sense. */
ssize_t qm_io_total(const struct iovec *iov, int count);

#endif
