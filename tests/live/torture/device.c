/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - clients of a server's device (libqmctx's device.h) while the server is
 * killed, restarted and cut off; no request may fail, and no byte may ever be wrong.
 *
 *   device --socket PATH --image FILE --durable FILE --pidfile FILE --seed S
 *          [--requests N] [--kills N] [--ends N] [--cuts N --relay PATH]
 *          [--devices N] [--workers N] [--depth N] [--connections N]
 *          [--retain BYTES] [--fua] [--plain] [--verbose]
 *
 * Workers are threads that share the devices.  They read, write, zero and flush the
 * same few places, synchronously and not, in contexts and not.  Meanwhile the server,
 * whose process FILE names, is killed (--kills) and told to end (--ends), and a script
 * starts it again; the disk under it may lose then what was not flushed.  With --cuts
 * the connections go through a relay, which is cut.
 *
 * What was seen is judged by history.h, a round at a time.  Besides, when a flush has
 * been answered, what its worker had written before is durable.
 *
 * Several devices that retain have each a part of the disk: what a device that has not
 * come back yet has retained, another cannot see.  With --fua nothing is retained, and
 * all read all; but each changes its part only, as a change whose reply was lost is
 * made twice, and another's that is in flight meanwhile can come between.  With --plain
 * it is a server of another kind, which knows no sessions.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "clients/libqmctx/device.h"
#include "disk.h"
#include "relay.h"
#include "trouble.h"

#define ROUND         3000 /* requests of all workers together */
#define DEPTH_MAX     32
#define WORKERS_MAX   64
#define DEVICES_MAX   8
#define RECENT        4 /* changes whose durability a flush is judged by */
#define STUCK_SECONDS 180

static struct {
    const char *socket, *image, *durable, *pidfile, *relay;
    uint64_t seed, requests, retain;
    unsigned kills, ends, cuts, devices, workers, depth, connections;
    bool fua, plain, verbose;
} options = {.seed = 1,
             .requests = 20000,
             .devices = 1,
             .workers = 12,
             .depth = 6,
             .connections = 4};

static struct disk disk = {.program = "device"};
static struct qm_device *devices[DEVICES_MAX];
static pthread_barrier_t gather;
static atomic_bool over;
static atomic_int left; /* requests of this round */
static _Atomic uint64_t progress;

enum what { READ, WRITE, ZERO, PUNCH, FLUSH };
static _Atomic uint64_t done[5];

struct worker;

/* A request; busy while it is in flight without its worker waiting for it. */
struct request {
    struct worker *worker;
    enum what what;
    bool fua, busy;
    uint32_t first, count, number;
    unsigned char *buf;
};

struct worker {
    struct qm_device *device;
    unsigned part; /* which of the disk's parts is its device's */
    uint64_t random;
    qmctx_id connection, context;
    _Atomic unsigned losses; /* for flushes */
    struct request requests[DEPTH_MAX];
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows, and of requests' busy */
    pthread_cond_t idle;
    unsigned in_flight;
    uint32_t recent[RECENT], recents; /* answered changes of this round */
};

static void die(const char *what, int error)
{
    fprintf(stderr, "device: %s: %s (seed %" PRIu64 ")\n", what, strerror(error),
            options.seed);
    _exit(1);
}

static uint64_t draw(struct worker *w, uint64_t below)
{
    return draw_from(&w->random, below);
}

static bool has_gone(void *opaque)
{
    return false;
}

static void log_sentence(void *opaque, int priority, const char *sentence)
{
    if (options.verbose || priority <= LOG_ERR)
        fprintf(stderr, "device: %s\n", sentence);
}

/* ---- requests */

/* The cells of a request, within the part of its worker's device. */
static void choose_place(struct worker *w, struct request *r)
{
    uint32_t parts = options.fua && r->what == READ ? 1 : options.devices;
    uint32_t block = 2 * (disk.block_size / SECTOR);
    uint32_t length = disk.cells / parts / block * block;

    disk_choose(&disk, &w->random, &r->first, &r->count);
    if (parts == 1)
        return;
    r->first %= length;
    if (r->count > length - r->first)
        r->count = length - r->first;
    r->first += w->part * length;
}

