/* SPDX-License-Identifier: BSD-3-Clause */
/* resident.h - how much memory this process has, as the system counts it. */
#ifndef QM_TESTS_RESIDENT_H
#define QM_TESTS_RESIDENT_H

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

/* In bytes. */
static inline uint64_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    uint64_t pages;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %" SCNu64, &pages), 1);
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#endif
