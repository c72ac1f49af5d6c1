/* SPDX-License-Identifier: BSD-3-Clause */
/* windows.h - how far ahead of a track's reader is read, and what is asked for there.
 *
 * tracks.h says what a window and its marker are, and how large it is.  All functions
 * need the tracks' lock.
 */
#ifndef QM_WINDOWS_H
#define QM_WINDOWS_H

#include "mining/readahead/track.h"

/* The share of the cache that all windows have at first. */
void qm_windows_init(struct qm_tracks *t);

/* Tells the cache how many blocks the windows have of all that are being read. */
void qm_windows_claim(struct qm_tracks *t);

/* What was asked for is gone before its reader came: it took more space than there was,
 * or more than could be queued. */
void qm_windows_lost(struct qm_tracks *t);

/* Moves the window: asks for what it lacks, in at most max ranges, in the order in
 * which they are read.  Returns how many.  The track's reach is to be set afterwards.
 */
unsigned qm_window_ask(struct qm_tracks *t, struct qm_track *k,
                       struct qm_candidate *ranges, unsigned max);

void qm_window_unmark(struct qm_tracks *t, struct qm_track *k);

/* Nobody waits for the marker any more; whether it is used is still worth knowing. */
void qm_window_keep_sample(struct qm_tracks *t, struct qm_track *k);

#endif
