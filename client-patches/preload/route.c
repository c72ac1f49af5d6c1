/* route.c - which paths are which servers' devices, and the way there.
 *
 * The environment says what is routed, once, when the library is loaded; afterwards the
 * table does not change.  `ctx` is set once a process and then stays: who has seen it
 * set may use it without a lock.  In a child it is taken away before anything else runs
 * there, and what it pointed to is left alone.
 *
 * Replies to asynchronous requests need somebody who waits for them: a thread for each
 * route, from the first such request on.  `pending` counts them, and a thread that
 * finds it at 0 wakes the route's.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client-patches/preload/files.h"
#include "client-patches/preload/next.h"
#include "client-patches/preload/patient.h"
#include "client-patches/preload/preload.h"

#define FILES       "QMCTX_PRELOAD_FILES"
#define CONNECTIONS "QMCTX_PRELOAD_CONNECTIONS"
#define MAX_ROUTES  64
#define PLAIN       "plain:" /* before a URI */

struct route {
    char *path, *uri;  /* as they were given */
    bool plain;        /* the export that the URI names, without contexts */
    char *dir;         /* of the path, without symbolic links */
    const char *name;  /* the path's last part */
    unsigned connects; /* who is connecting; how often, parents included */

    pthread_mutex_t lock;     /* a leaf */
    bool connecting;          /* lock; a thread is */
    pthread_cond_t connected; /* lock; or it could not */
    _Atomic(struct qmctx *) ctx;
    uint64_t size; /* these three constant since the first connect of all */
    uint32_t block_size;
    bool read_only;

    _Atomic bool broken;       /* a request has failed for want of a connection */
    _Atomic bool reconnecting; /* a thread is */
    _Atomic time_t tried;      /* to connect again, last; seconds */
    bool stale;         /* who is reconnecting; another device has been complained of */
    _Atomic bool dirty; /* written since the last flush */
    _Atomic unsigned losses; /* of connections, while dirty */

    _Atomic int pending;     /* asynchronous requests */
    _Atomic bool has_thread; /* set under lock */
    sem_t wake;              /* it */
};

static struct route routes[MAX_ROUTES]; /* constant since configure() */
static unsigned route_count;
static unsigned connections;

/* The one way to tell a person what an errno value cannot. */
static void complain(const struct route *route, const char *what)
{
    fprintf(stderr, "libqmctx-preload: %s: %s\n", route->path, what);
}

static time_t seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* --- what is routed --- */

/* Nothing that follows could be right. */
static void misconfigured(const char *what, const char *allowed)
{
    fprintf(stderr, "libqmctx-preload: %s: %s\n", what, allowed);
    _exit(2);
}

static char *copy(const char *text, size_t len)
{
    char *c = strndup(text, len);

    if (!c)
        misconfigured(FILES, "out of memory");
    return c;
}

static void add_route(const char *text, size_t len)
{
    char *entry = copy(text, len), *equals = strstr(entry, "=nbd"), *slash;
    struct route *route = &routes[route_count];
    char *plain = strstr(entry, "=" PLAIN "nbd");

    if (plain) {
        route->plain = true;
        equals = plain;
    }
    if (!equals || entry[0] != '/')
        misconfigured(entry, "must be PATH=NBD-URI, with an absolute path");
    if (route_count == MAX_ROUTES)
        misconfigured(entry, "at most 64 files can be routed");
    text = equals + 1 + (plain ? strlen(PLAIN) : 0);
    route->uri = copy(text, strlen(text));
    *equals = '\0';
    route->path = entry;
    slash = strrchr(entry, '/');
    route->name = slash + 1;
    if (!*route->name || strcmp(route->name, ".") == 0 ||
        strcmp(route->name, "..") == 0)
        misconfigured(entry, "is not the path of a file");
    slash = copy(entry, (size_t)(route->name - entry));
    route->dir = realpath(slash, NULL);
    free(slash);
    if (!route->dir)
        misconfigured(entry, "its directory must be there");
    for (unsigned i = 0; i < route_count; i++)
        if (strcmp(routes[i].name, route->name) == 0 &&
            strcmp(routes[i].dir, route->dir) == 0)
            misconfigured(entry, "is there twice");
    pthread_mutex_init(&route->lock, NULL);
    pthread_cond_init(&route->connected, NULL);
    sem_init(&route->wake, 0, 0);
    route_count++;
}

