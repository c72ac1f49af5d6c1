/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - what a client's hits cost while another misbehaves: the program of
 * bench/hostile.
 *
 * The victim reads blocks that are in the cache, tagged, as fast as it can; beside it
 * are, in turn, a neighbour that does the same, plain, and one that misbehaves, equally
 * many connections each.  Slices of time alternate within one run, over connections
 * that stay open.  In each is measured what CPU time the server's thread of the victim
 * took
 * (/proc/PID/task/TID/schedstat, in nanoseconds), and how many reads it served with it:
 * both neighbours take the processors from it, and its caches, so what differs is what
 * misbehaving adds.
 *
 * It prints a line a slice: the pair, the side (neighbour or other), the victim's
 * reads, the slice's seconds, the nanoseconds that the victim's thread computed, and
 * that it waited for a processor, those that the server's other threads computed, and
 * the requests of the other side.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <libnbd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/protocol/quickmine-protocol.h"

#define BLOCK     16384
#define DEPTH     16 /* requests in flight over a connection, at most */
#define CONTEXTS  16 /* of the victim */
#define BATCH     256
#define DEEP      64  /* how deep contexts may nest */
#define PATH      512 /* blocks of a path that is learned */
#define TASKS_MAX 1024
#define SETTLE    0.03 /* seconds, before a slice counts */

struct actor;

struct behaviour {
    const char *name, *what;
    const char *export;
    bool proper;    /* nothing that it sends is refused */
    unsigned depth; /* requests in flight over a connection, up to DEPTH */
    void (*prepare)(struct actor *a); /* or NULL */
    void (*act)(struct actor *a, char *buf);
};

struct request {
    struct actor *actor;
    struct request *next; /* idle */
    char *buf;            /* BATCH records, at least a block */
};

struct actor {
    const struct behaviour *behaviour;
    pthread_t thread;
    struct nbd_handle *nbd;
    struct qm_wire_header header;
    struct request requests[DEPTH], *idle, *now;
    uint64_t random, count; /* of requests sent */
    uint64_t path, step;    /* of the one that is wild */
    _Atomic uint64_t done;
};

static const char *server_socket;
static uint64_t hot, size; /* blocks: of the part that is cached, and of the device */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const struct behaviour *on[2]; /* whose actors may send now */
static unsigned idle_actors;
static bool quit;

_Noreturn static void die(const char *what, const char *why)
{
    fprintf(stderr, "hostile: %s: %s\n", what, why);
    exit(1);
}

static void check(int64_t r, const char *what)
{
    if (r == -1)
        die(what, nbd_get_error());
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void sleep_for(double seconds)
{
    struct timespec ts = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&ts, &ts) == -1 && errno == EINTR)
        ;
}

/* xorshift64*, scaled to the range. */
static uint64_t below(struct actor *a, uint64_t n)
{
    uint64_t x = a->random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    a->random = x;
    return (uint64_t)((unsigned __int128)(x * UINT64_C(0x2545f4914f6cdd1d)) * n >> 64);
}

/* ---- requests */

static int replied(void *opaque, int *error)
{
    struct request *r = opaque;
    struct actor *a = r->actor;

    if (error && *error != 0 && a->behaviour->proper)
        die(a->behaviour->name, strerror(*error));
    r->next = a->idle;
    a->idle = r;
    atomic_fetch_add_explicit(&a->done, 1, memory_order_relaxed);
    return 1;
}

static nbd_completion_callback completion(struct actor *a)
{
    return (nbd_completion_callback){.callback = replied, .user_data = a->now};
}

static void read_block(struct actor *a, char *buf, unsigned slot, uint64_t block)
{
    check(nbd_aio_pread(a->nbd, buf, BLOCK,
                        (uint64_t)slot << QM_WIRE_SHIFT | block * BLOCK, completion(a),
                        0),
          "a read");
}

static void write_window(struct actor *a, const char *buf, size_t count)
{
    check(nbd_aio_pwrite(a->nbd, buf, count, QM_WIRE_CONTROL, completion(a), 0),
          "a record");
}

