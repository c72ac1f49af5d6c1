/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.h - the thread that learns from ended contexts.
 *
 * Mining is never on a read's path: the end of a context only queues its sequence.  The
 * queue is bounded in bytes and shared fairly between clients, by the bytes of their
 * sequences (engine/fair.h).  A sequence that does not fit, or is evicted in favour of
 * another client's, is shed, and counted.
 */
#ifndef QMS_MINER_H
#define QMS_MINER_H

#include <stdint.h>

#include "mining/core/prefetcher.h"
#include "server/clients.h"

struct qms_miner;

struct qms_miner_stats {
    uint64_t learned; /* sequences handed to the prefetcher */
    uint64_t shed;    /* sequences dropped because the queue was full */
    uint64_t failed;  /* of the learned, those that ended in an error */
    uint64_t queued;  /* waiting, or being learned from now */
};

/* max_bytes: capacity of the queue.  purge_seconds: remove rules that were not used for
 * that long; 0: never.  NULL if memory or threads are out. */
struct qms_miner *qms_miner_start(struct qm_prefetcher *prefetcher, uint64_t max_bytes,
                                  unsigned purge_seconds);

/* Makes the miner's thread save the rules every save_seconds if they have changed, less
 * often if a save takes longer than a tenth of that, and call saved() with 0 or an
 * errno value after each.  0: never.  May be called once. */
void qms_miner_save_every(struct qms_miner *miner, unsigned save_seconds,
                          void (*saved)(void *opaque, int error), void *opaque);

/* Makes the miner's thread call tick() every second, between other work, until it ends.
 * May be called once. */
void qms_miner_tick_every(struct qms_miner *miner, void (*tick)(void *opaque),
                          void *opaque);
/* tick() is not called any more when this returns.  The caller is not within it. */
void qms_miner_end_ticks(struct qms_miner *miner);

/* Learns what is queued, for at most five seconds, discards the rest, and ends the
 * thread.  No other thread may be pushing. */
void qms_miner_stop(struct qms_miner *miner);

/* Takes over work of a client; bytes: its approximate size, at least 1.  Any thread. */
void qms_miner_push(struct qms_miner *miner, unsigned client, struct qm_work *work,
                    uint64_t bytes);

void qms_miner_stats(struct qms_miner *miner, struct qms_miner_stats *stats);

#endif
