/* SPDX-License-Identifier: BSD-3-Clause */
/* ranges.c - see ranges.h. */
#include "lsm/ranges.h"

/* Z(size): zeros when `size` columns make one range. */
static uint64_t zeros(const uint8_t *matrix, uint32_t rows, uint32_t columns,
                      uint32_t size)
{
    uint64_t n = 0;

    for (uint32_t row = 0; row < rows; row++) {
        const uint8_t *bits = matrix + (uint64_t)row * columns;
        for (uint32_t i = 0; i < columns; i += size) {
            uint32_t end = columns - i < size ? columns : i + size;
            uint8_t any = 0;
            for (uint32_t j = i; j < end; j++)
                any |= bits[j];
            n += any == 0;
        }
    }
    return n;
}

uint32_t ranges_choose(const uint8_t *matrix, uint32_t rows, uint32_t columns,
                       double alpha)
{
    uint32_t size = 1, low, high;
    uint64_t now;

    if (rows == 0 || columns < 2)
        return 1;
    now = zeros(matrix, rows, columns, 1);
    while (size <= columns / 2) {
        uint64_t next = zeros(matrix, rows, columns, size * 2);
        if (2. * (double)next <= alpha * (double)now)
            break;
        size *= 2;
        now = next;
    }
    /* The largest A* in [A, 2A) with A* Z(A*) > alpha A Z(A); A itself qualifies unless
     * it has no zeros. */
    low = size;
    high = size * 2 < columns ? size * 2 : columns;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((double)middle * (double)zeros(matrix, rows, columns, middle) >
            alpha * (double)size * (double)now)
            low = middle;
        else
            high = middle;
    }
    return low;
}
