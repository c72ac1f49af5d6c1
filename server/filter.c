/* filter.c - nbdkit-quickmine-filter: what nbdkit calls, in the order of its life.
 *
 * get_ready     checks what can be checked while a person still watches, and makes the
 *               files: before nbdkit forks, changes user and directory
 * after_fork    makes everything else, and starts the threads
 * open, prepare a connection, to the plain view "" or the tagged view "ctx"
 * finalize, close
 *               either may be left out by nbdkit, so each leaves the sessions
 * cleanup       undoes after_fork and get_ready
 *
 * Prefetch threads have a context of the layer below each, so whatever nbdkit
 * serializes per connection is serialized for them, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/server.h"

#define MAX_READ (UINT32_C(4) << 20) /* of one read of the layer below */
#define HELD_MAX (UINT64_C(8) << 20) /* blocks that open contexts hold; 64 MiB */

struct qms_server qms_server;

static int quickmine_config(nbdkit_next_config *next, nbdkit_backend *nxdata,
                            const char *key, const char *value)
{
    int r = qms_config_set(key, value);

    return r == 1 ? next(nxdata, key, value) : r;
}

static int quickmine_config_complete(nbdkit_next_config_complete *next,
                                     nbdkit_backend *nxdata)
{
    if (qms_config_complete(&qms_server.config) == -1)
        return -1;
    return next(nxdata);
}

static int quickmine_thread_model(void)
{
    return qms_server.config.parallel ? NBDKIT_THREAD_MODEL_PARALLEL
                                      : NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS;
}

static bool parent_exists(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash && slash > path ? strndup(path, slash - path) : strdup("/");
    bool exists = parent && access(parent, F_OK) == 0;

    free(parent);
    errno = ENOENT;
    return exists;
}

/* Says what is wrong with the rules directory while somebody is there to read it. */
static int check_rules(const char *path)
{
    struct stat st;

    if (stat(path, &st) == -1) {
        if (errno == ENOENT && parent_exists(path)) /* it will be made */
            return 0;
        nbdkit_error("rules=%s: %m", path);
        return -1;
    }
    if (!S_ISDIR(st.st_mode)) {
        nbdkit_error("rules=%s: it must be a directory", path);
        return -1;
    }
    if (access(path, R_OK | W_OK | X_OK) == -1) {
        nbdkit_error("rules=%s: the server must be able to write there: %m", path);
        return -1;
    }
    return 0;
}

static int quickmine_get_ready(int thread_model)
{
    struct qms_server *s = &qms_server;
    const struct qms_config *c = &s->config;
    char err[512];

    s->thread_model = thread_model;
    if (c->rules && check_rules(c->rules) == -1)
        return -1;
    if (c->record) {
        s->recorder = qms_record_open(c->record, c->block_size, err, sizeof err);
        if (!s->recorder) {
            nbdkit_error("record=%s: %s", c->record, err);
            return -1;
        }
    }
    if (c->stats) {
        s->socket = qms_stats_socket_open(c->stats, err, sizeof err);
        if (!s->socket) {
            nbdkit_error("stats=%s: %s", c->stats, err);
            return -1;
        }
    }
    return 0;
}

static nbdkit_next *open_next(nbdkit_backend *backend)
{
    nbdkit_next *next = nbdkit_next_context_open(backend, 1, "", 1);

    if (!next)
        return NULL;
    if (next->prepare(next) == -1) {
        nbdkit_next_context_close(next);
        return NULL;
    }
    return next;
}

static void close_next(nbdkit_next *next)
{
    next->finalize(next);
    nbdkit_next_context_close(next);
}

/* The largest read that the layer below takes, at least a block; or -1. */
static int64_t max_read(struct qms_server *s, nbdkit_next *next)
{
    uint32_t minimum, preferred, maximum;

    if (next->block_size(next, &minimum, &preferred, &maximum) == -1)
        return -1;
    if (maximum == 0 || maximum > MAX_READ)
        maximum = MAX_READ;
    if (minimum > s->config.block_size || maximum < s->config.block_size) {
        nbdkit_error("block-size must be from %" PRIu32 " to %" PRIu32
                     " over this device, not %" PRIu64,
                     minimum, maximum, s->config.block_size);
        return -1;
    }
    return maximum;
}

