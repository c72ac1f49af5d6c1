/* SPDX-License-Identifier: BSD-3-Clause */
/* store.c - opening a store, which partition a key belongs to, and the store's thread.
 *
 *   PATH/qmstore   says that this is a store, and its settings; locked while it is open
 *   PATH/N/log     a partition's log (log.h)
 *   PATH/N/state   a mapped page, which survives a process that is killed
 *   PATH/N/disk/   the disk layer's files
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/internal.h"
#include "rowcache/store/store.h"

enum { PARTITIONS_MAX = 256, TICK_MS = 200 };

#define LEAST_MEMORY (UINT64_C(1) << 20) /* of a partition */

static const char *const policies[] = {"lru", "mru", "lfu", "wtinylfu"};

static const struct policy_ops *find_policy(const char *name)
{
    static const struct policy_ops *const ops[] = {&store_lru, &store_mru, &store_lfu,
                                                   &store_wtinylfu};

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(policies[i], name) == 0)
            return ops[i];
    return NULL;
}

uint64_t store_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t store_ticks(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct store_hash store_hash_of(const void *key, size_t len)
{
    XXH128_hash_t h = XXH3_128bits(key, len);

    return (struct store_hash){h.high64, (uint32_t)(h.low64 >> 32), (uint32_t)h.low64};
}

void store_warn(const struct qmstore_config *config, const char *format, ...)
{
    char message[512];
    va_list args;

    if (!config->warn)
        return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    config->warn(config->opaque, message);
}

void qmstore_config_init(struct qmstore_config *config)
{
    *config = (struct qmstore_config){
        .memory = UINT64_C(64) << 20,
        .partitions = 1,
        .policy = "wtinylfu",
        .disk = "lmdb",
        .durability = QMSTORE_LAZY,
        .false_positives = .01,
        .log_buffer = 256 << 10,
    };
}

static int check(const struct qmstore_config *c, char *err, size_t len)
{
    if (!c->path || !*c->path)
        return store_refuse(err, len, EINVAL, "a store needs a directory");
    if (c->partitions < 1 || c->partitions > PARTITIONS_MAX)
        return store_refuse(err, len, EINVAL,
                            "%u partitions: from 1 to %d are possible", c->partitions,
                            PARTITIONS_MAX);
    if (c->memory / c->partitions < LEAST_MEMORY)
        return store_refuse(
            err, len, EINVAL,
            "%llu bytes of memory are too few: each of %u partitions needs 1 MiB",
            (unsigned long long)c->memory, c->partitions);
    if (!c->policy || !find_policy(c->policy))
        return store_refuse(err, len, EINVAL,
                            "no policy '%s': there are lru, mru, lfu and wtinylfu",
                            c->policy ? c->policy : "");
    if (!c->disk || !store_disk_find(c->disk))
        return store_refuse(
            err, len, EINVAL,
            "no disk layer '%s' in this build: there are bdb, lmdb and files",
            c->disk ? c->disk : "");
    if (!(c->false_positives >= 0 && c->false_positives < 1))
        return store_refuse(err, len, EINVAL, "false positives are from 0 to below 1");
    if (c->write_buffer / 2 > c->memory / 4 || c->disk_cache / 2 > c->memory / 4 ||
        c->log_buffer > c->memory / c->partitions / 4)
        return store_refuse(
            err, len, EINVAL,
            "the buffers are too large for %llu bytes of memory: at most half for "
            "write_buffer and disk_cache, a quarter of a partition's for log_buffer",
            (unsigned long long)c->memory);
    if (c->durability > QMSTORE_NONE)
        return store_refuse(err, len, EINVAL, "no such durability");
    return 0;
}

/* What of a partition's memory is left for its entries. */
void store_set_memory(struct partition *p)
{
    const struct qmstore_config *c = p->config;
    uint64_t all = c->memory / c->partitions;
    uint64_t other = p->buffer_bytes + store_bloom_bytes(&p->bloom) +
                     store_cold_bytes(&p->cold) + store_disk_cache(c);

    if (c->durability != QMSTORE_NONE)
        other += 4 * c->log_buffer; /* two, each enlarged by doubling */
    if (p->ops == &store_wtinylfu)
        other += all / 128; /* the sketch, at most */
    p->memory = other < all - all / 8 ? all - other : all / 8;
}

uint64_t store_disk_cache(const struct qmstore_config *c)
{
    uint64_t bytes = (c->disk_cache ? c->disk_cache : c->memory / 8) / c->partitions;
    uint64_t most = store_disk_find(c->disk)->unsynced_most;

    return c->durability == QMSTORE_NONE && most && bytes > most ? most : bytes;
}

int store_disk_open(struct partition *p, const char *path, char *why, size_t why_len)
{
    const struct qmstore_config *c = p->config;
    const struct disk_config config = {
        .dir = path,
        .hash = p->hash,
        .has_short = p->has_short,
        .cache = store_disk_cache(c),
        .sync = c->durability != QMSTORE_NONE,
        .why = why,
        .why_len = why_len,
    };

    if (mkdirat(p->dir, "disk", 0700) == -1 && errno != EEXIST)
        return errno;
    return p->disk_ops->open(&config, &p->disk);
}

static int close_partition(struct partition *p, bool clean)
{
    int r;

    if (p->disk)
        p->disk_ops->close(p->disk);
    p->disk = NULL;
    r = store_log_close(&p->log, clean);
    if (p->policy)
        p->ops->destroy(p);
    store_table_free(&p->table);
    store_bloom_free(&p->bloom);
    store_cold_free(&p->cold);
    if (p->dir != -1)
        close(p->dir);
    p->dir = -1;
    pthread_mutex_destroy(&p->lock);
    free(p->scratch);
    return r;
}

/* Makes the names below a directory durable. */
static int sync_names(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

    if (fd == -1)
        return errno;
    r = fsync(fd) == -1 ? errno : 0;
    close(fd);
    return r;
}

/* A partition's lock is held for a microsecond or so, unless the disk layer is asked:
 * to spin for that long costs less than to sleep. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t adaptive;

    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
}

enum { WHY = 200 }; /* bytes of what a library says of an error */

/* What the disk layer's library says of an error since the layer was opened. */
static void tell_words(const struct partition *p, char *why)
{
    const char *words = p->disk_ops->words ? p->disk_ops->words(p->disk) : NULL;

    if (words)
        snprintf(why, WHY, "%s", words);
}

/* A partition's: small, so that pages of keys in it that were read are still cached. */
static uint64_t buffer_bytes(const struct qmstore_config *c)
{
    uint64_t bytes =
        (c->write_buffer ? c->write_buffer : c->memory / 128) / c->partitions;

    return c->write_buffer || bytes > 64 << 10 ? bytes : 64 << 10;
}

static struct scratch *new_scratch(const struct qmstore *s, const char *path)
{
    uint64_t can_hold = store_disk_find(s->config.disk)->bytes_most;
    size_t n = strlen(path) + 1;
    struct scratch *scratch = calloc(1, sizeof *scratch + n);

    if (!scratch)
        return NULL;
    scratch->most = s->disk_most / s->config.partitions;
    if (can_hold > 0 && (scratch->most == 0 || scratch->most > can_hold / 4 * 3))
        scratch->most = can_hold / 4 * 3; /* the rest is half-empty pages */
    memcpy(scratch->path, path, n);
    return scratch;
}

/* Opens a partition.  *set_aside: its files are damaged; it is closed again. */
static int open_partition(struct qmstore *s, unsigned number, bool *set_aside,
                          char *why)
{
    const struct qmstore_config *c = &s->config;
    struct partition *p = &s->partitions[number];
    char path[PATH_MAX];
    uint64_t lost = 0;
    int r;

    *p = (struct partition){.config = c,
                            .ops = find_policy(c->policy),
                            .disk_ops = store_disk_find(c->disk),
                            .hash = s->hash,
                            .has_short = s->has_short,
                            .dir = -1,
                            .log = {.fd = -1}};
    *set_aside = false;
    *why = 0;
    init_lock(&p->lock);
    pthread_mutex_init(&p->log.lock, NULL);
    pthread_cond_init(&p->log.written, NULL);
    p->buffer_bytes = buffer_bytes(c);
    snprintf(path, sizeof path, "%u", number);
    if (mkdirat(s->dir, path, 0700) == -1 && errno != EEXIST)
        return errno;
    p->dir = openat(s->dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (p->dir == -1)
        return errno;
    if ((size_t)snprintf(path, sizeof path, "%s/%u/disk", c->path, number) >=
        sizeof path)
        return ENAMETOOLONG;
    if (s->scratch && !(p->scratch = new_scratch(s, path)))
        return ENOMEM;
    /* Chunks are within the bound, full or not; the table takes about a sixteenth. */
    store_set_memory(p);
    r = store_table_init(&p->table, p->memory / 16 * 15 + p->buffer_bytes);
    if (r == 0)
        r = p->ops->init(p);
    if (r != 0)
        return r;
    r = store_disk_open(p, path, why, WHY);
    if (r == 0 && (r = store_filter_make(p)) != 0)
        tell_words(p, why);
    if (r != 0) {
        *set_aside = r == EBADMSG;
        if (*set_aside)
            store_warn(c, *why ? "%s: %s: %s" : "%s: %s", path, strerror(r), why);
        return *set_aside ? 0 : r;
    }
    /* A log that is durable is of no use if its directory is not. */
    if ((r = sync_names(p->dir, "disk")) != 0 || (r = sync_names(s->dir, ".")) != 0)
        return r;
    r = store_recover(p, p->dir, set_aside, &lost);
    if (r != 0) /* it walks, too */
        tell_words(p, why);
    if (r == 0 && lost > 0)
        store_warn(c,
                   "%s/%u: the last %llu changes that an earlier process made are lost",
                   c->path, number, (unsigned long long)lost);
    if (r == 0 && p->stats.damaged > 0)
        store_warn(c, "%s/%u: %llu records on disk are damaged", c->path, number,
                   (unsigned long long)p->stats.damaged);
    return r;
}

static int set_partition_aside(struct qmstore *s, unsigned number)
{
    char name[16], aside[48];

    snprintf(name, sizeof name, "%u", number);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(aside, sizeof aside, i ? "%u.damaged-%u" : "%u.damaged", number, i);
        if (renameat2(s->dir, name, s->dir, aside, RENAME_NOREPLACE) == 0) {
            store_warn(
                &s->config,
                "%s/%s is damaged, or of a process that was killed with durability "
                "none: it is set aside as %s, and begins empty",
                s->config.path, name, aside);
            return 0;
        }
        if (errno != EEXIST)
            return errno;
    }
    return EEXIST;
}

static int open_partitions(struct qmstore *s, char *err, size_t len)
{
    const struct qmstore_config *c = &s->config;

    for (unsigned i = 0; i < c->partitions; i++) {
        bool aside;
        char why[WHY];
        int r = open_partition(s, i, &aside, why);

        s->opened = i + 1;
        if (r == 0 && aside) {
            (void)close_partition(&s->partitions[i], false);
            s->opened = i;
            r = set_partition_aside(s, i);
            if (r == 0) {
                r = open_partition(s, i, &aside, why);
                s->opened = i + 1;
                if (r == 0 && aside)
                    r = EIO;
            }
        }
        if (r != 0)
            return store_refuse(err, len, r, *why ? "%s/%u: %s: %s" : "%s/%u: %s",
                                c->path, i, strerror(r), why);
    }
    return 0;
}

/* Each TICK_MS: what is acknowledged goes to the kernel, and keys whose life has ended
 * leave. */
static void *run(void *opaque)
{
    struct qmstore *s = opaque;
    struct timespec until;

    pthread_mutex_lock(&s->lock);
    while (!s->ends) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&s->lock);
        for (unsigned i = 0; i < s->config.partitions; i++)
            store_tick(s, i);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the program: one that blocks them later, to wait for them, would end
 * in this thread. */
static int start_thread(struct qmstore *s)
{
    sigset_t all, before;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

void store_tick(struct qmstore *s, unsigned i)
{
    struct partition *p = &s->partitions[i];

    if (p->logs)
        (void)store_log_write(&p->log, false);
    pthread_mutex_lock(&p->lock);
    store_partition_sweep(p);
    store_scratch_mend(p);
    pthread_mutex_unlock(&p->lock);
}

/* A child of fork() has these descriptors, too, and would keep the lock. */
static void unlock_and_close(int fd)
{
    if (fd == -1)
        return;
    (void)flock(fd, LOCK_UN);
    close(fd);
}

static void free_store(struct qmstore *s)
{
    unlock_and_close(s->format);
    unlock_and_close(s->dir);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s->partitions);
    free(s->path);
    free(s);
}

/* The disk layers open files by the path all the time, and the process may change its
 * working directory. */
static char *absolute(const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0), *whole = NULL;
    size_t len = here ? strlen(here) + strlen(path) + 2 : 0;

    if (*path == '/')
        return strdup(path);
    if (here && (whole = malloc(len)))
        snprintf(whole, len, "%s/%s", here, path);
    free(here);
    return whole;
}

