/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.c - the disk layers by name, and what a record looks like in all of them. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/disk.h"

/* Little endian. */
struct header {
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

size_t store_disk_size(const struct disk_record *r)
{
    return sizeof(struct header) + r->key_len + r->value_len;
}

void store_disk_pack(const struct disk_record *r, void *bytes)
{
    struct header h = {
        .expires = htole64(r->expires),
        .frequency = htole32(r->frequency),
        .value_len = htole32(r->value_len),
        .key_len = htole32(r->key_len),
    };
    char *at = bytes;

    memcpy(at + sizeof h, r->key, r->key_len);
    if (r->value_len > 0)
        memcpy(at + sizeof h + r->key_len, r->value, r->value_len);
    memcpy(at, &h, sizeof h);
    h.checksum = htole64(XXH3_64bits(at + 8, store_disk_size(r) - 8));
    memcpy(at, &h.checksum, sizeof h.checksum);
}

int store_disk_unpack(const void *bytes, size_t len, struct disk_record *r)
{
    const char *at = bytes;
    struct header h;
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
