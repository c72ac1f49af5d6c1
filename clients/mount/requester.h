/* SPDX-License-Identifier: BSD-3-Clause */
/* requester.h - whether the thread that made a request still waits for the reply. */
#ifndef QM_MOUNT_REQUESTER_H
#define QM_MOUNT_REQUESTER_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the thread is ending, has been killed, or is no more.  false if that cannot
 * be told.  thread: its number as this process sees it; 0: unknown. */
bool qm_requester_thread_gone(pid_t thread);

#endif
