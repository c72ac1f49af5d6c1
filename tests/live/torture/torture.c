/* SPDX-License-Identifier: BSD-3-Clause */
/* torture.c - many clients of a server over an unruly disk; no byte may ever be wrong.
 *
 *   torture --socket PATH --image FILE --durable FILE --seconds N --seed S
 *           [--clients N] [--depth N] [--errors]
 *           [--kills N --pidfile FILE]
 *           [--area BYTES --reads FILE [--changes FILE] [--syncs FILE]]
 *
 * Each client is a thread with a connection of its own, to the plain or to the tagged
 * view, and with several requests in flight.  They all work on the same few places, now
 * at random, now all at one spot; the tagged ones also tour the same blocks in the same
 * order in their contexts again and again, so that the server prefetches what others
 * are writing to.
 *
 * A write fills each cell with its own name; two cells make a sector, so that requests
 * begin and end at odd bytes, too.  What was seen is judged, by history.h, whenever the
 * clients have carried out a round of requests.  Then also, nothing being in flight,
 * what can be read must be what the disk has, and after a flush what is durable.
 *
 * With --kills the server, whose process FILE names, is killed at any moment, so often,
 * instead of for some time.  Somebody else starts it again; clients connect again. What
 * was in flight has failed, which to the history means: it may have been carried out,
 * in part too, but only before it ended.  That holds, as the kernel closes a process's
 * connections when its last thread is gone.
 *
 * With --area BYTES the clients use only the first BYTES of the device.  For the rest,
 * it is found out after each round what a second tier serves (quiet.h).  With --syncs
 * FILE grows when the tier is synced; one kill of six waits for that some times, so
 * that what the tier serves is durable by then, and what it serves after the others is
 * not looked at.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libnbd.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/protocol/quickmine-protocol.h"
#include "disk.h"
#include "quiet.h"

#define ROUND         3000 /* requests of all clients together */
#define TOURS         8
#define TOUR_BLOCKS   24
#define DEPTH_MAX     64
#define CLIENTS_MAX   256
#define STUCK_SECONDS 40

static struct {
    const char *socket, *image, *durable;
    double seconds;
    uint64_t seed;
    unsigned clients, depth;
    bool errors;
    unsigned kills;
    const char *pidfile;
    uint64_t area;
    const char *reads, *changes, *syncs;
} options = {.seconds = 5, .seed = 1, .clients = 12, .depth = 6};

static struct disk disk = {.program = "torture"};
static struct quiet quiet = {.program = "torture"};
static uint64_t tours[TOURS][TOUR_BLOCKS];
static pthread_barrier_t gather;
static atomic_bool over;
static atomic_int left; /* requests of this round */
static atomic_uint kills;
static atomic_uint patient; /* the number of the last kill that has waited for syncs */
static _Atomic uint64_t done[6], failed, bytes, progress, contexts;

enum what { READ, WRITE, ZERO, TRIM, CACHE, FLUSH };

static void die(const char *what)
{
    fprintf(stderr, "torture: %s: %s (seed %" PRIu64 ")\n", what,
            nbd_get_error() ? nbd_get_error() : strerror(errno), options.seed);
    _exit(1);
}

/* ---- clients */

struct client;

struct request {
    struct client *client;
    enum what what;
    bool fua, busy;
    uint32_t first, count; /* cells */
    uint32_t number;       /* in the history */
    unsigned char *buf;
};

struct client {
    unsigned index;
    bool tagged;
    struct nbd_handle *nbd;
    uint64_t random;
    uint32_t slot_first, slot_count;
    uint64_t session;
    unsigned slot; /* whose context is open; 0: none */
    unsigned tour, place;
    unsigned in_flight;
    bool lost; /* the server was killed: attach again */
    struct request requests[DEPTH_MAX];
    pthread_t thread;
};

static uint64_t draw(struct client *c, uint64_t below)
{
    return draw_from(&c->random, below);
}

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* Whether what failed may have failed, since the server is killed now and then. */
static bool was_killed(struct client *c)
{
    c->lost = options.kills > 0;
    return c->lost;
}

/* False: the server was killed. */
static bool control(struct client *c, unsigned op, unsigned slot, unsigned kind,
                    uint64_t klass)
{
    struct qm_wire_record record = {
        .op = op, .slot = slot, .kind = kind, .klass = klass, .session = c->session};

    if (nbd_pwrite(c->nbd, &record, sizeof record, QM_WIRE_CONTROL, 0) == 0)
        return true;
    if (!was_killed(c))
        die("a control message");
    return false;
}

