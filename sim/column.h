/* SPDX-License-Identifier: BSD-3-Clause */
/* column.h - a long array of 32-bit numbers that grows without being moved.
 *
 * It consists of chunks, so growing needs no copy: a column of n numbers takes little
 * more than 4 n bytes.
 */
#ifndef QM_SIM_COLUMN_H
#define QM_SIM_COLUMN_H

#include <stdint.h>

#define QM_COLUMN_CHUNK_BITS 18
#define QM_COLUMN_CHUNK      (UINT32_C(1) << QM_COLUMN_CHUNK_BITS)
#define QM_COLUMN_MAX        (UINT32_MAX - 1) /* numbers at most */

struct qm_column {
    uint32_t **chunks;
    uint32_t count; /* of numbers */
};

/* Adds a number.  Returns 0, ENOMEM, or EOVERFLOW beyond QM_COLUMN_MAX. */
int qm_column_append(struct qm_column *column, uint32_t value);
void qm_column_clear(struct qm_column *column);

/* Number i, which must be below count. */
static inline uint32_t *qm_column_at(const struct qm_column *column, uint32_t i)
{
    return &column->chunks[i >> QM_COLUMN_CHUNK_BITS][i & (QM_COLUMN_CHUNK - 1)];
}

#endif
