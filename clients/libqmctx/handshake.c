/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake.c - making a connection, in bounded time.
 *
 * A server that is ending, or that hangs, still has a socket: it accepts connections
 * into its backlog and never says a word.  So there is a limit to how long the server's
 * greeting may take, and a longer one to each step after it, in which a server may have
 * to reach a server of its own.
 *
 * A machine that is gone says nothing either.  TCP is told to find out: by keepalive if
 * nothing is in flight, and by TCP_USER_TIMEOUT if something is.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/protocol/peer-watch.h"
#include "direct.h"

enum {
    GREETING_FIRST_MS = 20000, /* of a server that was never connected to */
    GREETING_AGAIN_MS = 5000,
    ASK_MS = 300,    /* between questions over another connection */
    STEP_MS = 30000, /* each step that follows */
    OTHER_MS = 4000, /* each of these, if there is another server to go to */
    GLANCE_MS = 100, /* after which it is seen that it is not wanted any more */
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* What libnbd says of its last error, as ours. */
static int nbd_failed(const char *what)
{
    int err = nbd_get_errno();

    return qm_fail(err ? err : EIO, "%s: %s", what, nbd_get_error());
}

/* Takes down which socket the handle has just now.  libnbd makes another for each of a
 * name's addresses: a child that is forked at that moment keeps one, or closes none.
 * Not before libnbd's last error was looked at: a handle without a socket is one, too.
 */
static void note_socket(struct direct *d, struct nbd_handle *nbd)
{
    int fd = nbd_aio_get_fd(nbd);
    struct stat st;

    if (fd == -1 || fstat(fd, &st) == -1) {
        atomic_store(&d->making_fd, -1);
        return;
    }
    if (fd == atomic_load(&d->making_fd) && st.st_ino == atomic_load(&d->making_inode))
        return;
    atomic_store(&d->making_fd, -1);
    atomic_store(&d->making_inode, st.st_ino);
    atomic_store(&d->making_fd, fd);
}

void qm_conn_opened(struct direct *d)
{
    atomic_store(&d->making_fd, -1);
}

void qm_conn_opening_forked(struct direct *d)
{
    int fd = atomic_load(&d->making_fd);
    struct stat st;

    if (fd != -1 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
        st.st_ino == atomic_load(&d->making_inode))
        close(fd);
}

static int limit(const struct direct *d, int ms)
{
    return d->uris.count > 1 && ms > OTHER_MS ? OTHER_MS : ms;
}

/* Lets the handle make progress until then; ETIMEDOUT if it did not in time. */
static int progress(struct direct *d, struct nbd_handle *nbd, int64_t until)
{
    int64_t left;
    int r;

    while ((left = until - now_ms()) > 0 && !atomic_load(&d->ending)) {
        r = nbd_poll(nbd, (int)(left < GLANCE_MS ? left : GLANCE_MS));
        if (r == -1)
            return nbd_failed(d->uri);
        note_socket(d, nbd);
        if (r == 1)
            return 0;
    }
    return qm_fail(ETIMEDOUT, "%s: the server does not answer", d->uri);
}

/* Until the handle is no longer connecting, or handling an option. */
static int settle(struct direct *d, struct nbd_handle *nbd, int limit_ms)
{
    int64_t until = now_ms() + limit_ms;

    while (nbd_aio_is_connecting(nbd))
        if (progress(d, nbd, until) == -1)
            return -1;
    if (nbd_aio_is_ready(nbd) || nbd_aio_is_negotiating(nbd))
        return 0;
    return qm_fail(ENOTCONN, "%s: the server closed the connection", d->uri);
}

static void asked(void *opaque, int error)
{
    struct direct *d = opaque;

    if (error)
        atomic_store(&d->refused, true);
    atomic_store(&d->asking, false);
}

/* Asks for something small over a connection that nothing is in flight on, if there is
 * one, without waiting: refused() says later whether it has failed. */
static void ask(struct direct *d)
{
    uint64_t offset = d->contextless ? 0 : QM_WIRE_CONTROL;
    struct request *request;

    if ((d->contextless && d->size < sizeof d->answer) ||
        atomic_exchange(&d->asking, true))
        return;
    atomic_store(&d->refused, false);
    request = malloc(sizeof *request);
    for (unsigned i = 0; request && i < d->connections; i++) {
        struct conn *conn = &d->conn[i];

        pthread_mutex_lock(&conn->lock);
        if (atomic_load(&conn->up) && conn->in_flight == 0) {
            qm_request_init(request, conn);
            qm_conn_async(request, asked, d);
            qm_conn_issue(request, CMD_READ, d->answer, sizeof d->answer, offset, 0);
            qm_conn_issued(request);
            pthread_mutex_unlock(&conn->lock);
            return;
        }
        pthread_mutex_unlock(&conn->lock);
    }
    free(request);
    atomic_store(&d->asking, false);
}

static bool refused(struct direct *d)
{
    for (unsigned i = 0; i < d->connections; i++)
        qm_conn_probe(&d->conn[i]);
    return atomic_load(&d->refused);
}

/* Until the server greets.  One that has been told to end does not, and waits meanwhile
 * for the connections that it has: so one of them, if there is any, is asked whether it
 * is still served. */
static int await_greeting(struct direct *d, struct nbd_handle *nbd)
{
    int64_t now = now_ms(), next = now + ASK_MS;
    int64_t until =
        now + limit(d, d->size_known ? GREETING_AGAIN_MS : GREETING_FIRST_MS);
    bool has_asked = false;

    while (nbd_aio_is_connecting(nbd)) {
        now = now_ms();
        if (has_asked && refused(d))
            return qm_fail(ENOTCONN, "%s: the server is ending", d->uri);
        if (now >= next) {
            ask(d);
            has_asked = true;
            next = now + ASK_MS;
        }
        if (progress(d, nbd, now + GLANCE_MS < until ? now + GLANCE_MS : until) == -1 &&
            (errno != ETIMEDOUT || now_ms() >= until || atomic_load(&d->ending)))
            return -1;
    }
    return settle(d, nbd, 0);
}

/* The handshake is over: whatever the handle waits for is the reply to cookie. */
static int await_reply(struct direct *d, struct nbd_handle *nbd, int64_t cookie)
{
    int64_t until = now_ms() + limit(d, STEP_MS);
    int r;

    if (cookie == -1)
        return nbd_failed(d->uri);
    while ((r = nbd_aio_command_completed(nbd, (uint64_t)cookie)) == 0)
        if (progress(d, nbd, until) == -1)
            return -1;
    return r == 1 ? 0 : nbd_failed(d->uri);
}

int qm_handshake_read(struct direct *d, struct nbd_handle *nbd, void *buf, size_t count,
                      uint64_t offset)
{
    return await_reply(d, nbd,
                       nbd_aio_pread(nbd, buf, count, offset, NBD_NULL_COMPLETION, 0));
}

int qm_handshake_write(struct direct *d, struct nbd_handle *nbd, const void *buf,
                       size_t count, uint64_t offset)
{
    return await_reply(d, nbd,
                       nbd_aio_pwrite(nbd, buf, count, offset, NBD_NULL_COMPLETION, 0));
}

static int option_done(void *opaque, int *error)
{
    *(int *)opaque = *error;
    return 1;
}

/* Asks for the export whose name is set. */
static int go(struct direct *d, struct nbd_handle *nbd)
{
    int error = 0;
    nbd_completion_callback done = {.callback = option_done, .user_data = &error};

    if (nbd_aio_opt_go(nbd, done) == -1)
        return nbd_failed(d->uri);
    if (settle(d, nbd, limit(d, STEP_MS)) == -1)
        return -1;
    if (nbd_aio_is_ready(nbd))
        return 0;
    return qm_fail(error ? error : EIO, "%s: the server refuses the export: %s", d->uri,
                   strerror(error ? error : EIO));
}

/* Whether the server, which may be any, is one of QuickMine's that the URI names no
 * export of; if so, its tagged export is set, else the URI's.  A handle that is asked
 * about need not be closed: some servers end with their first client.  0 or -1. */
static int look_for_ours(struct direct *d, struct nbd_handle *nbd)
{
    int error = 0;
    nbd_completion_callback done = {.callback = option_done, .user_data = &error};
    char *name = nbd_get_export_name(nbd);
    bool named = !name || *name;

    free(name);
    if (named)
        return 0;
    if (nbd_set_export_name(nbd, QM_WIRE_EXPORT) == -1 ||
        nbd_aio_opt_info(nbd, done) == -1)
        return nbd_failed(d->uri);
    if (settle(d, nbd, limit(d, STEP_MS)) == -1)
        return -1;
    d->contextless = error != 0 || nbd_get_size(nbd) != (int64_t)QM_WIRE_SIZE;
    return nbd_set_export_name(nbd, d->contextless ? "" : QM_WIRE_EXPORT) == -1
               ? nbd_failed(d->uri)
               : 0;
}

/* The URI names no export, or the very one. */
static int check_export(struct nbd_handle *nbd)
{
    char *name = nbd_get_export_name(nbd);
    bool fine = name && (!*name || strcmp(name, QM_WIRE_EXPORT) == 0);

    free(name);
    return fine ? 0
                : qm_fail(EINVAL, "the URI must not name an export (contexts go to the "
                                  "export \"" QM_WIRE_EXPORT "\")");
}

static int shake_hands(struct direct *d, const char *export, struct nbd_handle *nbd)
{
    /* Simple replies: libnbd takes two system calls to receive a read, not four, and
     * the server fewer to send it. */
    if (nbd_set_opt_mode(nbd, true) == -1 ||
        nbd_set_request_structured_replies(nbd, false) == -1 ||
        nbd_set_uri_allow_local_file(nbd, true) == -1 ||
        nbd_set_pread_initialize(nbd, false) == -1 ||
        nbd_set_strict_mode(nbd, nbd_get_strict_mode(nbd) &
                                     ~(uint32_t)LIBNBD_STRICT_ALIGN) == -1 ||
        nbd_aio_connect_uri(nbd, d->uri) == -1)
        return nbd_failed(d->uri);
    note_socket(d, nbd);
    if (await_greeting(d, nbd) == -1)
        return -1;
    qm_watch_peer(nbd_aio_get_fd(nbd), QM_SILENCE_MS);
    if (d->contextless && nbd_aio_is_ready(nbd))
        return 0;
    if (!nbd_aio_is_negotiating(nbd))
        return qm_fail(EPROTO, "%s: the server knows no exports", d->uri);
    if (d->any && !d->size_known && look_for_ours(d, nbd) == -1)
        return -1;
    if (!d->contextless) {
        if (check_export(nbd) == -1)
            return -1;
        if (nbd_set_export_name(nbd, export) == -1)
            return nbd_failed(d->uri);
    }
    return go(d, nbd);
}

int qm_conn_why(struct nbd_handle *nbd, int err)
{
    /* One that is connecting was closed before libnbd has looked at it first: it does
     * not expect the end there, and stays as it is. */
    bool gone = nbd_aio_is_dead(nbd) == 1 || nbd_aio_is_closed(nbd) == 1 ||
                nbd_aio_is_connecting(nbd) == 1;

    /* libnbd has no number for a connection that ends while it is being made. */
    return (err == EINVAL || err == EIO) && gone ? ENOTCONN : err;
}

int qm_conn_open(struct direct *d, const char *export, struct nbd_handle **nbd)
{
    int err;

    *nbd = nbd_create();
    if (!*nbd)
        return nbd_failed("libnbd");
    if (shake_hands(d, export, *nbd) == 0)
        return 0;
    err = qm_conn_why(*nbd, errno);
    qm_conn_opened(d);
    nbd_close(*nbd);
    *nbd = NULL;
    errno = err;
    return -1;
}