static bool try_to_attach(struct client *c)
{
    struct qm_wire_header header;

    c->slot = 0;
    c->lost = false;
    c->nbd = nbd_create();
    if (!c->nbd || nbd_set_strict_mode(c->nbd, 0) == -1 ||
        nbd_set_export_name(c->nbd, c->tagged ? QM_WIRE_EXPORT : "") == -1 ||
        nbd_connect_unix(c->nbd, options.socket) == -1)
        return false;
    if (!c->tagged)
        return true;
    if (nbd_pread(c->nbd, &header, sizeof header, QM_WIRE_CONTROL, 0) == -1)
        return false;
    c->slot_first = header.slot_first;
    c->slot_count = header.slot_count;
    c->session = header.session;
    if (c->slot_count == 0)
        die("no slots");
    if (disk.size == 0) { /* the first of all, before there are threads */
        disk.block_size = header.block_size;
        disk.size = options.area > 0 ? options.area : header.size;
        quiet.from = disk.size;
        quiet.to = header.size;
        quiet.block_size = header.block_size;
    }
    return true;
}

/* Connects; if need be, once the server is there again. */
static void attach(struct client *c)
{
    while (!try_to_attach(c)) {
        if (!was_killed(c))
            die("connecting");
        nbd_close(c->nbd);
        pause_ms(5);
    }
}

static void detach(struct client *c)
{
    nbd_shutdown(c->nbd, 0);
    nbd_close(c->nbd);
}

static void attach_again(struct client *c)
{
    nbd_close(c->nbd);
    attach(c);
}

static int completed(void *opaque, int *error)
{
    struct request *r = opaque;

    if (r->number != UINT32_MAX) {
        if (r->what == READ && *error == 0)
            disk_look(&disk, r->number, r->buf, r->first, r->count);
        history_end(disk.history, r->number, *error == 0);
        if (r->fua && *error == 0)
            disk_look_at_durable(&disk, r->number, r->first, r->count);
    }
    if (*error != 0) {
        if (!(options.errors && *error == EIO) &&
            !(*error == ENOTCONN && was_killed(r->client))) {
            errno = *error;
            die("a request failed");
        }
        atomic_fetch_add(&failed, 1);
    }
    atomic_fetch_add(&done[r->what], 1);
    atomic_fetch_add(&progress, 1);
    r->client->in_flight--;
    r->busy = false;
    return 1;
}

static void choose(struct client *c, struct request *r)
{
    unsigned dice = draw(c, 100);

    if (c->slot != 0 && draw(c, 3) > 0) { /* on tour */
        uint64_t block = tours[c->tour][c->place];

        r->what = draw(c, 6) == 0 ? WRITE : READ;
        r->first = 2 * (block * disk.block_size / SECTOR +
                        draw(c, disk.block_size / SECTOR / 2));
        r->count = 1 + draw(c, disk.block_size / SECTOR);
        if (r->what == READ)
            c->place++;
    } else {
        disk_choose(&disk, &c->random, &r->first, &r->count);
        r->what = dice < 50   ? READ
                  : dice < 76 ? WRITE
                  : dice < 84 ? ZERO
                  : dice < 89 ? TRIM
                  : dice < 96 ? CACHE
                              : FLUSH;
        if (c->tagged && (r->what == ZERO || r->what == TRIM))
            r->what = WRITE;
    }
    r->fua =
        (r->what == WRITE || r->what == ZERO || r->what == TRIM) && draw(c, 8) == 0;
}

/* False: the server was killed. */
static bool walk(struct client *c)
{
    if (c->slot != 0 && c->place == TOUR_BLOCKS) {
        /* If it is not ended, the next begin will do that. */
        if (draw(c, 4) > 0 && !control(c, QM_WIRE_END, c->slot, 0, 0))
            return false;
        c->slot = 0;
    }
    if (c->slot == 0) {
        unsigned slot = c->slot_first + draw(c, c->slot_count < 8 ? c->slot_count : 8);

        c->tour = draw(c, TOURS);
        c->place = 0;
        if (!control(c, QM_WIRE_BEGIN, slot, QM_WIRE_QUERY, c->tour + 1))
            return false;
        c->slot = slot;
        atomic_fetch_add(&contexts, 1);
    }
    return true;
}

