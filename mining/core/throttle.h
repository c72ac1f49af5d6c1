/* SPDX-License-Identifier: BSD-3-Clause */
/* throttle.h - whose prefetching pays: benefit by class, and by sets of classes that
 * feed each other (ATC'08 §3.4).
 *
 * The benefit of a class is the share of the blocks prefetched for it that were
 * demanded.  Where it is low, prefetching is cut to one block at a
 * time; where it is lower still it stops, but for a probe now and then, by which a
 * class that has become useful comes back.
 *
 * Classes whose prefetches are used by each other are *symbiotic*: they form a set, and
 * the set is judged, not its members.  Search may prefetch what NewProducts reads. Sets
 * are made anew from recent uses now and then, so they part when they stop feeding each
 * other.
 *
 * It stands between any prefetcher and the caller that asks for candidates.
 *
 * All functions may be called by several threads at a time; they lock for themselves,
 * briefly.  A class is a number of the caller's; those from QM_THROTTLE_CLASSES on are
 * one class together.
 */
#ifndef QM_THROTTLE_H
#define QM_THROTTLE_H

#include <stdint.h>

enum { QM_THROTTLE_CLASSES = 4096 };

/* What a class may do. */
enum qm_throttle_state {
    QM_THROTTLE_ON,      /* prefetches as it likes */
    QM_THROTTLE_REDUCED, /* a block at a time */
    QM_THROTTLE_OFF,     /* nothing, but for probes */
};

struct qm_throttle;

/* Returns NULL if memory is out. */
struct qm_throttle *qm_throttle_new(void);
void qm_throttle_free(struct qm_throttle *t); /* NULL is fine */

/* Forgets all, as after qm_throttle_new(): what was learned was of other prefetches. */
void qm_throttle_reset(struct qm_throttle *t);

/* How many blocks a context of klass may prefetch for this access, of most. */
unsigned qm_throttle_allow(struct qm_throttle *t, uint32_t klass, unsigned most);

/* `blocks` blocks are prefetched for issuer; each counts. */
void qm_throttle_issued(struct qm_throttle *t, uint32_t issuer, unsigned blocks);

/* A block that was prefetched for issuer is demanded by user. */
void qm_throttle_used(struct qm_throttle *t, uint32_t issuer, uint32_t user);

/* How klass is judged; *set is the lowest class of the symbiotic set that it is in. */
enum qm_throttle_state qm_throttle_get(struct qm_throttle *t, uint32_t klass,
                                       uint32_t *set);
const char *qm_throttle_state_name(enum qm_throttle_state state); /* "on", ... */

#endif
