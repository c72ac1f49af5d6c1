/* SPDX-License-Identifier: BSD-3-Clause */
/* mock-mount.c - see mock-mount.h. */
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mock-mount.h"

static void greet(struct mock_mount *m)
{
    struct qm_mount_hello hello = {.magic = m->magic,
                                   .version = m->version,
                                   .gid_base = m->gid_base,
                                   .entries = m->entries,
                                   .bytes = m->bytes};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof hello};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;

    if (!m->no_memory) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &m->memory, sizeof(int));
    }
    if (sendmsg(m->fd, &msg, MSG_NOSIGNAL) == -1)
        warn("greeting");
}

static void receive(struct mock_mount *m)
{
    struct qm_mount_ended ended;
    ssize_t n = recv(m->fd, &ended, sizeof ended, 0);

    if (n == sizeof ended) {
        atomic_store(&m->last_index, ended.index);
        atomic_store(&m->last_version, ended.version);
        atomic_fetch_add(&m->ended, 1);
    } else {
        close(m->fd);
        m->fd = -1;
        atomic_fetch_add(&m->gone, 1);
    }
}

static void *serve(void *opaque)
{
    struct mock_mount *m = opaque;
    bool greeted = false;

    for (;;) {
        struct pollfd p[3] = {{.fd = m->stop, .events = POLLIN},
                              {.fd = m->fd == -1 ? m->listener : -1, .events = POLLIN},
                              {.fd = m->fd, .events = m->deaf ? 0 : POLLIN}};

        /* Held back, the greeting is looked after every few milliseconds. */
        poll(p, 3, m->fd != -1 && !greeted ? 5 : -1);
        if (p[0].revents)
            return NULL;
        if (p[2].revents)
            receive(m);
        if (p[1].revents) {
            m->fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
            greeted = false;
            atomic_fetch_add(&m->accepted, 1);
        }
        if (m->fd != -1 && !greeted && atomic_load(&m->greet)) {
            greet(m);
            greeted = true;
        }
    }
}

void mock_mount_start(struct mock_mount *m, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size;

    if (!m->entries)
        m->entries = 64;
    if (!m->gid_base)
        m->gid_base = QM_MOUNT_GID_BASE;
    if (!m->magic)
        m->magic = QM_MOUNT_MAGIC;
    if (!m->version)
        m->version = QM_MOUNT_VERSION;
    size = m->entries * sizeof(struct qm_mount_entry);
    if (!m->bytes)
        m->bytes = size;
    if (!m->memory_bytes)
        m->memory_bytes = size;
    strncpy(m->path, path, sizeof m->path - 1);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    m->fd = -1;
    m->memory = memfd_create("mock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->memory == -1 || ftruncate(m->memory, (off_t)m->memory_bytes) == -1 ||
        fcntl(m->memory, F_ADD_SEALS, m->unsealed ? F_SEAL_SEAL : F_SEAL_SHRINK) == -1)
        err(1, "memfd");
    m->entry =
        mmap(NULL, m->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->memory, 0);
    m->stop = eventfd(0, EFD_CLOEXEC);
    m->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    unlink(path);
    if (m->entry == MAP_FAILED || m->stop == -1 ||
        bind(m->listener, (struct sockaddr *)&address, sizeof address) == -1 ||
        listen(m->listener, 8) == -1 || pthread_create(&m->thread, NULL, serve, m))
        err(1, "mock mount");
}

void mock_mount_stop(struct mock_mount *m)
{
    if (write(m->stop, &(uint64_t){1}, sizeof(uint64_t)) == -1)
        err(1, "eventfd");
    pthread_join(m->thread, NULL);
    if (m->fd != -1)
        close(m->fd);
    close(m->listener);
    close(m->stop);
    close(m->memory);
    munmap(m->entry, m->memory_bytes);
    unlink(m->path);
}
