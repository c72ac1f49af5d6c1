/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - to be preloaded: as if a hostile owner exchanged two directories in the
 * instant before something is unmounted, $EXCHANGE_A and $EXCHANGE_B, once; or put a
 * link to $EXCHANGE_B in the place of the file $EXCHANGE_LINK before it is mounted
 * over.  With $EXCHANGE_END, the mount is told to end when its socket is there, and no
 * session of libfuse yet.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

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

int fuse_opt_add_opt(char **opts, const char *opt); /* libfuse's */
int fuse_opt_add_opt(char **opts, const char *opt)
{
    int (*next)(char **, const char *) =
        (int (*)(char **, const char *))dlsym(RTLD_NEXT, "fuse_opt_add_opt");

    if (getenv("EXCHANGE_END"))
        kill(getpid(), SIGTERM);
    return next(opts, opt);
}

int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *data)
{
    int (*next)(const char *, const char *, const char *, unsigned long, const void *) =
        (int (*)(const char *, const char *, const char *, unsigned long,
                 const void *))dlsym(RTLD_NEXT, "mount");
    const char *link = getenv("EXCHANGE_LINK"), *b = getenv("EXCHANGE_B");

    if (link && b && (unlink(link) != 0 || symlink(b, link) != 0))
        perror("symlink");
    return next(source, target, type, flags, data);
}
