/* SPDX-License-Identifier: BSD-3-Clause */
/* bloom.c - a Bloom filter of the keys on disk (the thesis, 4.4.1).
 *
 * m and k by the usual formulas, m rounded up to whole words.  The k bits of a key
 * come from its 128-bit hash (Kirsch and Mitzenmacher: two hashes suffice).  A filter
 * with more keys than it was made for says yes more often, and stays right.  Bits
 * cannot be taken back: the store makes a new one when many are of keys that have left.
 */
#include <errno.h>
#include <math.h>

#include "rowcache/store/internal.h"

int store_bloom_init(struct bloom *b, uint64_t capacity, double p)
{
    const double ln2 = .693147180559945;
    double m;

    *b = (struct bloom){.capacity = capacity < 1024 ? 1024 : capacity};
    if (p <= 0)
        return 0;
    m = -(double)b->capacity * log(p) / (ln2 * ln2);
    b->bits = ((uint64_t)m / 64 + 1) * 64;
    b->hashes = (unsigned)lround((double)b->bits / (double)b->capacity * ln2);
    /* More bits than asked for are used to look at fewer of them. */
    if (b->hashes > (unsigned)ceil(-log(p) / ln2))
        b->hashes = (unsigned)ceil(-log(p) / ln2);
    if (b->hashes == 0)
        b->hashes = 1;
    b->words = store_pages_alloc(store_bloom_bytes(b));
    return b->words ? 0 : ENOMEM;
}

void store_bloom_free(struct bloom *b)
{
    store_pages_free(b->words, store_bloom_bytes(b));
    *b = (struct bloom){0};
}

static uint64_t bit_of(const struct bloom *b, uint64_t hash)
{
    return (uint64_t)((unsigned __int128)hash * b->bits >> 64);
}

/* Between a key's bits. */
static uint64_t stride_of(struct store_hash hash)
{
    return (uint64_t)hash.low << 32 | 1;
}

void store_bloom_add(struct bloom *b, struct store_hash hash)
{
    uint64_t at = hash.high;

    b->added++;
    for (unsigned i = 0; b->words && i < b->hashes; i++, at += stride_of(hash)) {
        uint64_t bit = bit_of(b, at);

        b->words[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
}

bool store_bloom_may_have(const struct bloom *b, struct store_hash hash)
{
    uint64_t at = hash.high;

    for (unsigned i = 0; b->words && i < b->hashes; i++, at += stride_of(hash)) {
        uint64_t bit = bit_of(b, at);

        if (!(b->words[bit / 64] & UINT64_C(1) << (bit % 64)))
            return false;
    }
    return true;
}
