/* SPDX-License-Identifier: BSD-3-Clause */
/* announce.h - the socket on which programs announce that their threads have contexts.
 *
 * One thread accepts them, hands each its shared memory and its range of group ids, and
 * hears when contexts end; see quickmine-mount.h.  Every second it looks for contexts
 * whose end was not told.
 */
#ifndef QM_MOUNT_ANNOUNCE_H
#define QM_MOUNT_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/libqmctx/device-tag.h"

/* Programs at the same time; one more is turned away (it tries again by itself). */
#define QM_ANNOUNCE_PROGRAMS 64

struct qm_announce;

/* Listens at path, which must not exist, or be the socket of a mount that is gone. Only
 * owner, the mount's user and root may connect.  *announce is the caller's, to be
 * freed with qm_announce_free().  Returns 0, or -1 with one sentence in err. */
int qm_announce_listen(const char *path, uid_t owner, struct qm_device *device,
                       struct qm_announce **announce, char *err, size_t len);

/* The function that writes the statistics for programs that ask; before the thread is
 * started. */
void qm_announce_set_report(struct qm_announce *announce,
                            void (*report)(void *opaque, char *text, size_t len),
                            void *opaque);

/* Starts the thread.  tick(opaque) is called from it about once a second.  Returns 0 or
 * an errno value. */
int qm_announce_start(struct qm_announce *announce, void (*tick)(void *opaque),
                      void *opaque);

/* The file has another owner: that user may connect from now on. */
void qm_announce_set_owner(struct qm_announce *announce, uid_t owner);

/* The context that a request's group id stands for: a reference, or NULL.  See
 * qm_peer_tag().  Any thread. */
struct qm_tag *qm_announce_tag(struct qm_announce *announce, uint32_t gid);

/* Ends all contexts and removes the socket.  No request may come any more.  announce
 * may be NULL. */
void qm_announce_free(struct qm_announce *announce);

#endif