/* The n-th of the slots that the actor has, which go round. */
static unsigned slot_of(const struct actor *a, uint64_t n)
{
    return le32toh(a->header.slot_first) + n % le32toh(a->header.slot_count);
}

static void put_record(const struct actor *a, char *buf, enum qm_wire_op op,
                       unsigned slot, unsigned parent, uint64_t klass, const char *name)
{
    struct qm_wire_record record = {
        .op = htole32(op),
        .slot = htole16(slot),
        .session = a->header.session,
    };

    if (op == QM_WIRE_BEGIN) {
        record.parent = htole16(parent);
        record.klass = htole64(klass);
        record.kind = htole16(QM_WIRE_QUERY);
        record.name_len = htole16(strlen(name));
        memcpy(record.name, name, strlen(name));
    }
    memcpy(buf, &record, sizeof record);
}

/* To be done before anything is measured. */
static void begin_now(struct actor *a, unsigned slot, unsigned parent, uint64_t klass)
{
    char buf[sizeof(struct qm_wire_record)];

    put_record(a, buf, QM_WIRE_BEGIN, slot, parent, klass, "");
    check(nbd_pwrite(a->nbd, buf, sizeof buf, QM_WIRE_CONTROL, 0), "a context");
}

static void read_now(struct actor *a, unsigned slot, uint64_t block)
{
    char buf[BLOCK];

    check(nbd_pread(a->nbd, buf, BLOCK, (uint64_t)slot << QM_WIRE_SHIFT | block * BLOCK,
                    0),
          "a read");
}

/* ---- what clients do */

/* Reads its blocks, often enough that what is read once does not drive them out. */
static void prepare_victim(struct actor *a)
{
    for (unsigned round = 0; round < 8; round++)
        for (uint64_t block = 0; block < hot; block++)
            read_now(a, 0, block);
    for (unsigned i = 0; i < CONTEXTS; i++)
        begin_now(a, slot_of(a, i), 0, 1 + i);
}

static void victim(struct actor *a, char *buf)
{
    read_block(a, buf, slot_of(a, a->count % CONTEXTS), below(a, hot));
}

static void neighbour(struct actor *a, char *buf)
{
    read_block(a, buf, 0, below(a, hot));
}

/* Each context is of a class of its own, which has a name. */
static void begins(struct actor *a, char *buf)
{
    char name[QM_WIRE_NAME_MAX + 1];

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    put_record(a, buf, QM_WIRE_BEGIN, slot_of(a, a->count), 0, a->random + a->count,
               name);
    write_window(a, buf, sizeof(struct qm_wire_record));
}

/* Many records at a time, nested as deep as can be, and ended again. */
static void batches(struct actor *a, char *buf)
{
    for (unsigned i = 0; i < BATCH; i++) {
        unsigned n = i % (DEEP + 1);
        char *at = buf + i * sizeof(struct qm_wire_record);

        if (n == DEEP)
            put_record(a, at, QM_WIRE_END, slot_of(a, 0), 0, 0, "");
        else
            put_record(a, at, QM_WIRE_BEGIN, slot_of(a, n), n ? slot_of(a, n - 1) : 0,
                       1000 + n, "");
    }
    write_window(a, buf, BATCH * sizeof(struct qm_wire_record));
}

/* Bytes, records of which the last one is bad, and hints. */
static void garbage(struct actor *a, char *buf)
{
    size_t n = 1 + below(a, BATCH);

    switch (a->count % 3) {
    case 0:
        for (size_t i = 0; i < 512 * n; i += 8)
            memcpy(buf + i, &(uint64_t){below(a, UINT64_MAX)}, 8);
        write_window(a, buf, 512 * n);
        break;
    case 1:
        for (size_t i = 0; i < n; i++)
            put_record(a, buf + 512 * i, QM_WIRE_BEGIN, slot_of(a, i), 0, i, "");
        buf[512 * n - 1] = 1;
        write_window(a, buf, 512 * n);
        break;
    default:
        check(nbd_aio_cache(a->nbd, 512 * n,
                            QM_WIRE_CONTROL | below(a, QM_WIRE_WINDOW / 512) * 512,
                            completion(a), 0),
              "a hint");
    }
}

