/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.h - a trace against a live server, contexts included.
 *
 * Events are dealt out to clients as deal.h says.  A client is a thread that makes one
 * request at a time, in the order of the trace; with one client and one connection the
 * server sees the trace exactly as it is.
 *
 * Memory does not follow the length of the trace: a client that is QM_REPLAY_AHEAD
 * events behind makes the trace wait.
 */
#ifndef QM_BENCH_REPLAY_H
#define QM_BENCH_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugins/device/histogram.h"
#include "trace/trace.h"

enum { QM_REPLAY_AHEAD = 1024, QM_REPLAY_CLIENTS_MAX = 1024 };

struct qm_replay;

struct qm_replay_config {
    const char *uri;      /* as of qmctx_connect() */
    unsigned clients;     /* 1 to QM_REPLAY_CLIENTS_MAX */
    unsigned connections; /* 1 to 64 */
    double speed;         /* of the trace's own; 0: without pauses */
    bool writes;          /* write, too: destroys what is on the device */
    bool wait_mining;     /* when a context ends, wait until the server has mined it */
};

struct qm_replay_result {
    uint64_t reads, bytes_read, writes, bytes_written; /* requests made */
    uint64_t writes_skipped;
    uint64_t contexts;
    uint64_t max_late_us; /* how late a request was at most; 0 without pauses */
    uint64_t elapsed_us;  /* from the first request to the last reply */
    struct qm_histogram read_us, write_us; /* latencies */
    struct qm_histogram read_due_us; /* since reads were due; empty without pauses */
};

/* Connects and starts the clients.  Returns NULL with a sentence in err. */
struct qm_replay *qm_replay_new(const struct qm_replay_config *config, char *err,
                                size_t len);

/* The trace's events, in its order.  Returns 0; or -1 when a request failed, for good
 * (qm_replay_error()).  For one thread only. */
int qm_replay_event(struct qm_replay *r, const struct qm_event *event);

/* No more events: waits for the last reply, and ends all contexts.  Returns as above.
 */
int qm_replay_finish(struct qm_replay *r, struct qm_replay_result *result);

const char *qm_replay_error(const struct qm_replay *r);

/* The server's statistics as JSON text, to be freed; NULL with qm_replay_error(). */
char *qm_replay_stats(struct qm_replay *r);

void qm_replay_free(struct qm_replay *r); /* NULL is fine */

#endif