static void choose(struct worker *w, struct request *r)
{
    unsigned dice = draw(w, 100);

    r->what = dice < 42   ? READ
              : dice < 84 ? WRITE
              : dice < 90 ? ZERO
              : dice < 95 ? PUNCH
                          : FLUSH;
    choose_place(w, r);
    r->fua = r->what == WRITE && draw(w, 8) == 0;
}

/* It has been answered, by any thread. */
static void answered(struct request *r, int error)
{
    static const char *const names[] = {"a read", "a write", "zeroing", "a hole",
                                        "a flush"};
    struct worker *w = r->worker;
    bool change = r->what == WRITE || r->what == ZERO || r->what == PUNCH;

    if (error != 0)
        die(names[r->what], error);
    if (r->what == READ)
        disk_look(&disk, r->number, r->buf, r->first, r->count);
    if (r->what != FLUSH)
        history_end(disk.history, r->number, true);
    if (r->fua || (options.fua && change))
        disk_look_at_durable(&disk, r->number, r->first, r->count);
    if (change) {
        pthread_mutex_lock(&w->lock);
        w->recent[w->recents++ % RECENT] = r->number;
        pthread_mutex_unlock(&w->lock);
    }
    atomic_fetch_add(&done[r->what], 1);
    atomic_fetch_add(&progress, 1);
}

static void completed(void *opaque, int error)
{
    struct request *r = opaque;
    struct worker *w = r->worker;

    answered(r, error);
    pthread_mutex_lock(&w->lock);
    r->busy = false;
    w->in_flight--;
    pthread_cond_signal(&w->idle);
    pthread_mutex_unlock(&w->lock);
}

static void flush(struct worker *w)
{
    uint32_t recent[RECENT], n, first, count;
    int error;

    pthread_mutex_lock(&w->lock);
    n = w->recents < RECENT ? w->recents : RECENT;
    memcpy(recent, w->recent, sizeof recent);
    pthread_mutex_unlock(&w->lock);
    error = qm_device_flush(w->device, NULL, &w->losses);
    if (error != 0)
        die("a flush", error);
    for (uint32_t i = 0; i < n; i++) {
        history_range(disk.history, recent[i], &first, &count);
        disk_look_at_durable(&disk, recent[i], first, count);
    }
}

/* Carries a request out, or starts it. */
static void send_request(struct worker *w, struct request *r, bool wait)
{
    static const struct qm_requester here = {.gone = has_gone};
    const struct qm_requester *requester = draw(w, 2) == 0 ? &here : NULL;
    qmctx_id context = draw(w, 4) > 0 ? w->context : 0;
    uint64_t offset = cell_start(r->first);
    uint64_t count = cell_start(r->first + r->count) - offset;
    bool start = !wait && (r->what == READ || r->what == WRITE);
    int error = 0;

    if (start) {
        pthread_mutex_lock(&w->lock);
        r->busy = true;
        w->in_flight++;
        pthread_mutex_unlock(&w->lock);
        error = qm_device_start(w->device, r->what == WRITE, context, r->buf, count,
                                offset, r->fua, completed, r);
        if (error != 0)
            die("starting a request", error);
        return;
    }
    switch (r->what) {
    case READ:
        error = qm_device_read(w->device, requester, context, r->buf, count, offset);
        break;
    case WRITE:
        error = qm_device_write(w->device, requester, context, r->buf, count, offset,
                                r->fua);
        break;
    case ZERO:
        error = qm_device_zero(w->device, requester, count, offset);
        break;
    case PUNCH:
        error = qm_device_allocate(w->device, requester,
                                   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   (off_t)offset, (off_t)count);
        break;
    case FLUSH:
        flush(w);
        break;
    }
    answered(r, error);
}

