/* SPDX-License-Identifier: BSD-3-Clause */
/* inflate.c - MariaDB's compressed events: a byte with the length's size, the length,
 * and what zlib made of the rest. */
#include <stdlib.h>
#include <zlib.h>

#include "rowcache/follow/row-event.h"

#define RATIO 1040 /* zlib cannot make more of a byte */

uint8_t *qm_inflate(struct qm_bytes *b, size_t *size)
{
    unsigned head = (unsigned)qm_bytes_number(b, 1), length = head & 7;
    const uint8_t *at = qm_bytes_take(b, length);
    uint64_t whole;
    uLongf there;
    uint8_t *out;

    if (!at || (head & 0xf8) != 0x80 || length < 1 || length > 4)
        return NULL;
    whole = qm_big(at, length);
    if (whole > qm_bytes_left(b) * RATIO + 64)
        return NULL;
    out = malloc(whole + 1);
    there = whole;
    if (!out || uncompress(out, &there, b->at, qm_bytes_left(b)) != Z_OK ||
        there != whole) {
        free(out);
        return NULL;
    }
    b->at = b->end;
    *size = whole;
    return out;
}
