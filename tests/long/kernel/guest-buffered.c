/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-buffered.c - page-cache reads of files on ext4 on the device, their readahead,
 * and page faults. */
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/long/kernel/guest.h"

#define EXTENTS 64

void say_cover(int fd, const char *klass, uint64_t at, uint64_t length)
{
    struct fiemap *map = calloc(1, sizeof *map + EXTENTS * sizeof map->fm_extents[0]);

    CHECK(map);
    map->fm_start = at;
    map->fm_length = length;
    map->fm_extent_count = EXTENTS;
    CHECK(ioctl(fd, FS_IOC_FIEMAP, map) == 0);
    CHECK(map->fm_mapped_extents > 0 && map->fm_mapped_extents < EXTENTS);
    for (unsigned i = 0; i < map->fm_mapped_extents; i++) {
        const struct fiemap_extent *e = &map->fm_extents[i];
        uint64_t from = at > e->fe_logical ? at - e->fe_logical : 0;
        uint64_t to = e->fe_length;

        if (e->fe_logical + to > at + length)
            to = at + length - e->fe_logical;
        say("@cover %s %llu %llu\n", klass, (unsigned long long)(e->fe_physical + from),
            (unsigned long long)(to - from));
    }
    free(map);
}

static int open_file(const char *path, uint64_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    *size = st.st_size;
    return fd;
}

void drop_pages(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

    CHECK(fd >= 0 && write(fd, "1", 1) == 1);
    close(fd);
}

void buffered(void)
{
    uint64_t size, b_size, c_size;
    int fd = open_file("/mnt/a", &size), b = open_file("/mnt/b", &b_size);
    int c = open_file("/mnt/c", &c_size);
    char *buffer = aligned_buffer(64 * 1024);
    volatile char sum = 0;
    int64_t ctx, other;
    char *map;

    ctx = begin(APP_CTX_THREAD, 0, "-", "buffered-sequential");
    other = begin(APP_CTX_QUERY, ctx, "buffered-sequential", "buffered-random");
    say_cover(fd, "buffered-sequential", 0, size);
    for (uint64_t at = 0; at < b_size; at += 10 * BLOCK)
        say_cover(b, "buffered-random", at, 2 * BLOCK);
    CHECK(posix_fadvise(b, 0, 0, POSIX_FADV_RANDOM) == 0);
    drop_pages();
    /* In turns, so that the readahead of one file is under way as the other is read. */
    for (uint64_t at = 0, b_at = 0; at < size || b_at < b_size; at += 64 * 1024) {
        CHECK(ctx_set(ctx) >= 0);
        CHECK(pread(fd, buffer, 64 * 1024, at) == (at < size ? 64 * 1024 : 0));
        CHECK(ctx_set(other) >= 0);
        if (b_at < b_size)
            CHECK(pread(b, buffer, 2 * BLOCK, b_at) == 2 * BLOCK);
        b_at += 10 * BLOCK;
    }
    CHECK(ctx_set(0) == other);
    end(other, "buffered-random");
    end(ctx, "buffered-sequential");

    /* Faults, and pages that are there already: no request, no context. */
    ctx = begin(APP_CTX_QUERY, 0, "-", "buffered-fault");
    say_cover(c, "buffered-fault", 0, c_size);
    map = mmap(NULL, c_size, PROT_READ, MAP_SHARED, c, 0);
    CHECK(map != MAP_FAILED);
    CHECK(ctx_set(ctx) == 0);
    for (uint64_t at = 0; at < c_size; at += BLOCK)
        sum += map[at];
    CHECK(ctx_set(0) == ctx);
    end(ctx, "buffered-fault");
    ctx = begin(APP_CTX_QUERY, 0, "-", "buffered-cached");
    CHECK(ctx_pread(c, buffer, BLOCK, 0, ctx) == BLOCK);
    end(ctx, "buffered-cached");
    munmap(map, c_size);
    close(c);
    close(b);
    close(fd);
    free(buffer);
}
