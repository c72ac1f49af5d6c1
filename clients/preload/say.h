/* SPDX-License-Identifier: BSD-3-Clause */
/* say.h - messages to a person, from within a program that knows nothing of us. */
#ifndef QM_PRELOAD_SAY_H
#define QM_PRELOAD_SAY_H

/* Keeps in mind what the standard error is. */
void qm_say_begin(void);

/* Writes to the standard error, unless its descriptor has become something else: a
 * program that closes it gets its number for the next file that it opens, which may be
 * its data.  A log that the program has put in its place is a file for appending, or no
 * regular file.  errno stays as it is. */
void qm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
