/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - a server's device, as the driver of a block device would offer it.
 *
 * Used by the mount and by the preload library; shared by QuickMine's own clients, not
 * installed.  It stands on a direct connection of qmctx.h and adds what that leaves to
 * its user: connecting again, repeating requests, and saying truthfully what is on
 * stable storage.
 *
 * Waiting.  While the server is away, requests wait, as on a hard NFS mount: for as
 * long as `wait` says, and until their requester has gone.
 *
 * Order.  Changes (writes, zeroing) that overlap are sent one after the other: the next
 * when the one before has been answered.  After a loss nothing is sent again before the
 * server has said that nothing of the old session is being carried out (QM_WIRE_FENCE).
 *
 * Another kind of server cannot say that (`plain`): if the queue of changes was not
 * empty when its connections were lost, nothing is sent for `settle_ms` after that, in
 * the hope that what it had begun has ended.
 *
 * Durability.  Changes are numbered when they are answered.  A FLUSH covers those that
 * were answered before it was sent, and no others.  A change that was acknowledged and
 * is not covered by a FLUSH is *retained*: after a connection to another instance of
 * the server it is sent again and flushed, before any other request goes on (NFS's
 * unstable writes and COMMIT, RFC 1813).  Of each byte the newest is sent, so the order
 * does not matter.  A restart of the server is therefore a pause, even if the layer
 * below it lost unflushed data.  The data of writes with FUA is never retained.  A
 * change is lost only if it could not be retained (QM_RETAIN_OFF), or if waiting ends
 * before it could be sent again; each opener's next flush says so once.
 *
 * Threads: any thread may call anything at any time, except that qm_device_close() is
 * the last.  A device has threads of its own.  fork(): in a child, a parent's device is
 * dead: every request fails with ENOTCONN, nothing may be closed but by leaving it
 * alone, and no call waits for a lock.
 */
#ifndef QMCTX_DEVICE_H
#define QMCTX_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/libqmctx/qmctx.h"

#pragma GCC visibility push(default)

struct qm_device;

#define QM_DEVICE_FOREVER UINT32_MAX /* seconds */

#define QM_DEVICE_RETAIN UINT64_C(67108864) /* bytes; the default */

enum qm_retain {
    QM_RETAIN_ON,  /* keep what is not flushed, up to `retain` bytes */
    QM_RETAIN_OFF, /* keep nothing: a loss fails the next flush */
    QM_RETAIN_FUA, /* every write is stable when it is answered; for several writers.  A
                      write whose answer was lost is made twice: of the same bytes,
                      another writer's can come between */
};

#define QM_OWNER_SIZE 16

struct qm_device_options {
    /* 1 to 64.  0: 8, or 32 if the server carries out the requests of one in order; of
     * those beyond 8, as many as it takes whenever it is connected to. */
    unsigned connections;
    bool plain;   /* the export that the URI names, of any NBD server */
    bool grows;   /* connect again when the server says that it has grown */
    bool patient; /* qm_device_open() waits for the server, too, up to `wait` */
    enum qm_retain mode;
    uint64_t retain;    /* bytes, when the mode is QM_RETAIN_ON; 0: the default */
    uint32_t wait;      /* seconds that a request waits while the server is away */
    uint32_t reconnect; /* seconds after which a device gives up for good */
    uint32_t settle_ms; /* 0: 30 seconds; see above */
    uint32_t flush_ms;  /* what is retained is flushed after that; 0: 30 seconds */
    /* Of a program that may be killed, the number that its successor has, too: before
     * the first request, nothing of the predecessor's is carried out any more.  Two
     * programs at a time must not have the same.  All 0: none. */
    uint8_t owner[QM_OWNER_SIZE];
    /* A sentence for a person, without a newline; priority is syslog(3)'s.  Called by
     * any thread, without a lock.  NULL: no log. */
    void (*log)(void *opaque, int priority, const char *sentence);
    void *opaque;
};

/* A number for `owner`, kept in a file for the next program after this one was killed;
 * the file is locked for as long as this program, or a child that it forks,
 * lives. */
struct qm_owner {
    int fd, dir; /* -1: it is not open */
    char *name;  /* in dir */
    dev_t dev;
    ino_t ino;
    bool fresh; /* nobody had a number there before */
    uint8_t id[QM_OWNER_SIZE];
};
#define QM_OWNER_NONE ((struct qm_owner){.fd = -1, .dir = -1})

/* Opens or makes the file at path, which must be the user's own and nobody else's;
 * follows no symbolic link in its last part.  Returns 0; EWOULDBLOCK if another program
 * still has it after wait_ms; EPERM if it is not the user's alone; or another errno
 * value. */
int qm_owner_open(struct qm_owner *owner, const char *path, unsigned wait_ms);
/* Removes the file: no request is under way.  Does nothing if it is not open. */
void qm_owner_end(struct qm_owner *owner);
/* Before any request: removes the file if nobody had a number there before.  For a
 * program that ends; async-signal-safe. */
