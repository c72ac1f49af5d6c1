/* SPDX-License-Identifier: BSD-3-Clause */
/* synthetic.c - makes a trace of any length, to see how fast traces are worked on.
 *
 * Transactions, a number of them open at once, whose reads take turns.  Each follows
 * paths: 8 blocks that always come in the same order, scattered over the device.  Of
 * paths the n-th is about half as popular as the (n/2)-th, as with Zipf's law; a tenth
 * of the reads go to blocks that are on no path.  Nothing is kept but the open
 * transactions.
 *
 * Other patterns show what eviction policies differ in; in these, transactions say
 * nothing of what is read.
 */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

#define BLOCK       16384
#define PATH_BLOCKS 8
#define READS       32 /* of a transaction */
#define CLASSES     16

struct transaction {
    uint64_t id; /* 0: none */
    unsigned reads, step;
    uint64_t path;
};

static uint64_t seed = 1;

static uint64_t mix(uint64_t x) /* splitmix64's */
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t chance(void)
{
    return mix(seed++);
}

/* From 0 to n - 1, the lower the likelier: uniform in its logarithm. */
static uint64_t popular(uint64_t n)
{
    double u = (double)(chance() >> 11) * 0x1p-53;
    uint64_t k = (uint64_t)exp(u * log((double)n + 1)) - 1;

    return k < n ? k : n - 1;
}

static void put(struct qm_trace_writer *w, const struct qm_event *event)
{
    int error = qm_trace_write(w, event);

    if (error) {
        fprintf(stderr, "synthetic: cannot write: %s\n", strerror(error));
        exit(1);
    }
}

static void begin(struct qm_trace_writer *w, struct transaction *t, uint64_t id,
                  uint64_t us)
{
    char klass[16];

    snprintf(klass, sizeof klass, "class%u", (unsigned)(chance() % CLASSES));
    *t = (struct transaction){.id = id, .step = PATH_BLOCKS};
    put(w, &(struct qm_event){.type = QM_TRACE_BEGIN,
                              .us = us,
                              .ctx = id,
                              .kind = QM_TRANSACTION,
                              .klass = klass});
}

static uint64_t next_block(struct transaction *t, uint64_t blocks, uint64_t paths)
{
    if (chance() % 10 == 0)
        return chance() % blocks;
    if (t->step == PATH_BLOCKS) {
        t->path = popular(paths);
        t->step = 0;
    }
    return mix(t->path * PATH_BLOCKS + t->step++) % blocks;
}

/* All blocks in turn, for ever. */
static uint64_t loop(uint64_t n, uint64_t blocks)
{
    return n % blocks;
}

static uint64_t zipf(uint64_t n, uint64_t blocks)
{
    return mix(popular(blocks)) % blocks;
}

/* Zipf's law, and every third read is of a scan through eight times as many others. */
static uint64_t scan(uint64_t n, uint64_t blocks)
{
    return n % 3 ? zipf(n, blocks) : blocks + n / 3 % (8 * blocks);
}

/* Zipf's law, of other blocks every 200,000 reads. */
static uint64_t shift(uint64_t n, uint64_t blocks)
{
    return mix(popular(blocks) + n / 200000 * blocks) % blocks;
}

/* What was read d reads ago, the smaller d the likelier (uniform in its logarithm); and
 * every tenth read a block at random. */
static uint64_t recency(uint64_t n, uint64_t blocks)
{
    static uint64_t past[1 << 20];
    uint64_t known = n < 1 << 20 ? n : 1 << 20, block;

    if (known == 0 || chance() % 10 == 0)
        block = chance() % blocks;
    else
        block = past[(n - 1 - popular(known)) % (1 << 20)];
    return past[n % (1 << 20)] = block;
}

/* Others of these every 200,000 reads, of blocks of their own. */
static uint64_t phases(uint64_t n, uint64_t blocks)
{
    static uint64_t (*const of[])(uint64_t, uint64_t) = {recency, scan, loop, zipf};
    unsigned phase = n / 200000 % 4;

    return phase * 9 * blocks + of[phase](n, phase == 2 ? blocks / 12 + 1 : blocks);
}

