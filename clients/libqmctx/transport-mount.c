/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-mount.c - the transport that announces contexts to a mount
 * (quickmine-mount.h).
 *
 * A thread's contexts are a stack of frames.  While there is a link to a mount, each
 * frame has an entry in the link's shared memory (as far as there are free ones), and
 * the thread's fsgid is the number of the innermost entry: it rides in each of its FUSE
 * requests.  fsgid is set by the raw system call, which is per thread.
 *
 * The link changes when a mount comes or goes; `generation` counts the changes, so that
 * a thread sees by one load whether its own idea is still right.  If not, it lets go of
 * the old link and announces all its open contexts anew over the new one.
 *
 * Every thread that begins a context looks after the link, at most once a second and
 * without ever waiting: next_check says when the next look is due.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "mount-link.h"
#include "uris.h"

#define CHECK_MS    1000 /* between looks whether the mount is there */
#define HELLO_MS    10   /* between looks for the mount's greeting ... */
#define PATIENCE_MS 5000 /* ... before it is given up */
#define ANNOUNCE_MS 1000 /* that qmctx_announce() waits for it */

struct mount {
    struct qmctx base;
    struct sockaddr_un address;

    _Atomic uint64_t generation; /* of link */
    _Atomic int64_t next_check;  /* milliseconds, as now_ms() */

    pthread_mutex_t lock;
    struct qm_mount_link *link; /* lock; NULL: none */
    int connecting;             /* lock; a socket that awaits the greeting, or -1 */
    int64_t since;              /* lock; when that was connected */
    int why;                    /* lock; an errno value: why there is no link */
    _Atomic int fd;             /* link's or connecting, for a child to close; -1 */
    struct qm_own_fd own;       /* what fd is */
};

struct frame {
    uint64_t klass, version;
    uint32_t index; /* of the entry; QM_LINK_NO_ENTRY: not announced */
    uint16_t kind, name_len;
    char name[QM_MOUNT_NAME_MAX + 1];
};

/* Entries that a thread keeps for its next contexts. */
#define KEEP 8

struct mount_thread {
    struct qm_thread base;
    struct qm_mount_link *link; /* a reference, or NULL */
    uint64_t generation;        /* that link is of */
    unsigned kept;
    uint32_t keep[KEEP];
    bool tagged;       /* fsgid is one of ours ... */
    uint32_t original; /* ... and was this before */
};

static struct frame *frames_of(const struct mount_thread *t)
{
    return t->base.frames;
}

