/* SPDX-License-Identifier: BSD-3-Clause */
/* quiet.c - see quiet.h. */
#include "quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

static const void *map(const struct quiet *q, const char *path, uint64_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *p = MAP_FAILED;

    if (fd != -1) {
        p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (p == MAP_FAILED)
        fprintf(stderr, "%s: %s: %s\n", q->program, path, strerror(errno));
    return p == MAP_FAILED ? NULL : p;
}

static size_t counts_bytes(const struct quiet *q)
{
    return q->to / PAGE * sizeof *q->counts;
}

bool quiet_open(struct quiet *q, const char *image)
{
    q->image = map(q, image, q->to);
    q->counts = map(q, q->reads, counts_bytes(q));
    q->before = malloc(counts_bytes(q));
    q->served = calloc((q->to - q->from) / q->block_size, sizeof *q->served);
    return q->image && q->counts && q->before && q->served;
}

void quiet_close(struct quiet *q)
{
    munmap((void *)q->image, q->to);
    munmap((void *)q->counts, counts_bytes(q));
    free(q->before);
    free(q->served);
}

static long change_number(const struct quiet *q)
{
    FILE *f = q->changes ? fopen(q->changes, "re") : NULL;
    long number = 0;

    if (f) {
        if (fscanf(f, "%ld", &number) != 1)
            number = -1;
        fclose(f);
    }
    return number;
}

void quiet_begin(struct quiet *q)
{
    q->starts = change_number(q);
    memcpy(q->before, q->counts, counts_bytes(q));
}

void quiet_look(struct quiet *q, const unsigned char *from, uint64_t at, uint64_t n)
{
    if (memcmp(from, q->image + at, n) == 0)
        return;
    if (q->wrong++ < 10)
        fprintf(stderr, "%s: wrong bytes at %" PRIu64 ", where nobody writes\n",
                q->program, at);
}

static bool was_served(const struct quiet *q, uint64_t at)
{
    for (uint64_t page = at / PAGE; page * PAGE < at + q->block_size; page++)
        if (q->counts[page] != q->before[page])
            return false;
    return true;
}

void quiet_end(struct quiet *q, unsigned kills, bool fair)
{
    long number = change_number(q);
    bool pair = q->valid && fair && kills != q->kills && number == q->number;
    uint64_t had = 0, kept = 0, i = 0;

    q->valid = kills != UINT_MAX && number % 2 == 0 && number == q->starts;
    for (uint64_t at = q->from; at < q->to; at += q->block_size, i++) {
        bool now = was_served(q, at);

        had += q->served[i];
        kept += q->served[i] && now;
        q->served[i] = now;
    }
    if (pair && q->valid && had > 0) {
        q->passes++;
        q->had += had;
        q->kept += kept;
    }
    if (getenv("QM_VERBOSE"))
        fprintf(stderr, "%s: %u kills, %ld changes%s: %" PRIu64 " of %" PRIu64 "%s\n",
                q->program, kills, number, q->valid ? "" : ", no pass", kept, had,
                pair && q->valid ? ", after a kill" : "");
    q->kills = kills;
    q->number = number;
}
