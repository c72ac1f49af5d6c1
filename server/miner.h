/* miner.h - the thread that learns from ended contexts.
 *
 * Mining is never on a read's path: whoever ends a context only queues what there is to
 * learn.  The queue is bounded by the bytes that it keeps waiting, and shared by
 * clients as engine/fair.h says: each has its turn, by the bytes of its sequences, and
 * while several have sequences waiting, none can fill it.  A sequence that does not
 * fit, or has to go for another client's, is shed, and counted.
 */
#ifndef QMS_MINER_H
#define QMS_MINER_H

#include <stdint.h>

#include "mining/core/prefetcher.h"
#include "server/clients.h"

struct qms_miner;

struct qms_miner_stats {
    uint64_t learned; /* sequences handed to the prefetcher */
    uint64_t shed;    /* sequences for which the queue had no room, or none any more */
    uint64_t failed;  /* of the learned, those that ended in an error */
    uint64_t queued;  /* waiting, or being learned from now */
};

/* max_bytes: what may wait.  purge_seconds: remove rules that were not used for that
 * long; 0: never.  NULL if memory or threads are out. */
struct qms_miner *qms_miner_start(struct qm_prefetcher *prefetcher, uint64_t max_bytes,
                                  unsigned purge_seconds);

/* From now on saves the rules every so many seconds, if they have changed, on the
 * thread that learns, and says each time how that went; less often if it takes longer
 * than a tenth of that.  0: never.  Once at most. */
void qms_miner_save_every(struct qms_miner *miner, unsigned save_seconds,
                          void (*saved)(void *opaque, int error), void *opaque);

/* Learns what is queued, for at most five seconds, discards the rest, and ends the
 * thread.  Nobody may push any more. */
void qms_miner_stop(struct qms_miner *miner);

/* Takes over work of client's, of about so many bytes, at least 1.  Any thread. */
void qms_miner_push(struct qms_miner *miner, unsigned client, struct qm_work *work,
                    uint64_t bytes);

void qms_miner_stats(struct qms_miner *miner, struct qms_miner_stats *stats);

#endif
