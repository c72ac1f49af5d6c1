/* SPDX-License-Identifier: BSD-3-Clause */
/* format.h - the tier's file, and the checks of what is read from it.
 *
 *   0        superblock, two copies of 4096 bytes, written alternately
 *   8192     write-intent map: pages of 4096 bytes
 *   ...      segments, each of the same size:
 *              data    slots x block size, rounded up to 4096
 *              footer  header, an entry for each slot
 *              tags    a byte for each slot; rounded up to 4096 with the footer
 *
 * Numbers have the machine's byte order; a file of another order is damaged.  Data is
 * written with O_DIRECT, all else through the page cache, and they share no page.
 *
 * A *segment* is filled once for each *incarnation* (a number that only grows): its
 * slots one after the other, but for those that keep the blocks of the incarnation
 * before, which then has the same live tag (log.c).  Its footer is written, durably,
 * before it is filled if it keeps blocks, from time to time meanwhile, and when it is
 * full. A block in a footer is *live* if the tag of its slot is the incarnation's
 * (qm_tier_live_tag()), or that with QM_TIER_UNVERIFIED.  Whatever else is there, zeros
 * above all, is dead: bytes that were lost make misses, never old data.
 *
 * The *journal of invalidations* is these tags: to drop a block is to set its tag to 0
 * by a buffered pwrite() of one byte.  A log of records would have to be replayed and
 * compacted; this is where a compaction would put it.
 *
 * Invariant (I): if a footer in the file, or in the kernel's page cache, has a live
 * block, the running server has that block in its index, so a write to it kills the
 * tag.  Hence a segment's footer is replaced, durably, by one without them, or by
 * zeros, before blocks of it leave the index to make room; a footer that recovery
 * cannot use is zeroed, durably, before the tier is used; and no block is written to a
 * second slot while a first is live.
 *
 * After a crash of the *process* (same boot id) the page cache is what the server
 * wrote, so (I) gives the rule of tier.h.  After a crash of the *machine* (another boot
 * id) any page since the last sync may be old.  The map's bit of a region is durable
 * before the first change in it; it is cleared only after (1) its changes had ended,
 * (2) then a flush of the volume succeeded, (3) then the file was synced, tags and
 * replaced footers included. Blocks of marked regions are killed by recovery; for all
 * others the file is as it was synced after their last change, or newer.  Data that did
 * not reach the disk does not match its checksum.
 *
 * The *epoch* counts openings.  The *witness*, a file of its own, has the epoch that is
 * to be believed.  It is not part of the tier, so a tier that is put back from a backup
 * does not match it.  A regular file's inode and birth time are in the superblock, so
 * that a copy is told from the original even without a witness.
 *
 * What cannot be told: without a witness, an older state of the same inode or partition
 * (dd, a snapshot of a logical volume); with one, an older state of the same epoch put
 * back after a crash, or witness and tier set back together (a snapshot of a whole
 * virtual machine while the volume lies elsewhere); a backend that loses acknowledged,
 * unflushed writes while this machine keeps running.  Changes of the volume by others
 * or without the tier: see verify.c.
 */
#ifndef QM_TIER_FORMAT_H
#define QM_TIER_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/tier.h"

#define QM_TIER_PAGE          4096u
#define QM_TIER_MAGIC         UINT64_C(0x3130524549544d51) /* "QMTIER01" */
#define QM_TIER_FOOT_MAGIC    UINT64_C(0x31304745534d51ff)
#define QM_TIER_WITNESS_MAGIC UINT64_C(0x313054494e544957)
#define QM_TIER_SUPERS        (2 * QM_TIER_PAGE)
#define QM_TIER_VOID          UINT64_MAX /* block of a slot that holds none */
#define QM_TIER_REGION_BITS   22 /* a bit of the map is for 4 MiB of the volume */
#define QM_TIER_BLOCK_BITS    48 /* of a block's number, at most */
#define QM_TIER_CHECK_BITS    43 /* of a checksum, that the index has room for */
#define QM_TIER_NAME          256
#define QM_TIER_UNVERIFIED                                                             \
    0x80u /* in a tag: live, but not to be believed (verify.c)                         \
           */

enum qm_tier_state {
    QM_TIER_INVALID = 0, /* nothing in it is to be believed */
    QM_TIER_CLEAN = 1,   /* closed, and all was synced */
    QM_TIER_OPEN = 2,    /* in use, or crashed */
};

struct qm_tier_super {
    uint64_t magic;
    uint64_t check;    /* of what follows; XXH3 */
    uint64_t sequence; /* of the two, the higher is valid */
    uint8_t uuid[16];  /* of this tier, new with each initialisation */
    uint64_t epoch;
    uint16_t state;
    uint16_t
        doubtful; /* 1: a crash of the machine may have taken data that has not been
                     read since: a wrong checksum is no sign of a failing device */
    uint32_t block_size;
    uint64_t volume_size;
    uint64_t generation;
    uint32_t slots; /* of a segment */
    uint32_t segments;
    uint64_t inode; /* 0: not known, or not a regular file */
    uint64_t birth; /* nanoseconds */
    char boot_id[40];
    char volume[QM_TIER_NAME];
    char known[QM_TIER_STATE]; /* the volume's state of which the contents are right, if
                                  nobody has changed it since; "": none (verify.c) */
};

