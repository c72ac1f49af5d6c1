/* SPDX-License-Identifier: BSD-3-Clause */
/* volume.h - an image of a Ceph cluster, opened and owned.
 *
 * Invariants:
 * - A volume that is opened for writing with QMR_LOCK_EXCLUSIVE holds the image's
 *   exclusive lock from before its first request until it is closed.  It does not hand
 *   the lock over to others that ask for it.
 * - When it finds that the lock is lost, all its requests fail with ESHUTDOWN from then
 *   on, also those that Ceph would still carry out.  It never takes the lock again.
 * - There is no cache here (librbd's is off): what was written has reached Ceph when
 * the write ends, and a flush waits for nothing else.
 *
 * Threads: requests of any number of threads at a time.  A volume has threads of its
 * own, so it is opened after the last fork.  Nothing here prints: see struct
 * qmr_events.
 */
#ifndef QM_RBD_VOLUME_H
#define QM_RBD_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugins/rbd/config.h"

struct qmr_volume;

/* What happens to a volume, told from threads of its own. */
struct qmr_events {
    void (*say)(const char *text); /* a line for the log */
    /* The lock: after its line, and each second again until the volume is closed, with
     * the number of these seconds. */
    void (*lost)(unsigned seconds);
};

/* Connects to the cluster and opens the image that the configuration names; takes the
 * lock if it says so.  Returns 0 and the volume, or -1 and a sentence in err[len]. */
int qmr_volume_open(const struct qmr_config *config, const struct qmr_events *events,
                    struct qmr_volume **volume, char *err, size_t len);

/* Whether qmr_volume_open() would succeed now: does all of it but taking the lock.
 * Leaves Ceph's threads behind, so it is for a process that ends afterwards. */
int qmr_volume_probe(const struct qmr_config *config, char *err, size_t len);

/* Waits for the requests that run, releases the lock, and disconnects. */
void qmr_volume_close(struct qmr_volume *volume);

/* Who owned it before, and who owns it: see plugins/volume-state.h. */
int qmr_volume_state(const struct qmr_volume *volume, char *before, char *known,
                     size_t len);

/* Whether the volume is still the owner, as the cluster says now: 0, or an errno; 0
 * without a lock.  A server that was stopped for a while does not know it itself. */
int qmr_volume_verify(struct qmr_volume *volume);

/* Its size in bytes, which others may change at any time. */
uint64_t qmr_volume_size(const struct qmr_volume *volume);

/* A request; each returns 0 or an errno.  Bytes beyond the image's end are EINVAL. */
int qmr_volume_read(struct qmr_volume *volume, void *data, uint32_t count,
                    uint64_t offset);
int qmr_volume_write(struct qmr_volume *volume, const void *data, uint32_t count,
                     uint64_t offset);
int qmr_volume_flush(struct qmr_volume *volume);
/* Parts of objects may keep their bytes. */
int qmr_volume_trim(struct qmr_volume *volume, uint32_t count, uint64_t offset);
/* allocate: not by a hole. */
int qmr_volume_zero(struct qmr_volume *volume, uint32_t count, uint64_t offset,
                    bool allocate);

/* Calls extent() for consecutive extents from offset on, of count bytes together; a
 * hole reads as zeros.  extent() returns 0 to go on.  Returns 0 or an errno. */
int qmr_volume_extents(struct qmr_volume *volume, uint32_t count, uint64_t offset,
                       int (*extent)(void *opaque, uint64_t offset, uint64_t count,
                                     bool hole),
                       void *opaque);

#endif
