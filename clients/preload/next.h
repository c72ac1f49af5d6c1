/* SPDX-License-Identifier: BSD-3-Clause */
/* next.h - functions that stand in the place of another library's.
 *
 * The program's calls are bound to the functions here first.  NEXT(f) is the function
 * that it would have called: of the C library, libaio or liburing.
 */
#ifndef QM_PRELOAD_NEXT_H
#define QM_PRELOAD_NEXT_H

#include <dlfcn.h>
#include <stdatomic.h>

/* Of a function that the program may call, and that is found before others'. */
#define INTERPOSED __attribute__((visibility("default")))

/* Another name of the same function, with the same parameters. */
#define ALSO(f, type, name, ...)                                                       \
    INTERPOSED type name(__VA_ARGS__) __attribute__((alias(#f)))

/* Looked up when it is first used, which may be before any constructor has run. */
#define NEXT(f)                                                                        \
    ({                                                                                 \
        static _Atomic(void *) next_;                                                  \
        void *n_ = atomic_load_explicit(&next_, memory_order_relaxed);                 \
        if (!n_) {                                                                     \
            n_ = dlsym(RTLD_NEXT, #f);                                                 \
            atomic_store_explicit(&next_, n_, memory_order_relaxed);                   \
        }                                                                              \
        (__typeof__(&f))n_;                                                            \
    })

#endif
