/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of the tier share. */
#ifndef QM_TESTS_TIER_TESTING_H
#define QM_TESTS_TIER_TESTING_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tier/tier.h"

static inline uint64_t rnd(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t rnd_below(uint64_t *seed, uint64_t n)
{
    return rnd(seed) % n;
}

/* A block's data: its number and version, all over. */
static inline void make_block(void *buf, size_t size, uint64_t block, uint64_t version)
{
    uint64_t word[2] = {block, version};

    for (size_t i = 0; i < size; i += sizeof word)
        memcpy((char *)buf + i, word, sizeof word);
}

/* The version, or UINT64_MAX if it is not all of one, or another block's. */
static inline uint64_t version_of(const void *buf, size_t size, uint64_t block)
{
    uint64_t word[2];

    memcpy(word, buf, sizeof word);
    if (word[0] != block || memcmp(buf, (const char *)buf + 16, size - 16) != 0)
        return UINT64_MAX;
    return word[1];
}

/* Warnings, joined by newlines. */
struct told {
    char text[4000];
    unsigned n;
};

static inline void keep_warning(void *opaque, const char *message)
{
    struct told *told = opaque;
    size_t at = strlen(told->text);

    snprintf(told->text + at, sizeof told->text - at, "%s\n", message);
    told->n++;
}

#endif
