/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-tier.c - a tier's file that was damaged: superblocks, map, footers and tags.
 *
 * The first byte is bits: checksums are made good after the damage, so that what is
 * behind them is read; the machine has another boot id; the file is cut; the damage
 * happens while the tier is in use, which then fills its segments again; the server
 * that made the file was killed, and the second byte says after which of its writes,
 * so that segments are found in the middle of being filled again.  The rest is damage:
 * where (4 bytes), how many bytes (1), which.
 *
 * Promised: it opens, or says why not; what it holds is within its bounds; a block that
 * is read is of the right checksum; one that was written to is not there, now and after
 * a kill (unless the damage came later); and with checksums as they were found, what is
 * read is what was inserted. */
#include <errno.h>

#include "fuzz.h"
#include "tier/format.h"
#include "tier/io.h"
#include "tier/tier.h"

#define BLOCK  4096u
#define SIZE   (160u << 10)
#define VOLUME (UINT64_C(16) << 20)
#define BLOCKS 40u

enum { GOOD = 1, REBOOT = 2, CUT = 4, IN_USE = 8, KILLED = 16 };

static char image[SIZE];
static uint64_t length;
static long until_kill = -1; /* writes that still happen; -1: all */

static int read_image(void *opaque, enum qm_tier_file file, void *buf, size_t n,
                      uint64_t at)
{
    if (at > length || n > length - at)
        return EIO;
    memcpy(buf, image + at, n);
    return 0;
}

static int write_image(void *opaque, enum qm_tier_file file, const void *buf, size_t n,
                       uint64_t at, bool durable)
{
    promise(at <= SIZE && n <= SIZE - at);
    if (until_kill == 0)
        return 0;
    until_kill -= until_kill > 0;
    memcpy(image + at, buf, n);
    if (at + n > length)
        length = at + n;
    return 0;
}

static int sync_image(void *opaque)
{
    return 0;
}

static int reserve_image(void *opaque, uint64_t at, size_t n)
{
    return 0;
}

static int resize_image(void *opaque, uint64_t size)
{
    promise(size <= SIZE);
    if (until_kill == 0)
        return 0;
    if (size < length)
        memset(image + size, 0, length - size);
    length = size;
    return 0;
}

static int present_image(void *opaque, uint64_t size)
{
    return length < size ? EIO : 0;
}

static void close_image(void *opaque)
{
}

static int open_image(struct qm_tier **t, const char *boot)
{
    struct qm_tier_io io = {
        .read = read_image,
        .write = write_image,
        .sync = sync_image,
        .reserve = reserve_image,
        .resize = resize_image,
        .present = present_image,
        .close = close_image,
        .size = length,
    };
    struct qm_tier_config c;
    char err[400];
    int r;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"volume", VOLUME, BLOCK, 1};
    c.io = &io;
    c.path = "image";
    c.size = SIZE;
    c.segment = 16 << 10;
    c.threadless = true;
    c.admit = QM_TIER_ADMIT_ALL;
    c.boot_id = boot;
    r = qm_tier_open(&c, t, err, sizeof err);
    promise(r == 0 || err[0]);
    return r;
}

static void fill_block(char *buf, uint64_t block)
{
    memset(buf, (int)(block + 1), BLOCK);
}

static void insert(struct qm_tier *t, uint64_t block)
{
    char buf[BLOCK];
    struct qm_tier_insert insert = {
        .block = block, .data = buf, .ticket = qm_tier_ticket(t)};

    fill_block(buf, block);
    (void)qm_tier_insert(t, &insert);
}

/* A tier of which some segments were filled again and keep blocks that are read all the
 * time, as a server leaves it that is killed after `writes` writes; -1: that ends in
 * order. */
