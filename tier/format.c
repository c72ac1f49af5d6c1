/* SPDX-License-Identifier: BSD-3-Clause */
/* format.c - layout and checksums of the file.  Pure: what is read from a file is
 * checked here before anything else looks at it. */
#include "tier/format.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t pages(uint64_t bytes)
{
    return (bytes + QM_TIER_PAGE - 1) / QM_TIER_PAGE * QM_TIER_PAGE;
}

bool qm_tier_geometry_of(struct qm_tier_geometry *g, uint32_t slots, uint32_t segments,
                         uint64_t volume_size, uint32_t block_size)
{
    uint64_t map_pages;

    memset(g, 0, sizeof *g);
    if (block_size < 512 || block_size > 16u << 20 || (block_size & (block_size - 1)))
        return false;
    if (volume_size == 0 || volume_size > (uint64_t)INT64_MAX || slots == 0 ||
        segments < 4 || (uint64_t)slots * segments > UINT32_MAX ||
        (uint64_t)slots * block_size > UINT64_C(1) << 32 ||
        (block_size < QM_TIER_PAGE && slots % (QM_TIER_PAGE / block_size)))
        return false;
    g->block_size = block_size;
    g->slots = slots;
    g->segments = segments;
    g->volume_blocks = (volume_size + block_size - 1) / block_size;
    if (g->volume_blocks > UINT64_C(1) << QM_TIER_BLOCK_BITS)
        return false;
    g->regions = ((volume_size - 1) >> QM_TIER_REGION_BITS) + 1;
    map_pages = (g->regions + QM_TIER_MAP_BITS - 1) / QM_TIER_MAP_BITS;
    if (map_pages > 1u << 20) /* a volume of 128 PiB */
        return false;
    g->map_pages = (uint32_t)map_pages;
    g->segments_at = QM_TIER_SUPERS + map_pages * QM_TIER_PAGE;
    g->data_bytes = pages((uint64_t)slots * block_size);
    g->meta_bytes = pages(qm_tier_footer_bytes(slots) + slots);
    g->segment_bytes = g->data_bytes + g->meta_bytes;
    return g->segments_at + segments * g->segment_bytes <= (uint64_t)INT64_MAX;
}

bool qm_tier_geometry(struct qm_tier_geometry *g, uint64_t size, uint64_t segment,
                      uint64_t volume_size, uint32_t block_size)
{
    uint64_t slots, per_page, left;

    if (block_size == 0 || !qm_tier_geometry_of(g, QM_TIER_PAGE, 4, volume_size, 512))
        return false; /* which only computes how large the map is */
    if (segment == 0) {
        segment = size / 64;
        if (segment < 256u << 10)
            segment = 256u << 10;
        if (segment > 8u << 20)
            segment = 8u << 20;
        if (segment < 8 * (uint64_t)block_size)
            segment = 8 * (uint64_t)block_size;
    }
    slots = segment / block_size;
    per_page = block_size < QM_TIER_PAGE ? QM_TIER_PAGE / block_size : 1;
    slots = slots / per_page * per_page;
    if (slots < per_page)
        slots = per_page;
    if (slots > UINT32_MAX ||
        !qm_tier_geometry_of(g, (uint32_t)slots, 4, volume_size, block_size) ||
        size < g->segments_at)
        return false;
    left = (size - g->segments_at) / g->segment_bytes;
    return left <= UINT32_MAX && qm_tier_geometry_of(g, (uint32_t)slots, (uint32_t)left,
                                                     volume_size, block_size);
}

uint64_t qm_tier_checksum(uint64_t block, const void *data, size_t bytes)
{
    if (!data)
        return 0;
    return XXH3_64bits_withSeed(data, bytes, block) &
           ((UINT64_C(1) << QM_TIER_CHECK_BITS) - 1);
}

#define REST(s, field)       ((const char *)(s) + offsetof(__typeof__(*(s)), field))
#define REST_BYTES(s, field) (sizeof *(s)-offsetof(__typeof__(*(s)), field))

void qm_tier_super_seal(struct qm_tier_super *super)
{
    super->magic = QM_TIER_MAGIC;
    super->check = XXH3_64bits(REST(super, sequence), REST_BYTES(super, sequence));
}

bool qm_tier_super_ok(const struct qm_tier_super *super)
{
    struct qm_tier_geometry g;

    return super->magic == QM_TIER_MAGIC &&
           super->check ==
               XXH3_64bits(REST(super, sequence), REST_BYTES(super, sequence)) &&
           super->state <= QM_TIER_OPEN && super->doubtful <= 1 && super->volume[0] &&
           memchr(super->volume, 0, sizeof super->volume) &&
           memchr(super->boot_id, 0, sizeof super->boot_id) &&
           memchr(super->known, 0, sizeof super->known) &&
           qm_tier_geometry_of(&g, super->slots, super->segments, super->volume_size,
                               super->block_size);
}

static uint64_t footer_check(const struct qm_tier_footer *footer, uint32_t slots)
{
    return XXH3_64bits(REST(footer, uuid), qm_tier_footer_bytes(slots) -
                                               offsetof(struct qm_tier_footer, uuid));
}

void qm_tier_footer_seal(struct qm_tier_footer *footer, uint32_t slots)
{
    footer->magic = QM_TIER_FOOT_MAGIC;
    footer->check = footer_check(footer, slots);
}

bool qm_tier_footer_ok(const struct qm_tier_footer *footer,
                       const struct qm_tier_geometry *g, const uint8_t uuid[16],
                       uint32_t segment)
{
    const struct qm_tier_entry *entries = (const void *)(footer + 1);

    if (footer->magic != QM_TIER_FOOT_MAGIC || footer->count > g->slots ||
        footer->segment != segment || memcmp(footer->uuid, uuid, 16) != 0 ||
        footer->incarnation == 0 || footer->incarnation > INT64_MAX ||
        footer->check != footer_check(footer, g->slots))
        return false;
    for (uint32_t i = 0; i < footer->count; i++)
        if (entries[i].block != QM_TIER_VOID &&
            (entries[i].block >= g->volume_blocks ||
             entries[i].check >> QM_TIER_CHECK_BITS))
            return false;
    return true;
}

static uint64_t map_check(const struct qm_tier_map_page *page, uint32_t number,
                          const uint8_t uuid[16])
{
    uint64_t seed;

    memcpy(&seed, uuid, sizeof seed);
    return XXH3_64bits_withSeed(page->bits, sizeof page->bits, seed ^ number);
}

void qm_tier_map_seal(struct qm_tier_map_page *page, uint32_t number,
                      const uint8_t uuid[16])
{
    page->check = map_check(page, number, uuid);
}

bool qm_tier_map_ok(const struct qm_tier_map_page *page, uint32_t number,
                    const uint8_t uuid[16])
{
    return page->check == map_check(page, number, uuid);
}

void qm_tier_testimony_seal(struct qm_tier_testimony *t)
{
    t->magic = QM_TIER_WITNESS_MAGIC;
    t->check = XXH3_64bits(REST(t, uuid), REST_BYTES(t, uuid));
}

bool qm_tier_testimony_ok(const struct qm_tier_testimony *t)
{
    return t->magic == QM_TIER_WITNESS_MAGIC &&
           t->check == XXH3_64bits(REST(t, uuid), REST_BYTES(t, uuid));
}
