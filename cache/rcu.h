/* rcu.h - the one place where the cache names its RCU flavour.
 *
 * urcu-bp ("bulletproof") registers threads by itself, which a library needs whose
 * callers' threads are not its own.
 *
 * The thread sanitizer does not see into liburcu, which is not built with it.  Under
 * that sanitizer, and only there, what liburcu guarantees is told to it, edge by edge:
 * whatever a reader did happens before the end of a grace period that waited for it,
 * and what was stored before a node was added happens before a look-up that finds it.
 * Everything else is left for it to judge.
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

/* Stands for "all readers" in what the sanitizer is told. */
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

/* Waits until all who are reading now have finished.  Not while reading oneself, nor
 * with a lock held that a reader may wait for. */
static inline void qm_rcu_synchronize(void)
{
    synchronize_rcu();
    qm_rcu_happens_after(&qm_rcu_readers);
}

#endif
