/* SPDX-License-Identifier: BSD-3-Clause */
/* preload.h - the library's beginning, and what its parts do when the process forks. */
#ifndef QM_PRELOAD_PRELOAD_H
#define QM_PRELOAD_PRELOAD_H

/* Reads the environment; ends the process with a sentence if it makes no sense. */
void qm_routes_configure(void);

/* In a child of fork(): forgets what is the parent's.  Nothing is locked in the parent
 * beforehand, so that fork() neither waits nor fails in a signal handler: other threads
 * may have held any lock, and been in the middle of any change to what it protects.
 * Each part makes its locks anew, and drops what they protect. */
void qm_files_forked(void);
void qm_routes_forked(void);
void qm_aio_forked(void);
void qm_uring_forked(void);

/* The calling process is the one whose descriptors files.h is about. */
void qm_files_begin(void);

#endif
