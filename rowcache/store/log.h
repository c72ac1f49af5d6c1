/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - a partition's write-ahead log.
 *
 * A file of records, each with a sequence number and a checksum, behind a header.  What
 * is appended is in a buffer first.  store_log_commit() in QMSTORE_SYNC writes and
 * syncs it; of several threads, one does so for all.  In QMSTORE_LAZY the buffer is
 * written when it is full, so the end of the process loses it.  How much that was is
 * known from the state (state.h), which has the newest sequence number that was
 * acknowledged.
 *
 * store_log_append() and store_log_restart() are called under the partition's lock, the
 * others without. */
#ifndef QM_STORE_LOG_H
#define QM_STORE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rowcache/store/qmstore.h"
#include "rowcache/store/state.h"

struct store_log_record {
    uint64_t sequence, expires;
    uint32_t frequency;
    const void *key, *value;
    uint32_t value_len;
    uint16_t key_len;
    bool dead; /* the key was removed */
    bool more; /* the next record belongs to the same batch */
};

struct store_log {
    char *path; /* of the file */
    int dir, fd;
    bool sync;
    bool opened; /* the state is of this process */
    bool is_new; /* there was no state */
    enum qmstore_durability durability;
    struct store_state state;

    pthread_mutex_t lock;
    pthread_cond_t written;
    char *buffer, *spare; /* spare: what a thread is writing just now */
    size_t filled, size, spare_size, limit;
    bool writing;
    int error; /* of a write; nothing is appended until store_log_restart() */
    uint64_t appended, durable; /* sequence numbers */
    uint64_t offset;            /* the file's size */
    uint64_t live;              /* its size after the last restart */
    uint64_t syncs;
};

/* Opens the log in dir, makes it if there is none, and calls each for its records,
 * whole batches only.  *lost: changes that were acknowledged and are not there. *clean:
 * the last process closed it.  *was: its durability.  What is behind the last whole
 * batch is cut off, unless *damaged: the file is torn elsewhere than a process or a
 * machine that ends can tear it.  Returns 0, or what each returned, or an errno value.
 */
int store_log_open(struct store_log *l, int dir, const char *name,
                   const char *state_name, enum qmstore_durability durability,
                   size_t limit,
                   int (*each)(void *opaque, const struct store_log_record *r),
                   void *opaque, uint64_t *lost, bool *clean,
                   enum qmstore_durability *was, bool *damaged);

/* With the next sequence number, which is set in r. */
int store_log_append(struct store_log *l, struct store_log_record *r);

/* Records up to a sequence number are acknowledged: waits until they are durable, with
 * durability sync. */
int store_log_commit(struct store_log *l, uint64_t sequence);

/* Writes the buffer; with sync, durably.  The error of an earlier write, if there was
 * one. */
int store_log_write(struct store_log *l, bool sync);

/* The present state of the log. */
struct store_log_look {
    int error;
    uint64_t offset, live, bytes, memory, syncs;
};

void store_log_look(struct store_log *l, struct store_log_look *look);

/* Begins a new log with what `fill` appends by the function that it is given.  On an
 * error the old one stays, and so does the error that it had. */
int store_log_restart(struct store_log *l,
                      int (*fill)(void *opaque,
                                  int (*append)(struct store_log *,
                                                struct store_log_record *)),
                      void *opaque);

/* clean: the partition's contents are on disk.  A log that could not be opened keeps
 * what the last process said of it.  An error: the state does not say that. */
int store_log_close(struct store_log *l, bool clean);

#endif
