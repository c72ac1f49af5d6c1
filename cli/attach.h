/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.h - what the files of `quickmine attach` and `quickmine detach` share. */
#ifndef QM_CLI_ATTACH_H
#define QM_CLI_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/attach/nbd.h"
#include "clients/libqmctx/device.h"

enum attach_transport { ATTACH_JOIN, ATTACH_HINTS, ATTACH_NONE };

struct attach_options {
    const char *uri;
    const char *device; /* /dev/nbdN; NULL: socket */
    unsigned number;    /* N */
    const char *socket; /* where to serve instead */
    const char *watch;  /* the block device whose reads are looked at; NULL: device */
    const char *registrar; /* where programs register; NULL: nowhere */
    const char *pidfile;
    enum attach_transport transport;
    unsigned connections, queues; /* queues 0: as the transport has them */
    uint32_t wait;
    enum qm_retain mode;
    uint64_t retain, block_size, dead_seconds;
    uint64_t timeout; /* 0: as attach_timeout() says */
    bool foreground, read_only, force, no_threads;
    int lock;                     /* of the device; attach_lock() */
    struct qm_owner socket_owner; /* with socket */
};

/* Takes what the device has grown by, in whole blocks.  Returns whether it has. */
bool attach_take_size(const struct attach_options *o, struct qm_nbd_device *device);

/* Serves the device until it is to end: the kernel's, or a socket's clients.  signals:
 * a signalfd(2).  Return an exit status. */
int attach_serve_kernel(const struct attach_options *options,
                        struct qm_nbd_device *device, int signals);
int attach_serve_socket(const struct attach_options *options,
                        struct qm_nbd_device *device, int signals);

/* The same, with the kernel's connections straight to the server, which an agent tells
 * of the reads. */
int attach_serve_hints(const struct attach_options *options, int signals);

/* The device is to be ended, at a signal: asks the kernel for it, unless somebody uses
 * it, or the server is away; says why not.  Returns whether it will end. */
bool attach_detach(const struct attach_options *options, bool server_is_there);
/* Seconds after which the kernel takes a connection for dead; and milliseconds after
 * which it looks at a request again, if there is one connection, which it leaves. */
uint64_t attach_timeout(const struct attach_options *options);
uint64_t attach_patience_ms(const struct attach_options *options);
/* Says that reads have no context, why, and what else there is. */
void attach_say_plain(const char *why);

/* Who uses a block device: 0: nobody; EBUSY with a sentence in err; or another errno
 * value.  *fd holds it against being mounted, until it is closed, or is -1. */
int attach_check_unused(const char *device, int *fd, char *err, size_t len);
/* The same, but what is gone in two seconds was no user: udev and others look what is
 * on a device when a program has closed it. */
int attach_await_unused(const char *device, int *fd, char *err, size_t len);
/* Before a device that is attached gets new connections: whether the server's, of size
 * bytes, can be the one that it had.  0, or ESTALE and a sentence. */
int attach_check_same(const struct attach_options *o, uint64_t size, char *err,
                      size_t len);

/* The lock of a device, which its program holds for as long as it lives: of two, one
 * serves it, and `quickmine detach` knows when it has ended.  Returns a descriptor, or
 * -1 with errno; EWOULDBLOCK: another process holds it.  wait_seconds: to try for so
 * long. */
int attach_lock(unsigned number, unsigned wait_seconds);

/* The text by which the kernel remembers which program connected a device. */
void attach_owner(char *owner, size_t len, const char *uri);
bool attach_is_ours(const char *owner);

#endif