static struct mount *mount_of(struct qmctx *ctx)
{
    return (struct mount *)ctx;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The calling thread's; returns what it was.  The C library's function of the same name
 * does the same, but may one day do it for all threads, as it does for setgid(). */
static uint32_t set_fsgid(uint32_t gid)
{
#ifdef SYS_setfsgid32
    return (uint32_t)syscall(SYS_setfsgid32, gid);
#else
    return (uint32_t)syscall(SYS_setfsgid, gid);
#endif
}

/* Whether this thread may use gid; the call tells nobody, so look what it did. */
static bool may_set_fsgid(uint32_t gid)
{
    uint32_t was = set_fsgid(gid);
    uint32_t is = set_fsgid(UINT32_MAX); /* no valid id: changes nothing */

    set_fsgid(was);
    return is == gid;
}

/* lock is held. */
static void put_link(struct mount *m, struct qm_mount_link *link)
{
    m->link = link;
    if (link)
        m->own = link->own;
    atomic_store_explicit(&m->fd, link ? link->fd : -1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->generation, 1, memory_order_release);
}

/* lock is held. */
static void stop_connecting(struct mount *m)
{
    atomic_store_explicit(&m->fd, -1, memory_order_relaxed);
    qm_own_fd_close(m->connecting, &m->own);
    m->connecting = -1;
}

/* The mount is gone: nobody uses link any more from now on. */
static void lose_link(struct mount *m, struct qm_mount_link *link, int why)
{
    pthread_mutex_lock(&m->lock);
    if (m->link == link) {
        m->why = why;
        put_link(m, NULL);
        atomic_store_explicit(&m->next_check, now_ms() + CHECK_MS,
                              memory_order_relaxed);
        qm_mount_link_shutdown(link);
        qm_mount_link_unref(link);
    }
    pthread_mutex_unlock(&m->lock);
}

/* Takes the greeting if it has come.  lock is held.  Returns when to look again. */
static int64_t take_hello(struct mount *m, int64_t now)
{
    struct qm_mount_link *link = NULL;
    int err = EBADF;

    if (qm_own_fd_is(m->connecting, &m->own))
        err = qm_mount_link_hello(m->connecting, &link);

    if (err == EAGAIN && now - m->since < PATIENCE_MS) {
        m->why = EAGAIN;
        return now + HELLO_MS;
    }
    if (err) {
        m->why = err == EAGAIN ? ETIMEDOUT : err;
        stop_connecting(m);
        return now + CHECK_MS;
    }
    m->connecting = -1;
    if (!may_set_fsgid(link->gid_base)) {
        /* That does not change: do not try again. */
        m->why = EPERM;
        atomic_store_explicit(&m->fd, -1, memory_order_relaxed);
        qm_mount_link_unref(link);
        return INT64_MAX;
    }
    put_link(m, link);
    return now + CHECK_MS;
}

/* lock is held.  Returns when to look again. */
static int64_t look(struct mount *m, int64_t now)
{
    struct qm_mount_link *link = m->link;

    if (link) {
        if (qm_mount_link_alive(link))
            return now + CHECK_MS;
        m->why = ECONNRESET;
        put_link(m, NULL);
        qm_mount_link_unref(link);
        /* It may be back already. */
    }
    if (m->connecting == -1) {
        m->connecting = qm_link_connect(&m->address);
        if (m->connecting == -1) {
            m->why = errno;
            return now + CHECK_MS;
        }
        m->since = now;
        m->own = qm_own_fd(m->connecting);
        atomic_store_explicit(&m->fd, m->connecting, memory_order_relaxed);
    }
    return take_hello(m, now);
}

static void check(struct mount *m)
{
    int64_t now = now_ms();

    if (now < atomic_load_explicit(&m->next_check, memory_order_relaxed) ||
        pthread_mutex_trylock(&m->lock))
        return;
    if (now >= atomic_load_explicit(&m->next_check, memory_order_relaxed))
        atomic_store_explicit(&m->next_check, look(m, now), memory_order_relaxed);
    pthread_mutex_unlock(&m->lock);
}

/* fsgid as the innermost announced context wants it. */
static void set_context(struct mount_thread *t)
{
    unsigned i = t->base.depth;
    uint32_t was;

    while (i > 0 && frames_of(t)[i - 1].index == QM_LINK_NO_ENTRY)
        i--;
    if (i > 0) {
        was = set_fsgid(t->link->gid_base + frames_of(t)[i - 1].index);
        if (!t->tagged)
            t->original = was;
        t->tagged = true;
    } else if (t->tagged) {
        set_fsgid(t->original);
        t->tagged = false;
    }
}

/* Describes frame i, whose enclosing ones have been, in an entry of the thread's link.
 */
static void announce(struct mount_thread *t, unsigned i)
{
    struct frame *f = &frames_of(t)[i];
    uint32_t parent = QM_LINK_NO_ENTRY;
    uint64_t parent_version = 0;

    f->index = t->kept > 0 ? t->keep[--t->kept] : qm_mount_link_take(t->link);
    if (f->index == QM_LINK_NO_ENTRY)
        return;
    while (i > 0 && parent == QM_LINK_NO_ENTRY) {
        parent = frames_of(t)[--i].index;
        parent_version = frames_of(t)[i].version;
    }
    f->version = qm_mount_link_write(t->link, f->index, f->kind, f->klass, f->name,
                                     f->name_len, parent, parent_version);
}

/* Lets go of the thread's link, which is not in use any more. */
static void let_go(struct mount_thread *t)
{
    if (t->link)
        qm_mount_link_unref(t->link);
    t->link = NULL;
    t->kept = 0;
    for (unsigned i = 0; i < t->base.depth; i++)
        frames_of(t)[i].index = QM_LINK_NO_ENTRY;
}

/* Brings the thread up to date with the transport's link. */
static void follow(struct mount *m, struct mount_thread *t)
{
    if (t->generation == atomic_load_explicit(&m->generation, memory_order_acquire))
        return;
    let_go(t);
    pthread_mutex_lock(&m->lock);
    t->generation = atomic_load_explicit(&m->generation, memory_order_relaxed);
    t->link = m->link;
    if (t->link)
        qm_mount_link_ref(t->link);
    pthread_mutex_unlock(&m->lock);
    for (unsigned i = 0; t->link && i < t->base.depth; i++)
        announce(t, i);
    set_context(t);
}

static int mount_begin(struct qmctx *ctx, struct qm_thread *thread,
                       enum qmctx_kind kind, uint64_t klass, const char *name)
{
    struct mount *m = mount_of(ctx);
    struct mount_thread *t = (struct mount_thread *)thread;
    struct frame *f;

