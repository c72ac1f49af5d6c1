/* SPDX-License-Identifier: BSD-3-Clause */
/* announce.c - the socket on which programs announce that their threads have contexts.
 *
 * The group ids that mean contexts are divided into ranges of QM_PEER_ENTRIES.  A
 * program gets a range of its own; a range that was given back rests until all others
 * were used, so that a stray thread with an old group id does not soon stand for
 * another's context.  `ranges` leads from a group id to its program without a lock:
 * places (struct qm_peer) are not freed while requests come, and know whom they belong
 * to.
 *
 * Everything else here belongs to the announcing thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clients/mount/announce.h"
#include "clients/mount/peer.h"
#include "clients/protocol/quickmine-mount.h"
#include "clients/protocol/stale-socket.h"

#define RANGES ((QM_MOUNT_GID_END - QM_MOUNT_GID_BASE) / QM_PEER_ENTRIES)

/* Messages taken from one program before the next has its turn. */
#define MESSAGES_A_TURN 64

struct program {
    int fd; /* -1: this place is free */
    uint32_t range;
    struct qm_peer *peer; /* made when the place is first taken, then kept */
};

struct qm_announce {
    struct qm_device *device;
    char *path;
    int listener, epoll, stop;
    atomic_uint owner; /* uid_t */
    void (*tick)(void *opaque);
    void *opaque;
    void (*report)(void *opaque, char *text, size_t len); /* NULL: nothing to tell */
    void *reports;                                        /* its opaque */
    bool started;
    pthread_t thread;

    struct program programs[QM_ANNOUNCE_PROGRAMS];
    uint32_t next_range;
    _Atomic(struct qm_peer *) ranges[RANGES];
};

/* --- making it --- */

static int bind_to(int fd, const struct sockaddr_un *address)
{
    mode_t before = umask(0177);
    int r = bind(fd, (const struct sockaddr *)address, sizeof *address);
    int error = errno;

    umask(before);
    errno = error;
    return r;
}

static int listen_at(const char *path, char *err, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(err, len,
                 "%s: too long for a socket's path (%zu bytes at most); see "
                 "--context-socket",
                 path, sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);

    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1) {
        snprintf(err, len, "socket: %s", strerror(errno));
        return -1;
    }
    /* What another mount left that was killed. */
    qm_socket_remove_stale(&address, SOCK_SEQPACKET);
    if (bind_to(fd, &address) == -1) {
        snprintf(err, len, "%s: %s", path,
                 errno == EADDRINUSE ? "exists already, and is in use or not a socket"
                                     : strerror(errno));
        close(fd);
        return -1;
    }
    if (listen(fd, QM_ANNOUNCE_PROGRAMS) == -1) {
        snprintf(err, len, "%s: %s", path, strerror(errno));
        unlink(path);
        close(fd);
        return -1;
    }
    return fd;
}

static int watch(int epoll, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = what};

    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int qm_announce_listen(const char *path, uid_t owner, struct qm_device *device,
                       struct qm_announce **announce, char *err, size_t len)
{
    struct qm_announce *a = calloc(1, sizeof *a);

    *announce = NULL;
    if (!a || !(a->path = strdup(path))) {
        free(a);
        snprintf(err, len, "out of memory");
        return -1;
    }
    a->device = device;
    for (unsigned i = 0; i < QM_ANNOUNCE_PROGRAMS; i++)
        a->programs[i].fd = -1;
    a->epoll = a->stop = -1;
    a->listener = listen_at(path, err, len);
    if (a->listener == -1) {
        free(a->path);
        free(a);
        return -1;
    }
    qm_announce_set_owner(a, owner);
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->epoll == -1 || a->stop == -1 || watch(a->epoll, a->stop, &a->stop) == -1 ||
        watch(a->epoll, a->listener, &a->listener) == -1) {
        snprintf(err, len, "%s: %s", path, strerror(errno));
        qm_announce_free(a);
        return -1;
    }
    *announce = a;
    return 0;
}

/* The folder's owner may have put another file in the socket's place, or another folder
 * in the folder's: only a socket of root's that has no other name gets another owner.
 */
static void give_away(const char *path, uid_t owner)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd == -1)
        return;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_nlink == 1)
        (void)!fchownat(fd, "", owner, (gid_t)-1, AT_EMPTY_PATH);
    close(fd);
}

void qm_announce_set_owner(struct qm_announce *announce, uid_t owner)
{
    atomic_store(&announce->owner, owner);
    /* Only root can give a file away; another user already is the owner. */
    if (geteuid() == 0)
        give_away(announce->path, owner);
}

/* --- programs come and go --- */

static bool may_connect(const struct qm_announce *a, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == -1)
        return false;
    return peer.uid == 0 || peer.uid == geteuid() || peer.uid == atomic_load(&a->owner);
}

/* A range that nobody has; there are more ranges than places. */
static uint32_t take_range(struct qm_announce *a)
{
    for (;;) {
        uint32_t range = a->next_range;

        a->next_range = (range + 1) % RANGES;
        if (!atomic_load(&a->ranges[range]))
            return range;
    }
}

