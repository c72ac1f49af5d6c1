/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - to be preloaded: as if a hostile owner exchanged two directories in the
 * instant before something is unmounted, $EXCHANGE_A and $EXCHANGE_B, once.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

#pragma GCC visibility push(default)

int umount2(const char *target, int flags)
{
    static int once;
    int (*next)(const char *, int) =
        (int (*)(const char *, int))dlsym(RTLD_NEXT, "umount2");
    const char *a = getenv("EXCHANGE_A"), *b = getenv("EXCHANGE_B");

    if (a && b && !once++ && renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0)
        perror("renameat2");
    return next(target, flags);
}
