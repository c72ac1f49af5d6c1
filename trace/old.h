/* SPDX-License-Identifier: BSD-3-Clause */
/* old.h - what is there already where a recording is to be written. */
#ifndef QM_TRACE_OLD_H
#define QM_TRACE_OLD_H

#include <stddef.h>

/* Whether a recording may take the place of what path is and fd has open for writing: a
 * file that is empty or a trace, plain or compressed; a pipe, terminal or the like.
 * Returns 0, or -1 with a sentence in err. */
int qm_old_check(int fd, const char *path, char *err, size_t len);

#endif