static const struct pattern {
    const char *name;
    uint64_t (*next)(uint64_t n, uint64_t blocks);
} patterns[] = {
    {"paths", NULL},  {"loop", loop},       {"zipf", zipf},     {"scan", scan},
    {"shift", shift}, {"recency", recency}, {"phases", phases},
};

#define PATTERNS (sizeof patterns / sizeof patterns[0])

static const struct pattern *find_pattern(const char *name)
{
    for (size_t i = 0; i < PATTERNS; i++)
        if (strcmp(patterns[i].name, name) == 0)
            return &patterns[i];
    fprintf(stderr, "synthetic: there is no pattern '%s'; there are:", name);
    for (size_t i = 0; i < PATTERNS; i++)
        fprintf(stderr, "%s %s", i ? "," : "", patterns[i].name);
    fprintf(stderr, "\n");
    exit(2);
}

static void make(struct qm_trace_writer *w, uint64_t reads, uint64_t blocks,
                 uint64_t clients, const struct pattern *pattern)
{
    struct transaction *all = calloc(clients, sizeof *all);
    uint64_t ids = 0;

    if (!all) {
        perror("synthetic");
        exit(1);
    }
    for (uint64_t n = 0, us = 0; n < reads; n++, us += 10) {
        struct transaction *t = &all[chance() % clients];

        if (t->reads == READS) {
            put(w, &(struct qm_event){.type = QM_TRACE_END, .us = us, .ctx = t->id});
            t->id = 0;
        }
        if (t->id == 0)
            begin(w, t, ++ids, us);
        t->reads++;
        uint64_t block = pattern->next ? pattern->next(n, blocks)
                                       : next_block(t, blocks, blocks / 4);
        put(w, &(struct qm_event){.type = QM_TRACE_READ,
                                  .us = us,
                                  .ctx = t->id,
                                  .offset = block * BLOCK,
                                  .length = BLOCK});
    }
    free(all);
}

static const char usage[] =
    "Usage: synthetic [OPTION...] FILE\n"
    "\n"
    "Makes a trace of transactions of 32 reads; its name says how it is compressed, "
    "and\n"
    "- is standard output.\n"
    "\n"
    "  --reads N    (default 1000000)\n"
    "  --blocks N   of 16 KiB, that the device has (default 1000000)\n"
    "  --clients N  transactions open at once (default 64)\n"
    "  --pattern NAME   paths (default); or, for eviction policies: loop, zipf, scan\n"
    "                   (zipf, and a scan beside it), shift (zipf, and what is hot "
    "moves),\n"
    "                   recency, or phases (of recency, scan, loop and zipf)\n"
    "  --help       this text\n";

static uint64_t number(const char *option, const char *text, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr,
                "synthetic: --%s must be a number from 1 to %" PRIu64 ", not '%s'\n",
                option, most, text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"reads", required_argument, NULL, 'r'},
        {"blocks", required_argument, NULL, 'b'},
        {"clients", required_argument, NULL, 'c'},
        {"pattern", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    uint64_t reads = 1000000, blocks = 1000000, clients = 64;
    const struct pattern *pattern = &patterns[0];
    struct qm_trace_writer *w;
    char err[256];
    int c, error;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'r':
            reads = number("reads", optarg, UINT64_C(100000000000));
            break;
        case 'b':
            blocks = number("blocks", optarg, UINT64_C(1) << 40);
            break;
        case 'c':
            clients = number("clients", optarg, 1000000);
            break;
        case 'p':
            pattern = find_pattern(optarg);
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind != argc - 1) {
        fputs(usage, stderr);
        return 2;
    }
    w = qm_trace_create(argv[optind], BLOCK, err, sizeof err);
    if (!w) {
        fprintf(stderr, "synthetic: %s\n", err);
        return 1;
    }
    make(w, reads, blocks < 4 ? 4 : blocks, clients, pattern);
    error = qm_trace_close(w);
    if (error) {
        fprintf(stderr, "synthetic: cannot write: %s\n", strerror(error));
        return 1;
    }
    return 0;
}
