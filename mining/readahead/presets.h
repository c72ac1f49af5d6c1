/* SPDX-License-Identifier: BSD-3-Clause */
/* presets.h - how far two published schemes read ahead.
 *
 * "linux": as Linux 5.5 does (mm/readahead.c; Wu, Xi, Xu, "On the design of a new Linux
 * readahead framework", 2008).  A miss that continues the read before it reads 4 or 2
 * times what was asked for (synchronous), and from then on each window is 4 or 2 times
 * the one before, up to a maximum of 32 pages (asynchronous).
 *
 * "device-aware": Chang et al., "Device-Aware Readahead for SSD-based caching storage"
 * (IoT servers, 2024, section 4.4).  Each miss reads 2 times what was asked for if it
 * lies on a disk, 1 time (nothing ahead) if on an SSD; later windows are 4 times the
 * one before on a disk, 2 times on an SSD.  If what would be read ahead lies on both,
 * only the first segment counts: a miss reads min(request, segment) ahead, and a later
 * window is min(2, request / segment) times the one before.
 *
 * The two caps of the latter are printed as 128 pages for SSDs and 8 for disks, but the
 * text and the results ("a larger maximum readahead size" for data on the disk) need it
 * the other way round; both can be set.  The formula of the later window of mixed
 * devices is as printed, though it makes the window smaller the longer the segment is.
 *
 * All sizes are blocks.
 */
#ifndef QM_PRESETS_H
#define QM_PRESETS_H

#include <stdbool.h>
#include <stdint.h>

/* Of what would be read ahead. */
struct qm_layout {
    bool ssd;         /* where the first block lies; else on a disk */
    bool mixed;       /* others lie elsewhere */
    uint32_t segment; /* blocks until the first that does */
};

struct qm_caps {
    uint32_t any;       /* of linux */
    uint32_t disk, ssd; /* of device-aware */
};

/* The number of blocks to read when a read of `request` blocks misses, these included.
 */
uint32_t qm_linux_first(uint32_t request, const struct qm_caps *caps);
uint32_t qm_aware_first(uint32_t request, const struct qm_layout *layout,
                        const struct qm_caps *caps);

/* The window that follows one of `window` blocks. */
uint32_t qm_linux_next(uint32_t window, const struct qm_caps *caps);
uint32_t qm_aware_next(uint32_t window, uint32_t request,
                       const struct qm_layout *layout, const struct qm_caps *caps);

#endif
