/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - what the mount has to say, to standard error or to the system's log. */
#ifndef QM_MOUNT_LOG_H
#define QM_MOUNT_LOG_H

/* One message, without a newline at its end.  Any thread. */
void qm_mount_log(int priority, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* From now on messages go to syslog(3): standard error is about to be closed. */
void qm_mount_log_to_syslog(void);

/* Sends libfuse's own messages the same way. */
void qm_mount_log_fuse(void);

#endif
