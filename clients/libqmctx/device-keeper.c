/* SPDX-License-Identifier: BSD-3-Clause */
/* device-keeper.c - the thread that keeps a device usable.
 *
 * While the server is there, it flushes when much is retained, or something for long,
 * so that little has to be sent again after a loss; and it asks the server for
 * something small when nobody else does: nbdkit says that it ends only in answer to a
 * request, and waits for connections that are idle.  When the server is gone, it makes
 * the connection again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "clients/libqmctx/device-internal.h"

enum {
    PING_MS = 500,
    PING_PLAIN_MS = 1000, /* a server that reads its disk for it */
    BUSY_PINGS = 4,       /* each fourth is sent over a busy connection, too */
    BACKOFF_FIRST_MS = 50,
    BACKOFF_MOST_MS = 1000,
    FLAP_MS = 1000, /* a server that is lost so soon again is not to be hurried */
    SETTLE_MS = 30000,
    FLUSH_AGAIN_MS = 1000, /* after one that failed */
    FLUSH_AGE_MS = 30000,  /* as long as Linux keeps a dirty page by default */
};

/* One absence of the server. */
struct absence {
    bool stale_said, failure_said;
    bool other_instance, other_boot;
    bool sent; /* in the last attempt: some of what is retained */
    uint64_t resent_changes, resent_bytes; /* before it */
};

/* Waits for ms, or until something changes.  lock is held. */
static void nap(struct qm_device *device, uint64_t ms)
{
    struct timespec until;

    if (device->stopping)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    qm_time_add(&until, ms);
    pthread_cond_timedwait(&device->changed, &device->lock, &until);
}

/* Waits for ms, whatever changes: a requester that leaves late must not shorten the
 * pause between attempts.  lock is held. */
static void pause_for(struct qm_device *device, uint64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    qm_time_add(&until, ms);
    while (!device->stopping &&
           pthread_cond_timedwait(&device->changed, &device->lock, &until) != ETIMEDOUT)
        ;
}

/* Nobody but the keeper sends anything then.  lock is held. */
static void await_quiet(struct qm_device *device)
{
    while (atomic_load(&device->active) > 0)
        pthread_cond_wait(&device->changed, &device->lock);
}

/* Unless it was given up meanwhile.  lock is held. */
static void set_up(struct qm_device *device)
{
    if (atomic_load(&device->state) == DEVICE_DEAD)
        return;
    atomic_store(&device->state, DEVICE_UP);
    pthread_cond_broadcast(&device->settled);
    qm_device_kick(device);
}

/* --- connecting again --- */

/* What has become of what is not stable, now that the server is known.  lock is held.
 */
static void meet(struct qm_device *device, struct absence *absence)
{
    struct qm_peer_id before = device->peer;
    uint64_t session;

    pthread_mutex_unlock(&device->lock);
    qm_direct_peer(device->direct, &device->peer, &session);
    pthread_mutex_lock(&device->lock);
    if (device->peer.instance != 0 && device->peer.instance == before.instance)
        return;
    absence->other_instance = true;
    absence->other_boot =
        memcmp(device->peer.boot_id, before.boot_id, sizeof before.boot_id) != 0;
    /* Only what could not be kept is lost. */
    if (device->retained_count > 0)
        device->must_resend = true;
    else
        qm_retain_give_up(device);
}

/* Nothing of the session before may be carried out from now on. */
static int fence(struct qm_device *device)
{
    struct qm_peer_id peer;
    uint64_t session, old = device->unfenced;

    qm_direct_peer(device->direct, &peer, &session);
    /* Without an instance it is a server that does not know the record. */
    if (old && peer.instance && session && old != session) {
        if (qm_direct_fence(device->direct, old) == -1)
            return errno;
        pthread_mutex_lock(&device->lock);
        device->stat.fences++;
        pthread_mutex_unlock(&device->lock);
    }
    device->unfenced = session;
    return qm_device_own(device);
}

/* One attempt.  The lock is not held, and nobody else sends anything.  0, or an errno
 * value with qmctx_error(). */
static int try_again(struct qm_device *device, struct absence *absence)
{
    bool resend;
    int err;

    absence->sent = false;
    qm_direct_break(device->direct);
    if (qmctx_reconnect(device->server) == -1)
        return errno;
    pthread_mutex_lock(&device->lock);
    meet(device, absence);
    resend = device->must_resend;
    pthread_mutex_unlock(&device->lock);
    err = fence(device);
    absence->sent = !err && resend;
    if (!err && resend)
        err = qm_retain_resend(device);
    return err;
}

