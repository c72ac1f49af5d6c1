/* SPDX-License-Identifier: BSD-3-Clause */
/* direct-fixture.h - what the tests of direct connections share: a server for each
 * test, work for many threads, and what the server recorded of it. */
#ifndef DIRECT_FIXTURE_H
#define DIRECT_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/harness.h"

#include "clients/libqmctx/qmctx.h"
#include "clients/protocol/quickmine-protocol.h"
#include "mining/core/context.h"
#include "nbdkit-server.h"
#include "trace/trace.h"

#define SIZE  (UINT64_C(1) << 30) /* of the device, unless a test says otherwise */
#define BLOCK 16384

/* Each test has a server's directory; whether one runs is the test's business. */
extern struct nbdkit_server server;
extern char record_arg[112]; /* the parameter that makes the filter record */
int set_up(void **state);
int tear_down(void **state);

/* The filter, recording, over the pattern plugin, each 8 bytes of which hold their
 * offset, in big endian. */
void start_filter(void);
bool is_pattern(const void *buf, size_t count, uint64_t offset);

struct qmctx *must_connect(unsigned connections);
/* Both. */
struct qmctx *connect_filter(unsigned connections);
/* Reads and checks the pattern. */
void must_read(struct qmctx *ctx, qmctx_id id, size_t count, uint64_t offset);

/* What was recorded, read back. */
#define MAX_EVENTS 200000
struct recorded {
    char type;
    uint64_t ctx, parent, offset, length;
    uint64_t klass; /* number, or what its name begins with */
    enum qm_kind kind;
};
extern struct recorded events[MAX_EVENTS];
extern unsigned event_count;
void load_record(void);
/* Ends the server, too, before. */
void close_and_load(struct qmctx *ctx);
/* The begin of a context of that class; there is exactly one. */
struct recorded *begun(uint64_t klass);
/* How many events of a context. */
unsigned count_events(char type, uint64_t ctx);

/* Eight threads, each with contexts of its own over shared connections. */
enum { THREADS = 8, CONTEXTS = 40, READS = 5 };
struct job {
    struct qmctx *ctx;
    unsigned number;
    unsigned failed;
    _Atomic pid_t tid;
    _Atomic bool over;
};
/* One thread's part; of a struct job. */
void *work(void *job);
void run_threads(struct qmctx *ctx);
/* That what was recorded is what run_threads() did. */
void check_threads(void);

/* A request that is in flight. */
struct aio {
    char buf[512];
    uint64_t offset;
    unsigned calls;
    int error;
    _Atomic bool done;
};
enum { IN_FLIGHT = 64 };
void aio_done(void *aio, int error);

#endif
