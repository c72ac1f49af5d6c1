/* synthetic.c - makes a trace of any length, to see how fast traces are worked on.
 *
 * Transactions, so many open at once, whose reads take turns.  Each follows paths: 8
 * blocks that always come in the same order, scattered over the device.  Of paths the
 * n-th is about half as popular as the (n/2)-th, as with Zipf's law; a tenth of the
 * reads go to blocks that are on no path.  Nothing is kept but the open transactions.
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

static void make(struct qm_trace_writer *w, uint64_t reads, uint64_t blocks,
                 uint64_t clients)
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
        put(w, &(struct qm_event){.type = QM_TRACE_READ,
                                  .us = us,
                                  .ctx = t->id,
                                  .offset = next_block(t, blocks, blocks / 4) * BLOCK,
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
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    uint64_t reads = 1000000, blocks = 1000000, clients = 64;
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
    make(w, reads, blocks < 4 ? 4 : blocks, clients);
    error = qm_trace_close(w);
    if (error) {
        fprintf(stderr, "synthetic: cannot write: %s\n", strerror(error));
        return 1;
    }
    return 0;
}