static bool send_hello(int fd, uint32_t range, int memory)
{
    struct qm_mount_hello hello = {
        .magic = QM_MOUNT_MAGIC,
        .version = QM_MOUNT_VERSION,
        .gid_base = QM_MOUNT_GID_BASE + range * QM_PEER_ENTRIES,
        .entries = QM_PEER_ENTRIES,
        .bytes = QM_PEER_ENTRIES * sizeof(struct qm_mount_entry),
    };
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof hello};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memory, sizeof memory);
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello;
}

static void goodbye(struct qm_announce *a, struct program *program)
{
    atomic_store(&a->ranges[program->range], NULL);
    qm_peer_detach(program->peer);
    close(program->fd); /* which also ends the watch */
    program->fd = -1;
}

/* Takes fd. */
static void welcome(struct qm_announce *a, int fd)
{
    struct program *program = NULL;
    int memory;

    for (unsigned i = 0; i < QM_ANNOUNCE_PROGRAMS && !program; i++)
        if (a->programs[i].fd == -1)
            program = &a->programs[i];
    if (!program || !may_connect(a, fd))
        goto refuse;
    if (!program->peer && !(program->peer = qm_peer_new(a->device)))
        goto refuse;

    program->range = take_range(a);
    if (qm_peer_attach(program->peer, program->range, &memory) != 0)
        goto refuse;
    program->fd = fd;
    atomic_store_explicit(&a->ranges[program->range], program->peer,
                          memory_order_release);
    if (!send_hello(fd, program->range, memory) || watch(a->epoll, fd, program) == -1)
        goodbye(a, program);
    close(memory);
    return;

refuse:
    close(fd);
}

static void accept_one(struct qm_announce *a)
{
    int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd != -1)
        welcome(a, fd);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        /* It stays there, and readable: do not spin on it. */
        poll(NULL, 0, 100);
}

/* A program that does not read gets nothing. */
static void tell(struct qm_announce *a, struct program *program)
{
    char text[QM_MOUNT_ANSWER_MAX];

    if (!a->report)
        return;
    a->report(a->reports, text, sizeof text);
    (void)!send(program->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void hear(struct qm_announce *a, struct program *program)
{
    for (unsigned i = 0; i < MESSAGES_A_TURN; i++) {
        struct qm_mount_ended ended;
        ssize_t n = recv(program->fd, &ended, sizeof ended, MSG_TRUNC | MSG_DONTWAIT);

        if (n == -1 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != sizeof ended) {
            goodbye(a, program);
            return;
        }
        if (ended.index == QM_MOUNT_ASK)
            tell(a, program);
        else
            qm_peer_ended(program->peer, ended.index, ended.version);
    }
}

/* --- the thread --- */

static int64_t milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void sweep(struct qm_announce *a)
{
    for (unsigned i = 0; i < QM_ANNOUNCE_PROGRAMS; i++)
        if (a->programs[i].fd != -1)
            qm_peer_sweep(a->programs[i].peer);
    a->tick(a->opaque);
}

static void *announce_thread(void *arg)
{
    struct qm_announce *a = arg;
    int64_t next = milliseconds() + 1000;

    for (;;) {
        struct epoll_event events[16];
        int64_t left = next - milliseconds();
        int n = epoll_wait(a->epoll, events, 16, left > 0 ? (int)left : 0);

        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;

            if (what == &a->stop)
                return NULL;
            if (what == &a->listener)
                accept_one(a);
            else if (((struct program *)what)->fd != -1)
                hear(a, what);
        }
        if (milliseconds() >= next) {
            sweep(a);
            next = milliseconds() + 1000;
        }
    }
}

void qm_announce_set_report(struct qm_announce *announce,
                            void (*report)(void *opaque, char *text, size_t len),
                            void *opaque)
{
    announce->report = report;
    announce->reports = opaque;
}

int qm_announce_start(struct qm_announce *announce, void (*tick)(void *opaque),
                      void *opaque)
{
    sigset_t all, before;
    int r;

    announce->tick = tick;
    announce->opaque = opaque;
    /* Signals are for the main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&announce->thread, NULL, announce_thread, announce);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    announce->started = r == 0;
    return r;
}

void qm_announce_free(struct qm_announce *announce)
{
    if (!announce)
        return;
    if (announce->started) {
        uint64_t one = 1;

        /* An eventfd that is at 0 takes it always. */
        (void)!write(announce->stop, &one, sizeof one);
        pthread_join(announce->thread, NULL);
    }
    for (unsigned i = 0; i < QM_ANNOUNCE_PROGRAMS; i++) {
        if (announce->programs[i].fd != -1)
            goodbye(announce, &announce->programs[i]);
        qm_peer_free(announce->programs[i].peer);
    }
    unlink(announce->path);
    close(announce->listener);
    if (announce->epoll != -1)
        close(announce->epoll);
    if (announce->stop != -1)
        close(announce->stop);
    free(announce->path);
    free(announce);
}

struct qm_tag *qm_announce_tag(struct qm_announce *announce, uint32_t gid)
{
    uint32_t number = gid - QM_MOUNT_GID_BASE;
    struct qm_peer *peer;

    if (gid < QM_MOUNT_GID_BASE || gid >= QM_MOUNT_GID_END)
        return NULL;
    peer = atomic_load_explicit(&announce->ranges[number / QM_PEER_ENTRIES],
                                memory_order_acquire);
    if (!peer)
        return NULL;
    return qm_peer_tag(peer, number / QM_PEER_ENTRIES, number % QM_PEER_ENTRIES);
}
