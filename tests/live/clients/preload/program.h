/* SPDX-License-Identifier: BSD-3-Clause */
/* program.h - what the parts of the tests' program share.
 *
 * An ordinary program, which knows nothing of routes: it is given a FILE that is
 * routed, and a file OTHER on this machine with the same bytes, and does the same to
 * both.  What the C library, libaio and liburing say of OTHER is what they should say
 * of FILE, but for what a device has not.
 */
#ifndef PRELOAD_PROGRAM_H
#define PRELOAD_PROGRAM_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

extern const char *routed, *other; /* paths */
extern off_t size;                 /* of both */

/* Ends the program with a sentence, unless it is so. */
#define CHECK(so, ...)                                                                 \
    do {                                                                               \
        int errno_ = errno;                                                            \
        if (!(so)) {                                                                   \
            fprintf(stderr, "%s:%d: %s (errno %s):", __FILE__, __LINE__, #so,          \
                    strerrorname_np(errno_));                                          \
            fprintf(stderr, " " __VA_ARGS__);                                          \
            fputc('\n', stderr);                                                       \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* That a call fails with an errno value. */
#define FAILS(call, error)                                                             \
    do {                                                                               \
        errno = 0;                                                                     \
        CHECK((call) == -1 && errno == (error));                                       \
    } while (0)

int must_open(const char *path, int flags);
/* That both are the same from offset on, for count bytes, as pread() reads them. */
void check_same(off_t offset, size_t count);

/* A different number each time, the same in each run; below a bound. */
uint64_t dice(unsigned *seed, uint64_t bound);

void test_files(void);
void test_fds(void);
void test_fork(void);
void test_threads(void);
void test_aio(void);
void test_uring(void);
int run_contexts(const char *path);
int run_loss(const char *path);
int run_children(const char *stall);
int run_descriptors(const char *path, const char *how);
int run_submits(const char *path);
int run_stderr(const char *path);
int run_restarts(const char *what, const char *late);

#endif
