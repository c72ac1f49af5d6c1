/* SPDX-License-Identifier: BSD-3-Clause */
/* volume.c - see volume.h. */
#include "plugins/rbd/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rados/librados.h>
#include <rbd/librbd.h>

#include "plugins/rbd/lock.h"
#include "plugins/rbd/owner.h"
#include "plugins/rbd/pending.h"

struct qmr_volume {
    rados_t cluster;
    rados_ioctx_t pool;
    rbd_image_t image;
    bool connected, has_pool, is_open, is_locked, is_watched;
    uint64_t watch;
    _Atomic uint64_t size;
    struct qmr_lock_watch lock;
    struct qmr_owner owner; /* if is_locked; or of a probe */
    struct qmr_pending pending;
    const struct qmr_events *events;
};

static int fail(char *err, size_t len, const char *what, int r)
{
    snprintf(err, len, "%s: %s", what, strerror(-r));
    return -1;
}

/* What of the configuration Ceph has to be told before it connects. */
static int configure(rados_t cluster, const struct qmr_config *config, char *err,
                     size_t len)
{
    char seconds[20];
    int r = rados_conf_read_file(cluster, config->conf);

    if (r < 0) {
        snprintf(err, len, "Ceph's configuration %s cannot be read: %s",
                 config->conf ? config->conf : "(/etc/ceph/ceph.conf, $CEPH_CONF)",
                 strerror(-r));
        return -1;
    }
    rados_conf_parse_env(cluster, NULL);
    snprintf(seconds, sizeof seconds, "%u", config->connect_timeout);
    /* What is cached here is cached twice, and outlives a takeover. */
    rados_conf_set(cluster, "rbd_cache", "false");
    rados_conf_set(cluster, "client_mount_timeout", seconds);
    if (config->keyring)
        rados_conf_set(cluster, "keyring", config->keyring);
    for (size_t i = 0; i < config->n_options; i++) {
        r = rados_conf_set(cluster, config->options[i].key, config->options[i].value);
        if (r < 0) {
            snprintf(err, len, "ceph-option=%s=%s is not taken by Ceph: %s",
                     config->options[i].key, config->options[i].value,
                     r == -ENOENT ? "there is no such option" : strerror(-r));
            return -1;
        }
    }
    /* What a takeover relies on, whatever Ceph's configuration says.  The name before
     * Ceph 16 is refused by later ones. */
    if (config->lock == QMR_LOCK_EXCLUSIVE) {
        rados_conf_set(cluster, "rbd_cache", "false");
        rados_conf_set(cluster, "rbd_blacklist_on_break_lock", "true");
        rados_conf_set(cluster, "rbd_blocklist_on_break_lock", "true");
    }
    return 0;
}

static int connect_cluster(struct qmr_volume *v, const struct qmr_config *config,
                           char *err, size_t len)
{
    int r = rados_create(&v->cluster, config->user);

    if (r < 0)
        return fail(err, len, "Ceph's client library does not start", r);
    v->connected = true;
    if (configure(v->cluster, config, err, len) == -1)
        return -1;
    r = rados_connect(v->cluster);
    if (r == -ETIMEDOUT) {
        snprintf(err, len, "no monitor of the cluster has answered for %u s",
                 config->connect_timeout);
    } else if (r == -ENOENT) {
        snprintf(err, len,
                 "the cluster cannot be reached: no monitor is configured, or there is "
                 "no key of client.%s in a keyring",
                 config->user);
    } else if (r == -EACCES || r == -EPERM) {
        snprintf(err, len, "the cluster does not let client.%s in: its key is wrong",
                 config->user);
    } else if (r < 0) {
        return fail(err, len, "the cluster cannot be reached", r);
    }
    return r < 0 ? -1 : 0;
}

static int open_image(struct qmr_volume *v, const struct qmr_config *config, char *err,
                      size_t len)
{
    bool reads_only = config->read_only;
    rbd_image_info_t info;
    int r = rados_ioctx_create(v->cluster, config->pool, &v->pool);

    if (r == -ENOENT) {
        snprintf(err, len, "there is no pool \"%s\"", config->pool);
        return -1;
    }
    if (r < 0)
        return fail(err, len, "the pool cannot be opened", r);
    v->has_pool = true;
    if (config->name_space)
        rados_ioctx_set_namespace(v->pool, config->name_space);
    r = reads_only
            ? rbd_open_read_only(v->pool, config->image, &v->image, config->snapshot)
            : rbd_open(v->pool, config->image, &v->image, NULL);
    if (r == -ENOENT) {
        snprintf(err, len, "there is no image \"%s%s%s\" in %s \"%s%s%s\"",
                 config->image, config->snapshot ? "@" : "",
                 config->snapshot ? config->snapshot : "",
                 config->name_space ? "namespace" : "pool", config->pool,
                 config->name_space ? "/" : "",
                 config->name_space ? config->name_space : "");
        return -1;
    }
    if (r == -EPERM || r == -EACCES) {
        snprintf(err, len,
                 "client.%s may not open the image: it needs the capabilities \"mon "
                 "'profile rbd' osd 'profile rbd pool=%s'\"",
                 config->user, config->pool);
        return -1;
    }
    if (r < 0)
        return fail(err, len, "the image cannot be opened", r);
    v->is_open = true;
    r = rbd_stat(v->image, &info, sizeof info);
    if (r < 0)
        return fail(err, len, "the image's size cannot be read", r);
    atomic_store(&v->size, info.size);
    return 0;
}

