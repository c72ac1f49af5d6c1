/* SPDX-License-Identifier: BSD-3-Clause */
/* family.h - which of the processes that fork() from each other may retain writes.
 *
 * A device keeps a copy of what has been written and not flushed, and sends it again to
 * a server that comes back without it.  That is right as long as one process writes: a
 * copy that is sent again could overwrite what another process has written since, what
 * it has read could become older again, and its fsync(2) would not cover the copy.
 *
 * Therefore only the process in which the library was loaded retains writes, and only
 * until the first of its children connects.  From then on each write of all of them is
 * stable when it is answered (FUA), and no process retains anything.  The processes
 * meet in memory that they share: a flag which such a child sets, and a mutex which the
 * process that retains holds as long as it does.  The mutex is robust, so that it is
 * free when that process has ended, however it did.
 */
#ifndef QM_PRELOAD_FAMILY_H
#define QM_PRELOAD_FAMILY_H

#include <stdbool.h>

#include "clients/libqmctx/device.h"

/* One route's. */
struct family;

/* count of them, shared with all children that there will be; NULL: there is no memory.
 * Called once, in the process in which the library is loaded. */
struct family *qm_families_new(unsigned count);
struct family *qm_family_of(struct family *families, unsigned i);

/* Whether a child has ever connected. */
bool qm_family_is_large(struct family *family);

/* By the process that retains, for a device of which it has used nothing yet: from now
 * on it does, until a child connects.  0, or an errno value; then the device is of no
 * use. */
int qm_family_watch(struct family *family, struct qm_device *device);

/* By a child, before it connects: waits until no process retains anything, or will.
 * wait: as of struct qm_device_options.  0, or EIO: not within that time. */
int qm_family_join(struct family *family, uint32_t wait);

#endif
