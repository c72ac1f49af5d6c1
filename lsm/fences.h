/* SPDX-License-Identifier: BSD-3-Clause */
/* fences.h - sorted keys that cut the key space into ranges.
 *
 * n fences make n + 1 ranges: range 0 lies below the first fence, range i from fence
 * i - 1 on.  Immutable after fences_build().  A search compares the first eight bytes
 * behind the prefix that all fences share, as a number, and whole keys only where these
 * are equal.  Keys are ordered as memcmp() does, a prefix first. */
#ifndef QM_LSM_FENCES_H
#define QM_LSM_FENCES_H

#include <stddef.h>
#include <stdint.h>

/* Keys that are appended one after the other. */
struct keys {
    uint32_t n, room;
    uint32_t *at; /* n + 1 offsets into bytes */
    uint8_t *bytes;
    size_t bytes_room;
};

/* 0, or ENOMEM. */
int keys_add(struct keys *keys, const void *key, size_t len);
void keys_clear(struct keys *keys);
void keys_free(struct keys *keys);

static inline const uint8_t *keys_get(const struct keys *keys, uint32_t i, size_t *len)
{
    *len = keys->at[i + 1] - keys->at[i];
    return keys->bytes + keys->at[i];
}

int key_compare(const void *a, size_t a_len, const void *b, size_t b_len);

struct fences {
    uint32_t n, common; /* bytes that all fences begin with */
    uint64_t *heads;
    struct keys keys;
};

/* Takes over sorted keys without duplicates; NULL, and keys unchanged: no memory. */
struct fences *fences_build(struct keys *keys);
void fences_free(struct fences *fences);

/* The range of a key, 0 to n. */
uint32_t fences_find(const struct fences *fences, const void *key, size_t len);

/* The same for sorted keys: from is the range of an earlier one. */
uint32_t fences_find_from(const struct fences *fences, uint32_t from, const void *key,
                          size_t len);

#endif
