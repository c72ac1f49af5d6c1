/* SPDX-License-Identifier: BSD-3-Clause */
/* reads.c - random reads of an NBD server, plain or tagged: the client of bench/hitpath
 * and bench/scale.
 *
 * Each thread polls its share of the connections, and keeps --depth reads in flight
 * over each.  A tagged connection has a session of its own; its reads go round its
 * contexts, which are begun before the clock starts, and anew after --renew reads if
 * asked to.  A record is sent ahead of the read that needs it, and not waited for: a
 * connection's requests are carried out in order (QM_WIRE_ORDERED), else the program
 * refuses to run.
 *
 * It prints one line: reads, seconds, and microseconds from a read's being sent to its
 * reply (mean, median, 99 %), which with several in flight includes that they wait for
 * each other.  Or it keeps everything open, idle, until its standard input ends.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libnbd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "plugins/device/histogram.h"
#include "clients/protocol/quickmine-protocol.h"

static struct options {
    const char *socket;
    unsigned connections, jobs, depth;
    unsigned contexts; /* a connection; 0: the plain export */
    unsigned renew;    /* reads after which a context begins anew; 0: never */
    uint64_t block;
    uint64_t size; /* of the part of the device that is read; 0: all */
    double seconds;
    bool hold;
} o = {.connections = 1, .jobs = 1, .depth = 1, .block = 16384, .seconds = 1};

struct context {
    bool busy; /* its record is on its way */
    unsigned reads;
    struct qm_wire_record record;
};

struct request {
    struct connection *connection;
    struct request *next; /* idle */
    uint64_t started;     /* ns */
    char *buf;
};

struct connection {
    struct job *job;
    struct nbd_handle *nbd;
    struct context *contexts;
    unsigned next; /* context */
    struct request *requests, *idle;
};

struct job {
    pthread_t thread;
    unsigned count; /* of connections */
    struct connection *connections;
    struct pollfd *polls;
    uint64_t random, blocks, reads;
    struct qm_histogram us;
};

static pthread_barrier_t ready;
static uint64_t end_at; /* ns; set before the barrier lets the threads through */

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

_Noreturn static void die(const char *what, const char *why)
{
    fprintf(stderr, "reads: %s: %s\n", what, why);
    exit(1);
}

static void check(int64_t r, const char *what)
{
    if (r == -1)
        die(what, nbd_get_error());
}

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n, size);

    if (!p)
        die("calloc", strerror(errno));
    return p;
}

/* xorshift64*, and the upper half scaled to the range. */
static uint64_t random_block(struct job *job)
{
    uint64_t x = job->random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    job->random = x;
    return (x * UINT64_C(0x2545f4914f6cdd1d) >> 32) * job->blocks >> 32;
}

/* Replies.  libnbd allows no calls from here. */

static int record_replied(void *opaque, int *error)
{
    struct context *context = opaque;

    if (*error != 0)
        die("a context's record", strerror(*error));
    context->busy = false;
    return 1;
}

static int read_replied(void *opaque, int *error)
{
    struct request *request = opaque;
    struct connection *c = request->connection;
    uint64_t at = now();

    if (*error != 0)
        die("a read", strerror(*error));
    request->next = c->idle;
    c->idle = request;
    if (at < end_at) {
        c->job->reads++;
        qm_histogram_add(&c->job->us, (at - request->started) / 1000);
    }
    return 1;
}

static void begin(struct connection *c, struct context *context)
{
    context->busy = true;
    context->reads = 0;
    check(nbd_aio_pwrite(c->nbd, &context->record, sizeof context->record,
                         QM_WIRE_CONTROL,
                         (nbd_completion_callback){.callback = record_replied,
                                                   .user_data = context},
                         0),
          "a context's record");
}

/* The upper bits of the next read's offset. */
static uint64_t tag(struct connection *c)
{
    struct context *context;

    if (o.contexts == 0)
        return 0;
    context = &c->contexts[c->next];
    if (++c->next == o.contexts)
        c->next = 0;
    if (o.renew > 0 && context->reads >= o.renew && !context->busy)
        begin(c, context);
    context->reads++;
    return (uint64_t)le16toh(context->record.slot) << QM_WIRE_SHIFT;
}

static void send_reads(struct connection *c)
{
    struct request *request;

    while ((request = c->idle) && now() < end_at) {
        uint64_t offset = tag(c) | random_block(c->job) * o.block;

        c->idle = request->next;
        request->started = now();
        check(nbd_aio_pread(c->nbd, request->buf, o.block, offset,
                            (nbd_completion_callback){.callback = read_replied,
                                                      .user_data = request},
                            0),
              "a read");
    }
}

