/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h - one program that announces its threads' contexts: its shared memory.
 *
 * See quickmine-mount.h for what is shared.  A peer is a place for a program: attached
 * while one is connected, and used again for another later.  It is never freed while
 * requests can come, so that a request may look at it without asking whether it is
 * there.
 */
#ifndef QM_MOUNT_PEER_H
#define QM_MOUNT_PEER_H

#include <stdint.h>

#include "clients/libqmctx/device-tag.h"

/* Contexts that a program can have open at the same time, and thus how much memory it
 * shares: 1 MiB. */
#define QM_PEER_ENTRIES 4096

#define QM_PEER_NOBODY UINT32_MAX

struct qm_peer;

/* Makes a place.  NULL if memory is out. */
struct qm_peer *qm_peer_new(struct qm_device *device);
/* Nobody may be attached, and no request may come.  peer may be NULL. */
void qm_peer_free(struct qm_peer *peer);

/* Attaches a program under a number of the caller's (not QM_PEER_NOBODY), with memory
 * of its own, whose descriptor is put into *memory: the caller sends it and closes it.
 * Returns 0 or an errno value. */
int qm_peer_attach(struct qm_peer *peer, uint32_t number, int *memory);
/* Ends its contexts, and forgets it.  Not at the same time as the other functions of
 * the announcing thread (attach, ended, sweep). */
void qm_peer_detach(struct qm_peer *peer);

/* The context that a request names by its entry's index.  It is begun on the wire if it
 * was not yet, as are those that enclose it.  Returns a reference, or NULL: nobody of
 * that number is attached, or the entry holds no context, or it cannot be begun.
 * Any thread; waits for the server only if something is to be begun. */
struct qm_tag *qm_peer_tag(struct qm_peer *peer, uint32_t number, uint32_t index);

/* The program says that it ended the context that had this version. */
void qm_peer_ended(struct qm_peer *peer, uint32_t index, uint64_t version);
/* Ends what ended without a word. */
void qm_peer_sweep(struct qm_peer *peer);

#endif