/* All slots are open, in trees. */
static void prepare_open(struct actor *a)
{
    for (unsigned i = 0; i < le32toh(a->header.slot_count); i++)
        begin_now(a, slot_of(a, i), i % DEEP ? slot_of(a, i - 1) : 0, 1000 + i);
}

static void open_slots(struct actor *a, char *buf)
{
    read_block(a, buf, slot_of(a, below(a, UINT32_MAX)), below(a, hot));
}

/* One context, which never ends, misses at random. */
static void prepare_one(struct actor *a)
{
    begin_now(a, slot_of(a, 0), 0, 1000);
}

static void sequence(struct actor *a, char *buf)
{
    read_block(a, buf, slot_of(a, 0), hot + below(a, size - hot));
}

static uint64_t on_path(uint64_t path, uint64_t step)
{
    return path + step * 37 % PATH;
}

/* The device outside the hot part is paths that were read once, each in order.  Then
 * each read is of another path's, so that what is prefetched is not what comes. */
static void prepare_wild(struct actor *a)
{
    prepare_one(a);
    for (unsigned round = 0; round < 2; round++)
        for (uint64_t b = hot; b + PATH <= size; b += PATH)
            for (unsigned i = 0; i < PATH; i++)
                read_now(a, slot_of(a, 0), on_path(b, i));
}

static void wild(struct actor *a, char *buf)
{
    /* Two steps of a path say where it goes on. */
    if (a->count % 2 == 0) {
        a->path = hot + below(a, (size - hot) / PATH) * PATH;
        a->step = below(a, PATH);
    }
    read_block(a, buf, slot_of(a, 0), on_path(a->path, a->step++));
}

static void statistics(struct actor *a, char *buf)
{
    check(nbd_aio_pread(a->nbd, buf, BATCH * sizeof(struct qm_wire_record),
                        QM_WIRE_CONTROL | QM_WIRE_STATS, completion(a), 0),
          "the statistics");
}

/* With as many classes as there can be. */
static void prepare_statistics(struct actor *a)
{
    for (unsigned i = 0; i < 5000; i++)
        begin_now(a, slot_of(a, 0), 0, 1000 + i);
}

static struct nbd_handle *connect_to(const char *export, struct qm_wire_header *header)
{
    struct nbd_handle *nbd = nbd_create();

    if (!nbd)
        die("libnbd", nbd_get_error());
    check(nbd_set_strict_mode(nbd, 0), "libnbd");
    check(nbd_set_export_name(nbd, export), "libnbd");
    check(nbd_connect_unix(nbd, server_socket), server_socket);
    if (*export != '\0') {
        check(nbd_pread(nbd, header, sizeof *header, QM_WIRE_CONTROL, 0), "the header");
        if (le64toh(header->magic) != QM_WIRE_MAGIC || header->slot_count == 0)
            die("the header", "there is no session");
    }
    return nbd;
}

/* Comes with a session, and goes with a context open. */
static void sessions(struct actor *a, char *buf)
{
    struct actor other = {.nbd = NULL};

    other.nbd = connect_to(QM_WIRE_EXPORT, &other.header);
    begin_now(&other, slot_of(&other, 0), 0, 1000);
    nbd_shutdown(other.nbd, 0);
    nbd_close(other.nbd);
    replied(a->now, NULL);
}

static const struct behaviour victim_behaviour = {
    "victim", "", QM_WIRE_EXPORT, true, DEPTH, prepare_victim, victim};
static const struct behaviour neighbour_behaviour = {"neighbour", "",   "",       true,
                                                     DEPTH,       NULL, neighbour};