/* Finds out what the device is like. */
static int probe(struct qms_server *s, nbdkit_backend *backend)
{
    nbdkit_next *next = open_next(backend);
    int64_t size = -1, maximum = -1;

    if (!next)
        return -1;
    size = next->get_size(next);
    if (size != -1)
        maximum = max_read(s, next);
    close_next(next);
    if (maximum == -1)
        return -1;
    s->size = size;
    s->max_bytes = maximum;
    s->device_blocks = (s->size + s->config.block_size - 1) / s->config.block_size;
    return 0;
}

static int read_for_prefetch(void *opaque, unsigned worker, void *buf, uint32_t count,
                             uint64_t offset)
{
    struct qms_server *s = opaque;
    nbdkit_next *next = s->nexts[worker];
    int err = 0;

    if (next->pread(next, buf, count, offset, 0, &err) == -1)
        return err ? err : EIO;
    return 0;
}

static void wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct qms_server *s = opaque;

    qms_class_add(qms_class_at(s->classes, issuer), QMS_CLASS_WASTED, 1);
    s->prefetcher->ops->ended(s->prefetcher, block, issuer, QMS_CLASS_NONE, false);
}

static int make_prefetcher(struct qms_server *s)
{
    struct qm_mining_config config = s->config.mining;
    char device[64], err[512] = "";

    snprintf(device, sizeof device, "%" PRIu64 " bytes", s->size);
    config.rules_for = s->config.rules_for ? s->config.rules_for : device;
    if (s->config.policy->create(&config, &s->prefetcher, err, sizeof err) != 0) {
        nbdkit_error("policy=%s: %s", s->config.policy->name, err);
        s->prefetcher = NULL;
        return -1;
    }
    if (err[0] != '\0')
        nbdkit_error("warning: %s", err);
    return 0;
}

static int make_cache(struct qms_server *s)
{
    struct qm_cache_config config = {
        .block_size = s->config.block_size,
        .blocks = s->config.blocks,
        .prefetch_blocks = s->config.prefetch_blocks,
        .shards = s->config.shards,
        .eviction = s->config.eviction,
        .data = true,
        .wasted = wasted,
        .opaque = s,
    };
    int error = qm_cache_new(&config, &s->cache);

    if (error != 0) {
        s->cache = NULL;
        nbdkit_error("cannot make a cache of %" PRIu64 " blocks: %s", config.blocks,
                     strerror(error));
        return -1;
    }
    return 0;
}

static int start_prefetching(struct qms_server *s, nbdkit_backend *backend)
{
    struct qms_prefetch_config config = {
        .cache = s->cache,
        .stats = s->stats,
        .size = s->size,
        .block_size = s->config.block_size,
        .max_bytes = s->max_bytes,
        .threads = s->config.prefetch_threads,
        .queue = s->config.prefetch_queue,
        .read = read_for_prefetch,
        .opaque = s,
    };

    /* What is queued is in the prefetch cache already; more would drive itself out. */
    if (config.queue > s->config.prefetch_blocks)
        config.queue = s->config.prefetch_blocks;
    s->nexts = calloc(config.threads, sizeof s->nexts[0]);
    if (!s->nexts) {
        nbdkit_error("calloc: %m");
        return -1;
    }
    for (unsigned i = 0; i < config.threads; i++) {
        s->nexts[i] = open_next(backend);
        if (!s->nexts[i] || s->nexts[i]->get_size(s->nexts[i]) == -1)
            return -1;
    }
    s->prefetch = qms_prefetch_start(&config);
    if (!s->prefetch) {
        nbdkit_error("cannot start %u prefetch threads", config.threads);
        return -1;
    }
    return 0;
}

static char *report(void *opaque)
{
    return qms_report(opaque, SIZE_MAX);
}