struct qm_tier_footer {
    uint64_t magic; /* 0: no footer */
    uint64_t check; /* of what follows, and the entries */
    uint8_t uuid[16];
    uint64_t incarnation;
    uint32_t segment;
    uint32_t count; /* entries that are to be looked at */
};

struct qm_tier_entry {
    uint64_t block; /* or QM_TIER_VOID */
    uint64_t check; /* qm_tier_checksum() of the data */
};

/* A page of the map: bit n of page p is region p * QM_TIER_MAP_BITS + n. */
#define QM_TIER_MAP_WORDS (QM_TIER_PAGE / 8 - 1)
#define QM_TIER_MAP_BITS  (64 * QM_TIER_MAP_WORDS)

struct qm_tier_map_page {
    uint64_t check; /* a page that does not match it counts as all marked */
    uint64_t bits[QM_TIER_MAP_WORDS];
};

/* Where things are: computed from block size, slots, segments and volume. */
struct qm_tier_geometry {
    uint32_t block_size, slots, segments;
    uint64_t volume_blocks, regions;
    uint32_t map_pages;
    uint64_t segments_at;   /* of the first */
    uint64_t data_bytes;    /* of a segment, rounded up to pages */
    uint64_t meta_bytes;    /* footer and tags, rounded up to pages */
    uint64_t segment_bytes; /* both */
};

/* Of a tier of size bytes; segment: bytes of one, about (0: chosen).  Returns false if
 * no such tier is possible. */
bool qm_tier_geometry(struct qm_tier_geometry *g, uint64_t size, uint64_t segment,
                      uint64_t volume_size, uint32_t block_size);
/* The same for slots and segments that are given. */
bool qm_tier_geometry_of(struct qm_tier_geometry *g, uint32_t slots, uint32_t segments,
                         uint64_t volume_size, uint32_t block_size);

static inline uint64_t qm_tier_data_at(const struct qm_tier_geometry *g,
                                       uint32_t segment, uint32_t slot)
{
    return g->segments_at + segment * g->segment_bytes + (uint64_t)slot * g->block_size;
}

static inline uint64_t qm_tier_footer_at(const struct qm_tier_geometry *g,
                                         uint32_t segment)
{
    return g->segments_at + segment * g->segment_bytes + g->data_bytes;
}

static inline size_t qm_tier_footer_bytes(uint32_t slots)
{
    return sizeof(struct qm_tier_footer) + slots * sizeof(struct qm_tier_entry);
}

static inline uint64_t qm_tier_tag_at(const struct qm_tier_geometry *g,
                                      uint32_t segment, uint32_t slot)
{
    return qm_tier_footer_at(g, segment) + qm_tier_footer_bytes(g->slots) + slot;
}

static inline uint64_t qm_tier_file_bytes(const struct qm_tier_geometry *g)
{
    return g->segments_at + g->segments * g->segment_bytes;
}

static inline uint8_t qm_tier_live_tag(uint64_t incarnation)
{
    return (uint8_t)(1 + incarnation % 127);
}

/* Of a block's data: QM_TIER_CHECK_BITS wide, and other for each number, so that data
 * in the wrong place is noticed.  data NULL: 0. */
uint64_t qm_tier_checksum(uint64_t block, const void *data, size_t bytes);

void qm_tier_super_seal(struct qm_tier_super *super);
/* Whether all its numbers are possible, checksum included. */
bool qm_tier_super_ok(const struct qm_tier_super *super);

/* The footer and its entries, which follow it. */
void qm_tier_footer_seal(struct qm_tier_footer *footer, uint32_t slots);
bool qm_tier_footer_ok(const struct qm_tier_footer *footer,
                       const struct qm_tier_geometry *g, const uint8_t uuid[16],
                       uint32_t segment);

void qm_tier_map_seal(struct qm_tier_map_page *page, uint32_t number,
                      const uint8_t uuid[16]);
bool qm_tier_map_ok(const struct qm_tier_map_page *page, uint32_t number,
                    const uint8_t uuid[16]);

/* The witness: what it says is the right state of the tier file. */
struct qm_tier_testimony {
    uint64_t magic, check;
    uint8_t uuid[16];
    uint64_t epoch;  /* to be believed */
    uint64_t coming; /* not 0: an opening had begun to change it to that, and nothing
                        has been served since: both are right */
};

void qm_tier_testimony_seal(struct qm_tier_testimony *t);
bool qm_tier_testimony_ok(const struct qm_tier_testimony *t);

#endif
