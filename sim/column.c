/* SPDX-License-Identifier: BSD-3-Clause */
/* column.c - a long array of 32-bit numbers (see column.h). */
#include "sim/column.h"

#include <errno.h>
#include <stdlib.h>

static int add_chunk(struct qm_column *column, uint32_t number)
{
    uint32_t **chunks =
        reallocarray(column->chunks, number + 1, sizeof column->chunks[0]);

    if (!chunks)
        return ENOMEM;
    column->chunks = chunks;
    chunks[number] = malloc(QM_COLUMN_CHUNK * sizeof chunks[number][0]);
    return chunks[number] ? 0 : ENOMEM;
}

int qm_column_append(struct qm_column *column, uint32_t value)
{
    if (column->count == QM_COLUMN_MAX)
        return EOVERFLOW;
    if (column->count % QM_COLUMN_CHUNK == 0 &&
        add_chunk(column, column->count / QM_COLUMN_CHUNK) != 0)
        return ENOMEM;
    *qm_column_at(column, column->count++) = value;
    return 0;
}

void qm_column_clear(struct qm_column *column)
{
    uint32_t chunks =
        column->count / QM_COLUMN_CHUNK + (column->count % QM_COLUMN_CHUNK != 0);

    for (uint32_t i = 0; i < chunks; i++)
        free(column->chunks[i]);
    free(column->chunks);
    *column = (struct qm_column){.chunks = NULL};
}
