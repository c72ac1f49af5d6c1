/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.c - see plain.h. */
#include "clients/attach/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <linux/nbd.h>
#include <stdio.h>

/* What linux/nbd.h has not got in all versions. */
#define CAN_MULTI_CONN (1u << 8)

static int failure(char *err, size_t len)
{
    int error = nbd_get_errno();

    snprintf(err, len, "%s", nbd_get_error());
    return error ? error : EIO;
}

static uint16_t flags_of(struct nbd_handle *nbd)
{
    unsigned flags = NBD_FLAG_HAS_FLAGS;

    if (nbd_is_read_only(nbd) == 1)
        flags |= NBD_FLAG_READ_ONLY;
    if (nbd_can_flush(nbd) == 1)
        flags |= NBD_FLAG_SEND_FLUSH;
    if (nbd_can_fua(nbd) == 1)
        flags |= NBD_FLAG_SEND_FUA;
    if (nbd_can_trim(nbd) == 1)
        flags |= NBD_FLAG_SEND_TRIM;
    if (nbd_can_multi_conn(nbd) == 1)
        flags |= CAN_MULTI_CONN;
    return (uint16_t)flags;
}

static int connect_to(struct nbd_handle *nbd, const char *uri, struct qm_plain *plain,
                      char *err, size_t len)
{
    int64_t size;

    if (nbd_set_request_structured_replies(nbd, false) == -1 ||
        nbd_connect_uri(nbd, uri) == -1 || (size = nbd_get_size(nbd)) == -1)
        return failure(err, len);
    if (nbd_get_tls_negotiated(nbd) != 0) {
        snprintf(err, len, "the kernel's NBD driver has no TLS: use --transport join");
        return EPROTO;
    }
    plain->size = (uint64_t)size;
    plain->flags = flags_of(nbd);
    plain->fd = fcntl(nbd_aio_get_fd(nbd), F_DUPFD_CLOEXEC, 0);
    if (plain->fd == -1 || fcntl(plain->fd, F_SETFL, 0) == -1) {
        snprintf(err, len, "no descriptor is left");
        return EMFILE;
    }
    return 0;
}

int qm_plain_connect(const char *uri, struct qm_plain *plain, char *err, size_t len)
{
    struct nbd_handle *nbd = nbd_create();
    int error;

    plain->fd = -1;
    error = nbd ? connect_to(nbd, uri, plain, err, len) : failure(err, len);
    /* It closes its descriptor, and says nothing to the server. */
    nbd_close(nbd);
    return error;
}
