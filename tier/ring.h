/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - several reads of a file at once by io_uring, where the kernel allows it.
 *
 * A tier has a few rings.  One thread at a time uses a ring: it submits all of its
 * reads, and waits for all of them, so nothing is in flight when it gives the ring
 * back, nor when the rings are freed, and no buffer is written to any more.  A thread
 * that finds no ring free reads in another way, and so do all where there are none: a
 * kernel without, kernel.io_uring_disabled, a container's seccomp filter, a limit of
 * locked memory, or a build without liburing.
 *
 * What a ring did not read, or not whole, is read by pread(), whose result counts;
 * EIO is final.  A ring that the kernel has no memory for at the moment (EAGAIN, EBUSY,
 * ENOMEM) is put aside: the next few dozen reads that look for one do without it, and
 * then it is made again.  One that the kernel refuses for another reason is not used
 * again.
 */
#ifndef QM_TIER_RING_H
#define QM_TIER_RING_H

#include "tier/io.h"

#define QM_TIER_RINGS      8
#define QM_TIER_RING_DEPTH 64 /* reads at a time */

struct qm_tier_rings;

/* Makes as many rings as can be had, and tries one on fd, which can be read from.
 * NULL: there are none. */
struct qm_tier_rings *qm_tier_rings_new(int fd);
void qm_tier_rings_free(struct qm_tier_rings *rings); /* NULL: nothing */
unsigned qm_tier_rings_count(const struct qm_tier_rings *rings);
/* Bytes that they have allocated. */
uint64_t qm_tier_rings_memory(const struct qm_tier_rings *rings);

/* See read_many() in io.h. */
bool qm_tier_rings_read(struct qm_tier_rings *rings, int fd,
                        const struct qm_tier_io_read *reads, size_t n,
                        qm_tier_io_done *done, void *opaque);

#endif