    check(m);
    follow(m, t);
    if (!qm_thread_reserve(thread))
        return -1;
    f = &frames_of(t)[t->base.depth];
    f->kind = (uint16_t)kind;
    f->klass = klass;
    f->name_len = name ? (uint16_t)qm_name_len(name, QM_MOUNT_NAME_MAX) : 0;
    if (f->name_len)
        memcpy(f->name, name, f->name_len);
    f->index = QM_LINK_NO_ENTRY;
    t->base.depth++;
    if (t->link) {
        announce(t, t->base.depth - 1);
        if (f->index != QM_LINK_NO_ENTRY)
            set_context(t);
    }
    return 0;
}

/* Ends the entry of a frame that is off the stack. */
static void end_entry(struct mount *m, struct mount_thread *t, const struct frame *f)
{
    int err = qm_mount_link_end(t->link, f->index, f->version);

    if (t->kept < KEEP)
        t->keep[t->kept++] = f->index;
    else
        qm_mount_link_give(t->link, f->index);
    if (err)
        lose_link(m, t->link, err);
}

static void mount_end(struct qmctx *ctx, struct qm_thread *thread)
{
    struct mount *m = mount_of(ctx);
    struct mount_thread *t = (struct mount_thread *)thread;
    struct frame *f;

    follow(m, t);
    f = &frames_of(t)[--t->base.depth];
    if (f->index == QM_LINK_NO_ENTRY)
        return;
    /* First fsgid: nothing that this thread reads must come with an ended context. */
    set_context(t);
    end_entry(m, t, f);
}

static void mount_thread_gone(struct qmctx *ctx, struct qm_thread *thread)
{
    struct mount *m = mount_of(ctx);
    struct mount_thread *t = (struct mount_thread *)thread;

    unsigned depth = t->base.depth;

    t->base.depth = 0;
    /* Another thread's fsgid cannot be changed; qmctx(3) says so. */
    if (qm_thread_get(ctx, false) == thread)
        set_context(t);
    while (depth > 0) {
        const struct frame *f = &frames_of(t)[--depth];

        if (f->index != QM_LINK_NO_ENTRY)
            end_entry(m, t, f);
    }
    while (t->link && t->kept > 0)
        qm_mount_link_give(t->link, t->keep[--t->kept]);
    let_go(t);
}

static void mount_forked(struct qmctx *ctx, struct qm_thread *thread)
{
    struct mount *m = mount_of(ctx);
    struct mount_thread *t = (struct mount_thread *)thread;
    int fd = atomic_load_explicit(&m->fd, memory_order_relaxed);

    /* Otherwise the mount would not see the parent's end. */
    qm_own_fd_close(fd, &m->own);
    if (t && t->tagged)
        set_fsgid(t->original);
}

static bool mount_connected(struct qmctx *ctx)
{
    struct mount *m = mount_of(ctx);
    bool connected;

    pthread_mutex_lock(&m->lock);
    connected = m->link && qm_mount_link_alive(m->link);
    pthread_mutex_unlock(&m->lock);
    return connected;
}

static void mount_close(struct qmctx *ctx)
{
    struct mount *m = mount_of(ctx);

    if (m->link)
        qm_mount_link_unref(m->link);
    if (m->connecting != -1)
        stop_connecting(m);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

const struct qm_transport qm_transport_mount = {
    .name = "mount",
    .thread_bytes = sizeof(struct mount_thread),
    .frame_bytes = sizeof(struct frame),
    .connected = mount_connected,
    .begin = mount_begin,
    .end = mount_end,
    .thread_gone = mount_thread_gone,
    .forked = mount_forked,
    .close = mount_close,
};

/* The first look, for which there is time: so that a mount that is there is found. */
static void first_look(struct mount *m)
{
    int64_t deadline = now_ms() + ANNOUNCE_MS;
    struct pollfd p = {.events = POLLIN};
    int64_t now, next;

    pthread_mutex_lock(&m->lock);
    next = look(m, now_ms());
    while (m->connecting != -1 && (now = now_ms()) < deadline) {
        p.fd = m->connecting;
        if (poll(&p, 1, (int)(deadline - now)) > 0)
            next = take_hello(m, now_ms());
    }
    atomic_store_explicit(&m->next_check, next, memory_order_relaxed);
    pthread_mutex_unlock(&m->lock);
}

int qm_announce_to_mount(const char *path, struct qmctx **ctx)
{
    size_t len = strlen(path);
    struct mount *m;
    int err;

    if (len == 0 || len >= sizeof m->address.sun_path)
        return qm_fail(EINVAL, "the path of a mount's socket has 1 to %zu bytes",
                       sizeof m->address.sun_path - 1);
    m = calloc(1, sizeof *m);
    if (!m)
        return qm_fail(ENOMEM, "out of memory");
    m->address.sun_family = AF_UNIX;
    qm_socket_path(&m->address, path);
    m->connecting = -1;
    atomic_init(&m->fd, -1);
    /* A thread starts with generation 0 and no link. */
    atomic_init(&m->generation, 0);
    pthread_mutex_init(&m->lock, NULL);
    err = qm_register(&m->base, &qm_transport_mount);
    if (err) {
        free(m);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    first_look(m);
    if (!m->link) {
        if (m->why == EPERM && m->next_check == INT64_MAX)
            qm_fail(EPERM,
                    "setfsgid has no effect here (CAP_SETGID is needed, and in a "
                    "user namespace a mapping of ids from 0x%x on)",
                    QM_MOUNT_GID_BASE);
        else
            qm_fail(m->why, "no mount at %s yet: %s", path, strerror(m->why));
    }
    *ctx = &m->base;
    return 0;
}
