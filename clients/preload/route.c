/* SPDX-License-Identifier: BSD-3-Clause */
/* route.c - which paths are which servers' devices.
 *
 * The environment says what is routed, and how, once, when the library is loaded;
 * afterwards the table does not change.  `device` is set once a process and then stays:
 * a thread that has seen it set may use it without a lock.  In a child it is taken away
 * before anything else runs there, and what it pointed to is left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/libqmctx/uris.h"
#include "clients/preload/family.h"
#include "clients/preload/files.h"
#include "clients/preload/next.h"
#include "clients/preload/patient.h"
#include "clients/preload/preload.h"
#include "clients/preload/record.h"
#include "clients/preload/say.h"

#define FILES       "QMCTX_PRELOAD_FILES"
#define CONNECTIONS "QMCTX_PRELOAD_CONNECTIONS"
#define RETAIN      "QMCTX_PRELOAD_RETAIN"
#define WAIT        "QMCTX_PRELOAD_WAIT"
#define MAX_ROUTES  64
#define PLAIN       "plain:" /* before a URI */

/* Of QMCTX_PRELOAD_RETAIN; less would hold little, more is a mistake. */
#define RETAIN_MIN (UINT64_C(1) << 20)
#define RETAIN_MAX (UINT64_C(1) << 40)

struct route {
    char *path, *uri; /* as they were given */
    bool plain;       /* the export that the URI names, without contexts */
    char *dir;        /* of the path, without symbolic links */
    const char *name; /* the path's last part */

    pthread_mutex_t lock;     /* a leaf */
    bool connecting;          /* lock; a thread is */
    unsigned attempts;        /* lock; that have ended, parents' included */
    int error;                /* lock; of the last */
    pthread_cond_t connected; /* lock; an attempt has ended */
    bool owns;                /* lock; whether there is an owner has been looked at */
    struct qm_owner owner;    /* then constant, but in a child */
    _Atomic(struct qm_device *) device;
    _Atomic bool known; /* the three that follow, constant from then on: */
    uint64_t size;
    uint32_t block_size;
    bool read_only;
};

static struct route routes[MAX_ROUTES]; /* constant since configure() */
static unsigned route_count;
static struct qm_device_options options = {
    .connections = 8, /* of each process */
    .patient = true,
    .wait = QM_DEVICE_FOREVER,
    .reconnect = QM_DEVICE_FOREVER,
};
static struct family *families; /* NULL: nobody retains */
static bool is_child;           /* of the process in which the library was loaded */

/* The one way to tell a person what an errno value cannot. */
static void complain(const struct route *route, const char *what)
{
    qm_say("libqmctx-preload: %s: %s\n", route->path, what);
}

static void device_says(void *route, int priority, const char *sentence)
{
    complain(route, sentence);
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
    /* The program may be in another directory when it first uses the file. */
    route->uri = qm_uris_absolute(text);
    if (!route->uri)
        misconfigured(FILES, "its relative paths cannot be found");
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
    route->owner = QM_OWNER_NONE;
    route_count++;
}

/* A number of decimal digits alone, at most max; false: it is something else. */
static bool parse_number(const char *text, size_t len, uint64_t max, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
        if (*number > max)
            return false;
    }
    return len > 0;
}

static void configure_retain(const char *text)
{
    static const char units[] = "KMGT";
    size_t len = strlen(text);
    const char *unit = len > 0 ? strchr(units, text[len - 1]) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    uint64_t n;

    if (strcmp(text, "off") == 0) {
        options.mode = QM_RETAIN_OFF;
    } else if (strcmp(text, "fua") == 0) {
        options.mode = QM_RETAIN_FUA;
    } else if (parse_number(text, len - (unit != NULL), RETAIN_MAX >> shift, &n) &&
               n << shift >= RETAIN_MIN) {
        options.retain = n << shift;
    } else {
        misconfigured(RETAIN, "must be off, fua, or a size from 1M to 1T");
    }
}