static void changed(void *opaque)
{
    struct qmr_volume *v = opaque;
    uint64_t size, before = atomic_load(&v->size);
    char text[200];

    /* librbd has refreshed the image, and does not ask the cluster for this. */
    if (rbd_get_size(v->image, &size) < 0 || size == before)
        return;
    atomic_store(&v->size, size);
    snprintf(
        text, sizeof text,
        "the image's size has changed from %llu to %llu bytes: new connections see "
        "it",
        (unsigned long long)before, (unsigned long long)size);
    v->events->say(text);
}

static void close_all(struct qmr_volume *v)
{
    const bool released = v->is_locked && !qmr_lock_is_lost(&v->lock);

    if (v->is_watched)
        rbd_update_unwatch(v->image, v->watch);
    if (released)
        qmr_owner_leaving(&v->owner);
    if (v->is_locked)
        qmr_lock_release(&v->lock);
    if (v->is_open)
        rbd_close(v->image);
    if (released)
        qmr_owner_leave(&v->owner, false);
    qmr_owner_end(&v->owner);
    if (v->has_pool)
        rados_ioctx_destroy(v->pool);
    if (v->connected)
        rados_shutdown(v->cluster);
    free(v);
}

int qmr_volume_open(const struct qmr_config *config, const struct qmr_events *events,
                    struct qmr_volume **volume, char *err, size_t len)
{
    struct qmr_volume *v = calloc(1, sizeof *v);
    int error;

    if (!v) {
        snprintf(err, len, "out of memory");
        return -1;
    }
    v->events = events;
    if (connect_cluster(v, config, err, len) == -1 ||
        open_image(v, config, err, len) == -1)
        goto fail;
    if (config->lock == QMR_LOCK_EXCLUSIVE) {
        qmr_owner_look(&v->owner, v->cluster, config->pool, config->name_space,
                       v->image);
        if (qmr_lock_take(&v->lock, v->image, config->takeover, events->say,
                          events->lost, err, len) == -1)
            goto fail;
        v->is_locked = true;
        qmr_owner_take(&v->owner, v->cluster);
    }
    error = qmr_pending_init(&v->pending, config->slow_after, events->say);
    if (error != 0) {
        snprintf(err, len, "no thread: %s", strerror(error));
        goto fail;
    }
    /* A snapshot never changes. */
    if (!config->snapshot)
        v->is_watched = rbd_update_watch(v->image, &v->watch, changed, v) == 0;
    *volume = v;
    return 0;
fail:
    close_all(v);
    return -1;
}

int qmr_volume_probe(const struct qmr_config *config, char *err, size_t len)
{
    struct qmr_volume *v = calloc(1, sizeof *v);
    int r;

    if (!v) {
        snprintf(err, len, "out of memory");
        return -1;
    }
    r = connect_cluster(v, config, err, len);
    if (r == 0)
        r = open_image(v, config, err, len);
    if (r == 0 && config->lock == QMR_LOCK_EXCLUSIVE) {
        qmr_owner_look(&v->owner, v->cluster, config->pool, config->name_space,
                       v->image);
        r = qmr_lock_check(v->image, config->takeover, err, len);
        if (r == 0 && !config->takeover)
            qmr_owner_leave(&v->owner, true);
    }
    close_all(v);
    return r;
}

void qmr_volume_close(struct qmr_volume *v)
{
    qmr_pending_destroy(&v->pending);
    close_all(v);
}

int qmr_volume_state(const struct qmr_volume *v, char *before, char *known, size_t len)
{
    if (!v->is_locked || v->owner.known[0] == '\0' || len < QMR_OWNER_TEXT)
        return -1;
    snprintf(before, len, "%s", v->owner.before);
    snprintf(known, len, "%s", v->owner.known);
    return 0;
}

int qmr_volume_verify(struct qmr_volume *v)
{
    struct qmr_request request;
    int error;

    if (!v->is_locked)
        return 0;
    qmr_pending_begin(&v->pending, &request,
                      "question whether this server is the owner");
    error = qmr_lock_verify(&v->lock);
    qmr_pending_end(&v->pending, &request);
    return error;
}

uint64_t qmr_volume_size(const struct qmr_volume *v)
{
    return atomic_load(&v->size);
}

/* A request's way: begin(), one of librbd's asynchronous functions, and finish() with
 * what that has returned. */