/* Starts a request.  False if the round is over. */
static bool start(struct client *c, struct request *r)
{
    static const enum did did[] = {
        [READ] = DID_READ, [WRITE] = DID_WRITE, [ZERO] = DID_ZERO, [TRIM] = DID_ZERO};
    nbd_completion_callback callback = {.callback = completed, .user_data = r};
    uint64_t offset, count;
    uint32_t flags;
    int64_t cookie = -1;

    if (atomic_fetch_sub(&left, 1) <= 0)
        return false;
    if (c->tagged && !walk(c))
        return true;
    choose(c, r);
    r->number = UINT32_MAX;
    offset = cell_start(r->first);
    count = cell_start(r->first + r->count) - offset;
    if (r->what <= TRIM) {
        r->number = history_begin(disk.history, did[r->what], r->first, r->count);
        if (r->number == UINT32_MAX)
            return false;
        atomic_fetch_add(&bytes, count);
    }
    if (r->what == WRITE)
        disk_fill(&disk, r->buf, r->number, r->first, r->count);
    flags = r->fua ? LIBNBD_CMD_FLAG_FUA : 0;
    if (c->tagged && draw(c, 4) > 0)
        offset |= (uint64_t)c->slot << QM_WIRE_SHIFT;
    r->busy = true;
    c->in_flight++;
    switch (r->what) {
    case READ:
        memset(r->buf, 0xdd, count);
        cookie = nbd_aio_pread(c->nbd, r->buf, count, offset, callback, flags);
        break;
    case WRITE:
        cookie = nbd_aio_pwrite(c->nbd, r->buf, count, offset, callback, flags);
        break;
    case ZERO:
        if (draw(c, 2) == 0)
            flags |= LIBNBD_CMD_FLAG_NO_HOLE;
        cookie = nbd_aio_zero(c->nbd, count, offset, callback, flags);
        break;
    case TRIM:
        cookie = nbd_aio_trim(c->nbd, count, offset, callback, flags);
        break;
    case CACHE:
        cookie = nbd_aio_cache(c->nbd, count, offset, callback, flags);
        break;
    case FLUSH:
        cookie = nbd_aio_flush(c->nbd, callback, flags);
        break;
    }
    if (cookie == -1) { /* it was not sent */
        if (!was_killed(c))
            die("starting a request");
        if (r->number != UINT32_MAX)
            history_end(disk.history, r->number, false);
        r->busy = false;
        c->in_flight--;
    }
    return true;
}

static void carry_out(struct client *c)
{
    unsigned depth = 1 + draw(c, options.depth);
    bool more = true;

    while (more || c->in_flight > 0) {
        for (unsigned i = 0; more && i < depth; i++)
            if (!c->requests[i].busy && !c->lost)
                more = start(c, &c->requests[i]);
        if (c->in_flight > 0 && nbd_poll(c->nbd, 1000) == -1 && !was_killed(c))
            die("waiting for replies");
        if (c->lost && c->in_flight == 0)
            attach_again(c);
    }
}

static void *client_thread(void *opaque)
{
    struct client *c = opaque;

    for (;;) {
        pthread_barrier_wait(&gather); /* a round begins */
        if (atomic_load(&over))
            return NULL;
        if (draw(c, 10) == 0) {
            detach(c);
            attach(c);
        }
        carry_out(c);
        pthread_barrier_wait(&gather); /* and is over */
    }
}

/* ---- rounds */

static void flush(struct client *c)
{
    for (int tries = 0; nbd_flush(c->nbd, 0) == -1; tries++)
        if (was_killed(c))
            attach_again(c);
        else if (!options.errors || tries == 1000)
            die("flush");
}

/* Reads all through some client, in blocks, as a part of the history. */
static void read_all(struct client *c, unsigned char *to)
{
    const uint64_t part = 1 << 16;

    for (uint64_t at = 0; at < disk.size; at += part) {
        uint64_t n = disk.size - at < part ? disk.size - at : part;
        uint32_t first = 2 * (at / SECTOR), count = 2 * (n / SECTOR);
        uint32_t number = history_begin(disk.history, DID_READ, first, count);
        int tries = 0;

        while (nbd_pread(c->nbd, to + at, n, at, 0) == -1)
            if (was_killed(c))
                attach_again(c);
            else if (!options.errors || ++tries == 1000)
                die("reading all");
        if (number == UINT32_MAX)
            die("a round was too long");
        disk_look(&disk, number, to + at, first, count);
        history_end(disk.history, number, true);
        atomic_fetch_add(&progress, 1);
    }
}

