/* SPDX-License-Identifier: BSD-3-Clause */
/* sanitizer-first.c - makes a preloaded sanitizer get ready before anything else does.
 *
 * A sanitizer's library that is preloaded into a program which was not built with it
 * gets ready in the first malloc() of all.  In nbdkit that is one of libp11-kit's
 * constructor, within newlocale() and under glibc's lock of locales; getting ready
 * calls dlerror(), which releases that lock, and when libp11-kit frees its locale at
 * the end, nbdkit hangs. So this library, linked to be initialized first, calls
 * malloc() before that.
 *
 * And what is loaded stays loaded: a leak that is found after nbdkit has unloaded a
 * filter would have no names, and what the filter's variables point to would count as
 * leaked.
 */
#include <stdlib.h>

__attribute__((visibility("default"))) int dlclose(void *handle);

int dlclose(void *handle)
{
    return 0;
}

static void __attribute__((constructor)) first(void)
{
    void *volatile p = malloc(1);

    free(p);
}
