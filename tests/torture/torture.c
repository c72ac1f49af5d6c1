/* torture.c - many clients of a server over an unruly disk; no byte may ever be wrong.
 *
 *   torture --socket PATH --image FILE --durable FILE --seconds N --seed S
 *           [--clients N] [--depth N] [--errors]
 *           [--kills N --pidfile FILE]
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
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libnbd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client-patches/protocol/quickmine-protocol.h"
#include "cells.h"
#include "history.h"

#define ROUND         3000    /* requests of all clients together */
#define LOOKS         4000000 /* at cells, in a round; plenty */
#define REQUEST_MAX   (1u << 19)
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
} options = {.seconds = 5, .seed = 1, .clients = 12, .depth = 6};

static struct history *history;
static uint64_t size, block_size;
static uint32_t cells;
static const unsigned char *image, *durable;
static uint64_t *initial; /* a name a cell */
static uint32_t round_number;
static uint64_t tours[TOURS][TOUR_BLOCKS];
static uint64_t hot;
static pthread_barrier_t gather;
static atomic_bool over;
static atomic_int left; /* requests of this round */
static atomic_uint kills;
static _Atomic uint64_t done[6], failed, bytes, progress, contexts;

enum what { READ, WRITE, ZERO, TRIM, CACHE, FLUSH };

static void die(const char *what)
{
    fprintf(stderr, "torture: %s: %s (seed %" PRIu64 ")\n", what,
            nbd_get_error() ? nbd_get_error() : strerror(errno), options.seed);
    _exit(1);
}

/* ---- cells */

static uint64_t name_of(uint32_t request)
{
    return (uint64_t)round_number << 32 | (request + 1);
}

static uint32_t value_of(uint64_t name, uint32_t cell)
{
    if (name == CELL_ZERO)
        return SAW_ZERO;
    if (name == initial[cell])
        return SAW_INITIAL;
    if (name >> 32 == round_number && (uint32_t)name != 0)
        return (uint32_t)name - 1;
    return SAW_GARBAGE; /* or of a round that was over before */
}

