/* SPDX-License-Identifier: BSD-3-Clause */
/* no-memory.h - memory that is out when a test says so.
 *
 * Linked with --wrap for malloc, calloc and aligned_alloc. */
#ifndef QM_TESTS_NO_MEMORY_H
#define QM_TESTS_NO_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static long countdown = -1; /* allocations that still succeed; -1: all */
static unsigned long asked;
static size_t asked_bytes;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool refuse(size_t size)
{
    asked++;
    asked_bytes += size;
    if (countdown > 0)
        countdown--;
    else if (countdown == 0)
        return true;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return refuse(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse(n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse(size) ? NULL : __real_aligned_alloc(alignment, size);
}

#endif