struct going {
    struct qmr_request request;
    rbd_completion_t completion;
};

static int begin(struct qmr_volume *v, struct going *g, const char *what)
{
    int r;

    if (v->is_locked && qmr_lock_is_lost(&v->lock))
        return ESHUTDOWN;
    r = rbd_aio_create_completion(NULL, NULL, &g->completion);
    if (r < 0)
        return -r;
    qmr_pending_begin(&v->pending, &g->request, what);
    return 0;
}

/* bytes: what a read returns, at least. */
static int finish(struct qmr_volume *v, struct going *g, int r, ssize_t bytes)
{
    ssize_t result = r;

    if (r >= 0) {
        rbd_aio_wait_for_complete(g->completion);
        result = rbd_aio_get_return_value(g->completion);
    }
    rbd_aio_release(g->completion);
    qmr_pending_end(&v->pending, &g->request);
    if (result < 0) {
        if (v->is_locked)
            qmr_lock_suspect(&v->lock, (int)-result);
        return (int)-result;
    }
    /* A read that another's takeover has overtaken is not this server's any more. */
    if (v->is_locked && qmr_lock_is_lost(&v->lock))
        return ESHUTDOWN;
    return result < bytes ? EIO : 0;
}

static bool is_zero(const char *data, uint32_t count)
{
    return count > 0 && data[0] == 0 && memcmp(data, data + 1, count - 1) == 0;
}

int qmr_volume_read(struct qmr_volume *v, void *data, uint32_t count, uint64_t offset)
{
    struct going g;
    int error = begin(v, &g, "read");

    if (error != 0)
        return error;
    error =
        finish(v, &g, rbd_aio_read(v->image, offset, count, data, g.completion), count);
    /* What is not there reads as zeros: also all of an image or a pool that was
     * removed.  Then the lock is gone, too. */
    return error == 0 && is_zero(data, count) ? qmr_volume_verify(v) : error;
}

int qmr_volume_write(struct qmr_volume *v, const void *data, uint32_t count,
                     uint64_t offset)
{
    struct going g;
    int error = begin(v, &g, "write");

    if (error != 0)
        return error;
    return finish(v, &g, rbd_aio_write(v->image, offset, count, data, g.completion), 0);
}

int qmr_volume_flush(struct qmr_volume *v)
{
    struct going g;
    int error = begin(v, &g, "flush");

    if (error != 0)
        return error;
    return finish(v, &g, rbd_aio_flush(v->image, g.completion), 0);
}

int qmr_volume_trim(struct qmr_volume *v, uint32_t count, uint64_t offset)
{
    struct going g;
    int error = begin(v, &g, "trim");

    if (error != 0)
        return error;
    return finish(v, &g, rbd_aio_discard(v->image, offset, count, g.completion), 0);
}

int qmr_volume_zero(struct qmr_volume *v, uint32_t count, uint64_t offset,
                    bool allocate)
{
    struct going g;
    int error = begin(v, &g, "zeroing");

    if (error != 0)
        return error;
    return finish(
        v, &g,
        rbd_aio_write_zeroes(v->image, offset, count, g.completion,
                             allocate ? RBD_WRITE_ZEROES_FLAG_THICK_PROVISION : 0, 0),
        0);
}

struct walk {
    int (*extent)(void *opaque, uint64_t offset, uint64_t count, bool hole);
    void *opaque;
    uint64_t at; /* what lies before has been told */
    int stopped; /* what extent() has returned */
};

static int tell(struct walk *w, uint64_t offset, uint64_t count, bool hole)
{
    if (count == 0 || w->stopped != 0)
        return w->stopped;
    w->stopped = w->extent(w->opaque, offset, count, hole);
    w->at = offset + count;
    return w->stopped;
}

static int allocated(uint64_t offset, size_t count, int exists, void *opaque)
{
    struct walk *w = opaque;

    if (offset > w->at && tell(w, w->at, offset - w->at, true) != 0)
        return -ECANCELED;
    return tell(w, offset, count, !exists) != 0 ? -ECANCELED : 0;
}

int qmr_volume_extents(struct qmr_volume *v, uint32_t count, uint64_t offset,
                       int (*extent)(void *opaque, uint64_t offset, uint64_t count,
                                     bool hole),
                       void *opaque)
{
    struct walk w = {.extent = extent, .opaque = opaque, .at = offset};
    struct qmr_request request;
    int r;

    if (v->is_locked && qmr_lock_is_lost(&v->lock))
        return ESHUTDOWN;
    qmr_pending_begin(&v->pending, &request, "request for extents");
    r = rbd_diff_iterate2(v->image, NULL, offset, count, 1, 0, allocated, &w);
    qmr_pending_end(&v->pending, &request);
    if (w.stopped != 0)
        return 0;
    if (r < 0)
        return -r;
    tell(&w, w.at, offset + count - w.at, true);
    return 0;
}
