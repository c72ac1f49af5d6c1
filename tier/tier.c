/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - opening and closing, the thread that keeps house, errors and death. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "tier/internal.h"

#define SCORE_DECAY 4096 /* successes after which errors are forgotten */

/* ---- Errors
 * --------------------------------------------------------------------------- */

static void say(struct qm_tier *t, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

static void say(struct qm_tier *t, const char *format, va_list args)
{
    char message[600];

    if (!t->config.warn)
        return;
    vsnprintf(message, sizeof message, format, args);
    t->config.warn(t->config.opaque, message);
}

void tier_warn(struct qm_tier *t, unsigned once, const char *format, ...)
{
    va_list args;

    if (once && (atomic_fetch_or(&t->told, once) & once))
        return;
    va_start(args, format);
    say(t, format, args);
    va_end(args);
}

void tier_die(struct qm_tier *t, const char *format, ...)
{
    va_list args;

    pthread_mutex_lock(&t->die_lock);
    if (!tier_dead(t)) {
        va_start(args, format);
        vsnprintf(t->reason, sizeof t->reason, format, args);
        va_end(args);
        atomic_store(&t->dead, true);
        atomic_store(&t->unsafe, !super_invalidate(t));
        tier_warn(t, 0, "the tier is detached, and service goes on without it: %s%s",
                  t->reason,
                  t->unsafe
                      ? "; it could not be marked invalid: remove its file before "
                        "the next start"
                      : "");
    }
    pthread_mutex_unlock(&t->die_lock);
}

void tier_wait_dead(struct qm_tier *t)
{
    pthread_mutex_lock(&t->die_lock);
    pthread_mutex_unlock(&t->die_lock);
}

void tier_error(struct qm_tier *t, enum warning kind, int error)
{
    static const char *const what[] = {
        [WARN_READ] = "cannot read from the tier",
        [WARN_WRITE] = "cannot write to the tier",
        [WARN_CHECKSUM] = "a block of the tier has a wrong checksum",
    };
    unsigned score;

    if (kind == WARN_WRITE && error == ENODEV && tier_dead(t))
        return;
    if (kind == WARN_READ)
        COUNT(t, read_errors);
    else if (kind == WARN_WRITE)
        COUNT(t, write_errors);
    else
        COUNT(t, wrong_checksums);
    atomic_store(&t->successes, 0);
    score = atomic_fetch_add(&t->error_score, 1) + 1;
    if (score >= t->config.errors)
        tier_die(t, "%u errors, the last one: %s%s%s", score, what[kind],
                 kind == WARN_CHECKSUM ? "" : ": ",
                 kind == WARN_CHECKSUM ? "" : strerror(error));
    else
        tier_warn(t, kind, "%s%s%s; that is a miss", what[kind],
                  kind == WARN_CHECKSUM ? "" : ": ",
                  kind == WARN_CHECKSUM ? "" : strerror(error));
}

void tier_success(struct qm_tier *t)
{
    if (atomic_load_explicit(&t->error_score, memory_order_relaxed) > 0 &&
        atomic_fetch_add(&t->successes, 1) + 1 >= SCORE_DECAY)
        atomic_store(&t->error_score, 0);
}

uint64_t tier_now(struct qm_tier *t)
{
    struct timespec now;

    if (t->config.now)
        return t->config.now(t->config.opaque);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *tier_alloc(struct qm_tier *t, size_t bytes)
{
    void *p = calloc(1, bytes);

    if (p)
        atomic_fetch_add(&t->memory, bytes);
    return p;
}

void *tier_pages(struct qm_tier *t, size_t bytes)
{
    void *p;

    bytes = (bytes + QM_TIER_PAGE - 1) / QM_TIER_PAGE * QM_TIER_PAGE;
    p = aligned_alloc(QM_TIER_PAGE, bytes);
    if (p)
        atomic_fetch_add(&t->memory, bytes);
    return p;
}

int tier_write(struct qm_tier *t, enum qm_tier_file file, const void *buf, size_t n,
               uint64_t at, bool durable)
{
    ADD(t, bytes_written, n);
    admit_pay(t, n);
    return t->io.write(t->io.opaque, file, buf, n, at, durable);
}

int tier_sync(struct qm_tier *t)
{
    int r;

    COUNT(t, syncs);
    r = t->io.sync(t->io.opaque);
    /* The kernel may have thrown away what it could not write, tags among it. */
    if (r != 0)
        tier_die(t, "cannot sync: %s", strerror(r));
    return r;
}

/* ---- Housekeeping
 * --------------------------------------------------------------------- */

void qm_tier_tick(struct qm_tier *t, bool urgent)
{
    uint64_t written, syncs;
    int r;

    if (tier_dead(t)) {
        pthread_mutex_lock(&t->die_lock);
        if (t->unsafe && super_invalidate(t))
            atomic_store(&t->unsafe, false);
        pthread_mutex_unlock(&t->die_lock);
        return;
    }
    pthread_mutex_lock(&t->log.lock);
    r = t->io.present(t->io.opaque, t->size);
    if (r == 0)
        (void)log_footer(t);
    pthread_mutex_unlock(&t->log.lock);
    (void)state_observe(t);
    if (r == ENOENT)
        tier_warn(t, WARN_GONE,
                  "the tier's file was removed: it is used until the server ends");
    else if (r != 0)
        tier_die(t, "its file was truncated or cannot be looked at: %s", strerror(r));
    if (tier_dead(t))
        return;
    pthread_mutex_lock(&t->keeper.sync_lock);
    written = atomic_load(&t->n.bytes_written);
    syncs = atomic_load(&t->n.syncs);
    r = intent_clear(t, urgent); /* which may sync */
    if (r != 0 && !tier_dead(t))
        tier_error(t, WARN_WRITE, r);
    if (written != t->keeper.synced && !tier_dead(t) &&
        (atomic_load(&t->n.syncs) != syncs || tier_sync(t) == 0))
        t->keeper.synced = written;
    pthread_mutex_unlock(&t->keeper.sync_lock);
}

static void *keep(void *opaque)
{
    struct qm_tier *t = opaque;

    pthread_mutex_lock(&t->keeper.lock);
    while (!t->keeper.stop) {
        struct timespec until;
        int r = 0;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += t->config.sync_ms / 1000;
        until.tv_nsec += t->config.sync_ms % 1000 * 1000000l;
        if (until.tv_nsec >= 1000000000l) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000l;
        }
        while (!t->keeper.stop && r != ETIMEDOUT)
            r = pthread_cond_clockwait(&t->keeper.wake, &t->keeper.lock,
                                       CLOCK_MONOTONIC, &until);
        if (t->keeper.stop)
            break;
        pthread_mutex_unlock(&t->keeper.lock);
        qm_tier_tick(t, false);
        pthread_mutex_lock(&t->keeper.lock);
    }
    pthread_mutex_unlock(&t->keeper.lock);
    return NULL;
}

static int keeper_start(struct qm_tier *t)
{
    int r = t->config.threadless ? 0 : pthread_create(&t->keeper.thread, NULL, keep, t);

    t->keeper.running = r == 0 && !t->config.threadless;
    return r;
}

static void keeper_stop(struct qm_tier *t)
{
    pthread_mutex_lock(&t->keeper.lock);
    t->keeper.stop = true;
    pthread_cond_broadcast(&t->keeper.wake);
    pthread_mutex_unlock(&t->keeper.lock);
    if (t->keeper.running)
        pthread_join(t->keeper.thread, NULL);
    t->keeper.running = false;
}

int qm_tier_sync(struct qm_tier *t)
{
    int r;

    qm_tier_drain(t);
    if (tier_dead(t))
        return ENODEV;
    pthread_mutex_lock(&t->log.lock);
    r = log_footer(t);
    pthread_mutex_unlock(&t->log.lock);
    return r ? r : tier_sync(t);
}

/* ---- Opening and closing
 * -------------------------------------------------------------- */

void qm_tier_config_init(struct qm_tier_config *config)
{
    *config = (struct qm_tier_config){
        .threads = 4,
        .sync_ms = 5000,
        .errors = 16,
        .direct = true,
        .ring = true,
        .data = true,
        .verify = QM_TIER_VERIFY_NEVER,
    };
}

int qm_tier_check(const struct qm_tier_config *c, char *err, size_t len)
{
    const struct qm_tier_identity *id = &c->identity;
    struct qm_tier_geometry g;
    const char *wrong = NULL;

    if (len > 0)
        err[0] = 0;
    if (!id->volume || !id->volume[0] || strlen(id->volume) >= QM_TIER_NAME)
        wrong = "the volume's name must have 1 to 255 bytes";
    else if (id->block_size < 512 || id->block_size > 16u << 20 ||
             (id->block_size & (id->block_size - 1)))
        wrong = "the block size must be a power of two from 512 to 16777216";
    else if (id->size == 0 || id->size > (uint64_t)INT64_MAX)
        wrong = "the volume's size must be from 1 to 2^63 - 1 bytes";
    else if ((c->known && strlen(c->known) >= QM_TIER_STATE) ||
             (c->before && strlen(c->before) >= QM_TIER_STATE))
        wrong = "the volume's state must have fewer than 128 bytes";
    else if (c->data && !c->path && !c->io)
        wrong = "a tier needs a path";
    else if (!c->data && (c->path || c->io || c->size == 0))
        wrong = "a tier without data has a size and no path";
    else if (c->threads > 64)
        wrong = "the number of threads must be at most 64";
    else if (c->queue > 1u << 20)
        wrong = "the queue must have at most 1048576 blocks";
    else if (c->bloom < 0 || c->bloom >= 1)
        wrong = "the Bloom filter's false-positive rate must be at least 0 and below 1";
    else if (c->write_rate > (uint64_t)INT64_MAX / 2)
        wrong = "the write rate must be below 2^62 bytes a day";
    else if (c->size != 0 &&
             !qm_tier_geometry(&g, c->size, c->segment, id->size, id->block_size))
        wrong = "the size must hold at least 4 segments, of 256 KiB and 8 blocks or as "
                "given, and at most 2^32 blocks";
    if (wrong && len > 0)
        snprintf(err, len, "%s", wrong);
    return wrong ? EINVAL : 0;
}

static void destroy(struct qm_tier *t)
{
    reader_free(t);
    queue_free(t);
    intent_free(t);
    journal_free(t);
    verify_free(t);
    admit_free(t);
    index_free(t);
    log_free(t);
    if (t->io.close)
        t->io.close(t->io.opaque);
    pthread_mutex_destroy(&t->log.lock);
    pthread_mutex_destroy(&t->queue.lock);
    pthread_cond_destroy(&t->queue.filled);
    pthread_cond_destroy(&t->queue.drained);
    pthread_mutex_destroy(&t->reader.lock);
    pthread_cond_destroy(&t->reader.work);
    pthread_cond_destroy(&t->reader.buffers_free);
    pthread_mutex_destroy(&t->verify.lock);
    pthread_mutex_destroy(&t->state.lock);
    pthread_mutex_destroy(&t->intent.lock);
    pthread_mutex_destroy(&t->admission.lock);
    pthread_mutex_destroy(&t->rebuild.lock);
    pthread_mutex_destroy(&t->reuse.lock);
    pthread_mutex_destroy(&t->keeper.lock);
    pthread_mutex_destroy(&t->keeper.sync_lock);
    pthread_cond_destroy(&t->keeper.wake);
    pthread_mutex_destroy(&t->die_lock);
    free((char *)t->config.identity.volume);
    free((char *)t->config.path);
    if (t->config.witness)
        qm_tier_witness_unlock(t->config.witness, &t->witness);
    free((char *)t->config.witness);
    free((char *)t->config.known);
    free((char *)t->config.before);
    free(t);
}

static struct qm_tier *create(const struct qm_tier_config *config)
{
    struct qm_tier *t = calloc(1, sizeof *t);
    uint32_t size = config->identity.block_size;

    if (!t)
        return NULL;
    t->config = *config;
    t->witness = QM_TIER_WITNESS_NONE;
    pthread_mutex_init(&t->log.lock, NULL);
    pthread_mutex_init(&t->queue.lock, NULL);
    pthread_cond_init(&t->queue.filled, NULL);
    pthread_cond_init(&t->queue.drained, NULL);
    pthread_mutex_init(&t->reader.lock, NULL);
    pthread_cond_init(&t->reader.work, NULL);
    pthread_cond_init(&t->reader.buffers_free, NULL);
    pthread_mutex_init(&t->verify.lock, NULL);
    pthread_mutex_init(&t->state.lock, NULL);
    pthread_mutex_init(&t->intent.lock, NULL);
    pthread_mutex_init(&t->admission.lock, NULL);
    pthread_mutex_init(&t->rebuild.lock, NULL);
    pthread_mutex_init(&t->reuse.lock, NULL);
    pthread_mutex_init(&t->keeper.lock, NULL);
    pthread_mutex_init(&t->keeper.sync_lock, NULL);
    pthread_cond_init(&t->keeper.wake, NULL);
    pthread_mutex_init(&t->die_lock, NULL);
    t->config.identity.volume = strdup(config->identity.volume);
    t->config.path = config->path ? strdup(config->path) : NULL;
    t->config.witness = config->witness ? strdup(config->witness) : NULL;
    t->config.known = strdup(config->known ? config->known : "");
    t->config.before = strdup(config->before ? config->before : "");
    if (config->boot_id)
        snprintf(t->boot_id, sizeof t->boot_id, "%s", config->boot_id);
    else
        qm_tier_boot_id(t->boot_id);
    t->config.boot_id = t->boot_id;
    /* What is simulated is repeatable. */
    if (!config->data || getrandom(&t->seed, sizeof t->seed, 0) != sizeof t->seed)
        t->seed = 1;
    if (!config->data)
        t->config.threadless = true;
    if (!config->queue)
        t->config.queue = (8u << 20) / size < 16     ? 16
                          : (8u << 20) / size > 1024 ? 1024
                                                     : (8u << 20) / size;
    if (!config->errors)
        t->config.errors = 16;
    if (!config->sync_ms)
        t->config.sync_ms = 5000;
    if (!t->config.known || !t->config.before || !t->config.identity.volume ||
        (config->path && !t->config.path) || (config->witness && !t->config.witness)) {
        destroy(t);
        return NULL;
    }
    return t;
}

static int open_io(struct qm_tier *t, char *err, size_t len)
{
    int r;

    if (t->config.io) {
        t->io = *t->config.io;
        return 0;
    }
    if (t->config.data) {
        r = qm_tier_io_file(&t->io, t->config.path, t->config.direct, t->config.ring,
                            err, len);
        if (r == 0)
            atomic_fetch_add(&t->memory, t->io.memory);
        return r;
    }
    r = qm_tier_io_null(&t->io, t->config.size);
    if (r != 0)
        snprintf(err, len, "%s", strerror(r));
    return r;
}

/* A witness must be empty, or have been one before, and not be the tier itself. */
static int check_witness(const struct qm_tier *t, char *err, size_t len)
{
    const char *path = t->config.witness;
    struct stat st;
    int r = path ? qm_tier_witness_check(path) : 0;

    if (r == EEXIST) {
        snprintf(
            err, len,
            "%s holds something else than the witness of a tier; give another path, "
            "or if that is not needed, remove it",
            path);
        return EINVAL;
    }
    if (r == 0 && path && t->config.path &&
        (strcmp(path, t->config.path) == 0 ||
         (t->io.inode != 0 && stat(path, &st) == 0 && st.st_ino == t->io.inode &&
          st.st_dev == t->io.device))) {
        snprintf(err, len, "%s is to be both the tier and its witness", path);
        return EINVAL;
    }
    return 0; /* other errors are reported when it is written */
}

/* The same witness would have each of two tiers emptied by the other's start. */
static int lock_witness(struct qm_tier *t)
{
    const char *path = t->config.witness;

    return path && t->witness.fd == -1 ? qm_tier_witness_lock(path, &t->witness) : 0;
}

/* Whatever was there is not believed the next time. */
static void give_up(struct qm_tier *t, bool opened)
{
    struct qm_tier_testimony none = {0};

    if (opened && t->found && super_invalidate(t))
        return;
    qm_tier_testimony_seal(&none);
    if (t->config.witness && lock_witness(t) == 0)
        (void)qm_tier_witness_write(t->config.witness, &none, &t->witness);
}

int qm_tier_open(const struct qm_tier_config *config, struct qm_tier **tier, char *err,
                 size_t len)
{
    struct qm_tier *t;
    int r = qm_tier_check(config, err, len);
    bool opened, recovered;

    *tier = NULL;
    if (r != 0)
        return r;
    t = create(config);
    if (!t) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    r = check_witness(t, err, len);
    if (r == 0)
        r = open_io(t, err, len);
    opened = r == 0;
    if (r == 0)
        r = check_witness(t, err,
                          len); /* now that it is known which file the tier is */
    if (r == 0 && (r = lock_witness(t)) != 0)
        snprintf(err, len, "%s: another process uses this witness of a tier",
                 config->witness);
    if (r == 0)
        r = recover_open(t, err, len);
    recovered = r == 0;
    if (r == 0 && config->size != 0 && tier_dead(t))
        r = EIO;
    if (r == 0 && config->size != 0)
        r = qm_tier_resize(t, config->size);
    if (r == 0)
        r = queue_start(t);
    if (r == 0)
        r = reader_start(t);
    if (r == 0)
        r = keeper_start(t);
    if (r == 0) {
        *tier = t;
        return 0;
    }
    if (len > 0 && !err[0])
        snprintf(err, len, "%s: %s", config->path ? config->path : "tier", strerror(r));
    queue_stop(t);
    reader_stop(t);
    keeper_stop(t);
    if (recovered || (r != EINVAL && r != EBUSY))
        give_up(t, opened);
    destroy(t);
    return r;
}

struct unread {
    struct qm_tier *t;
    bool some;
};

static void look_for_unread(void *opaque, const struct slot *slot)
{
    struct unread *unread = opaque;

    if (!slot->restored && segment_of(unread->t, slot->segment)->doubtful)
        unread->some = true;
}

/* Whether a crash of the machine may have taken data that nobody has read since.  All
 * threads have ended. */
static bool some_doubtful(struct qm_tier *t)
{
    struct unread unread = {.t = t};

    index_each(t, look_for_unread, &unread);
    return unread.some;
}

int qm_tier_close(struct qm_tier *t, enum qm_tier_end end)
{
    int r = 0;

    if (!t)
        return 0;
    if (end == QM_TIER_FORGET && !tier_dead(t)) {
        pthread_mutex_lock(&t->die_lock);
        atomic_store(&t->dead, true);
        r = super_invalidate(t) ? 0 : EIO;
        pthread_mutex_unlock(&t->die_lock);
    }
    queue_stop(t);
    reader_stop(t);
    keeper_stop(t);
    if (end == QM_TIER_KEEP)
        state_settle(t);
    qm_tier_tick(t, true); /* if it is dead, the last try to mark it */
    if (!tier_dead(t)) {
        r = qm_tier_sync(t);
        if (r == 0 && t->super.doubtful && !some_doubtful(t))
            t->super.doubtful = 0;
        if (r == 0)
            r = super_write(t, QM_TIER_CLEAN);
    } else if (end == QM_TIER_KEEP) {
        r = t->unsafe ? EIO : 0;
    }
    destroy(t);
    return r;
}

void qm_tier_get_stats(struct qm_tier *t, struct qm_tier_stats *s)
{
    uint32_t oldest;

    memset(s, 0, sizeof *s);
#define GET(what) s->what = atomic_load_explicit(&t->n.what, memory_order_relaxed)
    GET(lookups);
    GET(hits);
    GET(misses);
    GET(inserted);
    GET(exists);
    GET(refused);
    GET(scans);
    GET(over_rate);
    GET(stale);
    GET(full);
    GET(voided);
    GET(failed);
    GET(handed_on);
    GET(kept);
    GET(evicted);
    GET(invalidated);
    GET(bytes_written);
    GET(syncs);
    GET(regions_marked);
    GET(regions_cleared);
    GET(stalls);
    GET(read_errors);
    GET(write_errors);
    GET(wrong_checksums);
    GET(lost_in_crash);
    GET(recovered);
    GET(dropped);
    GET(unread);
    GET(verified);
    GET(outdated);
#undef GET
    s->write_rate = t->config.write_rate;
    s->recovery_ns = t->recovery_ns;
    s->index_memory = t->index_memory;
    s->memory = t->memory + t->index_memory;
    s->blocks = t->blocks;
    s->unverified = qm_tier_unverified(t);
    s->regions = t->intent.regions;
    s->size = t->size;
    s->direct = t->io.direct;
    s->rings = t->io.rings;
    pthread_mutex_lock(&t->queue.lock);
    s->queued = t->queue.n;
    pthread_mutex_unlock(&t->queue.lock);
    pthread_mutex_lock(&t->log.lock);
    s->capacity = (uint64_t)t->g.slots * t->g.segments;
    s->epoch = t->super.epoch;
    oldest = t->log.sealed.head;
    if (oldest != NO_SEGMENT)
        s->age_ns = tier_now(t) - segment_of(t, oldest)->filled;
    pthread_mutex_unlock(&t->log.lock);
    pthread_mutex_lock(&t->die_lock);
    s->dead = t->dead;
    s->unsafe = t->unsafe;
    memcpy(s->reason, t->reason, sizeof s->reason);
    pthread_mutex_unlock(&t->die_lock);
}
