/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.c - the disk layers by name, and what a record looks like in all of them. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/disk.h"

/* Version 2, and 3, little endian:
 *   4 bytes   checksum: the lower half of XXH3 of what follows; of a key that is in the
 *             name, its bytes and its length are the seed
 *   1         KIND, EXPIRES, and the key's length if it is 1 to LENGTH; 0: it follows
 *   number    frequency
 *  [number    the key's length]
 *  [8         when the key's life ends]
 *             key, unless it is in the name, and the value up to the end
 * A number has seven bits a byte, the lowest first; all bytes but its last have NEXT.
 */
enum { KIND = 0x80, EXPIRES = 0x40, LENGTH = 0x3f, NEXT = 0x80 };
enum { SUM = 4, NUMBER = 5, HEAD_MOST = SUM + 1 + NUMBER + NUMBER + 8 };

/* Version 1, little endian; key and value follow. */
struct header_1 {
    uint64_t checksum; /* XXH3 of what follows, key and value included */
    uint64_t expires;
    uint32_t frequency;
    uint32_t value_len;
    uint32_t key_len;
    uint32_t zero;
};

const struct disk_ops *store_disk_find(const char *name)
{
    static const struct disk_ops *const disks[] = {
#ifdef QM_STORE_BDB
        &disk_bdb,
#endif
#ifdef QM_STORE_LMDB
        &disk_lmdb,
#endif
        &disk_files,
    };

    for (size_t i = 0; i < sizeof disks / sizeof disks[0]; i++)
        if (strcmp(disks[i]->name, name) == 0)
            return disks[i];
    return NULL;
}

static size_t put_number(uint8_t *at, uint32_t n)
{
    size_t len = 0;

    for (; n >= NEXT; n >>= 7)
        at[len++] = (uint8_t)(n | NEXT);
    at[len++] = (uint8_t)n;
    return len;
}

/* false: it does not end before `end`, or has more than 32 bits. */
static bool take_number(const uint8_t **at, const uint8_t *end, uint32_t *n)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < NUMBER && *at < end; i++) {
        uint8_t byte = *(*at)++;

        all |= (uint64_t)(byte & (NEXT - 1)) << 7 * i;
        if (byte & NEXT)
            continue;
        *n = (uint32_t)all;
        return all <= UINT32_MAX;
    }
    return false;
}

/* All before the key, without the checksum's value. */
static size_t make_head(const struct disk_record *r, uint8_t head[HEAD_MOST])
{
    bool is_short = r->key_len > 0 && r->key_len <= LENGTH;
    uint64_t expires = htole64(r->expires);
    size_t len = SUM;

    head[len++] =
        (uint8_t)(KIND | (r->expires ? EXPIRES : 0) | (is_short ? r->key_len : 0));
    len += put_number(head + len, r->frequency);
    if (!is_short)
        len += put_number(head + len, r->key_len);
    if (r->expires) {
        memcpy(head + len, &expires, sizeof expires);
        len += sizeof expires;
    }
    return len;
}

static size_t key_bytes(const struct disk_record *r)
{
    return store_disk_has_key(r->name) ? 0 : r->key_len;
}

size_t store_disk_size(const struct disk_record *r)
{
    uint8_t head[HEAD_MOST];

    return make_head(r, head) + key_bytes(r) + r->value_len;
}

static uint32_t checksum(const struct disk_name *name, const uint8_t *bytes, size_t len)
{
    uint64_t seed = 0; /* as without one */

    if (store_disk_has_key(name) && name->len > DISK_PLACE) {
        memcpy(&seed, name->bytes + DISK_PLACE, name->len - DISK_PLACE);
        seed = le64toh(seed) | (uint64_t)name->len << 56;
    }
    return htole32((uint32_t)XXH3_64bits_withSeed(bytes + SUM, len - SUM, seed));
}

void store_disk_pack(const struct disk_record *r, void *bytes)
{
    uint8_t head[HEAD_MOST], *at = bytes;
    size_t len = make_head(r, head), key_len = key_bytes(r);
    uint32_t sum;

    memcpy(at + SUM, head + SUM, len - SUM);
    memcpy(at + len, r->key, key_len);
    if (r->value_len > 0)
        memcpy(at + len + key_len, r->value, r->value_len);
    sum = checksum(r->name, at, len + key_len + r->value_len);
    memcpy(at, &sum, SUM);
}

int store_disk_unpack(const struct disk_name *name, const void *bytes, size_t len,
                      struct disk_record *r)
{
    const uint8_t *at = bytes, *end = at + len, *key;
    bool is_named = store_disk_has_key(name);
    uint32_t sum, key_len, frequency;
    uint64_t expires = 0;
    uint8_t kind;

    if (len <= SUM)
        return EBADMSG;
    memcpy(&sum, at, SUM);
    if (sum != checksum(name, bytes, len))
        return EBADMSG;
    at += SUM;
    kind = *at++;
    key_len = kind & LENGTH;
    if (!(kind & KIND) || !take_number(&at, end, &frequency) ||
        (key_len == 0 && !take_number(&at, end, &key_len)))
        return EBADMSG;
    if (kind & EXPIRES) {
        if ((size_t)(end - at) < sizeof expires)
            return EBADMSG;
        memcpy(&expires, at, sizeof expires);
        at += sizeof expires;
    }
    key = at;
    if (is_named) {
        if (name->len <= DISK_PLACE || key_len != name->len - DISK_PLACE)
            return EBADMSG;
        key = name->bytes + DISK_PLACE;
    } else {
        if (key_len == 0 || key_len > UINT16_MAX || key_len > (size_t)(end - at))
            return EBADMSG;
        at += key_len;
    }
    if ((uint64_t)(end - at) > UINT32_MAX)
        return EBADMSG;
    *r = (struct disk_record){
        .expires = le64toh(expires),
        .frequency = frequency,
        .key = key,
        .value = at,
        .value_len = (uint32_t)(end - at),
        .key_len = (uint16_t)key_len,
    };
    return 0;
}

int store_disk_unpack_1(const void *bytes, size_t len, struct disk_record *r)
{
    const char *at = bytes;
    struct header_1 h;
    uint32_t key_len;

    if (len < sizeof h)
        return EBADMSG;
    memcpy(&h, at, sizeof h);
    key_len = le32toh(h.key_len);
    *r = (struct disk_record){
        .expires = le64toh(h.expires),
        .frequency = le32toh(h.frequency),
        .key = at + sizeof h,
        .value = at + sizeof h + key_len,
        .value_len = le32toh(h.value_len),
        .key_len = (uint16_t)key_len,
    };
    if (key_len == 0 || key_len > UINT16_MAX ||
        len - sizeof h != (uint64_t)key_len + r->value_len ||
        le64toh(h.checksum) != XXH3_64bits(at + 8, len - 8))
        return EBADMSG;
    return 0;
}