/* What the environment says; NULL: nothing. */
static const char *setting(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

void qm_routes_configure(void)
{
    const char *files = setting(FILES), *text;
    uint64_t n;
    size_t len;

    text = setting(CONNECTIONS);
    if (text) {
        if (!parse_number(text, strlen(text), 64, &n) || n < 1)
            misconfigured(CONNECTIONS, "must be a number from 1 to 64");
        options.connections = (unsigned)n;
    }
    text = setting(WAIT);
    if (text) {
        if (!parse_number(text, strlen(text), 1000000000, &n))
            misconfigured(WAIT, "must be a number of seconds from 0 to 1000000000");
        options.wait = (uint32_t)n;
    }
    text = setting(RETAIN);
    if (text)
        configure_retain(text);
    for (; files && *files; files += len) {
        files += strspn(files, " \t\n");
        len = strcspn(files, " \t\n");
        if (len > 0)
            add_route(files, len);
    }
    if (route_count > 0 && options.mode != QM_RETAIN_FUA) {
        families = qm_families_new(route_count);
        if (!families)
            options.mode = QM_RETAIN_FUA;
    }
}

void qm_routes_forked(void)
{
    is_child = true;
    for (unsigned i = 0; i < route_count; i++) {
        struct route *route = &routes[i];

        pthread_mutex_init(&route->lock, NULL);
        pthread_cond_init(&route->connected, NULL);
        atomic_store(&route->device, NULL);
        route->connecting = false;
        qm_owner_forked(&route->owner);
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

int qm_route_error(int error)
{
    switch (error) {
    case 0:
    case EACCES:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case EPERM:
    case EROFS:
        return error;
    default:
        return EIO;
    }
}

static struct family *family_of(const struct route *route)
{
    return families ? qm_family_of(families, (unsigned)(route - routes)) : NULL;
}

/* Whether the device is the one that it was, in this process or a parent; else says
 * what has changed. */
static bool same_device(const struct route *route, const struct qm_device *device)
{
    uint64_t size = qm_device_size(device);
    bool read_only = qm_device_read_only(device);
    char text[128];

    if (!atomic_load(&route->known) ||
        (size == route->size && read_only == route->read_only))
        return true;
    if (size != route->size)
        snprintf(text, sizeof text,
                 "the server has another device now: %" PRIu64 " bytes, not %" PRIu64,
                 size, route->size);
    else
        snprintf(text, sizeof text, "the server has another device now: %s",
                 read_only ? "read-only, not writable" : "writable, not read-only");
    complain(route, text);
    return false;
}

/* Whose sessions at the server are ours and our predecessors': of the first process
 * that uses the file; its children, and others that use it meanwhile, are nobody's. */
static void own(struct route *route)
{
    char path[PATH_MAX];
    int n, err;

    if (route->owns || is_child)
        return;
    route->owns = true;
    n = snprintf(path, sizeof path, "%s/.%s.owner", route->dir, route->name);
    err = n < 0 || (size_t)n >= sizeof path ? ENAMETOOLONG
                                            : qm_owner_open(&route->owner, path, 0);
    if (err == 0 || err == EWOULDBLOCK)
        return;
    qm_say(
        "libqmctx-preload: %s: %s.  If this program is killed, the next one does not "
        "know what it had under way\n",
        path, strerror(err));
}

/* A device that may be used; or an errno value. */
static int open_device(struct route *route, struct qm_device **device)
{
    struct family *family = family_of(route);
    struct qm_device_options o = options;
    int err;

    if (family && is_child && qm_family_join(family, o.wait) != 0) {
        complain(route, "another process has not flushed what it wrote");
        return EIO;
    }
    if (family && (is_child || qm_family_is_large(family)))
        o.mode = QM_RETAIN_FUA;
    own(route);
    if (route->owner.fd != -1)
        memcpy(o.owner, route->owner.id, sizeof o.owner);
    o.plain = route->plain;
    o.log = device_says;
    o.opaque = route;
    err = qm_device_open(route->uri, &o, device);
    if (err) {
        complain(route, qmctx_error());
        return err;
    }
    if (!same_device(route, *device)) {
        err = EIO;
    } else if (o.mode != QM_RETAIN_FUA) {
        err = qm_family_watch(family, *device);
    }
    if (err)
        qm_device_close(*device);
    return err;
}

/* By one thread at a time. */
static int connect_anew(struct route *route)
{
    struct qm_device *device;
    int err = open_device(route, &device);

    if (err)
        return qm_route_error(err);
    if (!atomic_load(&route->known)) {
        route->size = qm_device_size(device);
        route->block_size = qm_device_block_size(device);
        route->read_only = qm_device_read_only(device);
        atomic_store(&route->known, true);
    }
    atomic_store(&route->device, device);
    return 0;
}

static int connect(struct route *route)
{
    unsigned before;
    int err = 0;
    QM_PATIENT();

    pthread_mutex_lock(&route->lock);
    before = route->attempts;
    while (route->connecting)
        pthread_cond_wait(&route->connected, &route->lock);
    if (atomic_load(&route->device)) {
        /* Another thread has done it. */
    } else if (route->attempts != before) {
        err = route->error;
    } else {
        route->connecting = true;
        pthread_mutex_unlock(&route->lock);
        err = connect_anew(route);
        pthread_mutex_lock(&route->lock);
        route->connecting = false;
        route->attempts++;
        route->error = err;
        pthread_cond_broadcast(&route->connected);
    }
    pthread_mutex_unlock(&route->lock);
    return err;
}

struct qm_device *qm_route_device(struct route *route)
{
    struct qm_device *device = atomic_load(&route->device);
    int err;

    if (device)
        return device;
    err = connect(route);
    if (err) {
        errno = err;
        return NULL;
    }
    return atomic_load(&route->device);
}

int qm_route_connect(struct route *route)
{
    if (atomic_load(&route->known))
        return 0;
    return !qm_files_ours() ? EOPNOTSUPP : connect(route);
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
    const char *text = where ? where : getenv("QMCTX_TRANSPORT");
    struct qm_device *device;
    struct route *route;
    int result;

    if (!text)
        text = getenv("QMCTX_CARRIER"); /* its old name */
    if (qm_record_announce(text, ctx, &result))
        return result;
    route = text ? announced(text) : NULL;
    /* Without a transport named, the only routed file is meant. */
    if (!(text && *text) && route_count == 1)
        route = &routes[0];
    if (!route)
        return NEXT(qmctx_announce)(where, ctx);
    *ctx = NULL;
    device = qm_route_device(route);
    return device ? qmctx_attach(qm_device_qmctx(device), ctx) : -1;
}