/* And never 0, which is no bound. */
static uint64_t half_of_disk(const struct qmstore *s)
{
    uint64_t least = s->config.partitions * LEAST_MEMORY, half = 0;
    struct statvfs fs;

    if (s->dir != -1 && fstatvfs(s->dir, &fs) == 0)
        half = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
    return half > least ? half : least;
}

static int open_store(const struct qmstore_config *config, bool scratch,
                      uint64_t disk_most, struct qmstore **store, char *err,
                      size_t err_len)
{
    pthread_condattr_t monotonic;
    struct qmstore *s;
    bool is_new = false;
    int r = check(config, err, err_len);

    if (r != 0)
        return r;
    s = calloc(1, sizeof *s);
    if (!s)
        return store_refuse(err, err_len, ENOMEM, "out of memory");
    s->dir = s->format = -1;
    s->config = *config;
    s->scratch = scratch;
    s->disk_most = disk_most;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->path = absolute(config->path);
    r = s->path ? 0 : errno;
    s->partitions = calloc(config->partitions, sizeof *s->partitions);
    if (!s->partitions)
        r = ENOMEM;
    if (r != 0) {
        free_store(s);
        return store_refuse(err, err_len, r, "%s: %s", config->path, strerror(r));
    }
    s->config.path = s->path;
    s->config.policy = find_policy(config->policy)->name;
    s->config.disk = store_disk_find(config->disk)->name;
    if (mkdir(s->path, 0700) == 0)
        is_new = true;
    else if (errno != EEXIST)
        r = errno;
    if (r == 0 && (s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1)
        r = errno;
    if (r == 0 && is_new)
        r = sync_names(s->dir, "..");
    if (r == EACCES && is_new) /* a directory above that only its owner may read */
        r = 0;
    if (r != 0)
        (void)store_refuse(err, err_len, r, "%s: %s", s->path, strerror(r));
    else
        r = store_format_open(s, err, err_len);
    if (s->disk_most == QMSTORE_DISK_HALF)
        s->disk_most = half_of_disk(s);
    if (r == 0)
        r = open_partitions(s, err, err_len);
    if (r == 0 && !config->threadless) {
        r = start_thread(s);
        if (r != 0)
            (void)store_refuse(err, err_len, r, "no thread: %s", strerror(r));
    }
    if (r != 0) {
        for (unsigned i = 0; i < s->opened; i++) {
            struct partition *p = &s->partitions[i];

            /* Nothing was changed, so in QMSTORE_NONE nothing is to be set aside. */
            (void)close_partition(p, !scratch && p->log.opened &&
                                         store_checkpoint(p) == 0);
        }
        free_store(s);
        return r;
    }
    *store = s;
    return 0;
}

int qmstore_open(const struct qmstore_config *config, struct qmstore **store, char *err,
                 size_t err_len)
{
    return open_store(config, false, 0, store, err, err_len);
}

int qmstore_open_scratch(const struct qmstore_config *config, uint64_t disk_most,
                         struct qmstore **store, char *err, size_t err_len)
{
    struct qmstore_config c = *config;

    c.durability = QMSTORE_NONE;
    return open_store(&c, true, disk_most, store, err, err_len);
}

int qmstore_close(struct qmstore *s)
{
    int first = 0;

    if (!s->config.threadless) {
        pthread_mutex_lock(&s->lock);
        s->ends = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (unsigned i = 0; i < s->config.partitions; i++) {
        struct partition *p = &s->partitions[i];
        int r = s->scratch ? 0 : store_checkpoint(p), error;

        if (r != 0 && p->logs) /* without room for a new log, the old one has some */
            (void)store_log_write(&p->log, true);
        error = close_partition(p, r == 0);
        if (first == 0)
            first = r ? r : error;
    }
    if (s->scratch)
        first = store_scratch_remove(s->dir);
    free_store(s);
    return first;
}