/* clang-format off */ /* one a line */
static const struct behaviour behaviours[] = {
    {"same", "another neighbour: what noise there is", "", true, DEPTH, NULL, neighbour},
    {"begins", "begins contexts, each of a class of its own", QM_WIRE_EXPORT, true, DEPTH, NULL, begins},
    {"batches", "begins and ends 64 deep, 256 records at a time", QM_WIRE_EXPORT, true, DEPTH, NULL, batches},
    {"garbage", "sends what is refused", QM_WIRE_EXPORT, false, DEPTH, NULL, garbage},
    {"open", "has all of its slots open, and reads in them", QM_WIRE_EXPORT, true, DEPTH, prepare_open, open_slots},
    {"sequence", "misses in a context that never ends", QM_WIRE_EXPORT, true, DEPTH, prepare_one, sequence},
    {"wild", "reads so that what is prefetched is not used", QM_WIRE_EXPORT, true, DEPTH, prepare_wild, wild},
    {"statistics", "reads the statistics, of 4096 classes", QM_WIRE_EXPORT, true, 1, prepare_statistics, statistics},
    {"sessions", "connects, begins a context, and leaves", "", true, 1, NULL, sessions},
};
/* clang-format on */

/* ---- threads */

static bool may_act(const struct actor *a)
{
    return a->behaviour == on[0] || a->behaviour == on[1];
}

static void *run(void *opaque)
{
    struct actor *a = opaque;
    const unsigned depth = a->behaviour->depth;
    bool active, ends;

    for (;;) {
        pthread_mutex_lock(&lock);
        if (!may_act(a) && nbd_aio_in_flight(a->nbd) == 0) {
            idle_actors++;
            pthread_cond_broadcast(&changed);
            while (!may_act(a) && !quit)
                pthread_cond_wait(&changed, &lock);
            idle_actors--;
            pthread_cond_broadcast(&changed);
        }
        active = may_act(a);
        ends = quit;
        pthread_mutex_unlock(&lock);
        if (ends)
            return NULL;
        /* Replies may arrive while we send, and the main thread may stop us. */
        for (unsigned i = 0; i < depth && active && (a->now = a->idle); i++) {
            a->idle = a->now->next;
            a->behaviour->act(a, a->now->buf);
            a->count++;
        }
        if (nbd_aio_in_flight(a->nbd) > 0)
            check(nbd_poll(a->nbd, 1000), "the connection");
    }
}

static void start(struct actor *a, const struct behaviour *b, unsigned number)
{
    a->behaviour = b;
    a->random = UINT64_C(0x9e3779b97f4a7c15) * (number + 1);
    a->nbd = connect_to(b->export, &a->header);
    for (unsigned i = 0; i < b->depth; i++) {
        a->requests[i] = (struct request){
            .actor = a,
            .next = a->idle,
            .buf = calloc(BATCH, sizeof(struct qm_wire_record)),
        };
        if (!a->requests[i].buf)
            die("calloc", strerror(errno));
        a->idle = &a->requests[i];
    }
    if (b->prepare)
        b->prepare(a);
    if (pthread_create(&a->thread, NULL, run, a) != 0)
        die("pthread_create", "no thread");
}

static void stop(struct actor *a)
{
    pthread_join(a->thread, NULL);
    nbd_close(a->nbd);
    for (unsigned i = 0; i < DEPTH; i++)
        free(a->requests[i].buf);
}

/* Lets nobody send but those of two behaviours, n of all actors having to rest. */
static void let(const struct behaviour *first, const struct behaviour *second,
                unsigned n)
{
    pthread_mutex_lock(&lock);
    on[0] = first;
    on[1] = second;
    pthread_cond_broadcast(&changed);
    while (idle_actors != n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- measuring */

struct tasks {
    unsigned n;
    long ids[TASKS_MAX];
};

struct sample {
    double at;
    uint64_t reads, ran, waited, others, requests;
};

static long server; /* process */

static void list_tasks(struct tasks *t)
{
    char path[64];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%ld/task", server);
    dir = opendir(path);
    if (!dir)
        die(path, strerror(errno));
    t->n = 0;
    while ((entry = readdir(dir)) && t->n < TASKS_MAX)
        if (*entry->d_name != '.')
            t->ids[t->n++] = strtol(entry->d_name, NULL, 10);
    closedir(dir);
}

static bool is_in(const struct tasks *t, long id)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->ids[i] == id)
            return true;
    return false;
}

/* Nanoseconds that a task computed, and waited for a processor; it may have gone. */
static void add_task(long id, uint64_t *ran, uint64_t *waited)
{
    uint64_t r = 0, w = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/task/%ld/schedstat", server, id);
    file = fopen(path, "r");
    if (!file)
        return;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &r, &w) == 2) {
        *ran += r;
        *waited += w;
    }
    fclose(file);
}

