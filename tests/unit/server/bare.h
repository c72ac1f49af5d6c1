/* SPDX-License-Identifier: BSD-3-Clause */
/* bare.h - the paths of reads and writes without nbdkit, over a disk that a test stops.
 *
 * A test says which request of the disk is to be caught, and before or after it has
 * been carried out; starts readers and writers, each on a thread of its own; waits
 * until the request is in the trap; does what it wants to have happened meanwhile; and
 * opens the trap.  So each interleaving is exactly the one that is written down.
 */
#ifndef BARE_H
#define BARE_H

#include "fake.h"
#include "server/server.h"

#define BARE_BLOCK  UINT64_C(4096)
#define BARE_BLOCKS 64
#define BARE_TAIL   100 /* bytes of the last block */
#define BARE_SIZE   ((BARE_BLOCKS - 1) * BARE_BLOCK + BARE_TAIL)

enum bare_op { BARE_READ, BARE_PREFETCH, BARE_WRITE, BARE_ZERO, BARE_TRIM };

/* What the disk was asked for. */
struct bare_call {
    enum bare_op op;
    uint64_t offset;
    uint32_t count;
};

struct bare_trap {
    enum bare_op op;
    uint64_t block;
    bool stops, after; /* it has been carried out */
    int error;         /* what the request gets */
    enum { BARE_NONE, BARE_SET, BARE_SPRUNG, BARE_OPEN } state;
};

struct bare {
    struct qms_server s;
    struct fake fake; /* the prefetcher */
    struct qms_connection connection;
    struct qms_slot slot; /* the context in which is read */
    nbdkit_next next;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    unsigned char disk[BARE_SIZE];
    struct bare_trap traps[4];
    struct bare_call calls[256];
    unsigned call_count;
};

/* A request of a client. */
struct bare_job {
    struct bare *bare;
    enum bare_op op;
    uint64_t offset;
    uint32_t count;
    unsigned char *data; /* of count bytes */
    int error;
    pthread_t thread;
};

/* A server with one prefetch thread; an LRU cache in one shard. */
struct bare *bare_new(uint64_t blocks, uint64_t prefetch_blocks);
/* Nothing is in flight; nothing was lost on the way. */
void bare_free(struct bare *b);

/* The next such request that touches block is caught there. */
struct bare_trap *bare_trap(struct bare *b, enum bare_op op, uint64_t block,
                            bool after);
/* An error of which the layer below does not say which it is: nbdkit takes errno then.
 */
#define BARE_UNSAID (-1)

/* It fails; a write has been carried out nevertheless. */
struct bare_trap *bare_fail(struct bare *b, enum bare_op op, uint64_t block);
void bare_await(struct bare *b, struct bare_trap *trap);
void bare_open(struct bare *b, struct bare_trap *trap);

/* A write's data is made up, and new each time. */
struct bare_job *bare_start(struct bare *b, enum bare_op op, uint64_t offset,
                            uint32_t count);
/* Returns its error, and frees it; a read's data is compared with `expected`, if that
 * is not NULL. */
int bare_join(struct bare_job *job, const unsigned char *expected);
/* Both. */
int bare_do(struct bare *b, enum bare_op op, uint64_t offset, uint32_t count);

/* Reads count bytes at offset; they must be what the disk has. */
void bare_check(struct bare *b, uint64_t offset, uint32_t count);

/* How many requests there were that touched block. */
unsigned bare_calls(struct bare *b, enum bare_op op, uint64_t block);

/* Waits until a reader waits for somebody else's read of block, or until the disk has
 * been asked for it so often. */
void bare_await_waiter(struct bare *b, uint64_t block, unsigned waiters,
                       unsigned calls);
/* Waits until no block is being read. */
void bare_await_quiet(struct bare *b);

#endif
