/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.h - a disk in memory that crashes, forgets and fails, as the tier's I/O.
 *
 * Two images: what the kernel has, and what would survive the machine.  A sector of 512
 * bytes that was written and not synced is in the first alone, or was written back by
 * chance. */
#ifndef QM_TESTS_TIER_DISK_H
#define QM_TESTS_TIER_DISK_H

#include "testing.h"
#include "tier/io.h"

struct disk {
    char *now, *durable;
    bool *dirty; /* a sector */
    uint64_t size, room;
    uint64_t seed;
    bool pages; /* sectors of a page are written back together, as a kernel does */

    long until_crash; /* writes and syncs that still happen; -1: no end */
    bool crashed;     /* from now on, nothing happens any more */
    long writes;      /* and syncs, since it was made */

    /* Percentages of operations that fail, and how. */
    unsigned reads_fail, writes_fail, syncs_fail, flips;
    int with;
    bool meta_too; /* not only data */
    bool no_resize;
    bool many; /* several reads at once, in any order, as by io_uring */
};

struct disk *disk_new(uint64_t room, uint64_t seed);
void disk_free(struct disk *disk);
struct qm_tier_io disk_io(struct disk *disk);

/* The process ends: the disk is as the kernel has it. */
void disk_restart(struct disk *disk);
/* The machine ends: of each sector that was not synced, what it was or what it is. */
void disk_reboot(struct disk *disk);

#endif
