/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - what a record is called on disk, and what it says of its key.
 *
 * In a store of version 3, a key of up to DISK_SHORT_KEY bytes is in its record's name,
 * behind the first bytes of its hash.  Other records, and all of the versions before,
 * hold their key and are called by its hash.  Either way names begin with the same
 * bytes of the hash as the table's lines. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "rowcache/store/internal.h"

void store_hash_bytes(struct store_hash hash, uint8_t bytes[DISK_HASH])
{
    uint64_t high = htobe64(hash.high);
    uint32_t low = htobe32(hash.low), rest = htobe32(hash.rest);

    memcpy(bytes, &high, 8);
    memcpy(bytes + 8, &low, 4);
    memcpy(bytes + 12, &rest, 4);
}

struct store_hash store_hash_from(const uint8_t bytes[DISK_HASH])
{
    uint64_t high;
    uint32_t low, rest;

    memcpy(&high, bytes, 8);
    memcpy(&low, bytes + 8, 4);
    memcpy(&rest, bytes + 12, 4);
    return (struct store_hash){be64toh(high), be32toh(low), be32toh(rest)};
}

struct disk_name store_name_of(const struct partition *p, const struct store_key *key)
{
    struct disk_name name = {.len = (uint8_t)p->hash};

    store_hash_bytes(key->hash, name.bytes);
    if (p->has_short && key->len <= DISK_SHORT_KEY) {
        name.len = (uint8_t)(DISK_PLACE + key->len);
        memcpy(name.bytes + DISK_PLACE, key->bytes, key->len);
    }
    return name;
}

struct disk_name store_name_from(uint64_t high)
{
    struct disk_name name = {.len = DISK_PLACE};
    uint32_t place = htobe32((uint32_t)(high >> 32));

    memcpy(name.bytes, &place, DISK_PLACE);
    return name;
}

struct store_hash store_name_hash(const struct disk_name *name)
{
    uint8_t bytes[DISK_HASH] = {0};
    struct store_hash hash;

    memcpy(bytes, name->bytes, name->len < DISK_HASH ? name->len : DISK_HASH);
    if (store_disk_has_key(name) && name->len > DISK_PLACE) {
        hash = store_hash_of(name->bytes + DISK_PLACE, name->len - DISK_PLACE);
        if (hash.high >> 32 == store_hash_from(bytes).high >> 32)
            return hash;
    }
    return store_hash_from(bytes);
}

/* A file that was given another's name has a checksum that is right, if its key is in
 * it.  The key's hash tells versions apart, too: it is not right by chance where the
 * other version's is meant. */
int store_record_unpack(const struct disk_name *name, struct store_hash hash,
                        const void *bytes, size_t len, struct disk_record *r)
{
    if (store_disk_unpack(name, bytes, len, r) == 0 &&
        store_hash_same(store_hash_of(r->key, r->key_len), hash))
        return 0;
    if (!store_disk_has_key(name) && store_disk_unpack_1(bytes, len, r) == 0 &&
        store_hash_same(store_hash_of(r->key, r->key_len), hash))
        return 0;
    return EBADMSG;
}
