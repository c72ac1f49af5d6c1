/* SPDX-License-Identifier: BSD-3-Clause */
/* dead.h - mounts whose program is gone. */
#ifndef QM_MOUNT_DEAD_H
#define QM_MOUNT_DEAD_H

#include <stdbool.h>

/* Unmounts what is mounted at path if that is a mount of ours whose program is gone:
 * each use of it fails with ENOTCONN, and says so.  Anything else, a living mount above
 * all, is left as it is.  Returns whether path can be looked at again. */
bool qm_mount_clear_dead(const char *path);

#endif
