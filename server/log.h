/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - what the server says while it runs, and how much of it is wanted.
 *
 * Any thread may call any of these at any time.
 */
#ifndef QMS_LOG_H
#define QMS_LOG_H

/* Of a message, and the least that is logged. */
enum qms_log_level {
    QMS_ERROR,   /* an operator has to act */
    QMS_WARNING, /* less works than should */
    QMS_NOTE,    /* what has changed */
};

/* "error", "warning", "note"; and the level of such a name, or -1. */
const char *qms_log_name(enum qms_log_level level);
int qms_log_parse(const char *name);

/* Messages above this level are left out.  At first none are. */
void qms_log_limit(enum qms_log_level level);

/* Before nbdkit forks: finds where notes go. */
void qms_log_begin(void);

/* Logs by nbdkit_error(), warnings as "warning: ..."; notes, which are no errors, to
 * the same place as "nbdkit: note: ...". */
__attribute__((format(printf, 2, 3))) void qms_log(enum qms_log_level level,
                                                   const char *format, ...);

#endif
