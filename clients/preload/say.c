/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - see say.h. */
#include "clients/preload/say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat first; /* of the standard error; constant since qm_say_begin() */
static bool known;

void qm_say_begin(void)
{
    int err = errno;

    known = fstat(STDERR_FILENO, &first) == 0;
    errno = err;
}

static bool is_for_us(void)
{
    struct stat now;
    int flags;

    if (fstat(STDERR_FILENO, &now) != 0)
        return false;
    if (known && now.st_dev == first.st_dev && now.st_ino == first.st_ino)
        return true;
    if (S_ISBLK(now.st_mode) || S_ISSOCK(now.st_mode))
        return false;
    flags = fcntl(STDERR_FILENO, F_GETFL);
    return !S_ISREG(now.st_mode) || (flags != -1 && (flags & O_APPEND));
}

void qm_say(const char *format, ...)
{
    int err = errno;
    va_list args;

    if (is_for_us()) {
        va_start(args, format);
        vdprintf(STDERR_FILENO, format, args);
        va_end(args);
    }
    errno = err;
}
