/* SPDX-License-Identifier: BSD-3-Clause */
/* ages.c - a table of lines of words: a tag, which is never 0, and the low bits of a
 * time.
 *
 * Time is counted in units of 1 << unit reads.  In a large table these are more than
 * one read, so that the time's bits do not go round before the word has given way.
 */
#define XXH_INLINE_ALL
#include "mining/markov/ages.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    WAYS = 8,
    TIME_BITS = 24,
    TAG_BITS = 32 - TIME_BITS,
    ROUND = 3, /* time goes round after 1 << ROUND times as many reads as there are
                  words, or later */
    LAST = 2,  /* the last known age begins at 1 << LAST times that many */
    FIRST = 3, /* the first one is of less than 1 << FIRST reads, or more */
};

struct line {
    _Atomic uint32_t words[WAYS];
};

#define TIMES (1u << TIME_BITS)
#define TAGS  ((1u << TAG_BITS) - 1)

struct qm_ages {
    void *memory; /* that the lines are in */
    struct line *lines;
    uint64_t most;              /* lines there can be; a power of two, as are */
    atomic_uint_least64_t mask; /* those in use, less one */
    unsigned unit;
    unsigned first; /* the binary logarithm of the least of the second age */
    atomic_uint_least64_t now;
};

static uint64_t lines_of(uint64_t bytes)
{
    uint64_t n = 1;

    while (n * 2 * sizeof(struct line) <= bytes)
        n *= 2;
    return n;
}

struct qm_ages *qm_ages_new(uint64_t bytes)
{
    struct qm_ages *a = calloc(1, sizeof *a);
    unsigned bits; /* words there can be: 1 << bits */

    if (!a)
        return NULL;
    a->most = lines_of(bytes);
    bits = (unsigned)__builtin_ctzll(a->most * WAYS);
    a->unit = bits + ROUND > TIME_BITS ? bits + ROUND - TIME_BITS : 0;
    a->first = FIRST;
    if (bits + LAST > FIRST + QM_AGE_UNKNOWN - 2)
        a->first = bits + LAST - (QM_AGE_UNKNOWN - 2);
    atomic_init(&a->mask, a->most - 1);
    /* calloc(), as aligned_alloc() has no zeros, and writing them would take memory at
     * once. */
    a->memory = calloc(a->most + 1, sizeof(struct line));
    if (!a->memory) {
        free(a);
        return NULL;
    }
    a->lines = (struct line *)(((uintptr_t)a->memory + sizeof(struct line) - 1) /
                               sizeof(struct line) * sizeof(struct line));
    return a;
}

void qm_ages_free(struct qm_ages *a)
{
    if (a)
        free(a->memory);
    free(a);
}

static uint64_t lines_in_use(const struct qm_ages *a)
{
    return atomic_load_explicit(&a->mask, memory_order_relaxed) + 1;
}

/* The lines from n on are not in use any more.  They are empty when they are used
 * again, wherever pages begin: else what is known would depend on addresses. */
static void give_back(struct qm_ages *a, uint64_t n, uint64_t had)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)&a->lines[n] + page - 1) / page * page;
    uintptr_t to = (uintptr_t)&a->lines[had] / page * page;

    for (uint64_t i = n; i < had; i++)
        for (unsigned k = 0; k < WAYS; k++)
            atomic_store_explicit(&a->lines[i].words[k], 0, memory_order_relaxed);
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

void qm_ages_set_bytes(struct qm_ages *a, uint64_t bytes)
{
    uint64_t n = lines_of(bytes), had = lines_in_use(a);

    if (n > a->most)
        n = a->most;
    atomic_store_explicit(&a->mask, n - 1, memory_order_relaxed);
    if (n < had)
        give_back(a, n, had);
}

uint64_t qm_ages_bytes(const struct qm_ages *a)
{
    return sizeof *a + (lines_in_use(a) + 1) * sizeof(struct line);
}

static uint64_t hash(uint64_t block)
{
    return XXH3_64bits(&block, sizeof block);
}

static struct line *line_of(const struct qm_ages *a, uint64_t h)
{
    return &a->lines[h & atomic_load_explicit(&a->mask, memory_order_relaxed)];
}

static uint32_t tag_of(uint64_t h)
{
    return (uint32_t)(h >> 32) % TAGS + 1;
}

/* Of a word, in units; now is in reads. */
static uint32_t age_of(const struct qm_ages *a, uint32_t word, uint64_t now)
{
    return ((uint32_t)(now >> a->unit) - word) % TIMES;
}

static uint32_t load(const struct line *line, unsigned i)
{
    return atomic_load_explicit(&line->words[i], memory_order_relaxed);
}

void qm_ages_note(struct qm_ages *a, uint64_t block)
{
    uint64_t now = atomic_fetch_add_explicit(&a->now, 1, memory_order_relaxed);
    uint64_t h = hash(block);
    struct line *line = line_of(a, h);
    uint32_t tag = tag_of(h), oldest = 0;
    unsigned at = 0;

    for (unsigned i = 0; i < WAYS; i++) {
        uint32_t word = load(line, i);

        if (word >> TIME_BITS == tag) {
            at = i;
            break;
        }
        if (age_of(a, word, now) >= oldest) {
            oldest = age_of(a, word, now);
            at = i;
        }
    }
    atomic_store_explicit(&line->words[at],
                          tag << TIME_BITS | (uint32_t)(now >> a->unit) % TIMES,
                          memory_order_relaxed);
}

unsigned qm_ages_find(const struct qm_ages *a, uint64_t block)
{
    uint64_t now = atomic_load_explicit(&a->now, memory_order_relaxed), age;
    uint64_t h = hash(block);
    const struct line *line = line_of(a, h);
    uint32_t tag = tag_of(h);
    unsigned n;

    for (unsigned i = 0; i < WAYS; i++) {
        if (load(line, i) >> TIME_BITS != tag)
            continue;
        age = (uint64_t)age_of(a, load(line, i), now) << a->unit >> a->first;
        n = age > 0 ? 64 - (unsigned)__builtin_clzll(age) : 0;
        return n < QM_AGE_UNKNOWN ? n : QM_AGE_UNKNOWN - 1;
    }
    return QM_AGE_UNKNOWN;
}
