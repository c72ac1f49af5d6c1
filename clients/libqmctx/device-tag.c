/* SPDX-License-Identifier: BSD-3-Clause */
/* device-tag.c - an open context of the server's, held by its users. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "clients/libqmctx/device-tag.h"

struct qm_tag {
    atomic_uint references;
    qmctx_id context;
    struct qm_device *device;
    struct qm_tag *parent; /* a reference; or NULL */
};

int qm_tag_begin(struct qm_device *device, struct qm_tag *parent, enum qmctx_kind kind,
                 uint64_t klass, const char *name, struct qm_tag **tag)
{
    struct qm_tag *t = malloc(sizeof *t);
    int r;

    *tag = NULL;
    if (!t)
        return ENOMEM;
    r = qm_device_begin(device, qm_tag_context(parent), kind, klass, name, &t->context);
    if (r) {
        free(t);
        return r;
    }
    atomic_init(&t->references, 1);
    t->device = device;
    t->parent = parent ? qm_tag_get(parent) : NULL;
    *tag = t;
    return 0;
}

struct qm_tag *qm_tag_get(struct qm_tag *tag)
{
    atomic_fetch_add_explicit(&tag->references, 1, memory_order_relaxed);
    return tag;
}

void qm_tag_put(struct qm_tag *tag)
{
    struct qm_tag *parent;

    while (tag &&
           atomic_fetch_sub_explicit(&tag->references, 1, memory_order_acq_rel) == 1) {
        parent = tag->parent;
        qm_device_end(tag->device, tag->context);
        free(tag);
        tag = parent;
    }
}

qmctx_id qm_tag_context(const struct qm_tag *tag)
{
    return tag ? tag->context : 0;
}
