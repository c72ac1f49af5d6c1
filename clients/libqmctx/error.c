/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - what every other file stands on: the calling thread's last error, as a
 * sentence, and the length of a name.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local char text[512];

const char *qmctx_error(void)
{
    return text;
}

int qm_fail(int err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    errno = err;
    return -1;
}

size_t qm_name_len(const char *name, size_t max)
{
    size_t len = strnlen(name, max + 1);

    if (len <= max)
        return len;
    /* 10xxxxxx goes on with what the byte before began. */
    for (len = max; len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80;)
        len--;
    return len;
}
