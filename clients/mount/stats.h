/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - what a mount counts, and how another process asks for it.
 *
 * Over the socket for contexts (quickmine-mount.h), so every program that may announce
 * contexts may ask.
 */
#ifndef QM_MOUNT_STATS_H
#define QM_MOUNT_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_device;

enum qm_mount_request {
    QM_MOUNT_READ,
    QM_MOUNT_WRITE,
    QM_MOUNT_FLUSH,
    QM_MOUNT_ALLOCATE, /* zeroing and holes */
    QM_MOUNT_REQUESTS
};

/* Counts of requests by kind since the file was mounted.  Any thread may add at any
 * time. */
struct qm_mount_counts {
    _Atomic uint64_t requests[QM_MOUNT_REQUESTS], failed[QM_MOUNT_REQUESTS];
    _Atomic uint64_t bytes[QM_MOUNT_WRITE + 1]; /* of those that did not fail */
    _Atomic uint64_t tagged; /* reads and writes in a context that was announced */
};

/* A request has ended with this errno value, or 0. */
void qm_mount_count(struct qm_mount_counts *counts, enum qm_mount_request kind,
                    size_t bytes, int error);

/* Puts the counts and those of the device into text, a line "name number" each, cut to
 * len. */
void qm_mount_counts_text(struct qm_mount_counts *counts,
                          const struct qm_device *device, char *text, size_t len);

/* Asks the mount whose socket for contexts is at path, and prints what it says.
 * Returns the exit status; has said what was wrong. */
int qm_mount_print_stats(const char *path, bool json);

#endif
