/* preload.c - the library's beginning, and what its parts do when the process forks.
 *
 * Locks, none of which is held while waiting for the network or the kernel but a file's
 * own and the one of the ring that completions are posted from: each part has one or
 * two, and takes no other part's within it.  libqmctx may hold its registry lock when
 * it calls back, so none of them is held while calling what takes that (connecting,
 * attaching).
 */
#include <pthread.h>

#include "client-patches/preload/preload.h"
#include "client-patches/preload/route.h"

static void at_fork(enum qm_fork when)
{
    qm_files_fork(when);
    qm_aio_fork(when);
    qm_uring_fork(when);
    qm_routes_fork(when);
}

static void before_fork(void)
{
    at_fork(QM_FORK_BEFORE);
}

static void in_parent(void)
{
    at_fork(QM_FORK_PARENT);
}

static void in_child(void)
{
    at_fork(QM_FORK_CHILD);
}

static __attribute__((constructor)) void begin(void)
{
    qm_routes_configure();
    if (qm_routes())
        pthread_atfork(before_fork, in_parent, in_child);
}
