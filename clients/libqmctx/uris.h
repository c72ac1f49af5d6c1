/* SPDX-License-Identifier: BSD-3-Clause */
/* uris.h - the servers of a device: one, and its standbys.
 *
 * A list of NBD URIs is written with commas: "nbd://a,nbd://b".  A comma separates only
 * if a URI follows it, so that it may stand in a URI.
 *
 * Paths in a URI (of a socket, of keys) are looked up at each connecting.  A program
 * that changes its directory meanwhile, as one in the background does, would look
 * elsewhere: so relative ones are made absolute once, unless they are too long then.
 */
#ifndef QMCTX_URIS_H
#define QMCTX_URIS_H

#define QM_URIS_MAX 16

struct sockaddr_un;

struct qm_uris {
    char *text; /* the copy that list[] points into */
    const char *list[QM_URIS_MAX];
    unsigned count; /* 1 or more */
    unsigned at;    /* the one in use */
};

/* Takes a list apart, whose relative paths are those of the current directory.  0, or
 * an errno value; E2BIG: more than QM_URIS_MAX.  Freed by qm_uris_free(), also after an
 * error. */
int qm_uris_init(struct qm_uris *uris, const char *text);
void qm_uris_free(struct qm_uris *uris);

/* The one in use becomes the next, the first after the last; returns it. */
const char *qm_uris_next(struct qm_uris *uris);

/* The same for a socket's path, which the address has room for. */
void qm_socket_path(struct sockaddr_un *address, const char *path);

#pragma GCC visibility push(default)

/* The list with absolute paths, malloc()ed; NULL with errno. */
char *qm_uris_absolute(const char *text);

#pragma GCC visibility pop

#endif