/* Nothing is in flight: reads what nobody changes. */
static void measure(struct client *c)
{
    static unsigned char buf[1 << 20];
    unsigned before = atomic_load(&kills);

    if (!options.reads)
        return;
    /* Memory is to hold other things. */
    for (uint64_t at = 0; at < disk.size; at += 1 << 16)
        while (nbd_pread(c->nbd, buf, 1 << 16, at, 0) == -1)
            if (was_killed(c))
                attach_again(c);
            else if (!options.errors)
                die("reading");
    quiet_begin(&quiet);
    for (uint64_t at = quiet.from; at < quiet.to; at += quiet.block_size) {
        while (nbd_pread(c->nbd, buf, quiet.block_size, at, 0) == -1)
            if (was_killed(c))
                attach_again(c);
            else if (!options.errors)
                die("reading where nobody writes");
        quiet_look(&quiet, buf, at, quiet.block_size);
        atomic_fetch_add(&progress, 1);
    }
    quiet_end(&quiet, before == atomic_load(&kills) ? before : UINT_MAX,
              !options.syncs ||
                  (before == quiet.kills + 1 && before == atomic_load(&patient)));
}

/* Nothing is in flight: looks at everything.  Returns how many violations. */
static uint64_t judge(struct client *c, unsigned char *all)
{
    flush(c);
    read_all(c, all);
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
    fprintf(stderr,
            "torture: stuck: no request has ended for %d s (seed %" PRIu64 ")\n",
            STUCK_SECONDS, options.seed);
    _exit(1);
}

