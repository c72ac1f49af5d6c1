/* SPDX-License-Identifier: BSD-3-Clause */
/* device-owner.c - see qm_owner_open() in device.h.
 *
 * The file may lie in a directory of another user, who exchanges its contents and the
 * directory itself: it is looked up once, and held by a descriptor.
 *
 * The server answers when a predecessor's requests have ended, which takes as long as
 * its storage hangs: a thread says so meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "clients/libqmctx/device-internal.h"

enum {
    LONG_MS = 1000, /* for a predecessor's requests: worth a word */
    ATTEMPTS = 16,  /* at a file that others remove meanwhile */
    NAP_MS = 20,
};

static bool is_set(const uint8_t id[QM_OWNER_SIZE])
{
    static const uint8_t none[QM_OWNER_SIZE];

    return memcmp(id, none, sizeof none) != 0;
}

int qm_owner_read(int fd, uint8_t id[QM_OWNER_SIZE])
{
    /* One that was cut short is as good as none: nobody has used it. */
    if (pread(fd, id, QM_OWNER_SIZE, 0) == QM_OWNER_SIZE && is_set(id))
        return 0;
    do {
        if (getrandom(id, QM_OWNER_SIZE, 0) != QM_OWNER_SIZE)
            return EIO;
    } while (!is_set(id));
    errno = ENOSPC; /* if it is cut short */
    return pwrite(fd, id, QM_OWNER_SIZE, 0) == QM_OWNER_SIZE ? 0 : errno;
}

/* A file that nobody else can read or write, or has another name of. */
static bool is_ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 &&
           (st->st_mode & 077) == 0;
}

/* Whether the name still leads to it: the previous holder of the lock may have removed
 * it. */
static bool is_there(const struct qm_owner *owner)
{
    struct stat now;

    return fstatat(owner->dir, owner->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_dev == owner->dev && now.st_ino == owner->ino;
}

/* 0, an errno value, or -1: again. */
static int take(struct qm_owner *owner)
{
    struct stat st;

    owner->fresh = false;
    owner->fd = openat(owner->dir, owner->name,
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (owner->fd == -1 || fstat(owner->fd, &st) != 0)
        return errno;
    owner->dev = st.st_dev;
    owner->ino = st.st_ino;
    if (st.st_nlink == 0)
        return -1;
    if (!is_ours(&st))
        return EPERM;
    if (flock(owner->fd, LOCK_EX | LOCK_NB) != 0)
        return errno;
    /* Another program may have had it since it was opened. */
    if (fstat(owner->fd, &st) != 0)
        return errno;
    owner->fresh = st.st_size == 0;
    return is_there(owner) ? qm_owner_read(owner->fd, owner->id) : -1;
}

/* For qm_owner_unused(): as soon as it is not locked, it may be another's. */
static void close_it(struct qm_owner *owner)
{
    int fd = owner->fd;

    owner->fd = -1;
    if (fd != -1)
        close(fd);
}

static int take_patiently(struct qm_owner *owner, unsigned wait_ms)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    int err = ESTALE;

    for (unsigned again = 0, ms = 0;;) {
        err = take(owner);
        if (err == 0)
            return 0;
        close_it(owner);
        if (err == EWOULDBLOCK && ms < wait_ms) {
            nanosleep(&nap, NULL);
            ms += NAP_MS;
        } else if (err != -1 || ++again == ATTEMPTS) {
            return err == -1 ? ESTALE : err;
        }
    }
}

static void let_go(struct qm_owner *owner)
{
    if (owner->dir != -1)
        close(owner->dir);
    free(owner->name);
    *owner = QM_OWNER_NONE;
}

int qm_owner_open(struct qm_owner *owner, const char *path, unsigned wait_ms)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int err;

    *owner = QM_OWNER_NONE;
    owner->name = strdup(slash ? slash + 1 : path);
    if (dir && owner->name)
        owner->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    err = !dir || !owner->name ? ENOMEM : owner->dir == -1 ? errno : 0;
    free(dir);
    if (err == 0)
        err = take_patiently(owner, wait_ms);
    if (err != 0)
        let_go(owner);
    return err;
}

void qm_owner_leave(struct qm_owner *owner)
{
    if (owner->fd == -1)
        return;
    close_it(owner);
    let_go(owner);
}

/* While it is locked: else it could be the next one's. */
static void unlink_it(const struct qm_owner *owner)
{
    if (owner->fd != -1 && is_there(owner))
        unlinkat(owner->dir, owner->name, 0);
}

void qm_owner_end(struct qm_owner *owner)
{
    unlink_it(owner);
    qm_owner_leave(owner);
}

void qm_owner_unused(const struct qm_owner *owner)
{
    if (owner->fresh)
        unlink_it(owner);
}

void qm_owner_forked(struct qm_owner *owner)
{
    struct stat st;

    /* The program may have closed it, and the number be another file's by now. */
    if (owner->fd != -1 && fstat(owner->fd, &st) == 0 && st.st_dev == owner->dev &&
        st.st_ino == owner->ino)
        close(owner->fd);
    owner->fd = -1;
}

/* --- the server --- */

struct patient {
    struct qm_device *device;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t answered;
    bool is_answered, said;
};

static void *say_so(void *opaque)
{
    struct patient *p = opaque;
    struct timespec until;
    int error = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    qm_time_add(&until, LONG_MS);
    pthread_mutex_lock(&p->lock);
    while (!p->is_answered && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&p->answered, &p->lock, &until);
    p->said = !p->is_answered;
    pthread_mutex_unlock(&p->lock);
    if (p->said)
        qm_device_log(p->device, LOG_WARNING,
                      "waiting until the server has carried out writes that were under "
                      "way before this program");
    return NULL;
}

static int own_patiently(struct qm_device *device)
{
    struct patient p = {.device = device};
    pthread_condattr_t monotonic;
    struct timespec since;
    pthread_t thread;
    int err, no_thread;

    pthread_mutex_init(&p.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p.answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    clock_gettime(CLOCK_MONOTONIC, &since);
    no_thread = qm_device_thread(&thread, say_so, &p);
    err = qm_direct_own(qm_direct_of(device->server), device->options.owner) == -1
              ? errno
              : 0;
    if (!no_thread) {
        pthread_mutex_lock(&p.lock);
        p.is_answered = true;
        pthread_cond_signal(&p.answered);
        pthread_mutex_unlock(&p.lock);
        pthread_join(thread, NULL);
    }
    pthread_cond_destroy(&p.answered);
    pthread_mutex_destroy(&p.lock);
    if (!err && p.said)
        qm_device_log(device, LOG_NOTICE, "they have ended, after %.1f s",
                      (double)qm_time_since(&since) / 1000);
    return err;
}

int qm_device_own(struct qm_device *device)
{
    _Static_assert(QM_OWNER_SIZE == QM_WIRE_OWNER_SIZE, "they are the same");
    return is_set(device->options.owner) ? own_patiently(device) : 0;
}
