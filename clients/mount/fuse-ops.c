/* SPDX-License-Identifier: BSD-3-Clause */
/* fuse-ops.c - the file that is the device: what the kernel asks of it.
 *
 * It is the root of a file system of its own, a regular file, and the only thing in it.
 * What it does is what a block device would do, as far as the kernel lets a
 * regular file: its size is the device's, writes beyond it get ENOSPC, reads beyond it
 * end.
 *
 * Requests go past the page cache (direct_io), each as its program made it, up to
 * QM_FUSE_MAX_REQUEST; so the thread and the group id of a request are its
 * cause's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/mount/requester.h"
#include "clients/mount/fuse-ops.h"

/* The kernel need not ask again: what changes but through it, it is told. */
#define ATTR_TIMEOUT 86400.0

/* Each time that the file is opened; fuse_file_info.fh points to it. */
struct qm_opened {
    atomic_uint seen; /* losses that were told, or were before */
    LIST_ENTRY(qm_opened) link;
};

void qm_fuse_init(struct qm_fuse *fuse, struct qm_device *device,
                  struct qm_announce *announce, struct qm_threads *threads,
                  const struct stat *like, bool read_only)
{
    struct stat *attr = &fuse->attr;

    memset(fuse, 0, sizeof *fuse);
    fuse->device = device;
    fuse->announce = announce;
    fuse->threads = threads;
    fuse->read_only = read_only;
    pthread_mutex_init(&fuse->lock, NULL);

    attr->st_ino = FUSE_ROOT_ID;
    attr->st_mode = S_IFREG | (like->st_mode & 07777);
    attr->st_nlink = 1;
    attr->st_uid = like->st_uid;
    attr->st_gid = like->st_gid;
    attr->st_size = fuse->told_size = (off_t)qm_device_size(device);
    attr->st_blksize = (blksize_t)qm_device_block_size(device);
    attr->st_blocks = (blkcnt_t)((attr->st_size + 511) / 512);
    clock_gettime(CLOCK_REALTIME, &attr->st_mtim);
    attr->st_atim = attr->st_ctim = attr->st_mtim;
}

void qm_fuse_end(struct qm_fuse *fuse)
{
    struct qm_opened *o;

    while ((o = LIST_FIRST(&fuse->opened))) {
        LIST_REMOVE(o, link);
        free(o);
    }
}

/* The device may have grown.  fuse->lock is held. */
static void take_size(struct qm_fuse *fuse)
{
    uint64_t size = qm_device_size(fuse->device);

    fuse->attr.st_size = (off_t)size;
    fuse->attr.st_blocks = (blkcnt_t)((size + 511) / 512);
}

void qm_fuse_tick(struct qm_fuse *fuse)
{
    off_t size = (off_t)qm_device_size(fuse->device);
    /* The kernel asks for the attributes at the next stat().  It caches no data of the
     * file, so none is invalidated. */
    if (size != fuse->told_size)
        fuse_lowlevel_notify_inval_inode(fuse->session, FUSE_ROOT_ID, -1, 0);
    fuse->told_size = size;
}

static struct qm_fuse *fuse_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* The context of the thread that caused the request: a reference, or NULL. */
static struct qm_tag *tag_of(struct qm_fuse *fuse, fuse_req_t req)
{
    const struct fuse_ctx *who = fuse_req_ctx(req);
    struct qm_tag *tag = qm_announce_tag(fuse->announce, who->gid);

    /* Thread 0 is one that our namespace has no number for. */
    if (tag)
        atomic_fetch_add_explicit(&fuse->counts.tagged, 1, memory_order_relaxed);
    else if (who->pid > 0)
        tag = qm_threads_tag(fuse->threads, who->pid);
    return tag;
}

/* The requester of a request. */
struct waiter {
    fuse_req_t req;
    pid_t process; /* 0: not known yet, or not any more; or QM_REQUESTER_KERNEL */
    struct qm_requester requester;
};

/* Whether no program waits for the request any more: its thread ends, or the mount.  If
 * the thread had ended before the first look, this is not known: the request is
 * asynchronous, and its process may well wait. */
