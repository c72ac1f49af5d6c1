/* SPDX-License-Identifier: BSD-3-Clause */
/* ceph.c - see ceph.h.  In the place of librados and librbd. */
#include "ceph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rados/librados.h>
#include <rbd/librbd.h>

struct ceph ceph = {.lock = PTHREAD_MUTEX_INITIALIZER, .version = 10, .newest = 10};

static char handle; /* whatever has to have an address */

/* Its version follows the newest of all objects in its placement group.  The lock is
 * held. */
static void change_header(void)
{
    ceph.version = ++ceph.newest;
}

static void have(const char *locker)
{
    pthread_mutex_lock(&ceph.lock);
    change_header();
    snprintf(ceph.locker, sizeof ceph.locker, "%s", locker);
    pthread_mutex_unlock(&ceph.lock);
}

void ceph_passes_by(void)
{
    have("client.99");
    have("");
}

void ceph_takes(void)
{
    have("client.99");
}

/* ---- librados */

int rados_create(rados_t *cluster, const char *id)
{
    ceph.clients++;
    *cluster = &handle;
    return 0;
}

int rados_conf_read_file(rados_t cluster, const char *path)
{
    return 0;
}

int rados_conf_parse_env(rados_t cluster, const char *variable)
{
    return 0;
}

int rados_conf_set(rados_t cluster, const char *option, const char *value)
{
    return 0;
}

int rados_connect(rados_t cluster)
{
    return 0;
}

void rados_shutdown(rados_t cluster)
{
}

uint64_t rados_get_instance_id(rados_t cluster)
{
    return ceph.clients;
}

int rados_cluster_fsid(rados_t cluster, char *text, size_t len)
{
    return snprintf(text, len, "fsid");
}

int rados_ioctx_create(rados_t cluster, const char *pool, rados_ioctx_t *io)
{
    *io = &handle;
    return 0;
}

void rados_ioctx_destroy(rados_ioctx_t io)
{
}

int64_t rados_ioctx_get_id(rados_ioctx_t io)
{
    return 3;
}

void rados_ioctx_set_namespace(rados_ioctx_t io, const char *name)
{
}

uint64_t rados_get_last_version(rados_ioctx_t io)
{
    return ceph.last;
}

int rados_stat(rados_ioctx_t io, const char *object, uint64_t *size, time_t *when)
{
    pthread_mutex_lock(&ceph.lock);
    ceph.last = ceph.version;
    pthread_mutex_unlock(&ceph.lock);
    return 0;
}

ssize_t rados_list_lockers(rados_ioctx_t io, const char *object, const char *name,
                           int *exclusive, char *tag, size_t *tag_len, char *clients,
                           size_t *clients_len, char *cookies, size_t *cookies_len,
                           char *addresses, size_t *addresses_len)
{
    ssize_t n;

    pthread_mutex_lock(&ceph.lock);
    snprintf(clients, *clients_len, "%s", ceph.locker);
    n = ceph.locker[0] != '\0';
    pthread_mutex_unlock(&ceph.lock);
    return n;
}

int rados_read(rados_ioctx_t io, const char *object, char *data, size_t len,
               uint64_t offset)
{
    if (ceph.recorded == 0)
        return -ENOENT;
    ceph.last = ceph.recorded;
    return snprintf(data, len, "%s", ceph.record);
}

static char written[300];
static uint64_t asserted;

rados_write_op_t rados_create_write_op(void)
{
    asserted = 0;
    return &handle;
}

void rados_release_write_op(rados_write_op_t op)
{
}

void rados_write_op_assert_version(rados_write_op_t op, uint64_t version)
{
    asserted = version;
}

void rados_write_op_create(rados_write_op_t op, int exclusive, const char *category)
{
}

void rados_write_op_write_full(rados_write_op_t op, const char *data, size_t len)
{
    snprintf(written, sizeof written, "%.*s", (int)len, data);
}

int rados_write_op_operate(rados_write_op_t op, rados_ioctx_t io, const char *object,
                           time_t *when, int flags)
{
    if (strncmp(object, "rbd_header.", 11) == 0) {
        pthread_mutex_lock(&ceph.lock);
        change_header();
        ceph.last = ceph.version;
        pthread_mutex_unlock(&ceph.lock);
        return 0;
    }
    if (asserted != 0 && asserted != ceph.recorded)
        return -ERANGE;
    strcpy(ceph.record, written);
    ceph.last = ++ceph.recorded;
    return 0;
}

