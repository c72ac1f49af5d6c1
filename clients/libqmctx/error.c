/* error.c - the calling thread's last error, as a sentence. */
#include <stdarg.h>
#include <stdio.h>

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