void qm_routes_forked(void)
{
    for (unsigned i = 0; i < route_count; i++) {
        struct route *route = &routes[i];

        pthread_mutex_init(&route->lock, NULL);
        pthread_cond_init(&route->connected, NULL);
        sem_init(&route->wake, 0, 0);
        atomic_store(&route->ctx, NULL);
        atomic_store(&route->broken, false);
        atomic_store(&route->dirty, false);
        atomic_store(&route->pending, 0);
        atomic_store(&route->has_thread, false);
        atomic_store(&route->reconnecting, false);
        route->connecting = false;
    }
}

void qm_routes_configure(void)
{
    const char *files = getenv(FILES), *count = getenv(CONNECTIONS);
    size_t len;
    char *end;

    if (count && *count) {
        connections = (unsigned)strtoul(count, &end, 10);
        if (*end || connections < 1 || connections > 64)
            misconfigured(CONNECTIONS, "must be a number from 1 to 64");
    }
    for (; files && *files; files += len) {
        files += strspn(files, " \t\n");
        len = strcspn(files, " \t\n");
        if (len > 0)
            add_route(files, len);
    }
}

bool qm_routes(void)
{
    return route_count > 0;
}

/* The directory that path's last part is in, without symbolic links, into real. */
static bool real_dir(int dirfd, const char *path, size_t len, char real[PATH_MAX])
{
    char dir[PATH_MAX];
    int n;

    if (path[0] == '/' || dirfd == AT_FDCWD)
        n = snprintf(dir, sizeof dir, "%.*s", len ? (int)len : 1, len ? path : ".");
    else
        n = snprintf(dir, sizeof dir, "/proc/self/fd/%d/%.*s", dirfd, (int)len, path);
    return n >= 0 && (size_t)n < sizeof dir && realpath(dir, real);
}

struct route *qm_route_find(int dirfd, const char *path)
{
    struct route *found = NULL;
    const char *name, *slash;
    char real[PATH_MAX];
    int err = errno;
    bool known = false;

    if (route_count == 0 || !path)
        return NULL;
    slash = strrchr(path, '/');
    name = slash ? slash + 1 : path;
    for (unsigned i = 0; !found && i < route_count; i++) {
        if (strcmp(routes[i].name, name) != 0)
            continue;
        if (!known && !real_dir(dirfd, path, (size_t)(name - path), real))
            break;
        known = true;
        if (strcmp(routes[i].dir, real) == 0)
            found = &routes[i];
    }
    errno = err;
    return found;
}

unsigned qm_route_number(const struct route *route)
{
    return (unsigned)(route - routes) + 1;
}

const char *qm_route_path(const struct route *route)
{
    return route->path;
}

/* --- connecting --- */

/* What a program is told if the server cannot be reached, for an errno value of
 * connecting: that of a file that cannot be read, never of one that does not exist. */
static int unreachable(int error)
{
    switch (error) {
    case EACCES:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return error;
    default:
        return EIO;
    }
}

/* By one thread at a time.  *ctx is the route's then. */
static int connect_anew(struct route *route, struct qmctx **ctx)
{
    if ((route->plain ? qmctx_connect_plain : qmctx_connect)(route->uri, connections,
                                                             ctx) == -1) {
        int err = errno;

        complain(route, qmctx_error());
        return unreachable(err);
    }
    /* In a child, files may be open already. */
    if (route->connects > 0 && (qmctx_size(*ctx) != route->size ||
                                qmctx_is_read_only(*ctx) != route->read_only)) {
        complain(route, "the server has another device now");
        qmctx_close(*ctx);
        return EIO;
    }
    route->size = qmctx_size(*ctx);
    route->block_size = qmctx_block_size(*ctx);
    route->read_only = qmctx_is_read_only(*ctx);
    route->connects++;
    return 0;
}

