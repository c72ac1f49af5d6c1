/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake.h - the fixed newstyle handshake of the NBD protocol, as the server, for
 * clients that are not the kernel.  There is one export, whatever it is called; no TLS,
 * and replies are simple ones. */
#ifndef QM_ATTACH_HANDSHAKE_H
#define QM_ATTACH_HANDSHAKE_H

#include <stdint.h>

#define QM_HANDSHAKE_SECONDS 10 /* that a client has for all of it */

/* Shakes hands over fd.  Returns 0 when requests come next; ECONNRESET: the client has
 * gone, or wants nothing more; ETIMEDOUT; or EPROTO: what it sends makes no sense. */
int qm_handshake(int fd, uint64_t size, uint16_t flags);

#endif
