/* SPDX-License-Identifier: BSD-3-Clause */
/* rcu.h - the one place where the cache names its RCU flavour.
 *
 * urcu-bp ("bulletproof") registers threads by itself.  The cache needs that because
 * its callers' threads are not its own.
 *
 * liburcu is not built with the thread sanitizer, which therefore does not see its
 * guarantees.  Under that sanitizer only, two annotations declare them: a reader's
 * actions happen before the end of a grace period that waited for it, and stores before
 * a node was added happen before a look-up that finds it.  The sanitizer checks all the
 * rest.
 */
#ifndef QM_CACHE_RCU_H
#define QM_CACHE_RCU_H

#define URCU_API_MAP /* rcu_*() and cds_lfht_new() mean the flavour included here */
#include <urcu-bp.h>
#include <urcu/rculfhash.h>

#if defined(__SANITIZE_THREAD__)
#define QM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QM_TSAN 1
#endif
#endif

#ifdef QM_TSAN
#include <sanitizer/tsan_interface.h>
#define qm_rcu_happens_before(p) __tsan_release(p)
#define qm_rcu_happens_after(p)  __tsan_acquire(p)
#else
#define qm_rcu_happens_before(p) ((void)(p))
#define qm_rcu_happens_after(p)  ((void)(p))
#endif

/* Stands for "all readers" in the sanitizer's annotations. */
extern char qm_rcu_readers;

static inline void qm_rcu_read_lock(void)
{
    rcu_read_lock();
}

static inline void qm_rcu_read_unlock(void)
{
    qm_rcu_happens_before(&qm_rcu_readers);
    rcu_read_unlock();
}

/* Waits until all present readers have finished.  Must not be called within a read-side
 * section, nor with a lock held that a reader may wait for. */
static inline void qm_rcu_synchronize(void)
{
    synchronize_rcu();
    qm_rcu_happens_after(&qm_rcu_readers);
}

#endif
