/* SPDX-License-Identifier: BSD-3-Clause */
/* preload.c - the library's beginning, and what its parts do when the process forks.
 *
 * Locks, none of which is held while waiting for the network or the kernel but a file's
 * own and the one of the ring that completions are posted from: each part has one or
 * two, and takes no other part's within it.  libqmctx may hold its registry lock when
 * it calls back, so none of them is held while calling what takes that (connecting,
 * attaching).  fork() takes none of them: see preload.h.
 */
#include <pthread.h>

#include "clients/preload/preload.h"
#include "clients/preload/record.h"
#include "clients/preload/route.h"
#include "clients/preload/say.h"

static void in_child(void)
{
    /* First: until then, the table of files is the parent's. */
    qm_files_forked();
    qm_aio_forked();
    qm_uring_forked();
    qm_routes_forked();
    qm_record_forked();
}

static __attribute__((constructor)) void begin(void)
{
    qm_say_begin();
    qm_routes_configure();
    qm_files_begin();
    qm_record_configure();
    if (qm_routes() || atomic_load(&qm_recording))
        pthread_atfork(NULL, NULL, in_child);
}