static void take(struct sample *s, const struct tasks *mine, const struct actor *victim,
                 const struct actor *beside, unsigned n)
{
    struct tasks all;
    uint64_t nobody;

    list_tasks(&all);
    *s = (struct sample){.reads = atomic_load(&victim->done)};
    s->at = now();
    for (unsigned i = 0; i < mine->n; i++)
        add_task(mine->ids[i], &s->ran, &s->waited);
    for (unsigned i = 0; i < all.n; i++)
        if (!is_in(mine, all.ids[i]))
            add_task(all.ids[i], &s->others, &nobody);
    for (unsigned i = 0; i < n; i++)
        s->requests += atomic_load(&beside[i].done);
}

static void measure(const struct behaviour *b, unsigned pairs, double seconds,
                    unsigned connections)
{
    struct actor *actors = calloc(1 + 2 * connections, sizeof *actors);
    struct actor *neighbours = actors + 1, *others = neighbours + connections;
    struct tasks before, mine = {0}, after;

    if (!actors)
        die("calloc", strerror(errno));
    list_tasks(&before);
    start(&actors[0], &victim_behaviour, 0);
    list_tasks(&after);
    for (unsigned i = 0; i < after.n; i++)
        if (!is_in(&before, after.ids[i]))
            mine.ids[mine.n++] = after.ids[i];
    if (mine.n == 0)
        die("the victim", "it has no thread in the server");
    for (unsigned i = 0; i < connections; i++) {
        start(&neighbours[i], &neighbour_behaviour, 1 + i);
        start(&others[i], b, 1 + connections + i);
    }
    for (unsigned pair = 0; pair < pairs; pair++) {
        for (unsigned side = 0; side < 2; side++) {
            bool other = (pair + side) % 2 == 1; /* who is first, by turns */
            struct sample from, to;

            let(NULL, NULL, 1 + 2 * connections);
            let(&victim_behaviour, other ? b : &neighbour_behaviour, connections);
            sleep_for(SETTLE);
            take(&from, &mine, &actors[0], other ? others : neighbours, connections);
            sleep_for(seconds);
            take(&to, &mine, &actors[0], other ? others : neighbours, connections);
            while (to.reads == from.reads || to.requests == from.requests) {
                sleep_for(SETTLE); /* a machine so busy that nothing was done */
                take(&to, &mine, &actors[0], other ? others : neighbours, connections);
            }
            printf("%u %s %" PRIu64 " %.6f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                   "\n",
                   pair, other ? "other" : "neighbour", to.reads - from.reads,
                   to.at - from.at, to.ran - from.ran, to.waited - from.waited,
                   to.others - from.others, to.requests - from.requests);
            fflush(stdout);
        }
    }
    let(NULL, NULL, 1 + 2 * connections);
    pthread_mutex_lock(&lock);
    quit = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < 1 + 2 * connections; i++)
        stop(&actors[i]);
    free(actors);
}

static const struct behaviour *find(const char *name)
{
    for (unsigned i = 0; i < sizeof behaviours / sizeof behaviours[0]; i++)
        if (strcmp(behaviours[i].name, name) == 0)
            return &behaviours[i];
    die(name, "there is no such behaviour");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (unsigned i = 0; i < sizeof behaviours / sizeof behaviours[0]; i++)
            printf("%-10s %s\n", behaviours[i].name, behaviours[i].what);
        return 0;
    }
    if (argc != 9) {
        fprintf(stderr, "Usage: hostile SOCKET PID BEHAVIOUR PAIRS SECONDS CONNECTIONS "
                        "HOT SIZE (in blocks)\n       hostile --list\n");
        return 2;
    }
    server_socket = argv[1];
    server = strtol(argv[2], NULL, 10);
    hot = strtoull(argv[7], NULL, 10);
    size = strtoull(argv[8], NULL, 10);
    measure(find(argv[3]), strtoul(argv[4], NULL, 10), strtod(argv[5], NULL),
            strtoul(argv[6], NULL, 10));
    return 0;
}
