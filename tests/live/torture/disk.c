/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.c - see disk.h. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOKS 4000000 /* at cells, in a round; plenty */

static const unsigned char *map(const struct disk *d, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *p = MAP_FAILED;

    if (fd != -1) {
        p = mmap(NULL, d->size, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (p == MAP_FAILED)
        fprintf(stderr, "%s: %s: %s\n", d->program, path, strerror(errno));
    return p == MAP_FAILED ? NULL : p;
}

bool disk_open(struct disk *d, const char *image, const char *durable,
               uint32_t requests)
{
    if (d->size % d->block_size != 0 || d->size < 64 * d->block_size) {
        fprintf(stderr, "%s: the device's size is for no torture\n", d->program);
        return false;
    }
    d->cells = 2 * (d->size / SECTOR);
    d->round = 0;
    d->image = map(d, image);
    d->durable = map(d, durable);
    if (!d->image || !d->durable)
        return false;
    d->initial = calloc(d->cells, sizeof *d->initial);
    /* Requests, looks at what became durable, and the look at everything. */
    d->history = history_new(d->cells, 2 * (d->block_size / SECTOR),
                             2 * requests + d->cells, LOOKS);
    if (!d->initial || !d->history) {
        fprintf(stderr, "%s: no memory\n", d->program);
        return false;
    }
    return true;
}

void disk_close(struct disk *d)
{
    history_free(d->history);
    free(d->initial);
    munmap((void *)d->image, d->size);
    munmap((void *)d->durable, d->size);
}

uint64_t draw_from(uint64_t *random, uint64_t below)
{
    return mix((*random)++) % below;
}

void disk_choose(const struct disk *d, uint64_t *random, uint32_t *from,
                 uint32_t *length)
{
    static const uint32_t lengths[] = {1, 1, 2, 3, 8, 16, 31, 32, 64, 65, 130, 400};
    uint64_t sectors = d->size / SECTOR;
    uint64_t count = lengths[draw_from(random, sizeof lengths / sizeof lengths[0])];
    uint64_t first = draw_from(random, sectors);
    unsigned mood = draw_from(random, 8);

    if (mood == 0) /* where all are */
        first = d->hot / SECTOR + draw_from(random, 48);
    if (mood <= 3)
        first -= first % (d->block_size / SECTOR);
    if (first + count > sectors)
        first = sectors - count;
    *from = 2 * first;
    *length = 2 * count;
    if (mood % 2 == 0)
        (*from)++, (*length)--;
    if (draw_from(random, 3) == 0 && *length > 1)
        (*length)--;
}

static uint64_t name_of(const struct disk *d, uint32_t request)
{
    return (uint64_t)d->round << 32 | (request + 1);
}

static uint32_t value_of(const struct disk *d, uint64_t name, uint32_t cell)
{
    if (name == CELL_ZERO)
        return SAW_ZERO;
    if (name == d->initial[cell])
        return SAW_INITIAL;
    if (name >> 32 == d->round && (uint32_t)name != 0)
        return (uint32_t)name - 1;
    return SAW_GARBAGE; /* or of a round that was over before */
}

void disk_fill(const struct disk *d, unsigned char *to, uint32_t request,
               uint32_t first, uint32_t count)
{
    for (uint32_t cell = first; cell < first + count; cell++) {
        fill_cell(to, cell, name_of(d, request));
        to += cell_start(cell + 1) - cell_start(cell);
    }
}

void disk_look(const struct disk *d, uint32_t request, const unsigned char *from,
               uint32_t first, uint32_t count)
{
    uint32_t *looks = history_looks(d->history, request);

    for (uint32_t i = 0; i < count; i++) {
        looks[i] = value_of(d, read_cell(from, first + i), first + i);
        from += cell_start(first + i + 1) - cell_start(first + i);
    }
}

void disk_look_at_durable(const struct disk *d, uint32_t request, uint32_t first,
                          uint32_t count)
{
    uint32_t number = history_begin_fua(d->history, request);
    uint32_t *looks;

    if (number == UINT32_MAX)
        return;
    disk_look(d, number, d->durable + cell_start(first), first, count);
    looks = history_looks(d->history, number);
    /* It may be changing just now. */
    for (uint32_t i = 0; i < count; i++)
        for (int tries = 0; looks[i] == SAW_GARBAGE && tries < 1000; tries++) {
            uint32_t cell = first + i;

            looks[i] =
                value_of(d, read_cell(d->durable + cell_start(cell), cell), cell);
        }
    history_end(d->history, number, true);
}

static bool is_zero(void *opaque, uint32_t cell)
{
    const struct disk *d = opaque;

    return d->initial[cell] == CELL_ZERO;
}

static void complain(void *opaque, const char *text)
{
    const struct disk *d = opaque;

    fprintf(stderr, "%s: round %" PRIu32 ": %s\n", d->program, d->round, text);
}

uint64_t disk_judge(struct disk *d, const unsigned char *all)
{
    uint64_t wrong = history_judge(d->history, is_zero, complain, d);

    for (uint32_t cell = 0; cell < d->cells; cell++) {
        uint64_t at = cell_start(cell), n = cell_start(cell + 1) - at;
        bool below = memcmp(all + at, d->image + at, n) != 0;
        bool lost = memcmp(d->image + at, d->durable + at, n) != 0;

        if ((below || lost) && wrong++ < 20)
            fprintf(stderr, "%s: round %" PRIu32 ": cell %" PRIu32 ": %s\n", d->program,
                    d->round, cell,
                    below ? "what is read is not what the disk has"
                          : "what was flushed is not durable");
        d->initial[cell] = read_cell(all + at, cell);
        if (d->initial[cell] == CELL_GARBAGE && wrong++ < 20)
            fprintf(stderr, "%s: cell %" PRIu32 ": garbage\n", d->program, cell);
    }
    return wrong;
}