/* Waits until a connection can go on, and lets those that can. */
static void progress(struct job *job)
{
    for (unsigned i = 0; i < job->count; i++) {
        unsigned direction = nbd_aio_get_direction(job->connections[i].nbd);

        job->polls[i].events = (direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                               (direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0);
    }
    if (poll(job->polls, job->count, 1000) == -1 && errno != EINTR)
        die("poll", strerror(errno));
    for (unsigned i = 0; i < job->count; i++) {
        struct nbd_handle *nbd = job->connections[i].nbd;

        if (job->polls[i].revents & POLLOUT)
            check(nbd_aio_notify_write(nbd), "the connection");
        else if (job->polls[i].revents)
            check(nbd_aio_notify_read(nbd), "the connection");
    }
}

static bool in_flight(struct job *job)
{
    for (unsigned i = 0; i < job->count; i++)
        if (nbd_aio_in_flight(job->connections[i].nbd) > 0)
            return true;
    return false;
}

static void *run(void *opaque)
{
    struct job *job = opaque;

    pthread_barrier_wait(&ready);
    do {
        for (unsigned i = 0; i < job->count; i++)
            send_reads(&job->connections[i]);
        progress(job);
    } while (now() < end_at);
    while (in_flight(job))
        progress(job);
    return NULL;
}

/* Fills in the connection's contexts from the session that the header tells of, and
 * begins them. */
static void open_contexts(struct connection *c)
{
    struct qm_wire_header header;

    check(nbd_pread(c->nbd, &header, sizeof header, QM_WIRE_CONTROL, 0), "the header");
    if (le64toh(header.magic) != QM_WIRE_MAGIC)
        die("the header", "this is no QuickMine server");
    if (!(le32toh(header.flags) & QM_WIRE_ORDERED))
        die("the header", "requests=serial is needed");
    if (le32toh(header.slot_count) < o.contexts) {
        fprintf(stderr, "reads: %u slots for a connection, not %u\n",
                le32toh(header.slot_count), o.contexts);
        exit(1);
    }
    c->contexts = allocate(o.contexts, sizeof *c->contexts);
    for (unsigned i = 0; i < o.contexts; i++) {
        struct qm_wire_record *record = &c->contexts[i].record;

        record->op = htole32(QM_WIRE_BEGIN);
        record->slot = htole16(le32toh(header.slot_first) + i);
        record->session = header.session;
        record->klass = htole64(1 + i % 16);
        record->kind = htole16(QM_WIRE_TRANSACTION);
        begin(c, &c->contexts[i]);
    }
    while (nbd_aio_in_flight(c->nbd) > 0)
        check(nbd_poll(c->nbd, -1), "the connection");
}

static void open_connection(struct job *job, struct connection *c)
{
    int64_t size;

    c->job = job;
    c->nbd = nbd_create();
    if (!c->nbd)
        die("libnbd", nbd_get_error());
    check(nbd_set_strict_mode(c->nbd, 0), "libnbd");
    check(nbd_set_export_name(c->nbd, o.contexts > 0 ? QM_WIRE_EXPORT : ""), "libnbd");
    check(nbd_connect_unix(c->nbd, o.socket), o.socket);
    if (o.contexts > 0)
        open_contexts(c);
    if (o.contexts > 0 && o.size == 0)
        die("--size", "is needed with --contexts");
    size = o.size > 0 ? (int64_t)o.size : nbd_get_size(c->nbd);
    check(size, "its size");
    job->blocks = size / o.block;
    if (job->blocks == 0 || job->blocks > UINT32_MAX)
        die("--size", "must have from 1 to 2^32 - 1 blocks");
    c->requests = allocate(o.depth, sizeof *c->requests);
    for (unsigned i = 0; i < o.depth; i++) {
        struct request *r = &c->requests[i];

        *r = (struct request){
            .connection = c, .next = c->idle, .buf = allocate(1, o.block)};
        c->idle = r;
    }
}

static void open_job(struct job *job, unsigned number)
{
    /* Other blocks each time: what one run has read must not be hits of the next. */
    job->random = UINT64_C(0x9e3779b97f4a7c15) * (now() + number) | 1;
    job->count = o.connections / o.jobs + (number < o.connections % o.jobs);
    job->connections = allocate(job->count, sizeof *job->connections);
    job->polls = allocate(job->count, sizeof *job->polls);
    for (unsigned i = 0; i < job->count; i++) {
        open_connection(job, &job->connections[i]);
        job->polls[i].fd = nbd_aio_get_fd(job->connections[i].nbd);
    }
}

static void close_job(struct job *job)
{
    for (unsigned i = 0; i < job->count; i++) {
        struct connection *c = &job->connections[i];

        nbd_close(c->nbd);
        for (unsigned k = 0; k < o.depth; k++)
            free(c->requests[k].buf);
        free(c->requests);
        free(c->contexts);
    }
    free(job->connections);
    free(job->polls);
}

static void measure(struct job *jobs)
{
    struct qm_histogram us = {0};
    uint64_t start, reads = 0;

    pthread_barrier_init(&ready, NULL, o.jobs + 1);
    for (unsigned i = 0; i < o.jobs; i++)
        if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i]) != 0)
            die("pthread_create", "no thread");
    start = now();
    end_at = start + (uint64_t)(o.seconds * 1e9);
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < o.jobs; i++) {
        pthread_join(jobs[i].thread, NULL);
        reads += jobs[i].reads;
        qm_histogram_merge(&us, &jobs[i].us);
    }
    printf("reads %" PRIu64 " seconds %.3f us_mean %.1f us_p50 %" PRIu64
           " us_p99 %" PRIu64 "\n",
           reads, o.seconds, qm_histogram_mean(&us), qm_histogram_percentile(&us, 50),
           qm_histogram_percentile(&us, 99));
}

