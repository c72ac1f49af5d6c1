/* SPDX-License-Identifier: BSD-3-Clause */
/* test-kept.c - how much a full tier has after a crash of what it had before, while its
 * segments are filled again all the time: after a crash of the process, 99 % of all;
 * after one of the machine, 99 % of what was there when it was synced last and lies in
 * regions that are not marked. */
#include "disk.h"

#define BLOCK    4096u
#define SEGMENT  (64u * BLOCK)
#define SEGMENTS 64u
#define HELD     (64u * SEGMENTS)
#define VOLUME   (3u * HELD) /* blocks; the first twelfth is written to, too */
#define WRITTEN  (VOLUME / 12)

struct world {
    struct disk *disk;
    struct qm_tier *tier;
    uint64_t seed, clock;
    unsigned boots, inserted;
    bool had[VOLUME], synced[VOLUME];
    char *buf;
};

static uint64_t get_clock(void *opaque)
{
    struct world *w = opaque;

    return w->clock += 1000;
}

static void open_tier(struct world *w)
{
    struct qm_tier_io io = disk_io(w->disk);
    struct qm_tier_config c;
    char boot[40];

    snprintf(boot, sizeof boot, "boot-%u", w->boots);
    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", (uint64_t)VOLUME * BLOCK, BLOCK, 1};
    c.io = &io;
    c.size = (SEGMENTS + 1) * (SEGMENT + 8192);
    c.segment = SEGMENT;
    c.boot_id = boot;
    c.threadless = true;
    c.admit = QM_TIER_ADMIT_ALL;
    c.now = get_clock;
    c.opaque = w;
    w->tier = open_ok(&c);
}

/* A tenth of the blocks have two thirds of the reads. */
static uint64_t draw(struct world *w)
{
    uint64_t block = rnd_below(&w->seed, VOLUME);

    return rnd_below(&w->seed, 3) ? block / 10 * 10 : block;
}

static void step(struct world *w)
{
    uint64_t block = draw(w);
    struct qm_tier_read read = {.block = block, .buf = w->buf};
    struct qm_tier_write write;

    if (block < WRITTEN && rnd_below(&w->seed, 4) == 0) {
        qm_tier_write_begin(w->tier, &write, block * BLOCK, BLOCK);
        qm_tier_write_end(w->tier, &write, QM_TIER_WROTE, NULL);
        return;
    }
    if (qm_tier_read(w->tier, &read, 1) > 0) {
        assert_int_equal(version_of(w->buf, BLOCK, block), 7);
        return;
    }
    make_block(w->buf, BLOCK, block, 7);
    (void)qm_tier_insert(w->tier,
                         &(struct qm_tier_insert){.block = block,
                                                  .data = w->buf,
                                                  .ticket = qm_tier_ticket(w->tier)});
    /* What a day has for five seconds, of a fast disk. */
    if (++w->inserted % (HELD / 20) == 0) {
        w->clock += UINT64_C(5000000000);
        qm_tier_tick(w->tier, false);
        for (uint64_t b = 0; b < VOLUME; b++)
            w->synced[b] = qm_tier_contains(w->tier, b);
    }
}

/* Returns the share that is kept. */
static double crash(struct world *w, bool machine)
{
    unsigned had = 0, kept = 0;
    struct qm_tier_stats stats;

    w->disk->until_crash = 500 + (long)rnd_below(&w->seed, 4000);
    while (w->disk->until_crash > 0)
        step(w);
    for (uint64_t b = 0; b < VOLUME; b++)
        w->had[b] = qm_tier_contains(w->tier, b) &&
                    (!machine || (b >= WRITTEN + 1024 && w->synced[b]));
    while (!w->disk->crashed)
        step(w);
    qm_tier_close(w->tier, QM_TIER_KEEP);
    if (machine) {
        w->boots++;
        disk_reboot(w->disk);
    } else {
        disk_restart(w->disk);
    }
    open_tier(w);
    if (machine && rnd_below(&w->seed, 2)) {
        /* What was lost is found only after it was ended, or has died. */
        if (rnd_below(&w->seed, 2)) {
            w->disk->crashed = true;
            qm_tier_close(w->tier, QM_TIER_KEEP);
            disk_restart(w->disk);
        } else {
            assert_int_equal(qm_tier_close(w->tier, QM_TIER_KEEP), 0);
        }
        open_tier(w);
    }
    memset(w->synced, 0, sizeof w->synced);
    for (uint64_t b = 0; b < VOLUME; b++) {
        struct qm_tier_read read = {.block = b, .buf = w->buf};

        had += w->had[b];
        if (qm_tier_read(w->tier, &read, 1) == 0)
            continue;
        assert_int_equal(version_of(w->buf, BLOCK, b), 7);
        kept += w->had[b];
    }
    /* What was lost is no sign of a failing disk. */
    qm_tier_get_stats(w->tier, &stats);
    assert_false(stats.dead);
    assert_int_equal(stats.wrong_checksums, 0);
    return had > 0 ? (double)kept / had : 1;
}

static void kept(bool machine)
{
    struct world *w = calloc(1, sizeof *w);
    const unsigned crashes = 40;
    double sum = 0, least = 1;

    assert_non_null(w);
    w->seed = 3;
    w->disk = disk_new((SEGMENTS + 2) * (SEGMENT + 8192), 9);
    w->disk->pages = true;
    w->buf = aligned_alloc(4096, BLOCK);
    assert_non_null(w->buf);
    open_tier(w);
    while (w->inserted < 3 * HELD)
        step(w);
    for (unsigned i = 0; i < crashes; i++) {
        double share = crash(w, machine);

        sum += share;
        least = share < least ? share : least;
    }
    printf("a crash of the %s keeps %.2f %%, %.2f %% at least\n",
           machine ? "machine" : "process", 100 * sum / crashes, 100 * least);
    assert_true(sum / crashes >= .99);
    qm_tier_close(w->tier, QM_TIER_KEEP);
    disk_free(w->disk);
    free(w->buf);
    free(w);
}

TEST(test_kept_by_process)
{
    kept(false);
}

TEST(test_kept_by_machine)
{
    kept(true);
}
