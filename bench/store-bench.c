/* SPDX-License-Identifier: BSD-3-Clause */
/* store-bench.c - operations a second of a key-value store, on the thesis' workloads:
 * 4-byte keys and small values, drawn uniformly or by Zipf's law, with memory for a
 * share of the keys.  Also of LMDB and Berkeley DB alone, with the same work and as
 * much memory, and of Redis with maxmemory: what it has evicted is a miss, and is set
 * again, as a program does that has it elsewhere.
 *
 * Prints one line: operations a second, of all and of the last fifth; hits of memory
 * and all look-ups in the last fifth; bytes of memory, keys there; operations a second
 * of this process's CPU time, which other programs disturb less (0: another process
 * does the work); and of each operation, bytes read from disk, bytes of pages that
 * became dirty, and major page faults.  With --seconds, "the last fifth" is the second
 * half of the time, and all of these are of it.  A line for each action of several. */
#include <argp.h>
#include <db.h>
#include <errno.h>
#include <lmdb.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "rowcache/store/qmstore.h"
#include "store-redis.h"

enum action { GET, UPDATE, BOTH };
enum { ACTIONS = 3 };

static struct {
    const char *engine, *policy, *disk, *dir, *durability, *socket, *group;
    unsigned long long operations, keys, memory, seed, limit;
    unsigned value, partitions, threads;
    double zipf; /* 0: uniform */
    double share;
    double seconds;                       /* 0: as long as the operations take */
    enum action actions[ACTIONS], action; /* the present one */
    unsigned n_actions;
    bool shift; /* popularity moves on five times */
} o = {
    .engine = "store",
    .policy = "lfu",
    .durability = "none",
    .operations = 1000000,
    .keys = 100000,
    .value = 64,
    .partitions = 1,
    .threads = 1,
    .zipf = 1,
    .share = .25,
    .actions = {BOTH},
    .n_actions = 1,
    .seed = 1,
};