static void make_image(long writes)
{
    static struct made {
        char *bytes;
        uint64_t length;
    } made[256 + 1];
    struct made *m = &made[writes + 1];
    struct qm_tier *t;
    char buf[BLOCK];
    struct qm_tier_write w;

    if (m->bytes) {
        memcpy(image, m->bytes, SIZE);
        length = m->length;
        return;
    }
    memset(image, 0, SIZE);
    length = 0;
    promise(open_image(&t, "boot") == 0);
    until_kill = writes;
    for (uint64_t b = 0; b < BLOCKS; b++) {
        struct qm_tier_read read = {.block = b / 2 * 100, .buf = buf};

        insert(t, b * 100);
        if (b % 3 == 0)
            (void)qm_tier_read(t, &read, 1);
    }
    qm_tier_write_begin(t, &w, 3000 * BLOCK, BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
    qm_tier_close(t, QM_TIER_KEEP);
    until_kill = -1;
    m->bytes = malloc(SIZE);
    promise(m->bytes != NULL);
    memcpy(m->bytes, image, SIZE);
    m->length = length;
}

static void make_good(void)
{
    struct qm_tier_super super[2];
    struct qm_tier_geometry g;
    struct qm_tier_map_page page;
    char footer[QM_TIER_PAGE];
    unsigned best;

    for (unsigned i = 0; i < 2; i++) {
        memcpy(&super[i], image + i * QM_TIER_PAGE, sizeof super[i]);
        qm_tier_super_seal(&super[i]);
        memcpy(image + i * QM_TIER_PAGE, &super[i], sizeof super[i]);
    }
    best = super[1].sequence > super[0].sequence;
    if (!qm_tier_super_ok(&super[best]) ||
        !qm_tier_geometry_of(&g, super[best].slots, super[best].segments,
                             super[best].volume_size, super[best].block_size) ||
        qm_tier_file_bytes(&g) > SIZE || qm_tier_footer_bytes(g.slots) > sizeof footer)
        return;
    for (uint32_t i = 0; i < g.map_pages; i++) {
        char *at = image + QM_TIER_SUPERS + i * QM_TIER_PAGE;

        memcpy(&page, at, sizeof page);
        qm_tier_map_seal(&page, i, super[best].uuid);
        memcpy(at, &page, sizeof page);
    }
    for (uint32_t i = 0; i < g.segments; i++) {
        struct qm_tier_footer head;
        char *at = image + qm_tier_footer_at(&g, i);

        memcpy(&head, at, sizeof head);
        if (!head.magic)
            continue;
        memcpy(footer, at, qm_tier_footer_bytes(g.slots));
        qm_tier_footer_seal((struct qm_tier_footer *)footer, g.slots);
        memcpy(at, footer, qm_tier_footer_bytes(g.slots));
    }
}

static unsigned read_all(struct qm_tier *t, bool exact)
{
    unsigned hits = 0;

    for (uint64_t b = 0; b < VOLUME / BLOCK; b++) {
        char buf[BLOCK], right[BLOCK];
        struct qm_tier_read read = {.block = b, .buf = buf};

        if (qm_tier_read(t, &read, 1) == 0)
            continue;
        hits++;
        fill_block(right, b);
        promise(!exact || memcmp(buf, right, BLOCK) == 0);
    }
    return hits;
}

static void check(struct qm_tier *t, bool exact, bool more)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(t, &s);
    promise(s.blocks <= s.capacity && (more || s.recovered >= s.blocks));
    promise(read_all(t, exact) <= s.blocks);
}

static void damage(struct food *f, bool good)
{
    while (f->left > 5) {
        uint32_t at = (uint32_t)eat_number(f, 4) % SIZE;
        size_t n = 1 + eat_number(f, 1) % 64;

        if (n > SIZE - at)
            n = SIZE - at;
        eat(f, image + at, n);
    }
    if (good)
        make_good();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};
    struct qm_tier *t;
    struct qm_tier_write w;
    uint8_t how;

    how = (uint8_t)eat_number(&f, 1);
    make_image(how & KILLED ? (long)eat_number(&f, 1) : -1);
    if (!(how & IN_USE))
        damage(&f, how & GOOD);
    if (how & CUT)
        length = length / 256 * how;
    if (open_image(&t, how & REBOOT ? "another" : "boot") != 0)
        return 0;
    if (how & IN_USE) {
        damage(&f, how & GOOD);
        for (uint64_t b = 0; b < BLOCKS; b++)
            insert(t, b * 100 + 50);
    }
    /* What it has in memory is not damaged. */
    check(t, !(how & GOOD) || how & IN_USE, how & IN_USE);
    for (uint64_t b = 0; b < BLOCKS; b++) {
        qm_tier_write_begin(t, &w, b * 100 * BLOCK, 50 * BLOCK);
        qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
        for (uint64_t i = 0; i < 50; i++)
            promise(!qm_tier_contains(t, b * 100 + i));
    }
    /* As if it had been killed: the image is what another finds. */
    {
        static char killed[SIZE];
        uint64_t killed_length = length;

        memcpy(killed, image, SIZE);
        qm_tier_close(t, QM_TIER_KEEP);
        memcpy(image, killed, SIZE);
        length = killed_length;
    }
    if (open_image(&t, "boot") != 0)
        return 0;
    check(t, !(how & GOOD), false);
    /* Tags have no checksums: damage can revive one behind the back of its server. */
    for (uint64_t b = 0; b < BLOCKS && !(how & IN_USE); b++)
        for (uint64_t i = 0; i < 50; i++)
            promise(!qm_tier_contains(t, b * 100 + i));
    qm_tier_close(t, QM_TIER_FORGET);
    return 0;
}
