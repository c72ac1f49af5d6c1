/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.h - the kernel's nbd devices, by its netlink interface (linux/nbd-netlink.h).
 *
 * A device that was connected stays so when the process that did it ends: the kernel
 * keeps requests for dead_seconds, and another process may give it new sockets.
 *
 * A request that was sent over a socket that has ended since is sent again when its
 * timer fires, `timeout` seconds after it was sent, and not before.  The timer also
 * takes a socket that has not replied for dead, so it cannot be short; unless there is
 * one socket and the device is patient: then the timer fires again and again after
 * patience_ms, with a line in the kernel's log each time, and the socket stays, however
 * long a reply takes.  The kernel (blk_add_timer()) rounds up when it fires, to a power
 * of two of its ticks: 1.024 seconds with 250 or 1000 ticks a second.
 *
 * Threads: any; each call talks to the kernel by a socket of its own.
 */
#ifndef QM_ATTACH_KERNEL_H
#define QM_ATTACH_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_KERNEL_SOCKETS 64

struct qm_kernel_device {
    unsigned number; /* of /dev/nbdN */
    uint64_t size, block_size;
    uint64_t timeout;      /* seconds after which a request is looked at */
    uint64_t dead_seconds; /* for which requests wait for new sockets */
    uint16_t flags;        /* NBD_FLAG_* */
    const char *owner;     /* what /sys/block/nbdN/backend then says */
    uint64_t patience_ms;  /* not 0: it is patient, and has one socket */
    bool resize;           /* nothing but the size is to be changed */
    int sockets[QM_KERNEL_SOCKETS];
    unsigned count;
};

/* All: 0, or an errno value with a sentence in err.  EOPNOTSUPP: the kernel has no nbd,
 * or its module is not loaded.  The caller keeps the sockets, and may close them. */
int qm_kernel_connect(const struct qm_kernel_device *device, char *err, size_t len);
/* Gives the device new sockets in place of dead ones.  Requests that have not been sent
 * yet go over them at once. */
int qm_kernel_reconnect(const struct qm_kernel_device *device, char *err, size_t len);
/* Gives the device another size, also while it is in use: number, size and owner. */
int qm_kernel_resize(const struct qm_kernel_device *device, char *err, size_t len);
/* The device is to end: the kernel says so over the sockets, and closes them. */
int qm_kernel_disconnect(unsigned number, char *err, size_t len);

/* The number in /dev/nbdN, or -1: it is no such name. */
int qm_kernel_number(const char *path);
/* Whether the device is connected, by whomever. */
bool qm_kernel_connected(unsigned number);
/* Copies the name that the connecting program gave the kernel; "": it is not connected,
 * the program gave none, or the kernel is old (before 5.14). */
void qm_kernel_owner(unsigned number, char *owner, size_t len);
/* Its size in bytes; 0: not known. */
uint64_t qm_kernel_size(unsigned number);
/* Its queues, which is how many sockets it was connected with; 0: not known. */
unsigned qm_kernel_queues(unsigned number);

#endif
