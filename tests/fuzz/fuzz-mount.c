/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-mount.c - the mount's socket, and the memory that it shares with a program.
 *
 * An input is a sequence of steps: words written to the shared memory, packets sent to
 * the socket, reads by threads with some group id.  The device keeps the
 * books instead: which contexts are open, and in which.
 *
 * Promised: a context begins within one that is open, with a kind and a name that are
 * allowed, and ends once; when the program is gone, all have ended.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/mount/announce.h"
#include "clients/protocol/quickmine-mount.h"
#include "fuzz.h"

#define BOOK 65536

static atomic_bool is_open[BOOK];
static atomic_uint next_id, open_count, refuse;

int qm_device_begin(struct qm_device *device, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id)
{
    if (atomic_load(&refuse) > 0 && atomic_fetch_sub(&refuse, 1) > 0)
        return EINVAL;
    promise(parent == 0 || atomic_load(&is_open[parent % BOOK]));
    promise(kind >= QMCTX_CONNECTION && kind <= QMCTX_QUERY);
    promise(!name || strlen(name) <= QM_MOUNT_NAME_MAX);
    do
        *id = 1 + atomic_fetch_add(&next_id, 1) % (BOOK - 1);
    while (atomic_exchange(&is_open[*id], true));
    atomic_fetch_add(&open_count, 1);
    return 0;
}

void qm_device_end(struct qm_device *device, qmctx_id id)
{
    promise(atomic_exchange(&is_open[id], false));
    atomic_fetch_sub(&open_count, 1);
}

static struct qm_announce *announce;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static char directory[64];

static void tick(void *opaque)
{
}

static void stop(void)
{
    qm_announce_free(announce);
    rmdir(directory);
}

static void start(void)
{
    char err[300];

    snprintf(directory, sizeof directory, "/tmp/quickmine-fuzz.XXXXXX");
    promise(mkdtemp(directory));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/ctx", directory);
    promise(qm_announce_listen(address.sun_path, geteuid(), NULL, &announce, err,
                               sizeof err) == 0);
    promise(qm_announce_start(announce, tick, NULL) == 0);
    atexit(stop);
}

/* Connects; -1 if there is no room for a moment. */
static int greet(struct qm_mount_hello *hello, int *memory)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {hello, sizeof *hello};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    promise(fd != -1);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == -1 ||
        recvmsg(fd, &message, 0) != sizeof *hello) {
        close(fd);
        return -1;
    }
    memcpy(memory, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *memory);
    return fd;
}

/* An entry that is nearly good. */
static void fill_in(struct food *f, struct qm_mount_entry *e)
{
    uint64_t version = eat_number(f, 1);

    atomic_store(&e->version, version | 1);
    e->kind = eat_number(f, 1) % 6;
    e->parent = eat_number(f, 1) % 20;
    e->parent_version = eat_number(f, 1);
    e->klass = eat_number(f, 1);
    e->name_len = eat_number(f, 1);
    eat(f, e->name, 5);
    atomic_store(&e->version, version);
}

/* Nobody is connected any more, as far as the mount knows. */
static void settle(int fd)
{
    struct pollfd gone = {.fd = fd, .events = POLLIN};
    char nothing;

    shutdown(fd, SHUT_WR);
    while (poll(&gone, 1, 1000) == 1 && recv(fd, &nothing, 1, 0) > 0)
        ;
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};
    struct qm_mount_hello hello;
    struct qm_mount_entry *shared;
    int fd, memory;

    if (!announce)
        start();
    while ((fd = greet(&hello, &memory)) == -1)
        ;
    promise(hello.magic == QM_MOUNT_MAGIC &&
            hello.bytes == hello.entries * sizeof *shared);
    shared = mmap(NULL, hello.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    promise(shared != MAP_FAILED);
    promise(ftruncate(memory, 0) == -1);
    close(memory);
    atomic_store(&refuse, 0);

    while (f.left > 0) {
        unsigned what = eat_number(&f, 1), index = eat_number(&f, 1) % 20;

        switch (what % 6) {
        case 0:
            fill_in(&f, &shared[index]);
            break;
        case 1: {
            unsigned word = eat_number(&f, 1) % (sizeof *shared / 8);
            uint64_t value = eat_number(&f, 8);

            __atomic_store_n((uint64_t *)&shared[index] + word, value,
                             __ATOMIC_RELAXED);
            break;
        }
        case 2:
        case 3: {
            uint32_t gid = hello.gid_base + (what & 64 ? eat_number(&f, 4) : index);
            struct qm_tag *tag = qm_announce_tag(announce, gid);

            if (tag)
                promise(atomic_load(&is_open[qm_tag_context(tag)]));
            qm_tag_put(tag);
            break;
        }
        case 4: {
            struct qm_mount_ended ended = {.index = index,
                                           .version = eat_number(&f, 1)};
            char packet[64];
            size_t n = eat_number(&f, 1) % sizeof packet;

            if (what & 64) {
                eat(&f, packet, n);
                (void)!send(fd, packet, n, MSG_NOSIGNAL);
            } else {
                (void)!send(fd, &ended, sizeof ended, MSG_NOSIGNAL);
            }
            break;
        }
        case 5:
            atomic_store(&refuse, eat_number(&f, 1) % 3);
            break;
        }
    }
    munmap(shared, hello.bytes);
    settle(fd);
    promise(atomic_load(&open_count) == 0);
    return 0;
}
