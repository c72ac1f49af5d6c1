/* SPDX-License-Identifier: BSD-3-Clause */
/* device-tag.h - an open context of the server's, held by its users.
 *
 * A tag keeps its context open: its table has one reference, and each request in flight
 * with it another, so that a context that ends during its reads ends on the wire after
 * the last of them.  Enclosing contexts do so, too, since nested contexts end with
 * them.
 */
#ifndef QMCTX_DEVICE_TAG_H
#define QMCTX_DEVICE_TAG_H

#include "clients/libqmctx/device.h"

#pragma GCC visibility push(default)

struct qm_tag;

/* Begins a context within parent (NULL: none); name may be NULL.  Returns 0 with a
 * reference in *tag, or an errno value and NULL. */
int qm_tag_begin(struct qm_device *device, struct qm_tag *parent, enum qmctx_kind kind,
                 uint64_t klass, const char *name, struct qm_tag **tag);

/* One more reference to a tag of which the caller has, or its lock protects, one. */
struct qm_tag *qm_tag_get(struct qm_tag *tag);

/* Gives a reference back; the last one ends the context.  tag may be NULL. */
void qm_tag_put(struct qm_tag *tag);

/* The context for a request; tag may be NULL: no context. */
qmctx_id qm_tag_context(const struct qm_tag *tag);

#pragma GCC visibility pop

#endif
