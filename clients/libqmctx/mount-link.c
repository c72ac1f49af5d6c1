/* SPDX-License-Identifier: BSD-3-Clause */
/* mount-link.c - see mount-link.h.
 *
 * Entries are written as a sequence lock: version odd, fields, version even.  The
 * fields are stored by relaxed atomic operations because the mount may be reading them
 * at that moment, and throws away what it read when it finds the version changed.
 *
 * Ending a context races with the mount learning of it.  Here: version changes, then
 * `seen` is read; there: `seen` is set, then the version is checked.  Both sides are
 * sequentially consistent, so at least one of them notices the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount-link.h"

#define MAX_ENTRIES (QM_MOUNT_GID_END - QM_MOUNT_GID_BASE)

int qm_link_connect(const struct sockaddr_un *address)
{
    int err, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == -1) {
        err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* Receives the greeting; closes descriptors that it should not have brought. */
static int receive(int fd, struct qm_mount_hello *hello, int *memory)
{
    enum { FDS = 4 };
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS * sizeof(int))];
    struct iovec iov = {.iov_base = hello, .iov_len = sizeof *hello};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control};
    struct cmsghdr *c;
    unsigned count = 0;
    ssize_t n;
    int got;

    *memory = -1;
    do
        n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return errno == EWOULDBLOCK ? EAGAIN : errno;
    if (n == 0)
        return ECONNRESET;
    for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof got) <= c->cmsg_len; i++) {
            memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
            if (count++ == 0)
                *memory = got;
            else
                close(got);
        }
    }
    if (n == sizeof *hello && count == 1 && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    if (*memory != -1)
        close(*memory);
    *memory = -1;
    return EPROTO;
}

static bool acceptable(const struct qm_mount_hello *hello, int memory)
{
    struct stat st;
    int seals;

    if (hello->magic != QM_MOUNT_MAGIC || hello->version != QM_MOUNT_VERSION)
        return false;
    if (hello->entries == 0 || hello->entries > MAX_ENTRIES ||
        hello->gid_base < QM_MOUNT_GID_BASE ||
        hello->gid_base > QM_MOUNT_GID_END - hello->entries)
        return false;
    if (hello->bytes < (uint64_t)hello->entries * sizeof(struct qm_mount_entry) ||
        hello->bytes > SIZE_MAX)
        return false;
    if (fstat(memory, &st) == -1 || !S_ISREG(st.st_mode) || st.st_size < 0 ||
        (uint64_t)st.st_size < hello->bytes)
        return false;
    /* Were the file to shrink, writing an entry would be SIGBUS. */
    (void)fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK);
    seals = fcntl(memory, F_GET_SEALS);
    return seals != -1 && (seals & F_SEAL_SHRINK);
}

int qm_mount_link_hello(int fd, struct qm_mount_link **result)
{
    struct qm_mount_hello hello;
    struct qm_mount_link *link;
    int memory, err;

    err = receive(fd, &hello, &memory);
    if (err)
        return err;
    link = calloc(1, sizeof *link);
    if (link && acceptable(&hello, memory)) {
        link->bytes = (size_t)hello.entries * sizeof(struct qm_mount_entry);
        link->free = malloc(hello.entries * sizeof link->free[0]);
        link->entries =
            mmap(NULL, link->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        if (link->entries == MAP_FAILED)
            err = errno;
        else if (!link->free)
            err = ENOMEM;
    } else {
        err = link ? EPROTO : ENOMEM;
    }
    close(memory);
    if (err) {
        if (link && link->entries && link->entries != MAP_FAILED)
            munmap(link->entries, link->bytes);
        if (link)
            free(link->free);
        free(link);
        return err;
    }
    atomic_init(&link->refs, 1);
    link->fd = fd;
    link->own = qm_own_fd(fd);
    link->count = hello.entries;
    link->gid_base = hello.gid_base;
    pthread_mutex_init(&link->lock, NULL);
    /* The lowest are used first. */
    for (uint32_t i = 0; i < link->count; i++)
        link->free[i] = link->count - 1 - i;
    link->free_count = link->count;
    *result = link;
    return 0;
}

void qm_mount_link_ref(struct qm_mount_link *link)
{
    atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
}

void qm_mount_link_unref(struct qm_mount_link *link)
{
    if (atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) != 1)
        return;
    qm_own_fd_close(link->fd, &link->own);
    munmap(link->entries, link->bytes);
    pthread_mutex_destroy(&link->lock);
    free(link->free);
    free(link);
}