void qm_owner_unused(const struct qm_owner *owner);
/* Leaves it where it is, for the next program: requests may be under way. */
void qm_owner_leave(struct qm_owner *owner);
/* In a child, of whose life the lock is to be independent.  Async-signal-safe. */
void qm_owner_forked(struct qm_owner *owner);
/* The same number from a file that is open and locked otherwise; makes one if there is
 * none.  0 or an errno value. */
int qm_owner_read(int fd, uint8_t id[QM_OWNER_SIZE]);

/* The program that waits for a request; asked now and then whether it is gone.  A NULL
 * pointer to one: it never is. */
struct qm_requester {
    bool (*gone)(void *opaque);
    void *opaque;
};

/* Connects.  *device is the caller's, to be freed with qm_device_close().  Returns 0,
 * or an errno value with qmctx_error(). */
int qm_device_open(const char *uri, const struct qm_device_options *options,
                   struct qm_device **device);
/* Before qm_device_close(), while requests may be under way: from now on all fail, also
 * those that a server which hangs does not answer. */
void qm_device_abandon(struct qm_device *device);
/* Flushes what is retained, if the server is there, and ends. NULL is allowed. */
void qm_device_close(struct qm_device *device);

/* In bytes; constant, unless `grows` was set: then it may become more at any time. */
uint64_t qm_device_size(const struct qm_device *device);
uint32_t qm_device_block_size(const struct qm_device *device);
bool qm_device_read_only(const struct qm_device *device);
/* Whether a request would be sent now; does not wait. */
bool qm_device_is_up(const struct qm_device *device);

/* The connection, for qmctx_attach() and qmctx_current(); constant. */
struct qmctx *qm_device_qmctx(const struct qm_device *device);

/* From now on, QM_RETAIN_FUA: flushes and lets go of what is retained first, which may
 * wait.  0, or an errno value; then retaining goes on. */
int qm_device_stop_retaining(struct qm_device *device);

/* How many of count bytes at offset a request may transfer, as pread(2) and pwrite(2)
 * of a block device: a read ends at the device's end, a write beyond it is ENOSPC.  Or
 * minus an errno value. */
ssize_t qm_device_clamp(const struct qm_device *device, bool write, size_t count,
                        off_t offset);

/* Requests: 0 or an errno value.  The range lies within the device.  context: 0, or one
 * of qm_device_begin() or of the qmctx. */
int qm_device_read(struct qm_device *device, const struct qm_requester *requester,
                   qmctx_id context, void *buf, size_t count, uint64_t offset);
int qm_device_write(struct qm_device *device, const struct qm_requester *requester,
                    qmctx_id context, const void *buf, size_t count, uint64_t offset,
                    bool fua);
int qm_device_zero(struct qm_device *device, const struct qm_requester *requester,
                   uint64_t count, uint64_t offset);
/* Nobody needs what is there any more; what is read then is anything.  A server that
 * cannot trim does nothing. */
int qm_device_trim(struct qm_device *device, const struct qm_requester *requester,
                   uint64_t count, uint64_t offset);
/* fallocate(2) of a device whose blocks are all there; any mode, any range. */
int qm_device_allocate(struct qm_device *device, const struct qm_requester *requester,
                       int mode, off_t offset, off_t length);

/* Everything that was answered before is on stable storage: 0.  *seen is what
 * qm_device_losses() was when the caller opened the device, or flushed last: if
 * something was lost since, EIO, and *seen is brought up to date, so that it is told
 * once. */
int qm_device_flush(struct qm_device *device, const struct qm_requester *requester,
                    _Atomic unsigned *seen);
unsigned qm_device_losses(const struct qm_device *device);

/* An asynchronous read or write.  0: done() will be called once, by any thread, with 0
 * or an errno value, and may start further requests but not wait; buf lives until then.
 * Else an errno value.  Never waits, not even while the server is away. */
int qm_device_start(struct qm_device *device, bool write, qmctx_id context, void *buf,
                    size_t count, uint64_t offset, bool fua, qmctx_done *done,
                    void *opaque);

/* Contexts, as qmctx_open_context() and qmctx_close_context(); never wait for the
 * server.  qm_device_begin(): 0 or an errno value. */
int qm_device_begin(struct qm_device *device, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id);
void qm_device_end(struct qm_device *device, qmctx_id id);

/* How it has fared; for statistics and tests. */
struct qm_device_stat {
    uint64_t answered, flushed; /* changes; of them, covered by a flush or stable */
    uint64_t retained_bytes, retained_changes, retained_most; /* now, now, ever */
    uint64_t reconnections;                                   /* that succeeded */
    uint64_t instances; /* of these, to another instance */
    uint64_t resent_changes, resent_bytes, fences;
    uint64_t background_flushes; /* because much was retained, or for long */
    uint64_t waited_ms;          /* while the server was away */
};
void qm_device_stat(const struct qm_device *device, struct qm_device_stat *stat);

#pragma GCC visibility pop

#endif
