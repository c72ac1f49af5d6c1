/* SPDX-License-Identifier: BSD-3-Clause */
/* ranges.h - how large a key range should be: Algorithm 1 of Leaper (PVLDB 13(11)).
 *
 * The access matrix has a row for each interval and a column for each range of the
 * initial size A; an element says whether the range was accessed.  A size twice as
 * large merges columns by OR.  It is worth while as long as the share of zeros does not
 * decline below alpha of what it was. */
#ifndef QM_LSM_RANGES_H
#define QM_LSM_RANGES_H

#include <stdint.h>

#define RANGES_A     10u
#define RANGES_ALPHA .6

/* rows x columns bytes, 0 or not; returns A* in units of columns, 1 to columns. */
uint32_t ranges_choose(const uint8_t *matrix, uint32_t rows, uint32_t columns,
                       double alpha);

#endif
