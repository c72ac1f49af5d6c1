/* SPDX-License-Identifier: BSD-3-Clause */
/* backing.h - the server's own connections to the layer below.
 *
 * Prefetch threads do not read over the clients' connections, which come and go, but
 * over connections that the server opens for them: a number of them when it starts,
 * and more when they are asked for.
 * The server's end of a connection may outlive the other end: an NBD server is
 * restarted, a network fails.  A plugin reports that as it reports a bad sector, by
 * failing reads.  A connection therefore counts as lost after QMS_BACKING_FAILURES
 * failed reads in succession.  A thread of this module, the keeper, closes it and opens
 * another. Until then its reads fail at once, so a reader that waits for a block never
 * waits for a connection.
 *
 * A connection counts as open again when the keeper has repeated over it a read that
 * succeeded before.
 *
 * The keeper's attempts back off: from first_delay, doubling, to most_delay.  The delay
 * is reset only when the connections have worked for most_delay, so that connections to
 * a device whose reads all fail are not reopened for ever at full speed.
 *
 * Losses with one cause are reported once: connections that were open when another was
 * lost are replaced silently, after their first failed read.
 */
#ifndef QMS_BACKING_H
#define QMS_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#define QMS_BACKING_FAILURES 4

struct qms_backing;

struct qms_backing_config {
    unsigned connections;             /* at most; at least 1 */
    unsigned first;                   /* opened at the start; 0: all */
    uint64_t first_delay, most_delay; /* ns */
    uint32_t trial; /* bytes at offset 0 that can be read; at the last offset that was
                       read, a new connection is tried with no more than this, nor
                       more than was read there */
    uint64_t patience; /* ns: how long qms_backing_stop() waits for the keeper */

    /* NULL: it failed, and has logged why.  Called by the starting thread and the
     * keeper. */
    void *(*open)(void *opaque);
    void (*close)(void *opaque, void *connection);
    /* Returns 0 or an errno value.  Any thread. */
    int (*read)(void *opaque, void *connection, void *buf, uint32_t count,
                uint64_t offset);
    /* Once when connections are lost, and once when one works again.  They are called
     * with the module's lock held. */
    void (*lost)(void *opaque, int error);
    void (*back)(void *opaque);
    void *opaque;
};

struct qms_backing_stats {
    unsigned open;    /* connections that are open */
    uint64_t losses;  /* times that `lost` was called */
    uint64_t reopens; /* connections opened in place of lost ones */
};

/* Opens the connections; the first is `first`, unless that is NULL.  `first` is this
 * module's from now on, also on failure.  Returns NULL if a connection cannot be
 * opened, or, with *error set, without memory or threads. */
struct qms_backing *qms_backing_start(const struct qms_backing_config *config,
                                      void *first, int *error);

/* Closes the connections; no read may be in flight.  False: the keeper has been in
 * open() or close() for longer than `patience`; then it is left there, with the
 * connections. */
bool qms_backing_stop(struct qms_backing *backing);

/* From now on `connections` are of use, at most those of the configuration.  They are
 * opened one by one, by the keeper; where the layer below refuses one, it is asked
 * again after most_delay, and then after twice as long each time, up to a bound.
 * Returns how many there are already, lost ones included.  Any
 * thread, and no waiting. */
unsigned qms_backing_want(struct qms_backing *backing, unsigned connections);

/* Reads over the connection of a worker: worker modulo the number of connections.
 * Returns 0, the layer's error, or ENOTCONN at once while that connection is lost. */
int qms_backing_read(struct qms_backing *backing, unsigned worker, void *buf,
                     uint32_t count, uint64_t offset);

/* Tells the keeper that a read of the layer below has just succeeded: if it is waiting
 * before its next attempt, it tries at once. */
void qms_backing_hint(struct qms_backing *backing);

/* Closes all connections, each when its reads have ended, and opens others in their
 * place; reads fail with ENOTCONN meanwhile.  No read that begins after this returns is
 * made over a connection whose open() began before.  That counts as no loss. */
void qms_backing_renew(struct qms_backing *backing);

void qms_backing_stats(struct qms_backing *backing, struct qms_backing_stats *stats);

#endif
