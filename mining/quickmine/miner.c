/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.c - the rules in a sequence (see miner.h). */
#include "mining/quickmine/miner.h"

#include "mining/core/prefetcher.h"

int qm_mine(const uint64_t *blocks, size_t n, size_t old, unsigned lookahead,
            qm_mined *mined, void *opaque)
{
    size_t reach = lookahead - 1; /* k - i at most */
    uint64_t suffixes[QM_LOOKAHEAD_MAX];

    for (size_t i = old > reach ? old - reach : 0; i < n; i++) {
        size_t end = n - i > reach ? i + reach + 1 : n; /* k is below it */
        for (size_t j = i + 1; j + 1 < end; j++) {
            uint64_t a = blocks[i], b = blocks[j];
            if (a == b) {
                continue;
            }
            unsigned count = 0;
            for (size_t k = j + 1 > old ? j + 1 : old; k < end; k++) {
                if (blocks[k] != a && blocks[k] != b) {
                    suffixes[count++] = blocks[k];
                }
            }
            if (count > 0) {
                int r = mined(opaque, a, b, suffixes, count);
                if (r != 0) {
                    return r;
                }
            }
        }
    }
    return 0;
}
