/* SPDX-License-Identifier: BSD-3-Clause */
/* registrar.h - the socket at which programs register with an agent
 * (quickmine-agent.h).
 *
 * Any local program may register itself, and no other, since the kernel names the
 * process (SO_PEERCRED).  A registration ends with its connection or its process.  The
 * number of registrations is bounded, also by the descriptors that this program may
 * have, some of which it keeps for itself; a user other than root has at most a quarter
 * of all.  A connection that sends nothing for some seconds is closed.
 *
 * Threads: one at a time.
 */
#ifndef QM_BPF_REGISTRAR_H
#define QM_BPF_REGISTRAR_H

#include <stddef.h>
#include <sys/types.h>

#include "clients/protocol/quickmine-agent.h"

struct qm_registrar;

struct qm_registrar_calls {
    /* A process registers; `table` is closed after the call.  Returns 0 or an errno
     * value, which it is told. */
    int (*arrived)(void *opaque, pid_t process, uid_t user,
                   const struct qm_agent_hello *hello, int table);
    void (*left)(void *opaque, pid_t process);
    void *opaque;
};

/* Listens at path, whose directory must exist; the process may leave its working
 * directory afterwards.  A socket without a listener is replaced; anything else at that
 * path is not touched.  Returns 0, or an errno value with a sentence in err. */
int qm_registrar_open(struct qm_registrar **registrar, const char *path,
                      const struct qm_registrar_calls *calls, char *err, size_t len);
/* Removes the socket, and nothing that is there in its place; left() is not called.
 * May be NULL. */
void qm_registrar_close(struct qm_registrar *registrar);

/* A descriptor that is readable when there is work, and the function that does it
 * without waiting.  Call it every second, too, and leave QM_REGISTRAR_PAUSE between two
 * calls: accepting each connection at once, the program would have no time for anything
 * else under a flood of them. */
#define QM_REGISTRAR_PAUSE 2 /* ms */
int qm_registrar_fd(const struct qm_registrar *registrar);
void qm_registrar_serve(struct qm_registrar *registrar);

#endif
