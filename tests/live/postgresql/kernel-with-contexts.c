/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel-with-contexts.c - to be preloaded: the system call of
 * client-patches/linux/ctx.h answers as a kernel's does that has contexts, which are
 * nothing here. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/types.h>

#include "client-patches/linux/ctx.h"

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    static __typeof__(syscall) *next;
    static _Thread_local long current, last;
    long a[6], was = current;
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number != __NR_ctx_action) {
        if (!next)
            next = (__typeof__(next))dlsym(RTLD_NEXT, "syscall");
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    switch ((int)a[0]) {
    case APP_CTX_BEGIN:
        return ++last;
    case APP_CTX_SET:
        current = a[1];
        return was;
    case APP_CTX_GET:
        return current;
    default:
        return 0;
    }
}