/* The server's process, or 0: it is not there just now. */
static pid_t server_pid(void)
{
    FILE *f = fopen(options.pidfile, "re");
    intmax_t pid = 0;

    if (f && fscanf(f, "%" SCNdMAX, &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return (pid_t)pid;
}

/* Waits until the tier is synced some times, and until two rounds are over. */
static void wait_for_syncs(void)
{
    uint64_t at = atomic_load(&progress) + 3 * ROUND;
    struct stat was, now;

    if (stat(options.syncs, &was) == -1)
        die(options.syncs);
    do {
        pause_ms(10);
        if (stat(options.syncs, &now) == -1)
            die(options.syncs);
    } while ((now.st_size < was.st_size + 3 || atomic_load(&progress) < at) &&
             !atomic_load(&over));
}

/* Kills the server, each time when some requests more have been answered. */
static void *kill_again_and_again(void *opaque)
{
    struct client dice = {.random = mix(options.seed)};
    pid_t last = 0, pid;

    while (atomic_load(&kills) < options.kills) {
        /* Some just when it begins to serve; else most rounds end without. */
        uint64_t most = !options.reads        ? 2 * ROUND
                        : draw(&dice, 8) == 0 ? 20
                                              : 4 * ROUND;
        bool waits = options.syncs && draw(&dice, 6) == 0;
        uint64_t at;

        if (waits)
            wait_for_syncs();
        at = atomic_load(&progress) + 1 + draw(&dice, most);
        while (atomic_load(&progress) < at || (pid = server_pid()) == 0 ||
               pid == last) {
            if (atomic_load(&over))
                return NULL;
            pause_ms(1);
        }
        nanosleep(&(struct timespec){.tv_nsec = draw(&dice, 3000000)}, NULL);
        if (kill(pid, SIGKILL) == -1)
            die("the server is gone before it was killed");
        last = pid;
        if (waits)
            atomic_store(&patient, atomic_load(&kills) + 1);
        atomic_fetch_add(&kills, 1);
    }
    return NULL;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {{"socket", required_argument, NULL, 's'},
                                          {"image", required_argument, NULL, 'i'},
                                          {"durable", required_argument, NULL, 'd'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 'r'},
                                          {"clients", required_argument, NULL, 'c'},
                                          {"depth", required_argument, NULL, 'q'},
                                          {"errors", no_argument, NULL, 'e'},
                                          {"kills", required_argument, NULL, 'k'},
                                          {"pidfile", required_argument, NULL, 'p'},
                                          {"area", required_argument, NULL, 'a'},
                                          {"reads", required_argument, NULL, 'R'},
                                          {"changes", required_argument, NULL, 'C'},
                                          {"syncs", required_argument, NULL, 'S'},
                                          {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
        switch (option) {
        case 's':
            options.socket = optarg;
            break;
        case 'i':
            options.image = optarg;
            break;
        case 'd':
            options.durable = optarg;
            break;
        case 't':
            options.seconds = strtod(optarg, NULL);
            break;
        case 'r':
            options.seed = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            options.clients = strtoul(optarg, NULL, 10);
            break;
        case 'q':
            options.depth = strtoul(optarg, NULL, 10);
            break;
        case 'e':
            options.errors = true;
            break;
        case 'k':
            options.kills = strtoul(optarg, NULL, 10);
            break;
        case 'p':
            options.pidfile = optarg;
            break;
        case 'a':
            options.area = strtoull(optarg, NULL, 10);
            break;
        case 'R':
            options.reads = optarg;
            break;
        case 'C':
            options.changes = optarg;
            break;
        case 'S':
            options.syncs = optarg;
            break;
        default:
            exit(2);
        }
    if (!options.socket || !options.image || !options.durable || options.clients < 2 ||
        options.clients > CLIENTS_MAX || options.depth < 1 ||
        options.depth > DEPTH_MAX || (options.kills && !options.pidfile) ||
        (options.reads && (!options.area || options.area % (1 << 16) != 0)) ||
        optind < argc) {
        fprintf(stderr, "torture: see the comment at the beginning of its source\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct client clients[CLIENTS_MAX];
    unsigned char *all;
    uint64_t wrong = 0;
    pthread_t watcher, killer;
    double end;

    parse(argc, argv);
    for (unsigned i = 0; i < options.clients; i++) {
        struct client *c = &clients[i];

        c->index = i;
        c->random = mix(options.seed) + ((uint64_t)i << 40);
        c->tagged = i % 2 == 0;
        attach(c);
        for (unsigned k = 0; k < options.depth; k++) {
            c->requests[k] = (struct request){.client = c, .buf = malloc(REQUEST_MAX)};
            if (!c->requests[k].buf)
                die("malloc");
        }
    }
    if (!disk_open(&disk, options.image, options.durable, ROUND))
        return 1;
    quiet.reads = options.reads;
    quiet.changes = options.changes;
    if (options.reads && !quiet_open(&quiet, options.image))
        return 1;
    all = malloc(disk.size);
    if (!all)
        die("malloc");
    for (unsigned i = 0; i < TOURS; i++)
        for (unsigned k = 0; k < TOUR_BLOCKS; k++)
            tours[i][k] = draw(&clients[0], disk.size / disk.block_size - 2);
    disk.hot = tours[0][TOUR_BLOCKS / 2] * disk.block_size;
    pthread_barrier_init(&gather, NULL, options.clients + 1);
    if (pthread_create(&watcher, NULL, watch, NULL) != 0)
        die("pthread_create");
    for (unsigned i = 0; i < options.clients; i++)
        if (pthread_create(&clients[i].thread, NULL, client_thread, &clients[i]) != 0)
            die("pthread_create");
    if (options.kills && pthread_create(&killer, NULL, kill_again_and_again, NULL) != 0)
        die("pthread_create");

    end = now() + options.seconds;
    while (wrong == 0 &&
           (options.kills ? atomic_load(&kills) < options.kills : now() < end)) {
        disk.round++;
        atomic_store(&left, ROUND);
        pthread_barrier_wait(&gather);
        pthread_barrier_wait(&gather);
        measure(&clients[disk.round % options.clients]);
        wrong = judge(&clients[disk.round % options.clients], all) + quiet.wrong;
    }
    atomic_store(&over, true);
    pthread_barrier_wait(&gather);
    if (options.kills)
        pthread_join(killer, NULL);
    for (unsigned i = 0; i < options.clients; i++) {
        pthread_join(clients[i].thread, NULL);
        detach(&clients[i]);
        for (unsigned k = 0; k < options.depth; k++)
            free(clients[i].requests[k].buf);
    }
    pthread_cancel(watcher);
    pthread_join(watcher, NULL);
    disk_close(&disk);
    if (options.reads)
        quiet_close(&quiet);
    free(all);
    printf("seed %" PRIu64 ": %" PRIu32 " rounds, %" PRIu64 " reads, %" PRIu64
           " writes, %" PRIu64 " zeroings, %" PRIu64 " trims, %" PRIu64
           " hints, %" PRIu64 " flushes, %" PRIu64 " contexts, %" PRIu64
           " failed, %" PRIu64 " MB, %u kills; %" PRIu64 " violations\n",
           options.seed, disk.round, done[READ], done[WRITE], done[ZERO], done[TRIM],
           done[CACHE], done[FLUSH], contexts, failed, bytes >> 20, kills, wrong);
    if (options.reads)
        printf("kept %" PRIu64 " of %" PRIu64 " blocks, %" PRIu64 " pairs of passes\n",
               quiet.kept, quiet.had, quiet.passes);
    return wrong == 0 ? 0 : 1;
}
