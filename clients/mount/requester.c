/* SPDX-License-Identifier: BSD-3-Clause */
/* requester.c - see requester.h.
 *
 * A killed program waits for its requests, so a thread here has to look for that: the
 * kernel tells a file system of signals only for requests in which a thread sleeps,
 * and no thread sleeps in those of io_uring.
 *
 * A thread that has submitted an asynchronous request may have ended, and its process
 * wait for the outcome: so it is the process that counts, of which all threads end when
 * it does.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/mount/requester.h"

/* Of /proc/PROCESS/task/THREAD/stat, see proc(5). */
enum { FIELD_STATE = 3, FIELD_FLAGS = 9, FIELD_PENDING = 31 };
#define EXITING 0x4u /* the kernel's PF_EXITING */

/* Reads a file of /proc; the number of bytes, which a NUL follows, or -1 with errno. */
static ssize_t get(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd == -1)
        return -1;
    n = read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
    return n;
}

pid_t qm_requester_process(pid_t thread)
{
    static const char key[] = "\nTgid:";
    char path[32], text[1024];
    const char *p;

    if (thread == 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
    if (get(path, text, sizeof text) <= 0)
        return 0;
    p = strstr(text, key);
    return p ? (pid_t)strtol(p + sizeof key - 1, NULL, 10) : 0;
}

/* Whether a thread is ending, has been killed, or is no more; false if that cannot be
 * told. */
static bool is_ending(pid_t process, const char *thread)
{
    unsigned long flags, pending;
    char path[64], text[1024], *p;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)process, thread);
    n = get(path, text, sizeof text);
    if (n <= 0)
        return n == -1 && (errno == ENOENT || errno == ESRCH);
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

bool qm_requester_process_gone(pid_t process)
{
    const struct dirent *entry;
    bool gone = true;
    char path[32];
    DIR *tasks;

    if (process == 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    tasks = opendir(path);
    if (!tasks)
        return errno == ENOENT;
    while (gone && (entry = readdir(tasks)))
        gone = entry->d_name[0] == '.' || is_ending(process, entry->d_name);
    closedir(tasks);
    return gone;
}
