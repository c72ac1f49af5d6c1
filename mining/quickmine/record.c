/* SPDX-License-Identifier: BSD-3-Clause */
/* record.c - rules as Berkeley DB's keys and data (see record.h). */
#include "mining/quickmine/record.h"

#include <errno.h>
#include <stdbool.h>

#define NUMBER_MAX 10 /* bytes of a 64-bit base-128 number */
#define GRACE_MAX  5  /* bytes of a 32-bit one */

static unsigned char *put_block(unsigned char *p, uint64_t block)
{
    unsigned char size = 0;
    for (uint64_t rest = block; rest > 0; rest >>= 8) {
        size++;
    }
    *p++ = size;
    for (unsigned i = size; i > 0; i--) {
        *p++ = (unsigned char)(block >> 8 * (i - 1));
    }
    return p;
}

static const unsigned char *get_block(const unsigned char *p, const unsigned char *end,
                                      uint64_t *block)
{
    if (p == end || *p > 8 || end - p - 1 < *p) {
        return NULL;
    }
    unsigned size = *p++;
    if (size > 0 && *p == 0) {
        return NULL;
    }
    *block = 0;
    for (unsigned i = 0; i < size; i++) {
        *block = *block << 8 | *p++;
    }
    return p;
}

size_t qm_key_encode(uint64_t a, uint64_t b, unsigned char key[QM_KEY_MAX])
{
    return (size_t)(put_block(put_block(key, a), b) - key);
}

int qm_key_decode(const unsigned char *key, size_t size, uint64_t *a, uint64_t *b)
{
    const unsigned char *end = key + size;
    const unsigned char *p = get_block(key, end, a);
    p = p ? get_block(p, end, b) : NULL;
    return p == end && *a != *b ? 0 : EINVAL;
}

static unsigned char *put_number(unsigned char *p, uint64_t number)
{
    while (number >= 0x80) {
        *p++ = (unsigned char)(number | 0x80);
        number >>= 7;
    }
    *p++ = (unsigned char)number;
    return p;
}

static const unsigned char *get_number(const unsigned char *p, const unsigned char *end,
                                       uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; p && p < end && shift < 64; shift += 7) {
        uint64_t bits = *p & 0x7f;
        if (shift == 63 && bits > 1) {
            return NULL;
        }
        *number |= bits << shift;
        if (!(*p++ & 0x80)) {
            return p;
        }
    }
    return NULL;
}

size_t qm_record_bound(size_t n)
{
    return NUMBER_MAX + n * (2 * NUMBER_MAX + GRACE_MAX);
}

size_t qm_record_encode(const struct qm_suffixes *list, unsigned char *record)
{
    unsigned char *p = put_number(record, list->n);
    for (size_t i = 0; i < list->n; i++) {
        p = put_number(p, list->v[i].block);
        p = put_number(p, list->v[i].support);
        p = put_number(p, list->v[i].grace);
    }
    return (size_t)(p - record);
}

static bool in_order(const struct qm_suffix *x, const struct qm_suffix *y)
{
    return x->support > y->support || (x->support == y->support && x->block < y->block);
}

int qm_record_decode(const unsigned char *record, size_t size, struct qm_suffixes *list)
{
    const unsigned char *end = record + size;
    uint64_t n, grace;
    list->n = 0;
    const unsigned char *p = get_number(record, end, &n);
    if (!p || n == 0 || n > (uint64_t)(end - p) / 3) {
        return EINVAL;
    }
    if (qm_suffixes_reserve(list, n) != 0) {
        return ENOMEM;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct qm_suffix *s = &list->v[i];
        p = get_number(p, end, &s->block);
        p = get_number(p, end, &s->support);
        p = get_number(p, end, &grace);
        if (!p || s->support == 0 || grace > UINT32_MAX ||
            (i > 0 && !in_order(s - 1, s))) {
            return EINVAL;
        }
        s->grace = (uint32_t)grace;
    }
    if (p != end) {
        return EINVAL;
    }
    list->n = n;
    return 0;
}

uint64_t qm_record_count(const unsigned char *record, size_t size)
{
    uint64_t n;
    return get_number(record, record + size, &n) ? n : 0;
}

unsigned qm_record_top(const unsigned char *record, size_t size, uint64_t *blocks,
                       unsigned max)
{
    const unsigned char *end = record + size;
    uint64_t n, support, grace;
    const unsigned char *p = get_number(record, end, &n);
    unsigned count = 0;
    while (p && count < max && count < n) {
        p = get_number(p, end, &blocks[count]);
        p = get_number(p, end, &support);
        p = get_number(p, end, &grace);
        count += p != NULL;
    }
    return count;
}
