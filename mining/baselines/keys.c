/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - sorting 64-bit keys.
 *
 * A few by insertion, many by radix, least significant byte first, leaving out the
 * bytes in which no two keys differ: of block numbers most are such.  With C's
 * qsort() mining took two to three times as long.
 */
#include "mining/baselines/keys.h"

#include <string.h>

#define FEW 48

static void insert_sort(uint64_t *keys, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--) {
            keys[j] = keys[j - 1];
        }
        keys[j] = key;
    }
}

/* Sorts by the byte at shift, and keeps the order of equals. */
static void sort_by_byte(const uint64_t *from, size_t n, unsigned shift, uint64_t *to)
{
    size_t at[256] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++) {
        at[from[i] >> shift & 0xff]++;
    }
    for (size_t byte = 0; byte < 256; byte++) {
        size_t count = at[byte];
        at[byte] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) {
        to[at[from[i] >> shift & 0xff]++] = from[i];
    }
}

void qm_keys_sort(uint64_t *keys, size_t n, uint64_t *spare)
{
    uint64_t differ = 0, *from = keys, *to = spare;
    if (n <= FEW) {
        insert_sort(keys, n);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        differ |= keys[i] ^ keys[0];
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 0xff) != 0) {
            sort_by_byte(from, n, shift, to);
            uint64_t *swap = from;
            from = to;
            to = swap;
        }
    }
    if (from != keys) {
        memcpy(keys, from, n * sizeof keys[0]);
    }
}

size_t qm_keys_unique(uint64_t *keys, size_t n)
{
    size_t left = n > 0;
    for (size_t i = 1; i < n; i++) {
        if (keys[i] != keys[left - 1]) {
            keys[left++] = keys[i];
        }
    }
    return left;
}