static int make_all(struct qms_server *s, nbdkit_backend *backend)
{
    const bool mining = s->config.policy != qm_prefetcher_find("none");
    int error;

    s->stats = qms_stats_new();
    s->classes = qms_classes_new();
    if (!s->stats || !s->classes) {
        nbdkit_error("malloc: %m");
        return -1;
    }
    if (make_prefetcher(s) == -1 || make_cache(s) == -1)
        return -1;
    if (mining) {
        s->miner = qms_miner_start(s->prefetcher, s->config.miner_queue,
                                   s->config.rules_purge);
        if (!s->miner) {
            nbdkit_error("cannot start the mining thread");
            return -1;
        }
        if (start_prefetching(s, backend) == -1)
            return -1;
    }
    if (s->recorder && (error = qms_record_start(s->recorder)) != 0) {
        nbdkit_error("cannot start the recording thread: %s", strerror(error));
        return -1;
    }
    s->contexts.prefetcher = s->prefetcher;
    s->contexts.level = s->config.level;
    s->contexts.mining = mining;
    s->contexts.classes = s->classes;
    s->contexts.miner = s->miner;
    s->contexts.recorder = s->recorder;
    s->contexts.stats = s->stats;
    s->contexts.held_max = HELD_MAX;
    error = qms_contexts_init(&s->contexts);
    if (error == 0) {
        error = qms_sessions_init(&s->sessions, &s->contexts, s->classes, s->stats);
        if (error != 0)
            qms_contexts_destroy(&s->contexts);
    }
    if (error != 0) {
        nbdkit_error("%s", strerror(error));
        return -1;
    }
    s->made = true;
    if (s->socket && (error = qms_stats_socket_start(s->socket, report, s)) != 0) {
        nbdkit_error("cannot start the statistics thread: %s", strerror(error));
        return -1;
    }
    return 0;
}

static void connection_leave(struct qms_server *s, struct qms_connection *c)
{
    if (c->tagged)
        qms_member_leave(&s->sessions, &c->member);
    else
        qms_context_end(&s->contexts, &c->slot);
}

/* Undoes what make_all() and get_ready made, also if that is not all of it. */
static void unmake(struct qms_server *s)
{
    struct qms_connection *c;
    int error;

    if (s->socket)
        qms_stats_socket_close(s->socket);
    if (s->prefetch)
        qms_prefetch_stop(s->prefetch);
    for (unsigned i = 0; s->nexts && i < s->config.prefetch_threads; i++)
        if (s->nexts[i])
            close_next(s->nexts[i]);
    free(s->nexts);
    if (s->made) {
        /* nbdkit does not close the connections that are left when it is stopped. */
        cds_list_for_each_entry(c, &s->connections, list) connection_leave(s, c);
        qms_sessions_destroy(&s->sessions);
        qms_contexts_destroy(&s->contexts);
    }
    if (s->miner)
        qms_miner_stop(s->miner);
    if (s->recorder && (error = qms_record_close(s->recorder)) != 0)
        nbdkit_error("record=%s ends too early: %s", s->config.record, strerror(error));
    if (s->cache)
        qm_cache_free(s->cache); /* before those whom it tells of what is wasted */
    if (s->prefetcher)
        s->prefetcher->ops->destroy(s->prefetcher);
    qms_classes_free(s->classes);
    qms_stats_free(s->stats);
    s->socket = NULL;
    s->prefetch = NULL;
    s->nexts = NULL;
    s->made = false;
    s->miner = NULL;
    s->recorder = NULL;
    s->cache = NULL;
    s->prefetcher = NULL;
    s->classes = NULL;
    s->stats = NULL;
}

