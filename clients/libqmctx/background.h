/* SPDX-License-Identifier: BSD-3-Clause */
/* background.h - a command whose work goes on in a second process (private).
 *
 * The first process waits until the second is ready, or has failed.  A SIGTERM, SIGINT
 * or SIGHUP that comes to it meanwhile ends the second, which would else go on by
 * itself, and be ready when nobody wants it any more.  Before there are threads.
 *
 * In either way to run, such a signal before the command is ready leaves nothing
 * behind, but for what it was just making.
 */
#ifndef QMCTX_BACKGROUND_H
#define QMCTX_BACKGROUND_H

#include <stdbool.h>

#pragma GCC visibility push(default)

/* Returns 0 in the second process: *ready is a descriptor for qm_background_ready().
 * In the first: 1 when the second is ready, or -1 when it has failed; *signal: 0, or
 * what ended it; or an errno value, negative, if there is none. */
int qm_background_start(int *ready, int *signal);
/* In the second, whose messages go elsewhere by now: leaves the terminal and the
 * directory, and tells the first, closing the descriptor.  False: the first is gone,
 * and nobody knows. */
bool qm_background_ready(int ready);

/* Whether SIGHUP is to end the command: under nohup(1), which ignores it, the end of
 * the terminal is not the command's. */
bool qm_background_hangup_counts(void);

/* Until other handlers take over, SIGTERM, SIGINT and SIGHUP (unless it is ignored)
 * have tidy() called, which must be async-signal-safe, and then end the process. */
void qm_background_tidy(void (*tidy)(void));
/* What tidy() looks at goes away: the signals end the process without it. */
void qm_background_tidied(void);

#pragma GCC visibility pop

#endif
