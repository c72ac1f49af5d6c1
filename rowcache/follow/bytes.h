/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h - reading from bytes that others wrote: what is not there is zero, and said.
 */
#ifndef QM_ROWCACHE_BYTES_H
#define QM_ROWCACHE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_bytes {
    const uint8_t *at, *end;
    bool failed; /* more was asked for than there is */
};

static inline size_t qm_bytes_left(const struct qm_bytes *b)
{
    return (size_t)(b->end - b->at);
}

/* The next n bytes, or NULL. */
static inline const uint8_t *qm_bytes_take(struct qm_bytes *b, size_t n)
{
    const uint8_t *at = b->at;

    if (b->failed || qm_bytes_left(b) < n) {
        b->failed = true;
        return NULL;
    }
    b->at += n;
    return at;
}

static inline uint64_t qm_little(const uint8_t *at, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | at[n];
    return value;
}

static inline uint64_t qm_big(const uint8_t *at, size_t n)
{
    uint64_t value = 0;

    for (size_t i = 0; i < n; i++)
        value = value << 8 | at[i];
    return value;
}

/* An integer of n bytes, the lowest first. */
static inline uint64_t qm_bytes_number(struct qm_bytes *b, size_t n)
{
    const uint8_t *at = qm_bytes_take(b, n);

    return at ? qm_little(at, n) : 0;
}

/* A length as the protocol packs it, in 1, 3, 4 or 9 bytes. */
static inline uint64_t qm_bytes_packed(struct qm_bytes *b)
{
    uint64_t first = qm_bytes_number(b, 1);

    if (first < 251)
        return first;
    if (first == 252)
        return qm_bytes_number(b, 2);
    if (first == 253)
        return qm_bytes_number(b, 3);
    if (first == 254)
        return qm_bytes_number(b, 8);
    b->failed = true;
    return 0;
}

#endif
