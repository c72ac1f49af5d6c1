/* SPDX-License-Identifier: BSD-3-Clause */
/* disk-lmdb.h - what the files of the layer LMDB share. */
#ifndef QM_STORE_DISK_LMDB_H
#define QM_STORE_DISK_LMDB_H

#include "rowcache/store/disk.h"

#define LMDB_MAP_SIZE (UINT64_C(64) << 30) /* of address space; the file grows */

/* Whether LMDB can open the file without harm.  hash, has_short: as in disk_config.
 * EBADMSG: it is damaged.  No such file, or an empty one, is no damage. */
int store_lmdb_check(const char *name, unsigned hash, bool has_short);

#endif
