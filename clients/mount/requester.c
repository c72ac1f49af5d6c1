/* SPDX-License-Identifier: BSD-3-Clause */
/* requester.c - see requester.h.
 *
 * A program that has been killed waits for what it has asked for, so somebody has to
 * look: the kernel tells a file system of signals only for requests that a thread
 * sleeps for, and io_uring's are not such.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/mount/requester.h"

/* Of /proc/THREAD/stat, see proc(5). */
enum { FIELD_STATE = 3, FIELD_FLAGS = 9, FIELD_PENDING = 31 };
#define EXITING 0x4u /* the kernel's PF_EXITING */

bool qm_requester_thread_gone(pid_t thread)
{
    unsigned long flags, pending;
    char path[32], text[1024], *p;
    ssize_t n;
    int fd;

    if (thread == 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return errno == ENOENT;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return n == -1 && errno == ESRCH;
    text[n] = '\0';
    /* The name before it may hold anything. */
    p = strrchr(text, ')');
    for (int field = FIELD_STATE - 1; p && field < FIELD_FLAGS; field++)
        p = strchr(p + 1, ' ');
    flags = p ? strtoul(p, NULL, 10) : 0;
    for (int field = FIELD_FLAGS; p && field < FIELD_PENDING; field++)
        p = strchr(p + 1, ' ');
    pending = p ? strtoul(p, NULL, 10) : 0;
    return (flags & EXITING) || (pending & 1ul << (SIGKILL - 1));
}
