/* SPDX-License-Identifier: BSD-3-Clause */
/* ages.c - a table of lines of words: a tag, which is never 0, and the low bits of a
 * time.
 *
 * Time is counted in units of a quarter of the reads of the second age, so that they
 * tell ages apart well, and the bits go round as seldom as can be: after more than a
 * hundred times as many reads as there are words.  What is half as old as that goes
 * when its line is noted in.
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
    TIME_BITS = 20,
    TAG_BITS = 32 - TIME_BITS,
    LAST = 2,  /* the last known age begins at 1 << LAST reads for each word */
    FIRST = 3, /* the first one is of less than 1 << FIRST reads, or more */
    CACHE_LINE = 64,
};

#define TIMES (1u << TIME_BITS)
#define TAGS  ((1u << TAG_BITS) - 1)

struct line {
    _Atomic uint32_t words[WAYS];
};

struct qm_ages {
    void *memory; /* that the lines are in */
    struct line *lines;
    uint64_t most;              /* lines there can be; a power of two, as are */
    atomic_uint_least64_t mask; /* those in use, less one */
    unsigned first;            /* the binary logarithm of the least of the second age */
    unsigned unit;             /* and of the reads of a unit of time */
    char apart[CACHE_LINE];    /* what all write to from what all read */
    atomic_uint_least64_t now; /* reads */
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
    a->first = FIRST;
    if (bits + LAST > FIRST + QM_AGE_UNKNOWN - 2)
        a->first = bits + LAST - (QM_AGE_UNKNOWN - 2);
    a->unit = a->first - 2;
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

static uint32_t load(const struct line *line, unsigned i)
{
    return atomic_load_explicit(&line->words[i], memory_order_relaxed);
}

static void store(struct line *line, unsigned i, uint32_t word)
{
    atomic_store_explicit(&line->words[i], word, memory_order_relaxed);
}

/* These lines are not in use any more; what is in them does not matter. */
static void give_back(const struct line *from, const struct line *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)from + page - 1) / page * page;
    uintptr_t end = (uintptr_t)to / page * page;

    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* A block may be in any of these lines that its hash says when there are `to`: it is in
 * all of them. */
static void multiply(struct qm_ages *a, uint64_t from, uint64_t to)
{
    for (uint64_t n = from; n < to; n++)
        for (unsigned i = 0; i < WAYS; i++)
            store(&a->lines[n], i, load(&a->lines[n & (from - 1)], i));
}

void qm_ages_set_bytes(struct qm_ages *a, uint64_t bytes)
{
    uint64_t n = lines_of(bytes), had = lines_in_use(a);

    if (n > a->most)
        n = a->most;
    if (n > had)
        multiply(a, had, n);
    atomic_store_explicit(&a->mask, n - 1, memory_order_relaxed);
    if (n < had)
        give_back(&a->lines[n], &a->lines[had]);
}

uint64_t qm_ages_bytes(const struct qm_ages *a)
{
    return (lines_in_use(a) + 1) * sizeof(struct line);
}

uint64_t qm_ages_least(void)
{
    return 2 * sizeof(struct line);
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

/* Of a word, in units; now as well.  What another thread has noted since now was asked
 * for is of this moment. */
static uint32_t age_of(uint32_t word, uint32_t now)
{
    uint32_t age = (now - word) % TIMES;

    return age < TIMES - TIMES / 16 ? age : 0;
}

void qm_ages_note(struct qm_ages *a, uint64_t block)
{
    uint64_t h = hash(block);
    struct line *line = line_of(a, h);
    uint32_t now =
        (uint32_t)(atomic_fetch_add_explicit(&a->now, 1, memory_order_relaxed) >>
                   a->unit);
    uint32_t tag = tag_of(h), oldest = 0;
    unsigned at = 0;

    for (unsigned i = 0; i < WAYS; i++) {
        uint32_t word = load(line, i), age = age_of(word, now);

        if (word >> TIME_BITS == tag) {
            at = i;
            break;
        }
        if (word != 0 && age >= TIMES / 2)
            store(line, i, word = 0);
        if (word == 0)
            age = TIMES;
        if (age >= oldest) {
            oldest = age;
            at = i;
        }
    }
    store(line, at, tag << TIME_BITS | now % TIMES);
}

unsigned qm_ages_find(const struct qm_ages *a, uint64_t block)
{
    uint32_t now =
        (uint32_t)(atomic_load_explicit(&a->now, memory_order_relaxed) >> a->unit);
    uint64_t h = hash(block), age;
    const struct line *line = line_of(a, h);
    unsigned n;

    for (unsigned i = 0; i < WAYS; i++) {
        uint32_t word = load(line, i);

        if (word >> TIME_BITS != tag_of(h))
            continue;
        age = (uint64_t)age_of(word, now) << a->unit >> a->first;
        n = age > 0 ? 64 - (unsigned)__builtin_clzll(age) : 0;
        return n < QM_AGE_UNKNOWN ? n : QM_AGE_UNKNOWN - 1;
    }
    return QM_AGE_UNKNOWN;
}