static bool unwanted(void *opaque)
{
    struct waiter *w = opaque;

    if (fuse_session_exited(fuse_of(w->req)->session))
        return true;
    if (w->process == 0)
        w->process = qm_requester_process(fuse_req_ctx(w->req)->pid);
    return qm_requester_process_gone(w->process);
}

static void wait_as(struct waiter *w, fuse_req_t req)
{
    *w = (struct waiter){.req = req, .requester = {unwanted, w}};
    /* It will take a while: the thread is there now. */
    if (!qm_device_is_up(fuse_of(req)->device))
        w->process = qm_requester_process(fuse_req_ctx(req)->pid);
}

/* --- reads and writes --- */

/* Each thread that serves requests keeps a buffer, as large as it needed so far. */
struct buffer {
    size_t size;
    char *bytes;
};

static pthread_once_t buffers_once = PTHREAD_ONCE_INIT;
static pthread_key_t buffers;

static void free_buffer(void *opaque)
{
    struct buffer *b = opaque;

    free(b->bytes);
    free(b);
}

static void make_buffers(void)
{
    if (pthread_key_create(&buffers, free_buffer) != 0)
        abort();
}

/* At least size bytes, the calling thread's until its next call; NULL if memory is
 * out. */
static char *buffer_for(size_t size)
{
    struct buffer *b;

    pthread_once(&buffers_once, make_buffers);
    b = pthread_getspecific(buffers);
    if (!b) {
        b = calloc(1, sizeof *b);
        if (!b || pthread_setspecific(buffers, b) != 0) {
            free(b);
            return NULL;
        }
    }
    if (b->size < size) {
        free(b->bytes);
        b->bytes = malloc(size);
        b->size = b->bytes ? size : 0;
    }
    return b->bytes;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct qm_fuse *fuse = fuse_of(req);
    struct waiter waiter;
    ssize_t n = qm_device_clamp(fuse->device, false, size, offset);
    struct qm_tag *tag;
    char *buf;
    int r;

    if (n < 0) {
        fuse_reply_err(req, (int)-n);
        return;
    }
    if (n == 0) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    buf = buffer_for((size_t)n);
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    tag = tag_of(fuse, req);
    wait_as(&waiter, req);
    r = qm_device_read(fuse->device, &waiter.requester, qm_tag_context(tag), buf,
                       (size_t)n, (uint64_t)offset);
    qm_mount_count(&fuse->counts, QM_MOUNT_READ, (size_t)n, r);
    if (r)
        fuse_reply_err(req, r);
    else
        fuse_reply_buf(req, buf, (size_t)n);
    qm_tag_put(tag);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
                     off_t offset, struct fuse_file_info *fi)
{
    struct qm_fuse *fuse = fuse_of(req);
    struct waiter waiter;
    ssize_t n = qm_device_clamp(fuse->device, true, size, offset);
    struct qm_tag *tag;
    int r;

    if (n < 0) {
        fuse_reply_err(req, (int)-n);
        return;
    }
    if (n == 0) {
        fuse_reply_write(req, 0);
        return;
    }
    tag = tag_of(fuse, req);
    wait_as(&waiter, req);
    /* The flags are those of this very write: O_SYNC includes O_DSYNC, and so does
     * RWF_DSYNC. */
    r = qm_device_write(fuse->device, &waiter.requester, qm_tag_context(tag), buf,
                        (size_t)n, (uint64_t)offset, (fi->flags & O_DSYNC) != 0);
    qm_mount_count(&fuse->counts, QM_MOUNT_WRITE, (size_t)n, r);
    if (r)
        fuse_reply_err(req, r);
    else
        fuse_reply_write(req, (size_t)n);
    qm_tag_put(tag);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
                     struct fuse_file_info *fi)
{
    struct waiter waiter;
    struct qm_opened *o = (struct qm_opened *)(uintptr_t)fi->fh;
    int r;

    wait_as(&waiter, req);
    r = qm_device_flush(fuse_of(req)->device, &waiter.requester, &o->seen);