/* Does a request.  False if the round is over. */
static bool work(struct worker *w, struct request *r)
{
    static const enum did did[] = {
        [READ] = DID_READ, [WRITE] = DID_WRITE, [ZERO] = DID_ZERO, [PUNCH] = DID_ZERO};

    if (atomic_fetch_sub(&left, 1) <= 0)
        return false;
    choose(w, r);
    if (r->what != FLUSH) {
        r->number = history_begin(disk.history, did[r->what], r->first, r->count);
        if (r->number == UINT32_MAX)
            return false;
    }
    if (r->what == READ)
        memset(r->buf, 0xdd, cell_start(r->first + r->count) - cell_start(r->first));
    if (r->what == WRITE)
        disk_fill(&disk, r->buf, r->number, r->first, r->count);
    send_request(w, r, draw(w, 2) == 0);
    return true;
}

/* ---- workers */

static void change_context(struct worker *w)
{
    int error;

    if (w->context)
        qm_device_end(w->device, w->context);
    error = qm_device_begin(w->device, w->connection, QMCTX_QUERY, 1 + draw(w, 8), NULL,
                            &w->context);
    if (error != 0)
        die("beginning a context", error);
}

/* One that is not busy; waits for it. */
static struct request *next_request(struct worker *w)
{
    struct request *r = NULL;

    pthread_mutex_lock(&w->lock);
    while (!r) {
        for (unsigned i = 0; i < options.depth && !r; i++)
            if (!w->requests[i].busy)
                r = &w->requests[i];
        if (!r)
            pthread_cond_wait(&w->idle, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return r;
}

static void *worker_thread(void *opaque)
{
    struct worker *w = opaque;
    int error =
        qm_device_begin(w->device, 0, QMCTX_CONNECTION, 0, NULL, &w->connection);

    if (error != 0)
        die("beginning a context", error);
    for (;;) {
        pthread_barrier_wait(&gather); /* a round begins */
        if (atomic_load(&over))
            break;
        w->recents = 0;
        do {
            if (!w->context || draw(w, 20) == 0)
                change_context(w);
        } while (work(w, next_request(w)));
        pthread_mutex_lock(&w->lock);
        while (w->in_flight > 0)
            pthread_cond_wait(&w->idle, &w->lock);
        pthread_mutex_unlock(&w->lock);
        pthread_barrier_wait(&gather); /* and is over */
    }
    qm_device_end(w->device, w->connection);
    return NULL;
}

/* ---- rounds */

static uint64_t judge(unsigned char *all)
{
    const uint64_t part = 1 << 16;

    for (unsigned i = 0; i < options.devices; i++) {
        _Atomic unsigned seen = 0;
        int error = qm_device_flush(devices[i], NULL, &seen);

        if (error != 0)
            die("the flush at a round's end", error);
    }
    for (uint64_t at = 0; at < disk.size; at += part) {
        uint64_t n = disk.size - at < part ? disk.size - at : part;
        uint32_t first = 2 * (at / SECTOR), count = 2 * (n / SECTOR);
        uint32_t number = history_begin(disk.history, DID_READ, first, count);
        struct qm_device *device = devices[disk.round % options.devices];
        int error = qm_device_read(device, NULL, 0, all + at, n, at);

        if (error != 0)
            die("reading all", error);
        if (number == UINT32_MAX)
            die("a round was too long", ENOBUFS);
        disk_look(&disk, number, all + at, first, count);
        history_end(disk.history, number, true);
        atomic_fetch_add(&progress, 1);
    }
    return disk_judge(&disk, all);
}

/* Ends the program if no request ends any more. */
static void *watch(void *opaque)
{
    uint64_t last = 0;

    for (unsigned still = 0; still < STUCK_SECONDS; still++) {
        uint64_t now = atomic_load(&progress);

        if (now != last)
            still = 0;
        last = now;
        sleep(1);
    }
    fprintf(stderr, "device: stuck: no request has ended for %d s\n", STUCK_SECONDS);
    _exit(1);
}

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        const char **text;
        unsigned *number;
        uint64_t *large;
        bool *flag;
    } known[] = {
        {"socket", &options.socket, NULL, NULL, NULL},
        {"image", &options.image, NULL, NULL, NULL},
        {"durable", &options.durable, NULL, NULL, NULL},
        {"pidfile", &options.pidfile, NULL, NULL, NULL},
        {"relay", &options.relay, NULL, NULL, NULL},
        {"seed", NULL, NULL, &options.seed, NULL},
        {"requests", NULL, NULL, &options.requests, NULL},
        {"retain", NULL, NULL, &options.retain, NULL},
        {"kills", NULL, &options.kills, NULL, NULL},
        {"ends", NULL, &options.ends, NULL, NULL},
        {"cuts", NULL, &options.cuts, NULL, NULL},
        {"devices", NULL, &options.devices, NULL, NULL},
        {"workers", NULL, &options.workers, NULL, NULL},
        {"depth", NULL, &options.depth, NULL, NULL},
        {"connections", NULL, &options.connections, NULL, NULL},
        {"fua", NULL, NULL, NULL, &options.fua},
        {"plain", NULL, NULL, NULL, &options.plain},
        {"verbose", NULL, NULL, NULL, &options.verbose},
    };
    enum { N = sizeof known / sizeof known[0] };
    struct option names[N + 1] = {{0}};
    int which = 0, option;

