/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.h - connections to a server's plain export, for the kernel to use by itself.
 *
 * The handshake is libnbd's; afterwards nothing of it is left but the socket, over
 * which requests come next, with simple replies, as the kernel's client wants them. */
#ifndef QM_ATTACH_PLAIN_H
#define QM_ATTACH_PLAIN_H

#include <stddef.h>
#include <stdint.h>

struct qm_plain {
    int fd; /* the caller's */
    uint64_t size;
    uint16_t flags; /* NBD_FLAG_*, as the kernel takes them */
};

/* Returns 0, or an errno value with a sentence in err.  EPROTO: the URI asks for TLS,
 * which the kernel has not got.  Takes seconds at most, if the server answers. */
int qm_plain_connect(const char *uri, struct qm_plain *plain, char *err, size_t len);

#endif
