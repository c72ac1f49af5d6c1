/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.h - the hash of a block's number. */
#ifndef QM_CACHE_HASH_H
#define QM_CACHE_HASH_H

#include <stdint.h>

/* The high half of the result chooses the shard, the low bits choose a bucket. */
static inline uint64_t qm_hash(uint64_t block)
{
    uint64_t h = block + UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

#endif