int qm_route_connect(struct route *route)
{
    struct qmctx *ctx;
    int err = 0;
    QM_PATIENT();

    if (atomic_load(&route->ctx))
        return 0;
    if (!qm_files_ours())
        return EOPNOTSUPP;
    pthread_mutex_lock(&route->lock);
    while (route->connecting)
        pthread_cond_wait(&route->connected, &route->lock);
    if (!atomic_load(&route->ctx)) {
        route->connecting = true;
        pthread_mutex_unlock(&route->lock);
        err = connect_anew(route, &ctx);
        pthread_mutex_lock(&route->lock);
        if (!err)
            atomic_store(&route->ctx, ctx);
        route->connecting = false;
        pthread_cond_broadcast(&route->connected);
    }
    pthread_mutex_unlock(&route->lock);
    return err;
}

/* Connects again, if that was not tried for a second.  One thread does; others go on
 * and find out. */
static void reconnect(struct route *route, struct qmctx *ctx)
{
    if (seconds() == atomic_load(&route->tried) ||
        atomic_exchange(&route->reconnecting, true))
        return;
    atomic_store(&route->tried, seconds());
    if (!atomic_load(&route->broken)) {
        /* Another thread was faster. */
    } else if (qmctx_reconnect(ctx) == 0) {
        atomic_store(&route->broken, false);
        complain(route, "the server is back");
    } else if (errno == ESTALE && !route->stale) {
        route->stale = true;
        complain(route, qmctx_error());
    }
    atomic_store(&route->reconnecting, false);
}

/* The instance for a request; NULL: there is no way to make one. */
static struct qmctx *instance(struct route *route)
{
    struct qmctx *ctx;

    if (!atomic_load(&route->ctx) && qm_route_connect(route) != 0)
        return NULL;
    ctx = atomic_load(&route->ctx);
    if (atomic_load_explicit(&route->broken, memory_order_relaxed))
        reconnect(route, ctx);
    return ctx;
}

int qm_route_failed(struct route *route, int error)
{
    switch (error) {
    case 0:
    case EPERM:
    case ENOMEM:
    case ENOSPC:
    case EROFS:
        return error;
    case ENOTCONN:
    case ESHUTDOWN:
        if (!atomic_exchange(&route->broken, true)) {
            if (atomic_exchange(&route->dirty, false))
                atomic_fetch_add(&route->losses, 1);
            complain(route, "the server is gone: requests fail until it is back");
        }
        return EIO;
    default:
        return EIO;
    }
}

uint64_t qm_route_size(const struct route *route)
{
    return route->size;
}

uint32_t qm_route_block_size(const struct route *route)
{
    return route->block_size;
}

bool qm_route_is_read_only(const struct route *route)
{
    return route->read_only;
}

/* --- requests --- */

/* What a call of libqmctx has come to. */
static int outcome(struct route *route, int rc)
{
    return rc == 0 ? 0 : qm_route_failed(route, errno);
}

int qm_route_read(struct route *route, void *buf, size_t count, uint64_t offset)
{
    struct qmctx *ctx = instance(route);

    if (!ctx)
        return EIO;
    return outcome(route, qmctx_pread(ctx, qmctx_current(ctx), buf, count, offset));
}

static void wrote(struct route *route)
{
    if (!atomic_load_explicit(&route->dirty, memory_order_relaxed))
        atomic_store(&route->dirty, true);
}

int qm_route_write(struct route *route, const void *buf, size_t count, uint64_t offset,
                   bool fua)
{
    struct qmctx *ctx = instance(route);

    if (!ctx)
        return EIO;
    wrote(route);
    return outcome(route,
                   qmctx_pwrite(ctx, qmctx_current(ctx), buf, count, offset, fua));
}

int qm_route_zero(struct route *route, uint64_t count, uint64_t offset)
{
    struct qmctx *ctx = instance(route);

    if (!ctx)
        return EIO;
    wrote(route);
    return outcome(route, qmctx_zero(ctx, count, offset));
}

unsigned qm_route_losses(const struct route *route)
{
    return atomic_load(&route->losses);
}

