/* SPDX-License-Identifier: BSD-3-Clause */
/* footprint.c - how many distinct blocks there were. */
#include "sim/footprint.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

enum { PIECE_BITS = 12, WORDS = (1 << PIECE_BITS) / 64 };

struct qm_footprint_piece {
    uint64_t number; /* of block >> PIECE_BITS */
    bool lost;       /* no memory for the hash table */
    UT_hash_handle hh;
    uint64_t seen[2][WORDS]; /* a bit a block: read, written */
};

static struct qm_footprint_piece *find(struct qm_footprint *f, uint64_t number)
{
    struct qm_footprint_piece *piece = f->last;

    if (piece && piece->number == number)
        return piece;
    HASH_FIND(hh, f->pieces, &number, sizeof number, piece);
    if (!piece) {
        piece = calloc(1, sizeof *piece);
        if (!piece)
            return NULL;
        piece->number = number;
        HASH_ADD(hh, f->pieces, number, sizeof piece->number, piece);
        if (piece->lost) {
            free(piece);
            return NULL;
        }
    }
    f->last = piece;
    return piece;
}

int qm_footprint_add(struct qm_footprint *f, uint64_t block, bool write)
{
    struct qm_footprint_piece *piece = find(f, block >> PIECE_BITS);
    unsigned word = (unsigned)(block / 64 % WORDS);
    uint64_t bit = UINT64_C(1) << block % 64;

    if (!piece)
        return ENOMEM;
    if (piece->seen[write][word] & bit)
        return 0;
    piece->seen[write][word] |= bit;
    *(write ? &f->written : &f->read) += 1;
    if (!(piece->seen[!write][word] & bit))
        f->blocks++;
    return 0;
}

void qm_footprint_clear(struct qm_footprint *f)
{
    struct qm_footprint_piece *piece, *next;

    HASH_ITER(hh, f->pieces, piece, next)
    {
        HASH_DEL(f->pieces, piece);
        free(piece);
    }
    *f = (struct qm_footprint){.pieces = NULL};
}
