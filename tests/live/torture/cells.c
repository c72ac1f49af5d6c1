/* SPDX-License-Identifier: BSD-3-Clause */
/* cells.c - see cells.h. */
#include "cells.h"

#include <string.h>

#define CELL_MIN 13 /* bytes: a name, and something to tell it from garbage */

uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t cell_start(uint32_t cell)
{
    uint64_t start = (uint64_t)(cell / 2) * SECTOR;

    return cell % 2 == 0 ? start
                         : start + CELL_MIN + mix(cell) % (SECTOR - 2 * CELL_MIN);
}

void fill_cell(unsigned char *to, uint32_t cell, uint64_t name)
{
    size_t n = cell_start(cell + 1) - cell_start(cell);
    uint64_t word = name ^ mix(cell);

    for (size_t at = 0; at < n; at += sizeof word, word = mix(word))
        memcpy(to + at, &word, n - at < sizeof word ? n - at : sizeof word);
}

uint64_t read_cell(const unsigned char *from, uint32_t cell)
{
    size_t n = cell_start(cell + 1) - cell_start(cell);
    unsigned char want[SECTOR];
    uint64_t name;

    memcpy(&name, from, sizeof name);
    name ^= mix(cell);
    fill_cell(want, cell, name);
    if (memcmp(from, want, n) == 0)
        return name;
    memset(want, 0, n);
    return memcmp(from, want, n) == 0 ? CELL_ZERO : CELL_GARBAGE;
}
