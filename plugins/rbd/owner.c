/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.c - see owner.h. */
#include "plugins/rbd/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "quickmine 1 "

/* A release is one write of the header; another client that has had the lock since, and
 * has released it, makes two more.  One less than these may have been to other objects
 * of the header's placement group, as the object map's release is. */
#define RELEASE 2
#define LOCK    "rbd_lock" /* librbd's name of it */

/* The version of the image's header now, and the client that has its lock, as
 * "client.4123"; "": none has.  Returns 0 or a negative errno. */
static int look_at_header(struct qmr_owner *o, uint64_t *version, char client[64])
{
    char tag[64], clients[256] = "", cookies[256], addresses[512];
    size_t tag_len = sizeof tag, clients_len = sizeof clients;
    size_t cookies_len = sizeof cookies, addresses_len = sizeof addresses;
    uint64_t size;
    time_t when;
    int exclusive;
    int r = rados_stat(o->io, o->header, &size, &when);
    ssize_t n;

    if (r < 0)
        return r;
    *version = rados_get_last_version(o->io);
    n = rados_list_lockers(o->io, o->header, LOCK, &exclusive, tag, &tag_len, clients,
                           &clients_len, cookies, &cookies_len, addresses,
                           &addresses_len);
    if (n < 0)
        return (int)n;
    snprintf(client, 64, "%.63s", n > 0 ? clients : "");
    return *version > 0 ? 0 : -EIO;
}

/* The last owner and the version of the header at its release.  False: there is none.
 */
static bool read_record(struct qmr_owner *o, char known[QMR_OWNER_TEXT],
                        uint64_t *version)
{
    char text[256], *end, *line;
    int n = rados_read(o->io, o->object, text, sizeof text - 1, 0);
    size_t len;

    if (n <= 0)
        return false;
    o->record = rados_get_last_version(o->io);
    text[n] = '\0';
    line = strchr(text, '\n');
    if (!line || strncmp(text, MARK, strlen(MARK)) != 0)
        return false;
    len = (size_t)(line - text) - strlen(MARK);
    if (len == 0 || len >= QMR_OWNER_TEXT)
        return false;
    memcpy(known, text + strlen(MARK), len);
    known[len] = '\0';
    errno = 0;
    *version = strtoull(line + 1, &end, 10);
    return errno == 0 && end > line + 1 && *end == '\n';
}

/* record: its version must still be that; 0: whatever there is. */
static int write_record(struct qmr_owner *o, const char *known, uint64_t version)
{
    char text[256];
    rados_write_op_t op = rados_create_write_op();
    int n = snprintf(text, sizeof text, MARK "%s\n%" PRIu64 "\n", known, version), r;

    if (!op)
        return -ENOMEM;
    if (o->record != 0)
        rados_write_op_assert_version(op, o->record);
    rados_write_op_write_full(op, text, (size_t)n);
    r = rados_write_op_operate(op, o->io, o->object, NULL, 0);
    rados_release_write_op(op);
    o->record = r == 0 ? rados_get_last_version(o->io) : 0;
    return r;
}

void qmr_owner_look(struct qmr_owner *o, rados_t cluster, const char *pool,
                    const char *name_space, rbd_image_t image)
{
    uint64_t version, released = 0;
    char id[64], client[64];
    const char *last;

    memset(o, 0, sizeof *o);
    if (rbd_get_id(image, id, sizeof id) < 0 ||
        rados_ioctx_create(cluster, pool, &o->io) < 0)
        return;
    o->has_io = true;
    if (name_space)
        rados_ioctx_set_namespace(o->io, name_space);
    snprintf(o->header, sizeof o->header, "rbd_header.%s", id);
    snprintf(o->object, sizeof o->object, "quickmine_owner.%s", id);
    if (!read_record(o, o->before, &released) ||
        look_at_header(o, &version, client) != 0) {
        o->before[0] = '\0';
        return;
    }
    last = strrchr(o->before, ' ');
    if (released != 0)
        o->unbroken = client[0] == '\0' && version == released;
    else
        o->unbroken = last && strcmp(last + 1, client) == 0;
    if (!o->unbroken)
        o->before[0] = '\0';
}

void qmr_owner_take(struct qmr_owner *o, rados_t cluster)
{
    char fsid[40] = "", *image = strchr(o->object, '.');
    int n;

    if (!o->has_io || !image || rados_cluster_fsid(cluster, fsid, sizeof fsid) < 0)
        return;
    n = snprintf(o->known, sizeof o->known, "rbd %s %" PRIi64 " %.40s client.%" PRIu64,
                 fsid, rados_ioctx_get_id(o->io), image + 1,
                 rados_get_instance_id(cluster));
    o->record = 0; /* the last one's writer does not own the image */
    if (n >= (int)sizeof o->known || write_record(o, o->known, 0) != 0)
        o->before[0] = o->known[0] = '\0';
}

/* A write that changes nothing: the version that the header gets by it is the newest in
 * its placement group, from which the next one is counted, whatever objects were
 * written to before. */
static uint64_t touch_header(struct qmr_owner *o)
{
    rados_write_op_t op = rados_create_write_op();
    uint64_t version = 0;

    if (!op)
        return 0;
    rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
    if (rados_write_op_operate(op, o->io, o->header, NULL, 0) == 0)
        version = rados_get_last_version(o->io);
    rados_release_write_op(op);
    return version;
}

void qmr_owner_leaving(struct qmr_owner *o)
{
    o->held = o->has_io && o->known[0] != '\0' ? touch_header(o) : 0;
}

void qmr_owner_leave(struct qmr_owner *o, bool probed)
{
    const char *last = probed ? o->before : o->known;
    uint64_t version;
    char client[64];

    if (!o->has_io || last[0] == '\0' || o->record == 0 ||
        look_at_header(o, &version, client) != 0 || client[0] != '\0')
        return;
    /* Another client had it since, and may have written: with the release unrecorded,
     * the next owner finds one that has not released it, and does not have it.  Or
     * another object of the placement group was written to meanwhile, which only costs
     * the next one a comparison. */
    if (!probed && (o->held == 0 || version > o->held + RELEASE))
        return;
    (void)write_record(o, last, version);
}

void qmr_owner_end(struct qmr_owner *o)
{
    if (o->has_io)
        rados_ioctx_destroy(o->io);
    o->has_io = false;
}
