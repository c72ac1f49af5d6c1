/* SPDX-License-Identifier: BSD-3-Clause */
/* records-1.h - a store of version 1, as libraries before version 2 wrote it.
 *
 * Linked with --wrap for store_disk_size and store_disk_pack. */
#ifndef QM_TESTS_STORE_RECORDS_1_H
#define QM_TESTS_STORE_RECORDS_1_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/disk.h"

enum { HEAD_1 = 32 };

static bool version_1;  /* records are written as there */
static const void *raw; /* or as these bytes; NULL: not */
static size_t raw_len;

size_t __real_store_disk_size(const struct disk_record *r);
size_t __wrap_store_disk_size(const struct disk_record *r);
void __real_store_disk_pack(const struct disk_record *r, void *bytes);
void __wrap_store_disk_pack(const struct disk_record *r, void *bytes);

static inline void pack_1(const struct disk_record *r, void *bytes)
{
    uint64_t expires = htole64(r->expires), sum;
    uint32_t rest[4] = {htole32(r->frequency), htole32(r->value_len),
                        htole32(r->key_len), 0};
    uint8_t *at = bytes;

    memcpy(at + 8, &expires, 8);
    memcpy(at + 16, rest, sizeof rest);
    memcpy(at + HEAD_1, r->key, r->key_len);
    if (r->value_len > 0)
        memcpy(at + HEAD_1 + r->key_len, r->value, r->value_len);
    sum = htole64(XXH3_64bits(at + 8, HEAD_1 - 8 + r->key_len + r->value_len));
    memcpy(at, &sum, 8);
}

size_t __wrap_store_disk_size(const struct disk_record *r)
{
    if (raw)
        return raw_len;
    return version_1 ? HEAD_1 + r->key_len + r->value_len : __real_store_disk_size(r);
}

void __wrap_store_disk_pack(const struct disk_record *r, void *bytes)
{
    if (raw && raw_len == 0) /* bytes may be NULL */
        return;
    if (raw)
        memcpy(bytes, raw, raw_len);
    else if (version_1)
        pack_1(r, bytes);
    else
        __real_store_disk_pack(r, bytes);
}

#endif