    for (int i = 0; i < N; i++)
        names[i] = (struct option){.name = known[i].name,
                                   .has_arg = known[i].flag ? 0 : 1,
                                   .flag = &which,
                                   .val = i};
    while ((option = getopt_long(argc, argv, "", names, NULL)) == 0)
        if (known[which].text)
            *known[which].text = optarg;
        else if (known[which].number)
            *known[which].number = (unsigned)strtoul(optarg, NULL, 10);
        else if (known[which].large)
            *known[which].large = strtoull(optarg, NULL, 10);
        else
            *known[which].flag = true;
    if (option != -1 || optind < argc || !options.socket || !options.image ||
        !options.durable || !options.pidfile || options.devices < 1 ||
        options.devices > DEVICES_MAX || options.workers < options.devices ||
        options.workers > WORKERS_MAX || options.depth < 1 ||
        options.depth > DEPTH_MAX || (options.cuts > 0 && !options.relay)) {
        fprintf(stderr, "device: see the comment at the beginning of its source\n");
        exit(2);
    }
}

static void open_devices(void)
{
    const struct qm_device_options how = {
        .connections = options.connections,
        .plain = options.plain,
        .patient = true,
        .mode = options.fua ? QM_RETAIN_FUA : QM_RETAIN_ON,
        .retain = options.retain,
        .wait = QM_DEVICE_FOREVER,
        .reconnect = QM_DEVICE_FOREVER,
        .log = log_sentence,
    };
    char uri[256];

    snprintf(uri, sizeof uri, "nbd+unix:///?socket=%s",
             options.relay ? options.relay : options.socket);
    for (unsigned i = 0; i < options.devices; i++) {
        int error = qm_device_open(uri, &how, &devices[i]);

        if (error != 0) {
            fprintf(stderr, "device: %s: %s\n", uri, qmctx_error());
            exit(1);
        }
    }
    disk.size = qm_device_size(devices[0]);
    disk.block_size = options.plain ? 4096 : qm_device_block_size(devices[0]);
}

