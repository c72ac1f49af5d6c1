/* SPDX-License-Identifier: BSD-3-Clause */
/* mount-fixture.h - what the tests of announcing contexts to a mount share: a directory
 * with the mock mount's socket. */
#ifndef MOUNT_FIXTURE_H
#define MOUNT_FIXTURE_H

#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "clients/libqmctx/qmctx.h"
#include "mock-mount.h"

extern char dir[], path[64]; /* the socket's */

/* Waits for condition, at most a minute, and tells whether it came true. */
#define WAIT_FOR(condition)                                                            \
    ({                                                                                 \
        time_t until_ = time(NULL) + 60;                                               \
        while (!(condition) && time(NULL) < until_)                                    \
            usleep(2000);                                                              \
        (condition);                                                                   \
    })

/* The calling thread's fsgid. */
uint32_t fsgid(void);

/* A begin and an end, which is when the transport looks after its mount. */
bool nudge(struct qmctx *ctx);

/* To the mock mount, which may, on a busy machine, greet later than qmctx_announce()
 * waits: then it is asked again when a context begins. */
struct qmctx *must_announce(void);
/* Starts the mount before. */
struct qmctx *announce_to(struct mock_mount *m);

/* The entry that the calling thread's fsgid names. */
struct qm_mount_entry *entry_of(struct mock_mount *m);

/* Whether setfsgid() is allowed; says so if not. */
bool can_set_fsgid(void);

/* Make and remove the directory, once for all tests of a program. */
int set_up(void **state);
int tear_down(void **state);

#endif
