/* SPDX-License-Identifier: BSD-3-Clause */
/* block-index.c - which row of a table a block is in. */
#define XXH_INLINE_ALL
#include "mining/baselines/block-index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t block_of(const struct qm_block_index *index, uint32_t row)
{
    return *(const uint64_t *)((const char *)index->rows + row * index->stride);
}

/* Where block is looked for first. */
static uint32_t home(const struct qm_block_index *index, uint64_t block)
{
    return (uint32_t)XXH3_64bits_withSeed(&block, sizeof block, index->seed) &
           index->mask;
}

int qm_block_index_init(struct qm_block_index *index, const void *rows, size_t stride,
                        uint32_t max, uint64_t seed)
{
    uint32_t slots = 16;

    while (slots < 2 * max) {
        slots *= 2;
    }
    *index = (struct qm_block_index){
        .slots = calloc(slots, sizeof *index->slots),
        .mask = slots - 1,
        .rows = rows,
        .stride = stride,
        .seed = seed,
    };
    return index->slots ? 0 : ENOMEM;
}

void qm_block_index_fini(struct qm_block_index *index)
{
    free(index->slots);
    *index = (struct qm_block_index){0};
}

uint32_t qm_block_index_find(const struct qm_block_index *index, uint64_t block)
{
    for (uint32_t i = home(index, block); index->slots[i]; i = (i + 1) & index->mask) {
        if (block_of(index, index->slots[i] - 1) == block) {
            return index->slots[i] - 1;
        }
    }
    return QM_NO_ROW;
}

void qm_block_index_insert(struct qm_block_index *index, uint32_t row)
{
    uint32_t i = home(index, block_of(index, row));

    while (index->slots[i]) {
        i = (i + 1) & index->mask;
    }
    index->slots[i] = row + 1;
}

void qm_block_index_remove(struct qm_block_index *index, uint32_t row)
{
    uint32_t hole = home(index, block_of(index, row)), i;

    while (index->slots[hole] != row + 1) {
        hole = (hole + 1) & index->mask;
    }
    /* What follows moves up, unless it would come before its home. */
    for (i = (hole + 1) & index->mask; index->slots[i]; i = (i + 1) & index->mask) {
        uint32_t from = home(index, block_of(index, index->slots[i] - 1));

        if (((i - from) & index->mask) >= ((i - hole) & index->mask)) {
            index->slots[hole] = index->slots[i];
            hole = i;
        }
    }
    index->slots[hole] = 0;
}

void qm_block_index_clear(struct qm_block_index *index)
{
    memset(index->slots, 0, qm_block_index_bytes(index));
}

size_t qm_block_index_bytes(const struct qm_block_index *index)
{
    return index->slots ? ((size_t)index->mask + 1) * sizeof *index->slots : 0;
}
