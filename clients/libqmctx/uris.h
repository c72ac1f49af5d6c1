/* SPDX-License-Identifier: BSD-3-Clause */
/* uris.h - the servers of a device: one, and its standbys.
 *
 * A list of NBD URIs is written with commas: "nbd://a,nbd://b".  A comma separates only
 * if a URI follows it, so that it may stand in a URI.
 */
#ifndef QMCTX_URIS_H
#define QMCTX_URIS_H

#define QM_URIS_MAX 16

struct qm_uris {
    char *text; /* the copy that list[] points into */
    const char *list[QM_URIS_MAX];
    unsigned count; /* 1 or more */
    unsigned at;    /* the one in use */
};

/* Takes a list apart.  0, ENOMEM, or EINVAL: more than QM_URIS_MAX.  Freed by
 * qm_uris_free(), also after an error. */
int qm_uris_init(struct qm_uris *uris, const char *text);
void qm_uris_free(struct qm_uris *uris);

/* The one in use becomes the next, the first after the last; returns it. */
const char *qm_uris_next(struct qm_uris *uris);

#endif
