/* SPDX-License-Identifier: BSD-3-Clause */
/* slow-disk.c - for LD_PRELOAD: each read of whole pages takes SLOW_DISK_US longer, as
 * on a disk that serves all reads at a time.  Writes take no longer.
 *
 * InnoDB reads its pages by pread64(), all of them with --innodb-use-native-aio=0. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

__attribute__((visibility("default"))) ssize_t pread64(int fd, void *buffer,
                                                       size_t count, off64_t offset)
{
    static ssize_t (*next)(int fd, void *buffer, size_t count, off64_t offset);
    static long us = -1;
    const char *text;

    if (us == -1) { /* every thread finds the same */
        next = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
        text = getenv("SLOW_DISK_US");
        us = text ? strtol(text, NULL, 10) : 0;
    }
    if (us > 0 && count >= PAGE && count % PAGE == 0) {
        struct timespec t = {us / 1000000, us % 1000000 * 1000};

        nanosleep(&t, NULL);
    }
    return next(fd, buffer, count, offset);
}