int qm_route_flush(struct route *route, _Atomic unsigned *seen)
{
    struct qmctx *ctx = instance(route);
    unsigned losses;
    bool dirty;
    int err;

    if (!ctx)
        return EIO;
    /* Writes that come meanwhile count for the next one. */
    dirty = atomic_exchange(&route->dirty, false);
    err = outcome(route, qmctx_flush(ctx));
    if (err && dirty)
        atomic_fetch_add(&route->losses, 1);
    losses = atomic_load(&route->losses);
    return atomic_exchange(seen, losses) == losses ? err : EIO;
}

/* --- asynchronous ones --- */

static void *reply_thread(void *opaque)
{
    struct route *route = opaque;
    struct qmctx *ctx = atomic_load(&route->ctx);

    for (;;) {
        while (sem_wait(&route->wake) == -1)
            ;
        while (atomic_load(&route->pending) > 0)
            qmctx_poll(ctx, -1);
    }
    return NULL;
}

static int start_thread(struct route *route)
{
    sigset_t all, before;
    pthread_t thread;
    int err = 0;

    if (atomic_load_explicit(&route->has_thread, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&route->lock);
    if (!atomic_load(&route->has_thread)) {
        /* Signals are for the program. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&thread, NULL, reply_thread, route);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!err) {
            pthread_detach(thread);
            atomic_store(&route->has_thread, true);
        }
    }
    pthread_mutex_unlock(&route->lock);
    return err;
}

/* One asynchronous request, from qm_route_start() to done(). */
struct started {
    struct route *route;
    qmctx_done *done;
    void *opaque;
};

static void request_done(void *opaque, int error)
{
    struct started *s = opaque;

    /* Less than 0 until qm_route_start() has counted it. */
    atomic_fetch_sub(&s->route->pending, 1);
    s->done(s->opaque, error);
    free(s);
}

int qm_route_start(struct route *route, bool write, void *buf, size_t count,
                   uint64_t offset, bool fua, qmctx_done *done, void *opaque)
{
    struct qmctx *ctx = instance(route);
    struct started *s;
    int rc, err;

    if (!ctx)
        return EIO;
    err = start_thread(route);
    if (err)
        return err;
    s = malloc(sizeof *s);
    if (!s)
        return ENOMEM;
    *s = (struct started){.route = route, .done = done, .opaque = opaque};
    if (write)
        wrote(route);
    rc = write ? qmctx_aio_pwrite(ctx, qmctx_current(ctx), buf, count, offset, fua,
                                  request_done, s)
               : qmctx_aio_pread(ctx, qmctx_current(ctx), buf, count, offset,
                                 request_done, s);
    if (rc == -1) {
        err = errno;
        free(s);
        if (err != ENOTSUP)
            return qm_route_failed(route, err);
        /* There is no FUA: it takes a write and a flush, one after the other. */
        done(opaque, outcome(route, qmctx_pwrite(ctx, qmctx_current(ctx), buf, count,
                                                 offset, true)));
        return 0;
    }
    if (atomic_fetch_add(&route->pending, 1) == 0)
        sem_post(&route->wake);
    return 0;
}

/* --- contexts --- */

/* Whether text is of the routed file's socket, were it mounted. */
static struct route *announced(const char *text)
{
    static const char suffix[] = ".ctx";
    size_t len = strlen(text), rest = sizeof suffix - 1;
    char file[PATH_MAX];

    if (len <= rest || len - rest >= sizeof file ||
        strcmp(text + len - rest, suffix) != 0)
        return NULL;
    memcpy(file, text, len - rest);
    file[len - rest] = '\0';
    return qm_route_find(AT_FDCWD, file);
}

/* A part of the program announces contexts for a routed file as it would for one of a
 * mount: they are those of the requests that the same thread makes here. */
INTERPOSED int qmctx_announce(const char *where, struct qmctx **ctx)
{
    const char *text = where ? where : getenv("QMCTX_CARRIER");
    struct route *route = text ? announced(text) : NULL;

    /* Who knows of no carrier means the only file that there is. */
    if (!(text && *text) && route_count == 1)
        route = &routes[0];
    if (!route)
        return NEXT(qmctx_announce)(where, ctx);
    *ctx = NULL;
    errno = qm_route_connect(route);
    return errno ? -1 : qmctx_attach(atomic_load(&route->ctx), ctx);
}
