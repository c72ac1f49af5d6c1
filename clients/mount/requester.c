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
#define EXITING 0x4u        /* the kernel's PF_EXITING */
#define KERNEL  0x00200000u /* PF_KTHREAD */

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

/* The fields of a file that is such, from FIELD_STATE on, with a blank before; NULL and
 * errno if it cannot be read. */
static const char *get_fields(const char *path, char *text, size_t size)
{
    /* The name before them may hold anything. */
    const char *name = get(path, text, size) > 0 ? strrchr(text, ')') : NULL;

    return name ? name + 1 : NULL;
}

static unsigned long number(const char *fields, int wanted)
{
    for (int field = FIELD_STATE; fields && field < wanted; field++)
        fields = strchr(fields + 1, ' ');
    return fields ? strtoul(fields, NULL, 10) : 0;
}

/* Whether a thread is ending, has been killed, or is no more; false if that cannot be
 * told. */
static bool is_ending(pid_t process, const char *thread)
{
    char path[64], text[1024];
    const char *fields;

    snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)process, thread);
    errno = 0;
    fields = get_fields(path, text, sizeof text);
    if (!fields)
        return errno == ENOENT || errno == ESRCH;
    return (number(fields, FIELD_FLAGS) & EXITING) ||
           (number(fields, FIELD_PENDING) & 1ul << (SIGKILL - 1));
}

bool qm_requester_is_kernel(pid_t thread)
{
    char path[32], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)thread);
    return number(get_fields(path, text, sizeof text), FIELD_FLAGS) & KERNEL;
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
    if (qm_requester_is_kernel(thread))
        return QM_REQUESTER_KERNEL;
    p = strstr(text, key);
    return p ? (pid_t)strtol(p + sizeof key - 1, NULL, 10) : 0;
}

bool qm_requester_process_gone(pid_t process)
{
    const struct dirent *entry;
    bool gone = true;
    char path[32];
    DIR *tasks;

    if (process == 0 || process == QM_REQUESTER_KERNEL)
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
