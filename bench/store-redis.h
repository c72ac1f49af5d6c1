/* SPDX-License-Identifier: BSD-3-Clause */
/* store-redis.h - what store-bench asks of a Redis server on a Unix socket: a command
 * at a time, each with its own round trip, as a program does that needs the answer. */
#ifndef QM_BENCH_STORE_REDIS_H
#define QM_BENCH_STORE_REDIS_H

#include <stddef.h>
#include <stdint.h>

/* Bounds the server's memory; what is least frequently used is evicted.  0 or an errno
 * value. */
int redis_open(const char *socket_path, uint64_t memory);

/* ENOENT: it is not there, or was evicted. */
int redis_get(uint32_t key, char *value, size_t len);
int redis_put(uint32_t key, const char *value, size_t len);

#endif
