/* SPDX-License-Identifier: BSD-3-Clause */
/* test-overlap.c - two changes of one block begin together, and the process dies.
 *
 * The first has found the block and is about to mark its copy as dead on the disk. Just
 * then the second begins, of other bytes of the block, and returns; its change is
 * carried out, and the process dies before the first goes on.  The copy must not come
 * back.
 */
#include "disk.h"
#include "tier/format.h"

#define BLOCK  4096
#define BLOCKS 64

static struct disk *disk;
static struct qm_tier_io below;
static struct qm_tier *tier;
static bool armed, overtaken;

static int write_hook(void *opaque, enum qm_tier_file file, const void *buf, size_t n,
                      uint64_t at, bool durable)
{
    if (armed && file == QM_TIER_META && n <= BLOCKS && *(const char *)buf == 0) {
        struct qm_tier_write second;

        armed = false;
        overtaken = true;
        qm_tier_write_begin(tier, &second, 5 * BLOCK + 512, 512);
        disk->crashed = true;
    }
    return below.write(opaque, file, buf, n, at, durable);
}

static struct qm_tier *open_tier(void)
{
    struct qm_tier_config config;
    struct qm_tier_io io;

    below = io = disk_io(disk);
    io.write = write_hook;
    qm_tier_config_init(&config);
    config.identity = (struct qm_tier_identity){"v", BLOCKS * BLOCK, BLOCK, 0};
    config.size = 4 << 20;
    config.admit = QM_TIER_ADMIT_ALL;
    config.threadless = true;
    config.boot_id = "boot";
    config.io = &io;
    return open_ok(&config);
}

static void overlap(uint64_t offset, uint64_t count)
{
    static char data[BLOCK];
    struct qm_tier_write first;

    disk = disk_new(16 << 20, 1);
    tier = open_tier();
    for (uint64_t block = 0; block < BLOCKS; block++) {
        const struct qm_tier_insert insert = {
            .block = block, .data = data, .ticket = qm_tier_ticket(tier)};

        make_block(data, BLOCK, block, 1);
        assert_int_equal(qm_tier_insert(tier, &insert), 0);
    }
    assert_int_equal(qm_tier_sync(tier), 0);
    armed = true;
    overtaken = false;
    qm_tier_write_begin(tier, &first, offset, count);
    assert_true(overtaken);
    (void)qm_tier_close(tier, QM_TIER_KEEP);
    disk_restart(disk);
    tier = open_tier();
    assert_false(qm_tier_contains(tier, 5));
    assert_true(qm_tier_contains(tier, 60));
    assert_int_equal(qm_tier_close(tier, QM_TIER_KEEP), 0);
    disk_free(disk);
}

TEST(test_one_block)
{
    overlap(UINT64_C(5) * BLOCK, 512);
}

/* Some are gone from the index, and their tags are killed together. */
TEST(test_run_of_blocks)
{
    overlap(BLOCK, UINT64_C(9) * BLOCK);
}
