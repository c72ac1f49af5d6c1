/* server-link.c - the mount's way to its server, which may go away and come back.
 *
 * What is invariant: requests are sent only while `state` is LINK_UP.  A request that
 * fails because the connection is gone moves the state to LINK_LOST; from there only
 * the link's own thread moves it on: back to LINK_UP, or to LINK_DEAD for good.
 * `written` counts writes that were answered, and `flushed` is how many of them are on
 * stable storage, or counted as lost: a loss with written > flushed is an unsafe one.
 * Contexts outlive a loss: libqmctx begins them anew when they are used again.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "client-patches/mount/log.h"
#include "client-patches/mount/server-link.h"

enum {
    LINK_UP,
    LINK_LOST, /* the thread tries to connect again */
    LINK_DEAD, /* it has given up */
};

enum {
    RETRY_SOON = 1, /* seconds between attempts ... */
    RETRY_LATER = 5,
    RETRY_SOON_FOR = 30, /* ... in the first so many seconds, and after them */
    GLANCE = 200,        /* milliseconds after which a waiting request looks around */
};

struct qm_link {
    struct qmctx *server;
    uint64_t size;
    uint32_t block_size;
    bool read_only;
    unsigned reconnect, wait; /* seconds */

    atomic_int state;
    atomic_uint losses;
    atomic_uint unsafe_losses;    /* after which something may be lost */
    atomic_uint_fast64_t written; /* after the answer to each write */
    pthread_mutex_t lock;         /* for leaving LINK_UP, for stopping, and: */
    uint64_t flushed;             /* never more than written */
    pthread_cond_t changed;       /* for the thread */
    pthread_cond_t settled;       /* for requests: it is LINK_LOST no longer */
    bool stopping;
    bool started;
    pthread_t thread;
};

static time_t seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

int qm_link_open(const char *uri, unsigned connections, unsigned reconnect,
                 unsigned wait, struct qm_link **link, char *err, size_t len)
{
    struct qm_link *l = calloc(1, sizeof *l);
    pthread_condattr_t attr;

    *link = NULL;
    if (!l) {
        snprintf(err, len, "out of memory");
        return -1;
    }
    if (qmctx_connect(uri, connections, &l->server) == -1) {
        snprintf(err, len, "%s", qmctx_error());
        free(l);
        return -1;
    }
    l->size = qmctx_size(l->server);
    l->block_size = qmctx_block_size(l->server);
    l->read_only = qmctx_is_read_only(l->server);
    l->reconnect = reconnect;
    l->wait = wait;
    atomic_init(&l->state, LINK_UP);
    atomic_init(&l->losses, 0);
    atomic_init(&l->unsafe_losses, 0);
    atomic_init(&l->written, 0);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_cond_init(&l->settled, &attr);
    pthread_condattr_destroy(&attr);
    *link = l;
    return 0;
}

uint64_t qm_link_size(const struct qm_link *link)
{
    return link->size;
}

uint32_t qm_link_block_size(const struct qm_link *link)
{
    return link->block_size;
}

bool qm_link_read_only(const struct qm_link *link)
{
    return link->read_only;
}

bool qm_link_is_up(const struct qm_link *link)
{
    return atomic_load_explicit(&link->state, memory_order_acquire) == LINK_UP;
}

/* --- losing it, and getting it back --- */

/* What was written and not flushed may be gone with the server.  The lock is held. */
static void unsafe(struct qm_link *link)
{
    link->flushed = atomic_load(&link->written);
    atomic_fetch_add(&link->unsafe_losses, 1);
}

static void lost(struct qm_link *link, const char *why)
{
    bool first;

    pthread_mutex_lock(&link->lock);
    first = atomic_load(&link->state) == LINK_UP;
    if (first) {
        atomic_store(&link->state, LINK_LOST);
        atomic_fetch_add(&link->losses, 1);
        if (atomic_load(&link->written) > link->flushed)
            unsafe(link);
        pthread_cond_signal(&link->changed);
    }
    pthread_mutex_unlock(&link->lock);
    if (first)
        qm_mount_log(LOG_WARNING, "the server is gone: %s", why);
}

