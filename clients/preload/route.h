/* SPDX-License-Identifier: BSD-3-Clause */
/* route.h - which paths are which servers' devices.
 *
 * A route is connected when its file is first opened or asked for its size, and from
 * then on as long as the process lives; a child process connects anew.  What happens
 * when the server is away is the device's to say (libqmctx/device.h).
 *
 * Functions return 0 or an errno value unless they say otherwise; any thread may call
 * them at any time.
 */
#ifndef QM_PRELOAD_ROUTE_H
#define QM_PRELOAD_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/libqmctx/device.h"

struct route;

/* The route that a path is of, as openat(2) understands the two; or NULL.  Leaves errno
 * alone. */
struct route *qm_route_find(int dirfd, const char *path);
/* Whether there are any. */
bool qm_routes(void);

/* Learns the device's size and so on, if that has not been done yet, in this process or
 * a parent: connects, and waits for the server. */
int qm_route_connect(struct route *route);

/* A number of its own, from 1. */
unsigned qm_route_number(const struct route *route);
const char *qm_route_path(const struct route *route);

/* The rest is for routes for which qm_route_connect() has succeeded. */

uint64_t qm_route_size(const struct route *route);
uint32_t qm_route_block_size(const struct route *route);
bool qm_route_is_read_only(const struct route *route);

/* For requests; in a child, connects anew.  NULL with errno. */
struct qm_device *qm_route_device(struct route *route);

/* The errno value that a program gets for an error of a device: one of a file that
 * cannot be read or written now, never of one that does not exist. */
int qm_route_error(int error);

#endif