    qm_mount_count(&fuse_of(req)->counts, QM_MOUNT_FLUSH, 0, r);
    fuse_reply_err(req, r);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
                         off_t length, struct fuse_file_info *fi)
{
    struct waiter waiter;
    int r;

    wait_as(&waiter, req);
    r = qm_device_allocate(fuse_of(req)->device, &waiter.requester, mode, offset,
                           length);

    qm_mount_count(&fuse_of(req)->counts, QM_MOUNT_ALLOCATE, 0, r);
    fuse_reply_err(req, r);
}

/* --- the file itself --- */

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct qm_fuse *fuse = userdata;

    conn->max_read = QM_FUSE_MAX_REQUEST;
    conn->max_write = QM_FUSE_MAX_REQUEST;
    /* Asynchronous reads count as background; the default of 12 would hold them up. */
    conn->max_background = 128;
    conn->congestion_threshold = 96;
    /* open(O_TRUNC) then comes as a truncation, which is ignored as devices do. */
    conn->want &= ~(unsigned)FUSE_CAP_ATOMIC_O_TRUNC;
    fuse->ready(fuse->opaque);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct qm_fuse *fuse = fuse_of(req);
    struct stat attr;

    pthread_mutex_lock(&fuse->lock);
    take_size(fuse);
    attr = fuse->attr;
    pthread_mutex_unlock(&fuse->lock);
    fuse_reply_attr(req, &attr, ATTR_TIMEOUT);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *want, int what,
                       struct fuse_file_info *fi)
{
    struct qm_fuse *fuse = fuse_of(req);
    struct stat *attr = &fuse->attr, reply;
    struct timespec now;

    /* open(O_TRUNC) leaves a device as it is, and cannot be told from truncate() to 0.
     * ftruncate() can: it names the open file. */
    if ((what & FUSE_SET_ATTR_SIZE) &&
        (uint64_t)want->st_size != qm_device_size(fuse->device) &&
        (fi || want->st_size != 0)) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&fuse->lock);
    take_size(fuse);
    if (what & FUSE_SET_ATTR_MODE)
        attr->st_mode = S_IFREG | (want->st_mode & 07777);
    if (what & FUSE_SET_ATTR_UID)
        attr->st_uid = want->st_uid;
    if (what & FUSE_SET_ATTR_GID)
        attr->st_gid = want->st_gid;
    if (what & FUSE_SET_ATTR_ATIME)
        attr->st_atim = what & FUSE_SET_ATTR_ATIME_NOW ? now : want->st_atim;
    if (what & FUSE_SET_ATTR_MTIME)
        attr->st_mtim = what & FUSE_SET_ATTR_MTIME_NOW ? now : want->st_mtim;
    attr->st_ctim = now;
    reply = *attr;
    pthread_mutex_unlock(&fuse->lock);
    if (what & FUSE_SET_ATTR_UID)
        qm_announce_set_owner(fuse->announce, reply.st_uid);
    fuse_reply_attr(req, &reply, ATTR_TIMEOUT);
}

static void forget_opened(struct qm_fuse *fuse, struct qm_opened *o)
{
    pthread_mutex_lock(&fuse->lock);
    LIST_REMOVE(o, link);
    pthread_mutex_unlock(&fuse->lock);
    free(o);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct qm_fuse *fuse = fuse_of(req);
    struct qm_opened *o;

    if (fuse->read_only && (fi->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(req, EROFS);
        return;
    }
    o = malloc(sizeof *o);
    if (!o) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    atomic_init(&o->seen, qm_device_losses(fuse->device));
    pthread_mutex_lock(&fuse->lock);
    LIST_INSERT_HEAD(&fuse->opened, o, link);
    pthread_mutex_unlock(&fuse->lock);
    fi->fh = (uintptr_t)o;
    fi->direct_io = 1;
    fi->noflush = 1;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
    fi->parallel_direct_writes = 1;
#endif
    /* Nobody is there any more to close it. */
    if (fuse_reply_open(req, fi) != 0)
        forget_opened(fuse, o);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    forget_opened(fuse_of(req), (struct qm_opened *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

const struct fuse_lowlevel_ops qm_fuse_ops = {
    .init = op_init,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .open = op_open,
    .release = op_release,
    .read = op_read,
    .write = op_write,
    .fsync = op_fsync,
    .fallocate = op_fallocate,
};
