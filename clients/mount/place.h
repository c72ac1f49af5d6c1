/* SPDX-License-Identifier: BSD-3-Clause */
/* place.h - the file that is mounted over, whatever its path leads to by then.
 *
 * Its directory may belong to another user, who puts a link in its place, or exchanges
 * the directory: root would mount over any file, with the owner and the mode of this
 * one, and unmount whatever is mounted elsewhere.  So it is looked up once, and held by
 * descriptors.
 */
#ifndef QM_MOUNT_PLACE_H
#define QM_MOUNT_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct qm_place {
    int dir, file;            /* -1: not open */
    char held[NAME_MAX + 32]; /* the path through the directory's descriptor */
    char over[32];            /* ... and through the file's */
};
#define QM_PLACE_NONE ((struct qm_place){.dir = -1, .file = -1})

/* Holds the file at path, which is absolute and has no symbolic links.  0, or an errno
 * value; ELOOP if it is a link now. */
int qm_place_open(struct qm_place *place, const char *path, struct stat *st);
void qm_place_close(struct qm_place *place);
/* Whether something is mounted there already. */
bool qm_place_is_mounted(const struct qm_place *place);

/* Removes the file of `st`, if nothing else is in its place and nothing is in it.
 * Async-signal-safe. */
void qm_place_remove(const struct qm_place *place, const struct stat *st);

/* Mounts, with the kernel's own options beside those that every file system of this
 * kind needs.  Returns a descriptor for libfuse; or -1 with errno, EPERM: not without
 * fusermount3(1). */
int qm_place_mount(const struct qm_place *place, const char *source, bool read_only,
                   const char *options);
/* Unmounts what qm_place_mount() has, unless somebody else did.  Only async-signal-safe
 * calls. */
void qm_place_unmount(const struct qm_place *place, int fd);

#endif