static void hold(void)
{
    char byte;

    printf("holding %u connections %u contexts\n", o.connections,
           o.connections * o.contexts);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

static const char usage[] =
    "Usage: reads SOCKET [OPTION...]\n"
    "\n"
    "Random reads of the NBD server at a Unix socket, for benchmarks.\n"
    "\n"
    "  --connections N  (default 1)\n"
    "  --jobs N         threads that share them (default 1)\n"
    "  --depth N        reads in flight over each connection (default 1)\n"
    "  --contexts N     tag the reads of each connection with N contexts\n"
    "  --renew N        begin a context anew after N reads (default 0: never)\n"
    "  --block BYTES    of a read (default 16384)\n"
    "  --size BYTES     read the device's first BYTES only (default all)\n"
    "  --seconds S      (default 1)\n"
    "  --hold           open everything, read nothing, wait for end of input\n"
    "  --help           this text\n";

static double number(const char *option, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "reads: --%s must be a number from %.0f to %.0f, not '%s'\n",
                option, least, most, text);
        exit(2);
    }
    return value;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"connections", required_argument, NULL, 'c'},
        {"jobs", required_argument, NULL, 'j'},
        {"depth", required_argument, NULL, 'd'},
        {"contexts", required_argument, NULL, 'x'},
        {"renew", required_argument, NULL, 'r'},
        {"block", required_argument, NULL, 'b'},
        {"size", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 't'},
        {"hold", no_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int index, c;

    while ((c = getopt_long(argc, argv, "h", options, &index)) != -1) {
        const char *name = c == '?' ? "" : options[index].name;

        switch (c) {
        case 'c':
            o.connections = number(name, optarg, 1, 100000);
            break;
        case 'j':
            o.jobs = number(name, optarg, 1, 1000);
            break;
        case 'd':
            o.depth = number(name, optarg, 1, 1000);
            break;
        case 'x':
            o.contexts = number(name, optarg, 0, 32000);
            break;
        case 'r':
            o.renew = number(name, optarg, 0, 1e9);
            break;
        case 'b':
            o.block = number(name, optarg, 512, 1 << 20);
            break;
        case 's':
            o.size = number(name, optarg, 512, 0x1p48);
            break;
        case 't':
            o.seconds = number(name, optarg, 0, 1e6);
            break;
        case 'k':
            o.hold = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (optind != argc - 1) {
        fputs(usage, stderr);
        exit(2);
    }
    o.socket = argv[optind];
    if (o.jobs > o.connections)
        o.jobs = o.connections;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct job *jobs;

    parse(argc, argv);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    jobs = allocate(o.jobs, sizeof *jobs);
    for (unsigned i = 0; i < o.jobs; i++)
        open_job(&jobs[i], i);
    if (o.hold)
        hold();
    else
        measure(jobs);
    for (unsigned i = 0; i < o.jobs; i++)
        close_job(&jobs[i]);
    free(jobs);
    return 0;
}