static void look(uint32_t request, const unsigned char *from, uint32_t first,
                 uint32_t count)
{
    uint32_t *looks = history_looks(history, request);

    for (uint32_t i = 0; i < count; i++) {
        looks[i] = value_of(read_cell(from, first + i), first + i);
        from += cell_start(first + i + 1) - cell_start(first + i);
    }
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
    return mix(c->random++) % below;
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
    if (size == 0) { /* the first of all, before there are threads */
        block_size = header.block_size;
        size = header.size;
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

/* What became durable by a write with FUA.  It may be changing just now. */
static void look_at_durable(const struct request *r)
{
    uint32_t number = history_begin_fua(history, r->number);
    uint32_t *looks;

    if (number == UINT32_MAX)
        return;
    look(number, durable + cell_start(r->first), r->first, r->count);
    looks = history_looks(history, number);
    for (uint32_t i = 0; i < r->count; i++)
        for (int tries = 0; looks[i] == SAW_GARBAGE && tries < 1000; tries++) {
            uint32_t cell = r->first + i;

            looks[i] = value_of(read_cell(durable + cell_start(cell), cell), cell);
        }
    history_end(history, number, true);
}

static int completed(void *opaque, int *error)
{
    struct request *r = opaque;

    if (r->number != UINT32_MAX) {
        if (r->what == READ && *error == 0)
            look(r->number, r->buf, r->first, r->count);
        history_end(history, r->number, *error == 0);
        if (r->fua && *error == 0)
            look_at_durable(r);
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

/* Where to: in half of the cases at sectors, or at blocks, else at odd bytes. */
static void choose_place(struct client *c, struct request *r)
{
    static const uint32_t lengths[] = {1, 1, 2, 3, 8, 16, 31, 32, 64, 65, 130, 400};
    uint64_t sectors = size / SECTOR;
    uint64_t count = lengths[draw(c, sizeof lengths / sizeof lengths[0])];
    uint64_t first = draw(c, sectors);
    unsigned mood = draw(c, 8);

    if (mood == 0) /* where all are */
        first = hot / SECTOR + draw(c, 48);
    if (mood <= 3)
        first -= first % (block_size / SECTOR);
    if (first + count > sectors)
        first = sectors - count;
    r->first = 2 * first;
    r->count = 2 * count;
    if (mood % 2 == 0)
        r->first++, r->count--;
    if (draw(c, 3) == 0 && r->count > 1)
        r->count--;
}

static void choose(struct client *c, struct request *r)
{
    unsigned dice = draw(c, 100);

    if (c->slot != 0 && draw(c, 3) > 0) { /* on tour */
        uint64_t block = tours[c->tour][c->place];

        r->what = draw(c, 6) == 0 ? WRITE : READ;
        r->first = 2 * (block * block_size / SECTOR + draw(c, block_size / SECTOR / 2));
        r->count = 1 + draw(c, block_size / SECTOR);
        if (r->what == READ)
            c->place++;
    } else {
        choose_place(c, r);
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
        r->number = history_begin(history, did[r->what], r->first, r->count);
        if (r->number == UINT32_MAX)
            return false;
        atomic_fetch_add(&bytes, count);
    }
    if (r->what == WRITE)
        for (uint32_t i = 0, at = 0; i < r->count; i++) {
            fill_cell(r->buf + at, r->first + i, name_of(r->number));
            at += cell_start(r->first + i + 1) - cell_start(r->first + i);
        }
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
            history_end(history, r->number, false);
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

static bool is_zero(void *opaque, uint32_t cell)
{
    return initial[cell] == CELL_ZERO;
}

static void complain(void *opaque, const char *text)
{
    fprintf(stderr, "torture: round %" PRIu32 ": %s\n", round_number, text);
}

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

    for (uint64_t at = 0; at < size; at += part) {
        uint64_t n = size - at < part ? size - at : part;
        uint32_t first = 2 * (at / SECTOR), count = 2 * (n / SECTOR);
        uint32_t number = history_begin(history, DID_READ, first, count);
        int tries = 0;

        while (nbd_pread(c->nbd, to + at, n, at, 0) == -1)
            if (was_killed(c))
                attach_again(c);
            else if (!options.errors || ++tries == 1000)
                die("reading all");
        if (number == UINT32_MAX)
            die("a round was too long");
        look(number, to + at, first, count);
        history_end(history, number, true);
        atomic_fetch_add(&progress, 1);
    }
}

/* Nothing is in flight: looks at everything.  Returns how many violations. */
static uint64_t judge(struct client *c, unsigned char *all)
{
    uint64_t wrong;

    flush(c);
    read_all(c, all);
    wrong = history_judge(history, is_zero, complain, NULL);
    for (uint32_t cell = 0; cell < cells; cell++) {
        uint64_t at = cell_start(cell), n = cell_start(cell + 1) - at;
        bool below = memcmp(all + at, image + at, n) != 0;
        bool lost = memcmp(image + at, durable + at, n) != 0;

        if ((below || lost) && wrong++ < 20)
            fprintf(stderr, "torture: round %" PRIu32 ": cell %" PRIu32 ": %s\n",
                    round_number, cell,
                    below ? "what is read is not what the disk has"
                          : "what was flushed is not durable");
        initial[cell] = read_cell(all + at, cell);
        if (initial[cell] == CELL_GARBAGE && wrong++ < 20)
            fprintf(stderr, "torture: cell %" PRIu32 ": garbage\n", cell);
    }
    return wrong;
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

/* Kills the server, each time when some requests more have been answered. */
static void *kill_again_and_again(void *opaque)
{
    struct client dice = {.random = mix(options.seed)};
    pid_t last = 0, pid;

    while (atomic_load(&kills) < options.kills) {
        uint64_t at = atomic_load(&progress) + 1 + draw(&dice, 2 * ROUND);

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
        atomic_fetch_add(&kills, 1);
    }
    return NULL;
}

static const unsigned char *map(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *p;

    if (fd == -1)
        die(path);
    p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die(path);
    close(fd);
    return p;
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
        default:
            exit(2);
        }
    if (!options.socket || !options.image || !options.durable || options.clients < 2 ||
        options.clients > CLIENTS_MAX || options.depth < 1 ||
        options.depth > DEPTH_MAX || (options.kills && !options.pidfile) ||
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
    if (size % block_size != 0 || size < 64 * block_size)
        die("the device's size is for no torture");
    cells = 2 * (size / SECTOR);
    image = map(options.image);
    durable = map(options.durable);
    initial = calloc(cells, sizeof *initial);
    all = malloc(size);
    /* Requests, looks at what became durable, and the look at everything. */
    history = history_new(cells, 2 * (block_size / SECTOR), 2 * ROUND + cells, LOOKS);
    if (!initial || !all || !history)
        die("malloc");
    for (unsigned i = 0; i < TOURS; i++)
        for (unsigned k = 0; k < TOUR_BLOCKS; k++)
            tours[i][k] = draw(&clients[0], size / block_size - 2);
    hot = tours[0][TOUR_BLOCKS / 2] * block_size;
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
        round_number++;
        atomic_store(&left, ROUND);
        pthread_barrier_wait(&gather);
        pthread_barrier_wait(&gather);
        wrong = judge(&clients[round_number % options.clients], all);
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
    history_free(history);
    free(initial);
    free(all);
    printf("seed %" PRIu64 ": %" PRIu32 " rounds, %" PRIu64 " reads, %" PRIu64
           " writes, %" PRIu64 " zeroings, %" PRIu64 " trims, %" PRIu64
           " hints, %" PRIu64 " flushes, %" PRIu64 " contexts, %" PRIu64
           " failed, %" PRIu64 " MB, %u kills; %" PRIu64 " violations\n",
           options.seed, round_number, done[READ], done[WRITE], done[ZERO], done[TRIM],
           done[CACHE], done[FLUSH], contexts, failed, bytes >> 20, kills, wrong);
    return wrong == 0 ? 0 : 1;
}