static const struct argp_option options[] = {
    {"engine", 'e', "NAME", 0, "store, lmdb, bdb or redis", 0},
    {"policy", 'p', "NAME", 0, "of the store", 0},
    {"disk", 'd', "NAME", 0, "of the store", 0},
    {"durability", 'D', "NAME", 0, "of the store: sync, lazy or none", 0},
    {"operations", 'n', "N", 0, "1000000", 0},
    {"keys", 'k', "N", 0, "100000", 0},
    {"value", 'v', "BYTES", 0, "64", 0},
    {"memory", 'm', "BYTES", 0, "instead of --share", 0},
    {"share", 's', "SHARE", 0, "of the keys that memory is for; .25", 0},
    {"zipf", 'z', "S", 0, "exponent; 0: uniform", 0},
    {"action", 'a', "NAME", 0, "get, update or both; or several: get,update", 0},
    {"partitions", 'P', "N", 0, "1", 0},
    {"threads", 't', "N", 0, "1", 0},
    {"seed", 'S', "N", 0, "1", 0},
    {"socket", 's' + 256, "PATH", 0, "of the server, for redis", 0},
    {"group", 'g', "DIR", 0,
     "a memory control group to join before the store is opened", 0},
    {"limit", 'l', "BYTES", 0, "of that group, once all keys are there", 0},
    {"seconds", 'T', "S", 0, "ends after so long, if the operations are not done", 0},
    {"shift", 'x', NULL, 0, "popularity moves to other keys five times", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case 'e':
        o.engine = arg;
        break;
    case 'p':
        o.policy = arg;
        break;
    case 'd':
        o.disk = arg;
        break;
    case 'D':
        o.durability = arg;
        break;
    case 'n':
        o.operations = strtoull(arg, NULL, 10);
        break;
    case 'k':
        o.keys = strtoull(arg, NULL, 10);
        break;
    case 'v':
        o.value = (unsigned)strtoul(arg, NULL, 10);
        break;
    case 'm':
        o.memory = strtoull(arg, NULL, 10);
        break;
    case 's':
        o.share = strtod(arg, NULL);
        break;
    case 'z':
        o.zipf = strtod(arg, NULL);
        break;
    case 'a':
        o.n_actions = 0;
        for (char *a = strtok(arg, ","); a && o.n_actions < ACTIONS;
             a = strtok(NULL, ","))
            o.actions[o.n_actions++] = *a == 'g' ? GET : *a == 'u' ? UPDATE : BOTH;
        break;
    case 'P':
        o.partitions = (unsigned)strtoul(arg, NULL, 10);
        break;
    case 't':
        o.threads = (unsigned)strtoul(arg, NULL, 10);
        break;
    case 'S':
        o.seed = strtoull(arg, NULL, 10);
        break;
    case 's' + 256:
        o.socket = arg;
        break;
    case 'g':
        o.group = arg;
        break;
    case 'l':
        o.limit = strtoull(arg, NULL, 10);
        break;
    case 'T':
        o.seconds = strtod(arg, NULL);
        break;
    case 'x':
        o.shift = true;
        break;
    case ARGP_KEY_ARG:
        if (o.dir)
            return ARGP_ERR_UNKNOWN;
        o.dir = arg;
        break;
    case ARGP_KEY_END:
        if (!o.dir || o.keys == 0 || o.operations == 0 || o.threads == 0 || o.value < 8)
            argp_usage(state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static _Noreturn void die(const char *what, int error)
{
    fprintf(stderr, "store-bench: %s: %s\n", what,
            error < 0 ? "failed" : strerror(error));
    exit(1);
}

/* The engines. */
static struct qmstore *store;
static MDB_env *env;
static MDB_dbi dbi;
static MDB_txn *loading; /* while the keys are loaded: of several of them */
static DB *bdb;
static DB_ENV *bdb_env;
static bool redis;
static _Atomic uint64_t redis_hits, redis_misses;

static int get(uint32_t key, char *value)
{
    if (redis) {
        int r = redis_get(key, value, o.value);

        redis_hits += r == 0;
        redis_misses += r == ENOENT;
        return r == ENOENT ? redis_put(key, value, o.value) : r;
    }
    if (store) {
        void *v;
        int r = qmstore_get(store, &key, sizeof key, &v, NULL, NULL);

        if (r == 0)
            free(v);
        return r;
    }
    if (env) {
        MDB_val k = {sizeof key, &key}, v;
        static __thread MDB_txn *txn;
        int r = txn ? mdb_txn_renew(txn) : mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);

        if (r == 0)
            r = mdb_get(txn, dbi, &k, &v);
        if (r == 0)
            memcpy(value, v.mv_data, v.mv_size);
        mdb_txn_reset(txn);
        return r == MDB_NOTFOUND ? ENOENT : r;
    } else {
        DBT k = {.data = &key, .size = sizeof key};
        DBT v = {.data = value, .ulen = o.value, .flags = DB_DBT_USERMEM};
        int r = bdb->get(bdb, NULL, &k, &v, 0);

        return r == DB_NOTFOUND ? ENOENT : r;
    }
}

static int put(uint32_t key, char *value)
{
    memcpy(value, &key, sizeof key);
    if (redis)
        return redis_put(key, value, o.value);
    if (store)
        return qmstore_put(store, &key, sizeof key, value, o.value, 0);
    if (env) {
        MDB_val k = {sizeof key, &key}, v = {o.value, value};
        MDB_txn *txn = loading;
        int r = txn ? 0 : mdb_txn_begin(env, NULL, 0, &txn);

        if (r == 0)
            r = mdb_put(txn, dbi, &k, &v, 0);
        return r == 0 && !loading ? mdb_txn_commit(txn) : r;
    } else {
        DBT k = {.data = &key, .size = sizeof key},
            v = {.data = value, .size = o.value};

        return bdb->put(bdb, NULL, &k, &v, 0);
    }
}

/* Bytes of the store's table of that many entries: lines for six, which grow by a
 * quarter. */
static double table(double entries)
{
    uint64_t lines = 8;

    while ((double)lines * 6 < entries)
        lines += lines / 4;
    return (double)lines * 64;
}

/* The memory that leaves `left` bytes beside the write buffer, which is a 128th of it
 * and 64 KiB a partition at least, and beside `share` more 128ths. */
static double with_buffer(double left, unsigned share)
{
    return fmax(left * 128 / (127 - share),
                (left + 65536.0 * o.partitions) * 128 / (128 - share));
}

/* The memory with which the store has the share of its keys in memory (its sixth figure
 * tells): their entries, the table of these and of the write buffer's, the filter of
 * those on disk, which all may be, the write buffer, what the disk layer uses of an
 * eighth, and under LFU counts of keys on disk, in at most a sixteenth. */
static uint64_t memory(void)
{
    double keys = (double)o.keys * o.share;
    uint64_t entry = (48 + 4 + o.value + 8 + 15) / 16 * 16;
    double lines = table(keys / o.partitions * 1.1) * o.partitions;
    double filter = (double)o.keys * 1.5 * 9.6 / 8;
    double counts = strcmp(o.policy, "lfu") ? 0 : (double)o.keys * 1.5 * 4.6;
    double other = keys * (double)entry + lines + filter;
    double lmdb = *o.durability == 'n' && (!o.disk || strcmp(o.disk, "lmdb") == 0)
                      ? (512 << 10) * o.partitions
                      : 0;              /* its pages of a transaction */
    unsigned cache = lmdb > 0 ? 0 : 16; /* 128ths */
    double all = fmin(with_buffer(other + lmdb + counts, cache),
                      with_buffer(other + lmdb, cache + 8));

    return o.memory ? o.memory : (uint64_t)all;
}

/* Writes to a file of the group.  0, or an errno value. */
static int tell_group(const char *file, unsigned long long number)
{
    char name[4096];
    FILE *f;

    snprintf(name, sizeof name, "%s/%s", o.group, file);
    f = fopen(name, "r+e");
    if (!f)
        return errno;
    fprintf(f, "%llu\n", number);
    return fclose(f) == 0 ? 0 : errno;
}

/* From here on, what this process allocates and what it reads from files counts there.
 */
static void join_group(void)
{
    int r = tell_group("cgroup.procs", 0); /* 0: this process */

    if (r != 0)
        die(o.group, r);
}

/* The kernel takes away cached pages that are over the limit: none is dirty. */
static void limit_group(void)
{
    int r = EBUSY;

    for (unsigned tries = 0; r == EBUSY && tries < 10; tries++) {
        sync();
        r = tell_group("memory.max", o.limit);
        if (r == ENOENT)
            r = tell_group("memory.limit_in_bytes", o.limit);
    }
    if (r != 0)
        die("the group's limit", r);
}

static void open_engine(void)
{
    uint64_t bytes = memory();
    int r;

    mkdir(o.dir, 0700);
    if (strcmp(o.engine, "redis") == 0) {
        if (!o.socket || (r = redis_open(o.socket, bytes)) != 0)
            die("redis", o.socket ? r : EINVAL);
        redis = true;
        return;
    }
    if (strcmp(o.engine, "store") == 0) {
        struct qmstore_config c;
        char err[400];

        qmstore_config_init(&c);
        c.path = o.dir;
        c.policy = o.policy;
        if (o.disk)
            c.disk = o.disk;
        c.partitions = o.partitions;
        c.durability = *o.durability == 's'   ? QMSTORE_SYNC
                       : *o.durability == 'l' ? QMSTORE_LAZY
                                              : QMSTORE_NONE;
        c.memory = bytes < o.partitions << 20 ? o.partitions << 20 : bytes;
        r = qmstore_open(&c, &store, err, sizeof err);
        if (r != 0)
            die(err, r);
    } else if (strcmp(o.engine, "lmdb") == 0) {
        MDB_txn *txn;

        if ((r = mdb_env_create(&env)) != 0 ||
            (r = mdb_env_set_mapsize(env, UINT64_C(8) << 30)) != 0 ||
            /* Where data is larger than memory, its manual advises against read-ahead.
             */
            (r = mdb_env_open(env, o.dir,
                              MDB_NOSYNC | MDB_NOTLS | (o.group ? MDB_NORDAHEAD : 0),
                              0600)) != 0 ||
            (r = mdb_txn_begin(env, NULL, 0, &txn)) != 0 ||
            (r = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi)) != 0 ||
            (r = mdb_txn_commit(txn)) != 0)
            die("lmdb", r);
    } else {
        if ((r = db_env_create(&bdb_env, 0)) != 0 ||
            (r = bdb_env->set_cachesize(bdb_env, (uint32_t)(bytes >> 30),
                                        (uint32_t)(bytes & ((1u << 30) - 1)), 1)) !=
                0 ||
            (r = bdb_env->open(bdb_env, o.dir,
                               DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_THREAD,
                               0600)) != 0 ||
            (r = db_create(&bdb, bdb_env, 0)) != 0 ||
            (r = bdb->open(bdb, NULL, "db", NULL, DB_HASH, DB_CREATE | DB_THREAD,
                           0600)) != 0)
            die("Berkeley DB", r);
    }
}

/* Zipf's law: the probability of a key at most as popular, and, for a quick start of
 * the search (guide[i]), the first key with a probability of at least i / o.keys. */
static double *cumulative;
static uint32_t *guide;

static void prepare_zipf(void)
{
    double sum = 0;

    cumulative = calloc(o.keys, sizeof *cumulative);
    guide = calloc(o.keys, sizeof *guide);
    if (!cumulative || !guide)
        die("Zipf's law", ENOMEM);
    for (uint64_t i = 0; i < o.keys; i++)
        cumulative[i] = sum += pow((double)(i + 1), -o.zipf);
    for (uint64_t i = 0; i < o.keys; i++)
        cumulative[i] /= sum;
    for (uint64_t i = 0, key = 0; i < o.keys; i++) {
        while (key < o.keys - 1 && cumulative[key] < (double)i / (double)o.keys)
            key++;
        guide[i] = (uint32_t)key;
    }
}

static uint32_t draw(struct drand48_data *random, double shifted)
{
    uint64_t rank;
    double x;

    drand48_r(random, &x);
    if (o.zipf == 0)
        return (uint32_t)((double)o.keys * x);
    rank = guide[(uint64_t)((double)o.keys * x)];
    while (rank < o.keys - 1 && cumulative[rank] < x)
        rank++;
    /* Popular keys do not lie together. */
    rank = (rank + (uint64_t)shifted * (o.keys / 5)) % o.keys;
    return (uint32_t)(rank * 2654435761u % o.keys);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct worker {
    pthread_t thread;
    unsigned number, series;
    uint64_t from, to, done;
    double until; /* or earlier; 0: not */
};

enum { LOOKS = 64 }; /* operations between two looks at the clock */

static void *work(void *opaque)
{
    struct worker *w = opaque;
    struct drand48_data random;
    char *value = calloc(1, o.value);

    /* Not the keys of the action before, which are in memory. */
    srand48_r(
        (long)((o.seed + w->series * UINT64_C(1000000)) * 1000 + w->number + w->from),
        &random);
    for (uint64_t i = w->from; i < w->to; i++) {
        uint32_t key =
            draw(&random, o.shift ? floor((double)i * 5 / (double)o.operations) : 0);
        double coin = 0;
        int r;

        if (w->until > 0 && (i - w->from) % LOOKS == 0 && now() >= w->until)
            break;
        if (o.action == BOTH)
            drand48_r(&random, &coin);
        r = o.action == GET || (o.action == BOTH && coin < .5) ? get(key, value)
                                                               : put(key, value);
        if (r != 0)
            die("an operation", r);
        w->done++;
    }
    free(value);
    return NULL;
}

/* The operations that were done. */
static uint64_t run(unsigned series, uint64_t from, uint64_t to)
{
    struct worker *workers = calloc(o.threads, sizeof *workers);
    double until = o.seconds > 0 ? now() + o.seconds / 2 : 0;
    uint64_t done = 0;

    for (unsigned i = 0; i < o.threads; i++) {
        workers[i] = (struct worker){.number = i,
                                     .series = series,
                                     .from = from + (to - from) * i / o.threads,
                                     .to = from + (to - from) * (i + 1) / o.threads,
                                     .until = until};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            die("a thread", errno);
    }
    for (unsigned i = 0; i < o.threads; i++) {
        pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
    }
    free(workers);
    return done;
}

/* All keys are there first, in an order that says nothing.  LMDB gets many of them in a
 * transaction: this takes no part in the time. */
static void load(char *value)
{
    enum { TOGETHER = 1000 };
    int r = 0;

    for (uint64_t i = 0; i < o.keys && r == 0; i++) {
        if (env && !loading)
            r = mdb_txn_begin(env, NULL, 0, &loading);
        if (r == 0)
            r = put((uint32_t)((i * 7919 + 17) % o.keys), value);
        if (r == 0 && loading && (i % TOGETHER == TOGETHER - 1 || i == o.keys - 1)) {
            r = mdb_txn_commit(loading);
            loading = NULL;
        }
    }
    if (r != 0)
        die("loading", r);
}

/* At a moment. */
struct mark {
    double time, processor;
    struct rusage used;
    struct qmstore_stats stats;
};

static struct mark mark(void)
{
    struct mark m = {.time = now()};

    getrusage(RUSAGE_SELF, &m.used);
    m.processor = (double)(m.used.ru_utime.tv_sec + m.used.ru_stime.tv_sec) +
                  (double)(m.used.ru_utime.tv_usec + m.used.ru_stime.tv_usec) / 1e6;
    if (store)
        qmstore_get_stats(store, &m.stats);
    return m;
}

static void measure(unsigned series)
{
    struct mark began, fifth, ended;
    uint64_t first, last, hits, all;
    double whole;

    began = mark();
    first = run(series, 0, o.operations / 5 * 4);
    redis_hits = redis_misses = 0;
    fifth = mark();
    last = run(series, o.operations / 5 * 4, o.operations);
    ended = mark();
    if (o.seconds > 0) {
        began = fifth;
        first = 0;
    }
    whole = (double)(first + last);
    hits = ended.stats.memory_hits - fifth.stats.memory_hits;
    all = hits + ended.stats.buffer_hits - fifth.stats.buffer_hits +
          ended.stats.disk_hits - fifth.stats.disk_hits + ended.stats.misses -
          fifth.stats.misses;
    if (redis) {
        hits = redis_hits;
        all = redis_hits + redis_misses;
    }
    printf("%.0f %.0f %llu %llu %llu %llu %.0f %.0f %.0f %.3f\n",
           whole / (ended.time - began.time), (double)last / (ended.time - fifth.time),
           (unsigned long long)hits, (unsigned long long)all,
           (unsigned long long)ended.stats.memory,
           (unsigned long long)ended.stats.memory_keys,
           redis ? 0 : whole / (ended.processor - began.processor),
           (double)(ended.used.ru_inblock - began.used.ru_inblock) * 512 / whole,
           (double)(ended.used.ru_oublock - began.used.ru_oublock) * 512 / whole,
           (double)(ended.used.ru_majflt - began.used.ru_majflt) / whole);
}

int main(int argc, char **argv)
{
    const struct argp argp = {options,
                              parse,
                              "DIR",
                              "Operations a second of a key-value "
                              "store in DIR, which is new or empty.",
                              NULL,
                              NULL,
                              NULL};
    char *value;

    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    value = calloc(1, o.value);
    if (o.zipf > 0)
        prepare_zipf();
    if (o.group)
        join_group();
    open_engine();
    load(value);
    if (o.group && o.limit)
        limit_group();
    for (unsigned i = 0; i < o.n_actions; i++) {
        o.action = o.actions[i];
        measure(i);
    }
    return store && qmstore_close(store) != 0;
}