/* ---- librbd */

int rbd_open(rados_ioctx_t io, const char *name, rbd_image_t *image,
             const char *snapshot)
{
    *image = &handle;
    return 0;
}

int rbd_open_read_only(rados_ioctx_t io, const char *name, rbd_image_t *image,
                       const char *snapshot)
{
    return rbd_open(io, name, image, snapshot);
}

int rbd_close(rbd_image_t image)
{
    return 0;
}

int rbd_stat(rbd_image_t image, rbd_image_info_t *info, size_t size)
{
    memset(info, 0, sizeof *info);
    info->size = 1 << 20;
    return 0;
}

int rbd_get_size(rbd_image_t image, uint64_t *size)
{
    *size = 1 << 20;
    return 0;
}

int rbd_get_id(rbd_image_t image, char *id, size_t len)
{
    snprintf(id, len, "abc");
    return 0;
}

int rbd_get_features(rbd_image_t image, uint64_t *features)
{
    *features = RBD_FEATURE_EXCLUSIVE_LOCK;
    return 0;
}

int rbd_update_watch(rbd_image_t image, uint64_t *watch, rbd_update_callback_t changed,
                     void *opaque)
{
    return 0;
}

int rbd_update_unwatch(rbd_image_t image, uint64_t watch)
{
    return 0;
}

int rbd_lock_acquire(rbd_image_t image, rbd_lock_mode_t mode)
{
    char name[64];

    snprintf(name, sizeof name, "client.%u", ceph.clients);
    if (ceph.locker[0] != '\0')
        return -EROFS;
    have(name);
    return 0;
}

int rbd_lock_release(rbd_image_t image)
{
    void (*released)(void) = ceph.released;

    have("");
    ceph.released = NULL;
    if (released)
        released();
    return 0;
}

int rbd_lock_break(rbd_image_t image, rbd_lock_mode_t mode, const char *owner)
{
    have("");
    return 0;
}

int rbd_lock_get_owners(rbd_image_t image, rbd_lock_mode_t *mode, char **owners,
                        size_t *n)
{
    pthread_mutex_lock(&ceph.lock);
    *n = ceph.locker[0] != '\0';
    if (*n > 0)
        owners[0] = strdup(ceph.locker);
    pthread_mutex_unlock(&ceph.lock);
    return *n > 0 ? 0 : -ENOENT;
}

void rbd_lock_get_owners_cleanup(char **owners, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(owners[i]);
}

int rbd_aio_create_completion(void *opaque, rbd_callback_t done, rbd_completion_t *c)
{
    *c = &handle;
    return 0;
}

static size_t count;

int rbd_aio_read(rbd_image_t image, uint64_t offset, size_t len, char *data,
                 rbd_completion_t c)
{
    memset(data, 'd', len);
    count = len;
    return 0;
}

int rbd_aio_write(rbd_image_t image, uint64_t offset, size_t len, const char *data,
                  rbd_completion_t c)
{
    ceph.writes++;
    count = 0;
    return 0;
}

int rbd_aio_flush(rbd_image_t image, rbd_completion_t c)
{
    return 0;
}

int rbd_aio_discard(rbd_image_t image, uint64_t offset, uint64_t len,
                    rbd_completion_t c)
{
    return 0;
}

int rbd_aio_write_zeroes(rbd_image_t image, uint64_t offset, size_t len,
                         rbd_completion_t c, int zero_flags, int op_flags)
{
    return 0;
}

int rbd_aio_wait_for_complete(rbd_completion_t c)
{
    void (*reading)(void) = ceph.reading;

    ceph.reading = NULL;
    if (reading)
        reading();
    return 0;
}

ssize_t rbd_aio_get_return_value(rbd_completion_t c)
{
    return (ssize_t)count;
}

void rbd_aio_release(rbd_completion_t c)
{
}

int rbd_diff_iterate2(rbd_image_t image, const char *from, uint64_t offset,
                      uint64_t len, uint8_t parent, uint8_t whole,
                      int (*extent)(uint64_t, size_t, int, void *), void *opaque)
{
    return 0;
}
