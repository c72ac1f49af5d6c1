/* backing.h - the server's own connections to the layer below.
 *
 * Prefetch threads do not read over the clients' connections, which come and go, but
 * over a fixed number of connections that the server opens for them when it starts.
 * What is behind one may be lost while the server lives: an NBD server that is
 * restarted, a network that fails.  A plugin reports that as it reports a bad sector,
 * by failing reads, so repeated failure decides: after QMS_BACKING_FAILURES failed
 * reads in succession a connection counts as lost.  A thread of this module, the
 * keeper, closes it and opens another; meanwhile its reads fail at once, and nobody who
 * waits for a block waits for a connection.
 *
 * A connection is open again when a read over it succeeds that has succeeded before:
 * the keeper tries.
 *
 * The keeper's attempts back off: from first_delay, doubling, to most_delay.  The delay
 * begins anew only when the connections have worked for most_delay, so a device whose
 * reads all fail does not have its connections reopened for ever at full speed.
 *
 * Losses that have one cause are one: what was open already when another connection was
 * lost is replaced in silence after its first failed read.
 */
#ifndef QMS_BACKING_H
#define QMS_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#define QMS_BACKING_FAILURES 4

struct qms_backing;

struct qms_backing_config {
    unsigned connections;             /* at least 1 */
    uint64_t first_delay, most_delay; /* ns */
    uint32_t trial;    /* bytes that can be read at any offset that was read */
    uint64_t patience; /* ns: how long qms_backing_stop() waits for the keeper */

    /* NULL: it failed, and has said why.  By the starting thread, and by the keeper. */
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
    unsigned open;    /* connections that are */
    uint64_t losses;  /* times that `lost` was called */
    uint64_t reopens; /* connections opened in place of lost ones */
};

/* Opens the connections; the first is `first`, unless that is NULL.  It is this
 * module's from now on, whatever happens.  NULL if a connection cannot be opened, or,
 * then with *error set, if memory or threads are out. */
struct qms_backing *qms_backing_start(const struct qms_backing_config *config,
                                      void *first, int *error);

/* Closes them; no read is in flight.  False: the keeper has been in open() or close()
 * for longer than patience allows.  Then it is left there, with the connections. */
bool qms_backing_stop(struct qms_backing *backing);

/* Reads over the connection of a worker: worker modulo the number of connections.
 * Returns 0, the layer's error, or ENOTCONN at once while that connection is lost. */
int qms_backing_read(struct qms_backing *backing, unsigned worker, void *buf,
                     uint32_t count, uint64_t offset);

/* The layer below can be reached, as somebody has just found: if the keeper could not,
 * it need not wait longer before it tries. */
void qms_backing_hint(struct qms_backing *backing);

void qms_backing_stats(struct qms_backing *backing, struct qms_backing_stats *stats);

#endif