/* How the devices fared.  True if none lost anything. */
static bool report(const struct trouble *t, uint64_t wrong)
{
    struct qm_device_stat sum = {0}, stat;
    unsigned losses = 0;

    for (unsigned i = 0; i < options.devices; i++) {
        qm_device_stat(devices[i], &stat);
        losses += qm_device_losses(devices[i]);
        sum.reconnections += stat.reconnections;
        sum.instances += stat.instances;
        sum.resent_changes += stat.resent_changes;
        sum.fences += stat.fences;
        sum.background_flushes += stat.background_flushes;
        if (stat.retained_most > sum.retained_most)
            sum.retained_most = stat.retained_most;
    }
    printf("seed %" PRIu64 ": %" PRIu32 " rounds, %" PRIu64 " reads, %" PRIu64
           " writes, %" PRIu64 " zeroings, %" PRIu64 " flushes, %u kills, %u ends"
           " (longest %u ms, %u over 2 s), %u cuts; %" PRIu64 " reconnections, %" PRIu64
           " to another instance, %" PRIu64 " changes sent again, %" PRIu64
           " fences, %" PRIu64 " background flushes, at most %" PRIu64
           " bytes retained, %u losses; %" PRIu64 " violations\n",
           options.seed, disk.round, done[READ], done[WRITE], done[ZERO] + done[PUNCH],
           done[FLUSH], t->kills, t->ends, t->longest_end_ms, t->over_2_s, t->cuts,
           sum.reconnections, sum.instances, sum.resent_changes, sum.fences,
           sum.background_flushes, sum.retained_most, losses, wrong);
    return losses == 0;
}

static void start_thread(pthread_t *thread, void *(*function)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, function, argument);

    if (error != 0)
        die("pthread_create", error);
}

static void start_worker(struct worker *w, unsigned index)
{
    w->part = index % options.devices;
    w->device = devices[w->part];
    w->random = mix(options.seed) + ((uint64_t)index << 40);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->idle, NULL);
    for (unsigned k = 0; k < options.depth; k++) {
        w->requests[k] = (struct request){.worker = w, .buf = malloc(REQUEST_MAX)};
        if (!w->requests[k].buf)
            die("malloc", ENOMEM);
    }
    start_thread(&w->thread, worker_thread, w);
}

int main(int argc, char **argv)
{
    static struct worker workers[WORKERS_MAX];
    struct trouble trouble = {.program = "device", .progress = &progress};
    pthread_t watcher, troubler;
    unsigned char *all;
    uint64_t wrong = 0;
    bool sound;

    parse(argc, argv);
    if (options.relay) {
        trouble.relay = relay_start(options.relay, options.socket);
        if (!trouble.relay)
            return 1;
    }
    open_devices();
    if (!disk_open(&disk, options.image, options.durable, ROUND))
        return 1;
    all = malloc(disk.size);
    if (!all)
        die("malloc", ENOMEM);
    disk.hot = mix(options.seed) % (disk.size / 2) / disk.block_size * disk.block_size;
    trouble.kills = options.kills;
    trouble.ends = options.ends;
    trouble.cuts = options.cuts;
    trouble.requests = options.requests;
    trouble.random = mix(options.seed + 1);
    trouble.pidfile = options.pidfile;
    trouble.history = disk.history;

    pthread_barrier_init(&gather, NULL, options.workers + 1);
    start_thread(&watcher, watch, NULL);
    for (unsigned i = 0; i < options.workers; i++)
        start_worker(&workers[i], i);
    start_thread(&troubler, trouble_thread, &trouble);
    while (wrong == 0 &&
           (atomic_load(&progress) < options.requests || !atomic_load(&trouble.over))) {
        disk.round++;
        atomic_store(&left, ROUND);
        pthread_barrier_wait(&gather);
        pthread_barrier_wait(&gather);
        wrong = judge(all);
    }
    atomic_store(&trouble.stop, true);
    pthread_join(troubler, NULL);
    atomic_store(&over, true);
    pthread_barrier_wait(&gather);
    for (unsigned i = 0; i < options.workers; i++) {
        pthread_join(workers[i].thread, NULL);
        for (unsigned k = 0; k < options.depth; k++)
            free(workers[i].requests[k].buf);
    }
    pthread_cancel(watcher);
    pthread_join(watcher, NULL);
    sound = report(&trouble, wrong);
    for (unsigned i = 0; i < options.devices; i++)
        qm_device_close(devices[i]);
    if (trouble.relay)
        relay_stop(trouble.relay);
    disk_close(&disk);
    free(all);
    return wrong == 0 && sound ? 0 : 1;
}
