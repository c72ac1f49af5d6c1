/* SPDX-License-Identifier: BSD-3-Clause */
/* priority.h - the I/O priority of a thread's reads, as Linux's I/O schedulers know it
 * (ioprio_set(2)).
 *
 * A thread has it, and all that it reads by itself: what the plugins of files and block
 * devices read for it.  A plugin that reads by another thread, or over a network, does
 * not know it.
 */
#ifndef QMS_PRIORITY_H
#define QMS_PRIORITY_H

enum qms_priority {
    QMS_PRIORITY_NORMAL, /* as the process */
    QMS_PRIORITY_LOW,    /* the lowest of the class best-effort */
    QMS_PRIORITY_IDLE,   /* the class idle: only when nobody else reads */
};

/* Lowers the calling thread's priority, but never raises it: what the process was
 * started with may be lower.  Returns 0, or an errno value if it stays as it was. */
int qms_priority_lower(enum qms_priority priority);

#endif
