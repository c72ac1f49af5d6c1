/* SPDX-License-Identifier: BSD-3-Clause */
/* cells.h - what a device under torture is made of: cells, two to a sector, each
 * divided somewhere else, so that requests for cells begin and end at odd bytes.  A
 * cell holds the name of the write that filled it, disguised, and bytes that follow
 * from it: a byte of another cell, or of another write, is noticed.
 */
#ifndef TORTURE_CELLS_H
#define TORTURE_CELLS_H

#include <stdint.h>

#define SECTOR       512
#define CELL_ZERO    UINT64_C(0) /* no name: zeros */
#define CELL_GARBAGE UINT64_MAX  /* no name: anything else */

/* A number that follows from x, and looks as if by chance. */
uint64_t mix(uint64_t x);

/* The byte where a cell begins. */
uint64_t cell_start(uint32_t cell);

/* Puts what a cell holds by a write of that name to where it begins. */
void fill_cell(unsigned char *to, uint32_t cell, uint64_t name);

/* The name in a cell, which begins at from. */
uint64_t read_cell(const unsigned char *from, uint32_t cell);

#endif
