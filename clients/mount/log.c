/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - what the mount has to say, to standard error or to the system's log.
 *
 * A message is put together before it is written, so that messages of several threads
 * do not get mixed up.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "clients/mount/log.h"

static atomic_bool to_syslog;

static void vlog(int priority, const char *format, va_list ap)
{
    char text[1024];
    size_t len;

    vsnprintf(text, sizeof text, format, ap);
    len = strlen(text);
    while (len > 0 && text[len - 1] == '\n')
        text[--len] = '\0';

    if (atomic_load(&to_syslog))
        syslog(priority, "%s", text);
    else
        fprintf(stderr, "quickmine mount: %s\n", text);
}

void qm_mount_log(int priority, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vlog(priority, format, ap);
    va_end(ap);
}

void qm_mount_log_to_syslog(void)
{
    openlog("quickmine-mount", LOG_PID, LOG_DAEMON);
    atomic_store(&to_syslog, true);
}

static void fuse_says(enum fuse_log_level level, const char *format, va_list ap)
{
    /* libfuse's levels are syslog's, in its order. */
    if (level <= FUSE_LOG_NOTICE)
        vlog((int)level, format, ap);
}

void qm_mount_log_fuse(void)
{
    fuse_set_log_func(fuse_says);
}
