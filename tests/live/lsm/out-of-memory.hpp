/* SPDX-License-Identifier: BSD-3-Clause */
/* out-of-memory.hpp - a test's `new` that can fail.  To be included by one file of a
 * program. */
#ifndef QM_TESTS_LSM_OUT_OF_MEMORY_HPP
#define QM_TESTS_LSM_OUT_OF_MEMORY_HPP

#include <cstdlib>
#include <new>

/* Of this thread: how many more may succeed; -1: all. */
static thread_local long allocations_left = -1;

static bool fails()
{
    if (allocations_left > 0)
        allocations_left--;
    return allocations_left == 0;
}

void *operator new(size_t size)
{
    void *p = fails() ? nullptr : malloc(size ? size : 1);
    if (!p)
        throw std::bad_alloc();
    return p;
}
/* Not inlined: the compiler would take the free() for one of a `new`. */
__attribute__((noinline)) void operator delete(void *p) noexcept
{
    free(p);
}
__attribute__((noinline)) void operator delete(void *p, size_t) noexcept
{
    free(p);
}

#endif
