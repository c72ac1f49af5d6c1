/* SPDX-License-Identifier: BSD-3-Clause */
/* requester.h - who made a request, and whether its process still waits for the reply.
 */
#ifndef QM_MOUNT_REQUESTER_H
#define QM_MOUNT_REQUESTER_H

#include <stdbool.h>
#include <sys/types.h>

/* In place of a process, of a request that a thread of the kernel made. */
#define QM_REQUESTER_KERNEL ((pid_t)-1)

/* The process that a thread is of; 0: it is no more, or that cannot be told.  Numbers
 * are as this process sees them; thread 0: unknown. */
pid_t qm_requester_process(pid_t thread);

/* Whether it is a thread of the kernel's.  false if that cannot be told. */
bool qm_requester_is_kernel(pid_t thread);

/* Whether the process is ending, has been killed, or is no more.  false if that cannot
 * be told; process 0: unknown.  Of the kernel's threads, as a loop device's, one that
 * has made a request may end while its device waits for it. */
bool qm_requester_process_gone(pid_t process);

#endif
