/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-file.h - whether a path may become a tier, or its witness.
 *
 * Both are written over, so a mistyped path must not destroy another file: the
 * file must be empty, or have been one before, and must be no file that the layers
 * below were given or the process has open.
 */
#ifndef QMS_TIER_FILE_H
#define QMS_TIER_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Returns 0, or -1 and a sentence in why.  *device: it is a block device.  Nothing is
 * changed. */
int qms_tier_try_file(const char *path, bool *device, char *why, size_t len);
int qms_tier_try_witness(const char *path, const char *tier, char *why, size_t len);

#endif