static void say_failure(struct qm_device *device, struct absence *absence, int err)
{
    bool *said = err == ESTALE ? &absence->stale_said : &absence->failure_said;

    if (*said || (err != ESTALE && qm_direct_all_up(device->direct) == false))
        return;
    *said = true;
    if (err == ESTALE)
        qm_device_log(device, LOG_ERR, "%s: requests wait until it has the one before",
                      qmctx_error());
    else
        qm_device_log(device, LOG_ERR, "the server is there, but: %s: trying again",
                      qmctx_error());
}

static void say_back(struct qm_device *device, const struct absence *absence)
{
    const char *which = ", the same one";
    uint64_t changes, bytes, ms = qm_time_since(&device->since);
    char again[96] = "";

    pthread_mutex_lock(&device->lock);
    changes = device->stat.resent_changes - absence->resent_changes;
    bytes = device->stat.resent_bytes - absence->resent_bytes;
    pthread_mutex_unlock(&device->lock);
    if (absence->other_instance)
        which = device->peer.instance == 0 ? ""
                : absence->other_boot      ? ", restarted with its machine"
                                           : ", restarted";
    if (changes > 0)
        snprintf(again, sizeof again, "; changes sent again: %llu (%llu bytes)",
                 (unsigned long long)changes, (unsigned long long)bytes);
    qm_device_log(device, LOG_NOTICE, "the server is back after %.1f s%s%s",
                  (double)ms / 1000, which, again);
}

/* The lock is held. */
static void give_up(struct qm_device *device)
{
    pthread_mutex_unlock(&device->lock);
    qm_device_log(device, LOG_ERR,
                  "gave up on the server after %u s: every request fails from now on",
                  device->options.reconnect);
    pthread_mutex_lock(&device->lock);
    atomic_store(&device->state, DEVICE_DEAD);
    qm_retain_give_up(device);
    pthread_cond_broadcast(&device->settled);
    qm_device_kick(device);
}

static bool too_long(const struct qm_device *device)
{
    return device->options.reconnect != QM_DEVICE_FOREVER &&
           qm_time_since(&device->since) >= device->options.reconnect * UINT64_C(1000);
}

static uint64_t longer(uint64_t ms)
{
    return ms == 0                    ? BACKOFF_FIRST_MS
           : 2 * ms < BACKOFF_MOST_MS ? 2 * ms
                                      : BACKOFF_MOST_MS;
}

/* Gives a server that cannot be asked time to end what it had begun, of which some has
 * passed.  The lock is held. */
static void settle(struct qm_device *device, uint64_t passed)
{
    uint64_t ms = device->options.settle_ms ? device->options.settle_ms : SETTLE_MS;

    if (!device->unsettled || device->options.reconnect == 0 || passed >= ms)
        return;
    pthread_mutex_unlock(&device->lock);
    qm_device_log(device, LOG_WARNING,
                  "writes were under way, and this server cannot say when they have "
                  "ended: waiting %.1f s",
                  (double)(ms - passed) / 1000);
    pthread_mutex_lock(&device->lock);
    pause_for(device, ms - passed);
}

/* Until the server is back, or not waited for any more.  The lock is held. */
static void recover(struct qm_device *device)
{
    struct absence absence = {
        .resent_changes = device->stat.resent_changes,
        .resent_bytes = device->stat.resent_bytes,
    };
    uint64_t pause;
    bool at_all = device->options.reconnect > 0;
    int err;

    pthread_mutex_unlock(&device->lock);
    qm_direct_break(device->direct);
    pthread_mutex_lock(&device->lock);
    await_quiet(device);
    if (device->stat.reconnections == 0 || qm_time_since(&device->back) >= FLAP_MS)
        device->pause = 0;
    settle(device, qm_time_since(&device->since));
    pause = device->pause;
    if (pause > 0)
        pause_for(device, pause);
    pause = longer(pause);
    while (!device->stopping) {
        pthread_mutex_unlock(&device->lock);
        err = at_all ? try_again(device, &absence) : ENOTCONN;
        if (err && at_all)
            say_failure(device, &absence, err);
        pthread_mutex_lock(&device->lock);
        if (!err)
            break;
        if (too_long(device)) {
            give_up(device);
            return;
        }
        device->unsettled = absence.sent && device->direct->contextless;
        settle(device, 0);
        pause_for(device, pause);
        pause = longer(pause);
    }
    if (device->stopping)
        return;
    device->must_resend = false;
    device->unsettled = false;
    clock_gettime(CLOCK_MONOTONIC, &device->back);
    device->pause = pause;
    device->stat.reconnections++;
    device->stat.instances += absence.other_instance;
    device->stat.waited_ms += qm_time_since(&device->since);
    pthread_mutex_unlock(&device->lock);
    say_back(device, &absence);
    pthread_mutex_lock(&device->lock);
    set_up(device);
}