static int quickmine_after_fork(nbdkit_backend *backend)
{
    struct qms_server *s = &qms_server;
    sigset_t all, before;
    int r;

    s->started = qms_now();
    pthread_mutex_init(&s->lock, NULL);
    CDS_INIT_LIST_HEAD(&s->connections);
    if (s->thread_model < NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS &&
        s->config.policy != qm_prefetcher_find("none")) {
        nbdkit_error("warning: this plugin serves one request at a time, so nothing is "
                     "prefetched: policy=none");
        s->config.policy = qm_prefetcher_find("none");
        s->config.prefetch_blocks = 0;
    }
    /* Signals are for nbdkit's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = probe(s, backend);
    if (r == 0)
        r = make_all(s, backend);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == -1)
        unmake(s);
    return r;
}

static void quickmine_cleanup(nbdkit_backend *backend)
{
    unmake(&qms_server);
}

static void quickmine_unload(void)
{
    qms_config_free(&qms_server.config);
}

static int quickmine_list_exports(nbdkit_next_list_exports *next,
                                  nbdkit_backend *nxdata, int readonly, int is_tls,
                                  struct nbdkit_exports *exports)
{
    if (nbdkit_add_export(exports, "", "the device") == -1)
        return -1;
    return nbdkit_add_export(exports, QM_WIRE_EXPORT,
                             "the device, for clients that tag requests with contexts");
}

static const char *quickmine_default_export(nbdkit_next_default_export *next,
                                            nbdkit_backend *nxdata, int readonly,
                                            int is_tls)
{
    return "";
}

static void *quickmine_open(nbdkit_next_open *next, nbdkit_context *context,
                            int readonly, const char *exportname, int is_tls)
{
    struct qms_server *s = &qms_server;
    const bool tagged = strcmp(exportname, QM_WIRE_EXPORT) == 0;
    struct qms_connection *c;

    if (!tagged && *exportname != '\0') {
        nbdkit_error(
            "there is no export \"%s\": there are \"\", the device, and \"%s\", "
            "for requests with contexts",
            exportname, QM_WIRE_EXPORT);
        return NULL;
    }
    if (next(context, readonly, "") == -1)
        return NULL;
    c = calloc(1, sizeof *c);
    if (!c) {
        nbdkit_error("calloc: %m");
        return NULL;
    }
    c->tagged = tagged;
    c->readonly = readonly;
    qms_member_init(&c->member);
    pthread_mutex_init(&c->begin_lock, NULL);
    qms_slot_init(&c->slot);
    pthread_mutex_lock(&s->lock);
    cds_list_add_tail(&c->list, &s->connections);
    s->connection_count++;
    pthread_mutex_unlock(&s->lock);
    return c;
}

static void quickmine_close(void *handle)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;

    connection_leave(s, c);
    pthread_mutex_lock(&s->lock);
    cds_list_del(&c->list);
    s->connection_count--;
    pthread_mutex_unlock(&s->lock);
    qms_slot_destroy(&c->slot);
    pthread_mutex_destroy(&c->begin_lock);
    qms_member_destroy(&c->member);
    free(c);
}

/* Asks the layer below for all that requests rely on later: nbdkit remembers. */
static int quickmine_prepare(nbdkit_next *next, void *handle, int readonly)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;
    int64_t size = next->get_size(next);
    int can_write, multi_conn;

    if (size == -1 || max_read(s, next) == -1)
        return -1;
    if (c->tagged && (uint64_t)size > QM_WIRE_OFFSET_MASK + 1) {
        nbdkit_error("the device has %" PRIi64
                     " bytes; the export \"%s\" is for at most "
                     "%" PRIu64,
                     size, QM_WIRE_EXPORT, QM_WIRE_OFFSET_MASK + 1);
        return -1;
    }
    can_write = readonly ? 0 : next->can_write(next);
    multi_conn = next->can_multi_conn(next);
    if (can_write == -1 || multi_conn == -1 || next->can_flush(next) == -1 ||
        next->can_fua(next) == -1)
        return -1;
    c->size = size;
    c->writable = can_write;
    c->cached = c->size == s->size;
    if (!c->cached)
        nbdkit_error("warning: the device has %" PRIu64 " bytes now, and had %" PRIu64
                     " when the server started: nothing is cached for this connection",
                     c->size, s->size);
    if (c->writable && !multi_conn && !atomic_exchange(&s->uncached, true))
        nbdkit_error("warning: the plugin does not promise that connections see each "
                     "other's writes, so nothing is cached from now on; "
                     "--filter=multi-conn after --filter=quickmine helps");
    return 0;
}

static int quickmine_finalize(nbdkit_next *next, void *handle)
{
    connection_leave(&qms_server, handle);
    return 0;
}

static int64_t quickmine_get_size(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? (int64_t)QM_WIRE_SIZE : (int64_t)c->size;
}

static const char *quickmine_export_description(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? "requests tagged with contexts" : next->export_description(next);
}

