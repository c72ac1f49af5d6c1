/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-bench.c - the program of bench/tier: see its --help. */
#include "bench/tier-bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tier/format.h"

uint64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_cpu(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void warn(void *opaque, const char *message)
{
    fprintf(stderr, "tier: %s\n", message);
}

static struct qm_tier_config config(const struct bench_options *o, uint64_t volume)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"bench", volume, o->block, 1};
    c.path = o->path;
    c.admit = QM_TIER_ADMIT_ALL;
    c.bloom = o->bloom;
    c.warn = warn;
    return c;
}

static struct qm_tier *open_with(const struct qm_tier_config *c)
{
    struct qm_tier *t;
    char err[400];

    if (qm_tier_open(c, &t, err, sizeof err) != 0)
        fprintf(stderr, "tier-bench: %s\n", err);
    return t;
}

struct qm_tier *bench_open(const struct bench_options *o, uint64_t volume,
                           enum qm_tier_mode mode, double factor)
{
    struct qm_tier_config c = config(o, volume);

    c.size = (uint64_t)((double)volume * factor) + (16u << 20);
    c.mode = mode;
    return open_with(&c);
}

void bench_remove(const struct bench_options *o)
{
    unlink(o->path);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Reads of the same places, by the tier and by pread, taking turns: medians. */
static int bench_hit(const struct bench_options *o)
{
    enum { ROUNDS = 15, READS = 20000 };
    struct qm_tier *t =
        bench_open(o, (uint64_t)o->keys * o->block, QM_TIER_INCLUSIVE, 1.2);
    char *buf = aligned_alloc(4096, o->block < 4096 ? 4096 : o->block);
    int fd = open(o->path, O_RDONLY | O_DIRECT);
    double ours[ROUNDS], plain[ROUNDS], misses[ROUNDS];
    uint64_t seed = 1, hits = 0, start;
    struct stat st;

    if (fd == -1)
        fd = open(o->path, O_RDONLY);
    if (!t || !buf || fd == -1 || fstat(fd, &st) == -1)
        return 1;
    memset(buf, 1, o->block);
    for (uint32_t i = 0; i < o->keys; i++) {
        struct qm_tier_insert insert = {
            .block = i, .data = buf, .ticket = qm_tier_ticket(t)};

        while (qm_tier_insert(t, &insert) == EAGAIN)
            qm_tier_drain(t);
    }
    qm_tier_sync(t);
    for (unsigned r = 0; r < ROUNDS; r++) {
        start = bench_now();
        for (unsigned i = 0; i < READS; i++) {
            struct qm_tier_read read = {.block = bench_rnd(&seed) % o->keys,
                                        .buf = buf};

            hits += qm_tier_read(t, &read, 1);
        }
        ours[r] = (double)(bench_now() - start) / READS / 1e3;
        start = bench_now();
        for (unsigned i = 0; i < READS; i++) {
            uint64_t at =
                bench_rnd(&seed) % ((uint64_t)o->keys * o->block / 4096) * 4096;

            if (pread(fd, buf, o->block < 4096 ? 4096 : o->block, (off_t)at) <= 0)
                return 1;
        }
        plain[r] = (double)(bench_now() - start) / READS / 1e3;
        start = bench_now();
        for (unsigned i = 0; i < READS; i++)
            hits += qm_tier_contains(t, bench_rnd(&seed) % o->keys) && false;
        misses[r] = (double)(bench_now() - start) / READS / 1e3;
    }
    qsort(ours, ROUNDS, sizeof(double), compare);
    qsort(plain, ROUNDS, sizeof(double), compare);
    qsort(misses, ROUNDS, sizeof(double), compare);
    printf("block %u, %llu hits of %u: a hit %.2f us (%.2f to %.2f), pread %.2f us "
           "(%.2f to %.2f), a look into the index %.2f us; a hit costs %.2f us more\n",
           o->block, (unsigned long long)hits, ROUNDS * READS, ours[ROUNDS / 2],
           ours[ROUNDS / 4], ours[ROUNDS * 3 / 4], plain[ROUNDS / 2], plain[ROUNDS / 4],
           plain[ROUNDS * 3 / 4], misses[ROUNDS / 2],
           ours[ROUNDS / 2] - plain[ROUNDS / 2]);
    close(fd);
    free(buf);
    qm_tier_close(t, QM_TIER_FORGET);
    bench_remove(o);
    return 0;
}

/* Lookups of blocks that are there or not, with and without the Bloom filter. */
static int bench_bloom(const struct bench_options *options)
{
    enum { ROUNDS = 9, LOOKUPS = 1000000 };
    static const double rates[] = {0, .01, .1};
    struct qm_tier *tiers[3];
    double times[3][ROUNDS];
    uint64_t seed = 3;

    for (unsigned k = 0; k < 3; k++) {
        struct qm_tier_config c = config(options, UINT64_C(1) << 44);

        c.path = NULL;
        c.data = false;
        c.size = (uint64_t)options->keys * options->block * 5 / 4;
        c.bloom = rates[k];
        tiers[k] = open_with(&c);
        if (!tiers[k])
            return 1;
        for (uint64_t i = 0; i < options->keys; i++) {
            struct qm_tier_insert insert = {.block = i * 7,
                                            .ticket = qm_tier_ticket(tiers[k])};

            (void)qm_tier_insert(tiers[k], &insert);
        }
    }
    for (unsigned r = 0; r < ROUNDS; r++)
        for (unsigned k = 0; k < 3; k++) {
            uint64_t start = bench_now();

            for (unsigned i = 0; i < LOOKUPS; i++) {
                struct qm_tier_read read = {
                    .block = (bench_rnd(&seed) % options->keys) * 7 + 1, .ahead = true};

                (void)qm_tier_read(tiers[k], &read, 1);
            }
            times[k][r] = (double)(bench_now() - start) / LOOKUPS;
        }
    for (unsigned k = 0; k < 3; k++) {
        struct qm_tier_stats s;

        qm_tier_get_stats(tiers[k], &s);
        qsort(times[k], ROUNDS, sizeof(double), compare);
        printf(
            "%llu blocks, Bloom filter %.2f: a miss %.0f ns (%.0f to %.0f), index %.1f "
            "and all %.1f bytes a block\n",
            (unsigned long long)s.blocks, rates[k], times[k][ROUNDS / 2],
            times[k][ROUNDS / 4], times[k][ROUNDS * 3 / 4],
            (double)s.index_memory / (double)s.capacity,
            (double)s.memory / (double)s.capacity);
        qm_tier_close(tiers[k], QM_TIER_FORGET);
    }
    return 0;
}

/* A full tier of size bytes in a sparse file: footers and tags are written, data is
 * not. */
static int bench_recovery(const struct bench_options *o, uint64_t size)
{
    struct qm_tier_config c = config(o, size * 2);
    struct qm_tier_super super;
    struct qm_tier_geometry g;
    struct qm_tier_stats s;
    struct qm_tier *t;
    struct stat st;
    char *meta;
    uint64_t block = 0;
    int fd;

    c.size = size;
    c.boot_id = "bench";
    t = open_with(&c);
    if (!t || qm_tier_close(t, QM_TIER_KEEP) != 0)
        return 1;
    fd = open(o->path, O_RDWR);
    if (fd == -1 || pread(fd, &super, sizeof super, 0) != sizeof super ||
        !qm_tier_geometry_of(&g, super.slots, super.segments, super.volume_size,
                             super.block_size) ||
        !(meta = calloc(1, g.meta_bytes)))
        return 1;
    for (uint32_t i = 0; i < g.segments; i++) {
        struct qm_tier_footer *f = (void *)meta;
        struct qm_tier_entry *e = (void *)(f + 1);

        *f = (struct qm_tier_footer){
            .incarnation = i + 1, .segment = i, .count = g.slots};
        memcpy(f->uuid, super.uuid, 16);
        for (uint32_t k = 0; k < g.slots; k++)
            e[k] = (struct qm_tier_entry){block++ * 13 % g.volume_blocks, k};
        qm_tier_footer_seal(f, g.slots);
        memset(meta + qm_tier_footer_bytes(g.slots), qm_tier_live_tag(i + 1), g.slots);
        if (pwrite(fd, meta, g.meta_bytes, (off_t)qm_tier_footer_at(&g, i)) == -1)
            return 1;
    }
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    fstat(fd, &st);
    close(fd);
    free(meta);
    for (unsigned again = 0; again < 2; again++) {
        t = open_with(&c);
        if (!t)
            return 1;
        qm_tier_get_stats(t, &s);
        printf("%.1f GiB in blocks of %u (%.2f GiB of footers, %s): %llu of %llu "
               "blocks in "
               "%.2f s, %.3f s a GiB, %.3f s a million; index %.1f bytes a block\n",
               (double)size / (1 << 30), o->block,
               (double)st.st_blocks * 512 / (1 << 30), again ? "cached" : "read",
               (unsigned long long)s.blocks, (unsigned long long)s.capacity,
               (double)s.recovery_ns / 1e9,
               (double)s.recovery_ns / 1e9 / ((double)size / (1 << 30)),
               (double)s.recovery_ns / 1e3 / (double)s.blocks,
               (double)s.index_memory / (double)s.capacity);
        fflush(stdout);
        qm_tier_close(t, QM_TIER_KEEP);
    }
    bench_remove(o);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench_options o = {
        .path = argc > 2 ? argv[2] : "",
        .ops = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000,
        .keys = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 100000,
        .block = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 4096,
    };
    struct stat st;

    /* It is filled, and removed in the end: nobody's disk, and nobody's file. */
    if (argc > 2 && (lstat(o.path, &st) == 0 || errno != ENOENT)) {
        fprintf(stderr,
                "tier-bench: %s: give the path of a file that does not exist, in a "
                "directory that does\n",
                o.path);
        return 2;
    }
    if (argc > 2 && strcmp(argv[1], "thesis") == 0)
        return bench_thesis(&o);
    if (argc > 2 && strcmp(argv[1], "hit") == 0)
        return bench_hit(&o);
    if (argc > 2 && strcmp(argv[1], "bloom") == 0)
        return bench_bloom(&o);
    if (argc > 2 && strcmp(argv[1], "recovery") == 0)
        return bench_recovery(&o, o.ops << 30);
    fprintf(stderr, "tier-bench: use bench/tier\n");
    return 2;
}