/* One attempt, without the lock.  Returns the state that it leads to. */
static int try_again(struct qm_link *link, time_t since)
{
    if (qmctx_reconnect(link->server) == 0)
        return LINK_UP;
    if (errno == ESTALE) {
        qm_mount_log(LOG_ERR, "%s: every request fails until the file is unmounted",
                     qmctx_error());
        return LINK_DEAD;
    }
    if (seconds() - since >= (time_t)link->reconnect) {
        qm_mount_log(LOG_ERR,
                     "gave up on the server after %u s (%s): every request fails until "
                     "the file is unmounted",
                     link->reconnect, qmctx_error());
        return LINK_DEAD;
    }
    return LINK_LOST;
}

/* Waits for s seconds, less if the state is another than that or the link is to stop.
 * The lock is held. */
static void pause_for(struct qm_link *link, int s, int state)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += s;
    while (!link->stopping && atomic_load(&link->state) == state &&
           pthread_cond_timedwait(&link->changed, &link->lock, &until) != ETIMEDOUT)
        ;
}

/* Notices the loss of a server that nobody asks for anything, so that the next who does
 * finds it connected again.  The lock is held, but not while it looks. */
static void watch(struct qm_link *link)
{
    pause_for(link, RETRY_SOON, LINK_UP);
    if (link->stopping)
        return;
    pthread_mutex_unlock(&link->lock);
    if (!qmctx_connected(link->server))
        lost(link, "it closed the connection");
    pthread_mutex_lock(&link->lock);
}

/* Connects again, if it can be done.  The lock is held, but not while it tries. */
static void recover(struct qm_link *link)
{
    time_t since = seconds();
    int state = LINK_LOST;

    if (link->reconnect == 0) {
        qm_mount_log(LOG_ERR, "every request fails until the file is unmounted");
        state = LINK_DEAD;
        atomic_store(&link->state, state);
    }
    while (!link->stopping && state == LINK_LOST) {
        pthread_mutex_unlock(&link->lock);
        state = try_again(link, since);
        pthread_mutex_lock(&link->lock);
        atomic_store(&link->state, state);
        if (state == LINK_UP)
            qm_mount_log(LOG_NOTICE, "the server is back");
        else if (state == LINK_LOST)
            pause_for(link,
                      seconds() - since < RETRY_SOON_FOR ? RETRY_SOON : RETRY_LATER,
                      LINK_LOST);
    }
    pthread_cond_broadcast(&link->settled);
}

static void *link_thread(void *arg)
{
    struct qm_link *link = arg;

    pthread_mutex_lock(&link->lock);
    while (!link->stopping) {
        switch (atomic_load(&link->state)) {
        case LINK_UP:
            watch(link);
            break;
        case LINK_LOST:
            recover(link);
            break;
        default:
            pthread_cond_wait(&link->changed, &link->lock);
        }
    }
    pthread_mutex_unlock(&link->lock);
    return NULL;
}