static int quickmine_block_size(nbdkit_next *next, void *handle, uint32_t *minimum,
                                uint32_t *preferred, uint32_t *maximum)
{
    const struct qms_connection *c = handle;

    if (next->block_size(next, minimum, preferred, maximum) == -1)
        return -1;
    /* Records are written in units of their own, whatever the device takes. */
    if (c->tagged && *minimum > sizeof(struct qm_wire_record))
        *minimum = sizeof(struct qm_wire_record);
    return 0;
}

/* The tagged view is writable to nbdkit, so that records get through; data is not. */
static int quickmine_can_write(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? 1 : next->can_write(next);
}

static int quickmine_can_trim(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? 0 : next->can_trim(next);
}

static int quickmine_can_zero(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? NBDKIT_ZERO_NONE : next->can_zero(next);
}

static int quickmine_can_fast_zero(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? 0 : next->can_fast_zero(next);
}

static int quickmine_can_extents(nbdkit_next *next, void *handle)
{
    const struct qms_connection *c = handle;

    return c->tagged ? 0 : next->can_extents(next);
}

static int quickmine_can_cache(nbdkit_next *next, void *handle)
{
    return NBDKIT_CACHE_NATIVE;
}

/* The connection's own context, of kind connection, begins with its first request. */
static struct qms_slot *plain_slot(struct qms_server *s, struct qms_connection *c)
{
    struct qms_class *klass;

    if (atomic_load_explicit(&c->begun, memory_order_acquire))
        return &c->slot;
    pthread_mutex_lock(&c->begin_lock);
    if (!atomic_load_explicit(&c->begun, memory_order_relaxed)) {
        klass = qms_class_find(s->classes, QM_CONNECTION, 0, "plain", 5);
        /* Without memory its requests have no context. */
        (void)qms_context_begin(&s->contexts, &c->slot, NULL, QM_CONNECTION, klass);
        atomic_store_explicit(&c->begun, true, memory_order_release);
    }
    pthread_mutex_unlock(&c->begin_lock);
    return &c->slot;
}

/* Takes a tagged offset apart.  Returns the slot (NULL: no context), and the offset on
 * the device in *offset. */
static struct qms_slot *untag(struct qms_server *s, struct qms_connection *c,
                              uint64_t *offset)
{
    unsigned number = *offset >> QM_WIRE_SHIFT;

    if (!c->tagged)
        return plain_slot(s, c);
    *offset &= QM_WIRE_OFFSET_MASK;
    return qms_member_slot(&s->sessions, &c->member, number);
}

static bool is_control(const struct qms_connection *c, uint64_t offset)
{
    return c->tagged && offset >= QM_WIRE_CONTROL;
}

/* Whether a request lies within the device.  nbdkit has checked it against the size
 * that was announced, which says little of tagged offsets. */
static bool in_range(const struct qms_connection *c, uint32_t count, uint64_t offset)
{
    return offset <= c->size && count <= c->size - offset;
}

static int out_of_range(uint32_t count, uint64_t offset, int *err, int error)
{
    nbdkit_error("%" PRIu32 " bytes at %" PRIu64 " are beyond the end of the device",
                 count, offset);
    *err = error;
    return -1;
}

/* Copies the part of a file of the control window (size bytes at start) that a read of
 * count bytes at offset of the window takes in. */
static void copy_part(char *buf, uint32_t count, uint64_t offset, const void *file,
                      size_t size, uint64_t start)
{
    uint64_t from = offset > start ? offset : start;
    uint64_t to = offset + count < start + size ? offset + count : start + size;

    if (from < to)
        memcpy(buf + (from - offset), (const char *)file + (from - start), to - from);
}

static int control_read(struct qms_server *s, struct qms_connection *c, char *buf,
                        uint32_t count, uint64_t offset, int *err)
{
    const struct qms_device device = {
        .size = c->size,
        .block_size = s->config.block_size,
        .ordered = s->thread_model <= NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS,
        .readonly = !c->writable,
    };
    struct qm_wire_header header;
    char *text;

    memset(buf, 0, count);
    if (offset < sizeof header) {
        qms_control_header(&s->sessions, &c->member, &device, &header);
        copy_part(buf, count, offset, &header, sizeof header, 0);
    }
    if (offset < QM_WIRE_STATS + QM_WIRE_STATS_MAX && offset + count > QM_WIRE_STATS) {
        text = qms_report(s, QM_WIRE_STATS_MAX);
        if (!text) {
            *err = ENOMEM;
            return -1;
        }
        copy_part(buf, count, offset, text, strlen(text), QM_WIRE_STATS);
        free(text);
    }
    return 0;
}

