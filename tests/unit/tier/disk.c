/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.c - see disk.h. */
#include "disk.h"

#define SECTOR 512u

static bool percent(struct disk *d, unsigned n)
{
    return n > 0 && rnd_below(&d->seed, 100) < n;
}

static bool fails(struct disk *d, enum qm_tier_file file, unsigned n)
{
    return (file == QM_TIER_DATA || d->meta_too) && percent(d, n);
}

static int read_disk(void *opaque, enum qm_tier_file file, void *buf, size_t n,
                     uint64_t at)
{
    struct disk *d = opaque;

    if (fails(d, file, d->reads_fail))
        return d->with;
    if (at > d->size || n > d->size - at)
        return EIO;
    memcpy(buf, d->now + at, n);
    if (file == QM_TIER_DATA && percent(d, d->flips))
        ((char *)buf)[rnd_below(&d->seed, n)] ^= 1 << rnd_below(&d->seed, 8);
    return 0;
}

/* As a ring does: from any of them on, backwards. */
static bool read_many(void *opaque, const struct qm_tier_io_read *reads, size_t n,
                      qm_tier_io_done *done, void *done_opaque)
{
    struct disk *d = opaque;
    size_t first = rnd_below(&d->seed, n);

    for (size_t i = 0; i < n; i++) {
        size_t k = (first + n - i) % n;

        done(done_opaque, k,
             read_disk(d, QM_TIER_DATA, reads[k].buf, reads[k].n, reads[k].at));
    }
    return true;
}

static unsigned unit(const struct disk *d)
{
    return d->pages ? 4096 / SECTOR : 1;
}

static void write_back(struct disk *d, uint64_t sector)
{
    memcpy(d->durable + sector * SECTOR, d->now + sector * SECTOR, SECTOR);
    d->dirty[sector] = false;
}

/* Whether the process is alive to do this, and half of it, perhaps. */
static bool alive(struct disk *d, size_t *n)
{
    if (d->crashed)
        return false;
    d->writes++;
    if (d->until_crash > 0)
        d->until_crash--;
    else if (d->until_crash == 0) {
        d->crashed = true;
        *n = rnd_below(&d->seed, *n / SECTOR + 1) * SECTOR;
    }
    return true;
}

static int write_disk(void *opaque, enum qm_tier_file file, const void *buf, size_t n,
                      uint64_t at, bool durable)
{
    struct disk *d = opaque;

    if (!alive(d, &n) || n == 0)
        return 0;
    if (fails(d, file, d->writes_fail)) {
        n = rnd_below(&d->seed, n / SECTOR + 1) * SECTOR;
        if (n > 0 && at + n <= d->size)
            memcpy(d->now + at, buf, n); /* some of it has arrived */
        for (uint64_t s = at / SECTOR; n > 0 && s <= (at + n - 1) / SECTOR; s++)
            d->dirty[s] = true;
        return d->with;
    }
    assert_true(at + n <= d->room);
    if (at + n > d->size)
        d->size = at + n;
    memcpy(d->now + at, buf, n);
    for (uint64_t s = at / SECTOR; s <= (at + n - 1) / SECTOR; s++) {
        d->dirty[s] = true;
        if (durable && !d->crashed)
            write_back(d, s);
    }
    for (unsigned i = 0; i < 2; i++) { /* the kernel writes back when it likes to */
        uint64_t first = rnd_below(&d->seed, d->size / SECTOR / unit(d)) * unit(d);

        for (uint64_t s = first; s < first + unit(d); s++)
            write_back(d, s);
    }
    return 0;
}

static int sync_disk(void *opaque)
{
    struct disk *d = opaque;
    size_t none = 0;

    if (!alive(d, &none) || d->crashed)
        return 0;
    if (percent(d, d->syncs_fail))
        return d->with;
    for (uint64_t s = 0; s < d->size / SECTOR; s++)
        if (d->dirty[s])
            write_back(d, s);
    return 0;
}

static int reserve_disk(void *opaque, uint64_t at, size_t n)
{
    return 0;
}

static int resize_disk(void *opaque, uint64_t size)
{
    struct disk *d = opaque;

    if (d->crashed)
        return 0;
    if (d->no_resize)
        return EIO;
    assert_true(size <= d->room);
    if (size < d->size) {
        memset(d->now + size, 0, d->size - size);
        memset(d->durable + size, 0, d->size - size);
        memset(d->dirty + size / SECTOR, 0, (d->size - size) / SECTOR);
    }
    d->size = size;
    return 0;
}

static int present_disk(void *opaque, uint64_t size)
{
    struct disk *d = opaque;

    return d->size < size ? EIO : 0;
}

static void close_disk(void *opaque)
{
}

struct disk *disk_new(uint64_t room, uint64_t seed)
{
    struct disk *d = calloc(1, sizeof *d);

    assert_non_null(d);
    d->room = room;
    d->seed = seed;
    d->now = calloc(1, room);
    d->durable = calloc(1, room);
    d->dirty = calloc(room / SECTOR, sizeof(bool));
    assert_true(d->now && d->durable && d->dirty);
    d->until_crash = -1;
    d->with = EIO;
    return d;
}

void disk_free(struct disk *d)
{
    free(d->now);
    free(d->durable);
    free(d->dirty);
    free(d);
}

struct qm_tier_io disk_io(struct disk *d)
{
    return (struct qm_tier_io){
        .opaque = d,
        .read = read_disk,
        .write = write_disk,
        .sync = sync_disk,
        .reserve = reserve_disk,
        .resize = resize_disk,
        .present = present_disk,
        .close = close_disk,
        .read_many = d->many ? read_many : NULL,
        .direct = true,
        .fresh = d->size == 0,
        .size = d->size,
    };
}

void disk_restart(struct disk *d)
{
    d->crashed = false;
    d->until_crash = -1;
}

void disk_reboot(struct disk *d)
{
    uint64_t drawn = UINT64_MAX; /* the page for which that was done */
    bool arrived = false;

    for (uint64_t s = 0; s < d->size / SECTOR; s++) {
        if (d->dirty[s] && (!d->pages || drawn != s / unit(d)))
            arrived = rnd(&d->seed) % 2, drawn = s / unit(d);
        if (d->dirty[s] && arrived)
            write_back(d, s);
        d->dirty[s] = false;
    }
    memcpy(d->now, d->durable, d->size);
    disk_restart(d);
}