int qm_link_start(struct qm_link *link)
{
    sigset_t all, before;
    int r;

    /* Signals are for the main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&link->thread, NULL, link_thread, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    link->started = r == 0;
    return r;
}

void qm_link_close(struct qm_link *link)
{
    if (!link)
        return;
    if (link->started) {
        pthread_mutex_lock(&link->lock);
        link->stopping = true;
        pthread_cond_signal(&link->changed);
        pthread_mutex_unlock(&link->lock);
        pthread_join(link->thread, NULL);
    }
    qmctx_close(link->server);
    pthread_cond_destroy(&link->settled);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

/* --- requests --- */

/* One request, and how long it has patience. */
struct attempt {
    struct qm_link *link;
    const struct qm_asker *asker;
    struct timespec until; /* once waiting has begun; else 0 */
    bool again;            /* it was sent before */
};

static bool before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Whether the request can be sent; waits for that, if need be. */
static bool ready(struct attempt *a)
{
    struct qm_link *link = a->link;
    struct timespec now, glance;
    bool up;

    if (a->again && a->asker->gone(a->asker->opaque))
        return false;
    a->again = true;
    if (qm_link_is_up(link))
        return true;
    pthread_mutex_lock(&link->lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (a->until.tv_sec == 0) {
        a->until = now;
        a->until.tv_sec += link->wait;
    }
    while (atomic_load(&link->state) == LINK_LOST && !link->stopping &&
           before(&now, &a->until)) {
        glance = now;
        glance.tv_nsec += GLANCE * 1000000L;
        if (glance.tv_nsec >= 1000000000L) {
            glance.tv_nsec -= 1000000000L;
            glance.tv_sec++;
        }
        pthread_cond_timedwait(&link->settled, &link->lock,
                               before(&glance, &a->until) ? &glance : &a->until);
        pthread_mutex_unlock(&link->lock);
        if (a->asker->gone(a->asker->opaque))
            return false;
        pthread_mutex_lock(&link->lock);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    up = atomic_load(&link->state) == LINK_UP;
    pthread_mutex_unlock(&link->lock);
    return up;
}

/* What a request's failure means: 0 if the link is lost and it may be sent again, else
 * the errno value for who asked. */
static int failed(struct qm_link *link, int error)
{
    switch (error) {
    case ENOTCONN:
    case ECONNRESET:
    case ECONNABORTED:
    case ECONNREFUSED:
    case EPIPE:
    case ESHUTDOWN:
    case ETIMEDOUT:
        lost(link, qmctx_error());
        return 0;
    default:
        if (!qmctx_connected(link->server)) {
            lost(link, qmctx_error());
            return 0;
        }
        return error > 0 ? error : EIO;
    }
}

int qm_link_read(struct qm_link *link, const struct qm_asker *asker, qmctx_id context,
                 void *buf, size_t count, uint64_t offset)
{
    struct attempt a = {.link = link, .asker = asker};
    int r;

    while (ready(&a)) {
        if (qmctx_pread(link->server, context, buf, count, offset) == 0)
            return 0;
        r = failed(link, errno);
        if (r)
            return r;
    }
    return EIO;
}

/* A write, sent when so many losses were known, has been answered.  A loss between its
 * answer and here did not know of it. */
static void answered(struct qm_link *link, unsigned losses)
{
    atomic_fetch_add(&link->written, 1);
    if (atomic_load(&link->losses) == losses)
        return;
    pthread_mutex_lock(&link->lock);
    unsafe(link);
    pthread_mutex_unlock(&link->lock);
}

int qm_link_write(struct qm_link *link, const struct qm_asker *asker, qmctx_id context,
                  const void *buf, size_t count, uint64_t offset, bool fua)
{
    struct attempt a = {.link = link, .asker = asker};
    unsigned losses;
    int r;

    while (ready(&a)) {
        losses = atomic_load(&link->losses);
        if (qmctx_pwrite(link->server, context, buf, count, offset, fua) == 0) {
            answered(link, losses);
            return 0;
        }
        r = failed(link, errno);
        if (r)
            return r;
    }
    return EIO;
}

int qm_link_zero(struct qm_link *link, const struct qm_asker *asker, uint64_t count,
                 uint64_t offset)
{
    struct attempt a = {.link = link, .asker = asker};
    unsigned losses;
    int r;

    while (ready(&a)) {
        losses = atomic_load(&link->losses);
        if (qmctx_zero(link->server, count, offset) == 0) {
            answered(link, losses);
            return 0;
        }
        r = failed(link, errno);
        if (r)
            return r;
    }
    return EIO;
}

unsigned qm_link_unsafe_losses(struct qm_link *link)
{
    return atomic_load(&link->unsafe_losses);
}

int qm_link_flush(struct qm_link *link, const struct qm_asker *asker, atomic_uint *seen)
{
    struct attempt a = {.link = link, .asker = asker};
    uint64_t written = atomic_load(&link->written);
    unsigned losses;
    int r;

    while (ready(&a)) {
        if (qmctx_flush(link->server) == 0) {
            pthread_mutex_lock(&link->lock);
            if (written > link->flushed)
                link->flushed = written;
            losses = atomic_load(&link->unsafe_losses);
            pthread_mutex_unlock(&link->lock);
            return atomic_exchange(seen, losses) == losses ? 0 : EIO;
        }
        r = failed(link, errno);
        if (r)
            return r;
    }
    return EIO;
}

int qm_link_begin(struct qm_link *link, qmctx_id parent, enum qmctx_kind kind,
                  uint64_t klass, const char *name, qmctx_id *id)
{
    int r;

    if (!qm_link_is_up(link))
        return EIO;
    if (qmctx_open_context(link->server, parent, kind, klass, name, id) == 0)
        return 0;
    r = failed(link, errno);
    return r ? r : EIO;
}

void qm_link_end(struct qm_link *link, qmctx_id id)
{
    /* Also while it is down: the library forgets it then. */
    qmctx_close_context(link->server, id);
}