/* --- while the server is there --- */

/* Sends again what a FLUSH has failed for.  The lock is held. */
static void pass(struct qm_device *device)
{
    uint64_t number;
    int err;

    /* A loss goes first. */
    if (atomic_load(&device->state) != DEVICE_UP)
        return;
    atomic_store(&device->state, DEVICE_PAUSED);
    await_quiet(device);
    if (atomic_load(&device->state) != DEVICE_PAUSED)
        return;
    number = ++device->passes_begun;
    pthread_mutex_unlock(&device->lock);
    err = qm_retain_resend(device);
    if (err && qm_device_lost(device, err, qmctx_error()))
        err = -1;
    pthread_mutex_lock(&device->lock);
    if (err == -1)
        return;
    if (err)
        qm_retain_flush_failed(device);
    device->pass_error = err;
    device->passes_done = number;
    if (atomic_load(&device->state) == DEVICE_PAUSED)
        set_up(device);
}

/* Makes what was answered stable, without being asked to.  The lock is held. */
static int flush(struct qm_device *device)
{
    int r = -1;

    if (device->suspect) {
        pass(device);
        return device->suspect ? EIO : 0;
    }
    pthread_mutex_unlock(&device->lock);
    if (qm_device_try_enter(device)) {
        r = qm_device_flush_now(device);
        qm_device_leave(device);
    }
    pthread_mutex_lock(&device->lock);
    return r;
}

static void look(struct qm_device *device, bool busy)
{
    uint64_t size = 0;
    int err = 0;

    if (!qm_device_try_enter(device))
        return;
    if (!qm_direct_all_up(device->direct)) {
        qm_device_lost(device, ENOTCONN, "it closed the connection");
    } else if (qm_direct_ping(device->direct, busy, &size) == -1) {
        err = errno;
        qm_device_lost(device, err, qmctx_error());
    }
    qm_device_found(device, size);
    qm_device_leave(device);
}

static bool wants_room(const struct qm_device *device)
{
    return device->retained_count > 0 &&
           (device->retained_bytes > device->limit / 2 || device->starved > 0);
}

/* Something has been retained for so long that its program may have no FLUSH in mind.
 */
static bool is_aged(const struct qm_device *device)
{
    uint32_t age = device->options.flush_ms ? device->options.flush_ms : FLUSH_AGE_MS;

    return device->retained_count > 0 && qm_time_since(&device->retained_since) >= age;
}

/* While the state is DEVICE_UP.  The lock is held. */
static void watch(struct qm_device *device)
{
    uint64_t ping = device->options.plain ? PING_PLAIN_MS : PING_MS;
    struct timespec looked, flushed = {.tv_sec = 0};
    unsigned pings = 0;

    clock_gettime(CLOCK_MONOTONIC, &looked);
    while (!device->stopping && atomic_load(&device->state) == DEVICE_UP) {
        if (device->suspect && device->passes_wanted > device->passes_done) {
            pass(device);
        } else if (wants_room(device) &&
                   (!device->suspect || qm_time_since(&flushed) >= FLUSH_AGAIN_MS)) {
            device->stat.background_flushes++;
            flush(device);
            clock_gettime(CLOCK_MONOTONIC, &flushed);
        } else if (is_aged(device)) {
            device->stat.background_flushes++;
            flush(device);
            /* What came meanwhile, or what could not be flushed, has time again. */
            clock_gettime(CLOCK_MONOTONIC, &device->retained_since);
        } else if (qm_time_since(&looked) >= ping) {
            pthread_mutex_unlock(&device->lock);
            look(device, ++pings % BUSY_PINGS == 0);
            clock_gettime(CLOCK_MONOTONIC, &looked);
            pthread_mutex_lock(&device->lock);
        } else {
            nap(device, ping);
        }
    }
}

void *qm_device_keeper(void *opaque)
{
    struct qm_device *device = opaque;

    pthread_mutex_lock(&device->lock);
    while (!device->stopping) {
        switch (atomic_load(&device->state)) {
        case DEVICE_LOST:
            recover(device);
            break;
        case DEVICE_DEAD:
            pthread_cond_wait(&device->changed, &device->lock);
            break;
        default:
            watch(device);
        }
    }
    if (atomic_load(&device->state) == DEVICE_UP && device->answered > device->flushed)
        flush(device);
    device->ended = true;
    pthread_cond_broadcast(&device->settled);
    pthread_mutex_unlock(&device->lock);
    return NULL;
}