static int control_result(struct qms_server *s, int error, int *err)
{
    if (error == 0)
        return 0;
    qms_stats_add(s->stats, QMS_BAD_RECORDS, 1);
    nbdkit_debug("control message refused: %s", strerror(error));
    *err = error;
    return -1;
}

static int quickmine_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count,
                           uint64_t offset, uint32_t flags, int *err)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;
    struct qms_slot *slot;

    if (is_control(c, offset))
        return control_read(s, c, buf, count, offset - QM_WIRE_CONTROL, err);
    slot = untag(s, c, &offset);
    if (!in_range(c, count, offset))
        return out_of_range(count, offset, err, EINVAL);
    return qms_read(s, c, next, slot, buf, count, offset, err);
}

static int quickmine_pwrite(nbdkit_next *next, void *handle, const void *buf,
                            uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;
    struct qms_slot *slot;

    if (is_control(c, offset))
        return control_result(s,
                              qms_control_write(&s->sessions, &c->member, buf, count,
                                                offset - QM_WIRE_CONTROL),
                              err);
    if (!c->writable) {
        nbdkit_error("the device is read-only");
        *err = EROFS;
        return -1;
    }
    slot = untag(s, c, &offset);
    if (!in_range(c, count, offset))
        return out_of_range(count, offset, err, ENOSPC);
    return qms_write(s, next, slot, buf, count, offset, flags, err);
}

static int quickmine_zero(nbdkit_next *next, void *handle, uint32_t count,
                          uint64_t offset, uint32_t flags, int *err)
{
    struct qms_server *s = &qms_server;

    return qms_zero(s, next, untag(s, handle, &offset), count, offset, flags, err);
}

static int quickmine_trim(nbdkit_next *next, void *handle, uint32_t count,
                          uint64_t offset, uint32_t flags, int *err)
{
    return qms_trim(&qms_server, next, count, offset, flags, err);
}

static int quickmine_cache(nbdkit_next *next, void *handle, uint32_t count,
                           uint64_t offset, uint32_t flags, int *err)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;

    if (is_control(c, offset))
        return control_result(
            s,
            qms_control_hint(&s->sessions, &c->member, count, offset - QM_WIRE_CONTROL),
            err);
    if (c->tagged)
        offset &= QM_WIRE_OFFSET_MASK;
    if (!in_range(c, count, offset))
        return out_of_range(count, offset, err, EINVAL);
    return qms_load(s, c, next, count, offset, err);
}

static struct nbdkit_filter filter = {
    .name = "quickmine",
    .longname = "QuickMine filter",
    .description = "Caches blocks, and prefetches by what clients say of their reads'"
                   " contexts.",
    .unload = quickmine_unload,
    .config = quickmine_config,
    .config_complete = quickmine_config_complete,
    .config_help = qms_config_help,
    .thread_model = quickmine_thread_model,
    .get_ready = quickmine_get_ready,
    .after_fork = quickmine_after_fork,
    .cleanup = quickmine_cleanup,
    .list_exports = quickmine_list_exports,
    .default_export = quickmine_default_export,
    .open = quickmine_open,
    .close = quickmine_close,
    .prepare = quickmine_prepare,
    .finalize = quickmine_finalize,
    .get_size = quickmine_get_size,
    .export_description = quickmine_export_description,
    .block_size = quickmine_block_size,
    .can_write = quickmine_can_write,
    .can_trim = quickmine_can_trim,
    .can_zero = quickmine_can_zero,
    .can_fast_zero = quickmine_can_fast_zero,
    .can_extents = quickmine_can_extents,
    .can_cache = quickmine_can_cache,
    .pread = quickmine_pread,
    .pwrite = quickmine_pwrite,
    .trim = quickmine_trim,
    .zero = quickmine_zero,
    .cache = quickmine_cache,
};

/* What nbdkit looks for in a filter; the macro does not declare it. */
struct nbdkit_filter *filter_init(void);
NBDKIT_REGISTER_FILTER(filter)
