/* SPDX-License-Identifier: BSD-3-Clause */
/* volume.h - whether another program can have changed the volume below while its tier
 * was not open (tier/verify.c).
 *
 * All that nbdkit tells a filter about the layers below are their parameters.  There
 * are two proofs that no other program has changed the volume:
 *
 *   - nbdkit's file plugin serves a regular file whose change time is still the
 *     recorded one.  The kernel sets it with every change, by any program, and no
 *     program can set it back.  The file must lie on ext2, ext3, ext4, xfs, btrfs, f2fs
 *     or zfs: what other file systems do with change times is not believed.
 *   - The plugin says so itself: see plugins/volume-state.h.
 *
 * Both hold only if no other filter in this process keeps data of its own, as cow and
 * cache do.  In all other cases nothing is known, and the tier's blocks are compared
 * with the volume.
 *
 * The change time does not show: a change in the tick of the clock (10 ms at most)
 * in which it was recorded, which is why it is recorded later; a program that has had
 * the file mapped, writable, since before; a machine that crashes within the seconds
 * that the file system takes to write a time that another program's change had set,
 * after the data was written; a clock that is set back and comes to the very nanosecond
 * again.
 */
#ifndef QMS_VOLUME_H
#define QMS_VOLUME_H

#include <stdbool.h>

#include "tier/tier.h"

/* The states of struct qm_tier_config, "" if they are not known; *observed: known
 * changes with each write, and qms_volume_observe() says to what.  The layers below are
 * open. */
void qms_volume_state(char before[QM_TIER_STATE], char known[QM_TIER_STATE],
                      bool *observed);
bool qms_volume_observe(void *opaque, char text[QM_TIER_STATE]);

/* Waits until what was written to the file before is on its disk.  Without that a crash
 * of the machine could take data, of which the tier has copies, and leave the change
 * time that was recorded with them.  From when a tier is told of changes, it knows by
 * itself which were not flushed.  False: that cannot be known, so no state is to be
 * recorded. */
bool qms_volume_sync(void);

#endif
