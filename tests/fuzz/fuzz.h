/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.h - what the fuzzers share: an input is eaten from its beginning.
 *
 * Each fuzz-*.c is a libFuzzer target (LLVMFuzzerTestOneInput): built with clang and
 * its fuzzer by tests/fuzz/run, and in every build with replay.c instead, to try the
 * corpus again.  An input that breaks a promise calls abort().
 */
#ifndef QM_FUZZ_H
#define QM_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct food {
    const uint8_t *at;
    size_t left;
};

/* The next n bytes; zeros when there are none left. */
static inline void eat(struct food *f, void *to, size_t n)
{
    size_t there = n < f->left ? n : f->left;

    memset(to, 0, n);
    if (there > 0)
        memcpy(to, f->at, there);
    f->at += there;
    f->left -= there;
}

static inline uint64_t eat_number(struct food *f, size_t bytes)
{
    uint64_t number = 0;

    eat(f, &number, bytes); /* little-endian machines: the corpus is of one */
    return number;
}

/* What must always hold; unlike assert() also in a release build. */
#define promise(what)                                                                  \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #what);         \
            abort();                                                                   \
        }                                                                              \
    } while (0)

#endif
