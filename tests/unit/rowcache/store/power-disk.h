/* SPDX-License-Identifier: BSD-3-Clause */
/* power-disk.h - a disk that loses what was not synced when the machine ends.
 *
 * The store's file calls pass by here (linked with --wrap; see CMakeLists.txt).  What
 * they sync is kept, file contents and names apart.  When the machine ends, what a disk
 * could hold then is written to another directory: of each name, the synced or the
 * newest; of each sector, too. */
#ifndef QM_TESTS_STORE_POWER_DISK_H
#define QM_TESTS_STORE_POWER_DISK_H

#include <stdint.h>

extern struct power_disk {
    char base[80], hold[80], image[80]; /* the store, "" for none; links to inodes; what
                                           is left */
    int until_crash;     /* calls, until the machine ends; -1: it does not */
    uint64_t seed;       /* what is left depends on it */
    unsigned fail_after; /* renames that succeed, plus one; 0: all do */
} disk;

/* All that is in the store's directory is synced. */
void power_disk_sync(void);
/* The machine ends: leaves the image, and ends this process. */
void power_disk_end(void);

#endif
