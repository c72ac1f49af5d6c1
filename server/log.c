/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - see log.h. */
#include "server/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <nbdkit-filter.h>

static const char *const names[] = {
    [QMS_ERROR] = "error", [QMS_WARNING] = "warning", [QMS_NOTE] = "note"};

static _Atomic int limit = QMS_NOTE;

const char *qms_log_name(enum qms_log_level level)
{
    return names[level];
}

int qms_log_parse(const char *name)
{
    for (int i = QMS_ERROR; i <= QMS_NOTE; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

void qms_log_limit(enum qms_log_level level)
{
    atomic_store(&limit, (int)level);
}

void qms_log(enum qms_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;

    if ((int)level > atomic_load(&limit))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    nbdkit_error("%s%s%s", level == QMS_ERROR ? "" : names[level],
                 level == QMS_ERROR ? "" : ": ", text);
}