bool qm_mount_link_alive(struct qm_mount_link *link)
{
    char unexpected[64];
    ssize_t n = 0; /* as at the end of the connection */

    if (qm_own_fd_is(link->fd, &link->own))
        n = recv(link->fd, unexpected, sizeof unexpected, MSG_DONTWAIT);
    return n > 0 || (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK ||
                                 errno == EINTR || errno == ENOMEM));
}

void qm_mount_link_shutdown(struct qm_mount_link *link)
{
    if (qm_own_fd_is(link->fd, &link->own))
        shutdown(link->fd, SHUT_RDWR);
}

uint32_t qm_mount_link_take(struct qm_mount_link *link)
{
    uint32_t index = QM_LINK_NO_ENTRY;

    pthread_mutex_lock(&link->lock);
    if (link->free_count > 0)
        index = link->free[--link->free_count];
    pthread_mutex_unlock(&link->lock);
    return index;
}

void qm_mount_link_give(struct qm_mount_link *link, uint32_t index)
{
    pthread_mutex_lock(&link->lock);
    link->free[link->free_count++] = index;
    pthread_mutex_unlock(&link->lock);
}

/* A plain field of an entry, written while the mount may be reading it. */
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

/* Makes the entry's version odd; nothing stored afterwards can be seen before that.
 * Returns what it was, made even in case the mount wrote there. */
static uint64_t open_entry(struct qm_mount_entry *e)
{
    uint64_t version =
        atomic_load_explicit(&e->version, memory_order_relaxed) & ~UINT64_C(1);

    /* An exchange, as a fence would not be understood by the thread sanitizer. */
    (void)atomic_exchange_explicit(&e->version, version + 1, memory_order_acq_rel);
    return version;
}

uint64_t qm_mount_link_write(struct qm_mount_link *link, uint32_t index, uint32_t kind,
                             uint64_t klass, const char *name, size_t len,
                             uint32_t parent, uint64_t parent_version)
{
    typedef uint32_t __attribute__((may_alias)) word;
    _Static_assert(offsetof(struct qm_mount_entry, name) % sizeof(word) == 0, "words");
    struct qm_mount_entry *e = &link->entries[index];
    word *to = (word *)(void *)e->name;
    uint64_t version = open_entry(e);

    STORE(e->kind, kind);
    STORE(e->parent, parent == QM_LINK_NO_ENTRY ? 0 : parent + 1);
    STORE(e->parent_version, parent == QM_LINK_NO_ENTRY ? 0 : parent_version);
    STORE(e->klass, klass);
    STORE(e->name_len, (uint32_t)len);
    for (size_t at = 0; at < len; at += sizeof(word)) {
        uint32_t w = 0;

        memcpy(&w, name + at, len - at < sizeof w ? len - at : sizeof w);
        __atomic_store_n(to++, w, __ATOMIC_RELAXED);
    }
    atomic_store_explicit(&e->version, version + 2, memory_order_release);
    return version + 2;
}

int qm_mount_link_end(struct qm_mount_link *link, uint32_t index, uint64_t version)
{
    struct qm_mount_entry *e = &link->entries[index];
    struct qm_mount_ended ended = {.index = index, .version = version};
    uint64_t even = open_entry(e);

    STORE(e->kind, 0);
    atomic_store_explicit(&e->version, even + 2, memory_order_seq_cst);
    if (atomic_load_explicit(&e->seen, memory_order_seq_cst) != version)
        return 0;
    if (!qm_own_fd_is(link->fd, &link->own))
        return EBADF;
    if (send(link->fd, &ended, sizeof ended, MSG_DONTWAIT | MSG_NOSIGNAL) != -1)
        return 0;
    /* A full socket is no loss: the mount finds out by the version. */
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ||
                   errno == ENOMEM || errno == EINTR
               ? 0
               : errno;
}
