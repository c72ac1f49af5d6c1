/* SPDX-License-Identifier: BSD-3-Clause */
/* filter.c - nbdkit-quickmine-filter: what nbdkit calls, in the order of its life.
 *
 * The server begins in get_ready and after_fork, and ends in cleanup (server.c).  A
 * connection to the plain view "" or to the tagged view "ctx" goes from open and
 * prepare to close, which nbdkit leaves out when it is stopped; cleanup makes up for
 * that. Requests are taken apart here, and carried out in io.c and writing.c, or in
 * control.c if they are for the control window.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend.h"
#include "server/server.h"
#include "server/log.h"
#include "server/volume-name.h"
#include "trace/text.h"

#define REPORT_PART 10 /* of the time, clients' statistics may take one */

static struct qms_server qms_server; /* all zeros until config */
static unsigned loads;               /* how many filters of nbdkit's this library is */

static void quickmine_load(void)
{
    loads++;
    qms_config_load();
}

static int quickmine_config(nbdkit_next_config *next, nbdkit_backend *nxdata,
                            const char *key, const char *value)
{
    int r = qms_config_set(key, value);

    if (r != 1)
        return r;
    qms_volume_parameter(key, value);
    return next(nxdata, key, value);
}

/* The layers below have completed their parameters when next() returns: with
 * check-only, that is all.  nbdkit has no way to stop here but the one that it takes
 * itself when a parameter is wrong.  Nothing that opens the device has been called yet
 * (get_ready, after_fork), nor is there a thread or a socket. */
static int quickmine_config_complete(nbdkit_next_config_complete *next,
                                     nbdkit_backend *nxdata)
{
    const char *by_export;
    int r;

    if (loads > 1) {
        /* They would be one server, which waits for itself. */
        nbdkit_error("the filter is given %u times: give it once", loads);
        return -1;
    }
    if (qms_config_complete(&qms_server.config) == -1)
        return -1;
    r = next(nxdata);
    /* Opened without a client, as this filter does, there is no name: some plugins
     * crash then. */
    by_export = r == 0 ? qms_volume_by_export() : NULL;
    if (by_export) {
        nbdkit_error(
            "with %s, the plugin serves a device for each export name, and this "
            "filter has one device: name that",
            by_export);
        return -1;
    }
    if (r == 0 && qms_server.config.check_only)
        exit(EXIT_SUCCESS);
    return r;
}

static int quickmine_thread_model(void)
{
    return qms_server.config.parallel ? NBDKIT_THREAD_MODEL_PARALLEL
                                      : NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS;
}

static int quickmine_get_ready(int thread_model)
{
    qms_log_begin();
    return qms_server_ready(&qms_server, thread_model);
}

static int quickmine_after_fork(nbdkit_backend *backend)
{
    return qms_server_start(&qms_server, backend);
}

static void quickmine_cleanup(nbdkit_backend *backend)
{
    qms_server_stop(&qms_server);
}

static void quickmine_unload(void)
{
    qms_config_free(&qms_server.config);
    qms_volume_free();
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

/* The session that the name of an export for one session is of; 0: it is not. */
static uint64_t session_of(const char *exportname)
{
    const size_t prefix = strlen(QM_WIRE_PLAIN_EXPORT);
    const char *digits = exportname + prefix;

    if (strncmp(exportname, QM_WIRE_PLAIN_EXPORT, prefix) != 0 ||
        strlen(digits) != 16 || strspn(digits, "0123456789abcdefABCDEF") != 16)
        return 0;
    return strtoull(digits, NULL, 16);
}

/* The name is a client's, and the message goes to a terminal or a log. */
static void no_such_export(const char *name)
{
    size_t len = strlen(name);
    char clean[4096 + 1]; /* the longest that NBD has */

    len = len < sizeof clean ? len : sizeof clean - 1;
    qm_text_clean(clean, name, len, false);
    nbdkit_error("there is no export \"%s\": there are \"\", the device, and \"%s\", "
                 "for requests with contexts",
                 clean, QM_WIRE_EXPORT);
}

/* Makes the connection one of the server's.  False, after nbdkit_error(): it is not. */
static bool enter(struct qms_server *s, struct qms_connection *c, uint64_t session,
                  const char *exportname)
{
    unsigned token;

    if (!qms_server_enter(s, &token))
        return false;
    if (session != 0 && !qms_member_join(&s->sessions, &c->member, session)) {
        nbdkit_error("there is no export \"%s\": no session of that number is open",
                     exportname);
        qms_server_leave(s, token);
        return false;
    }
    pthread_mutex_init(&c->begin_lock, NULL);
    qms_slot_init(&c->slot,
                  c->tagged ? QMS_CLIENT_NONE : qms_client_enter(&s->clients));
    pthread_mutex_lock(&s->lock);
    cds_list_add_tail(&c->list, &s->connections);
    s->connection_count++;
    pthread_mutex_unlock(&s->lock);
    c->number = c->tagged ? QMS_HINTS_SHARED : qms_hints_enter(s->hints);
    qms_server_leave(s, token);
    return true;
}

static void *quickmine_open(nbdkit_next_open *next, nbdkit_context *context,
                            int readonly, const char *exportname, int is_tls)
{
    struct qms_server *s = &qms_server;
    const bool tagged = strcmp(exportname, QM_WIRE_EXPORT) == 0;
    const uint64_t session = session_of(exportname);
    struct qms_connection *c;
    unsigned token;

    if (!tagged && *exportname != '\0' && session == 0) {
        no_such_export(exportname);
        return NULL;
    }
    if (!qms_server_enter(s, &token))
        return NULL;
    qms_server_leave(s, token); /* the layer below may take long */
    if (next(context, readonly, "") == -1)
        return NULL;
    c = aligned_alloc(_Alignof(struct qms_connection), sizeof *c);
    if (!c) {
        nbdkit_error("aligned_alloc: %m");
        return NULL;
    }
    memset(c, 0, sizeof *c);
    c->tagged = tagged;
    c->readonly = readonly;
    qms_member_init(&c->member);
    if (enter(s, c, session, exportname))
        return c;
    qms_member_destroy(&c->member);
    free(c);
    return NULL;
}

static void quickmine_close(void *handle)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;

    qms_connection_leave(s, c);
    pthread_mutex_lock(&s->lock);
    cds_list_del(&c->list);
    s->connection_count--;
    pthread_mutex_unlock(&s->lock);
    qms_hints_leave(s->hints, c->number);
    if (!c->tagged)
        qms_client_leave(&s->clients, c->slot.client);
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
    unsigned token;

    if (size == -1 || qms_backend_max_read(s, next) == -1)
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
    if (!qms_server_enter(s, &token))
        return -1;
    if (s->backing)
        qms_backing_hint(s->backing);
    c->size = size;
    c->writable = can_write;
    c->cached = qms_size_found(s, c->size);
    if (c->writable && !multi_conn && !atomic_exchange(&s->uncached, true))
        qms_log(QMS_WARNING,
                "the plugin does not promise multi-conn, so its "
                "connections need not see each other's writes: nothing is cached "
                "or prefetched from now on");
    qms_server_leave(s, token);
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

/* What this thread has computed, in ns.  Time in which it waits for a processor is not
 * in it: on a busy machine that is many times as much. */
static uint64_t computed(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* The statistics for a client, to be freed.  A client that polls them is delayed, so
 * that reports of all clients together take at most a tenth of a processor's time, and
 * evict little from its caches.  NULL, with *err set, without memory or when nbdkit
 * ends. */
static char *report_to_client(struct qms_server *s, int *err)
{
    uint64_t start, wait, took;
    char *text = NULL;

    pthread_mutex_lock(&s->reporting);
    start = qms_now();
    wait = s->next_report > start ? s->next_report - start : 0;
    if (wait > 0 && nbdkit_nanosleep(wait / 1000000000, wait % 1000000000) == -1) {
        *err = ESHUTDOWN;
    } else {
        start = qms_now();
        took = computed();
        text = qms_report(s, QM_WIRE_STATS_MAX);
        took = computed() - took;
        s->next_report = start + took * REPORT_PART;
        *err = ENOMEM;
    }
    pthread_mutex_unlock(&s->reporting);
    return text;
}

static int control_read(struct qms_server *s, struct qms_connection *c, char *buf,
                        uint32_t count, uint64_t offset, int *err)
{
    struct qms_device device = {
        .size = c->size,
        .size_now = atomic_load(&s->size_found),
        .block_size = s->config.block_size,
        .ordered = s->thread_model <= NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS,
        .readonly = !c->writable,
        .instance = s->instance,
    };
    struct qm_wire_header header;
    char *text;

    memcpy(device.boot_id, s->boot_id, sizeof device.boot_id);
    qms_volume_identity(device.volume);
    memset(buf, 0, count);
    if (offset < sizeof header) {
        qms_control_header(&s->sessions, &c->member, &device, &header);
        copy_part(buf, count, offset, &header, sizeof header, 0);
    }
    if (offset < QM_WIRE_STATS + QM_WIRE_STATS_MAX && offset + count > QM_WIRE_STATS) {
        text = report_to_client(s, err);
        if (!text)
            return -1;
        copy_part(buf, count, offset, text, strlen(text), QM_WIRE_STATS);
        free(text);
    }
    return 0;
}

static int control_result(struct qms_server *s, int error, int *err)
{
    if (error == 0)
        return 0;
    *err = error;
    if (error == ESHUTDOWN) /* a fence was not waited for to the end */
        return -1;
    qms_stats_add(s->stats, QMS_BAD_RECORDS, 1);
    nbdkit_debug("control message refused: %s", strerror(error));
    return -1;
}

/* A request to change data begins: see qms_member_change_begin(). */
static int change_begin(struct qms_connection *c, int *err)
{
    int counted = qms_member_change_begin(&c->member);

    if (counted == -1) {
        nbdkit_error("the session of this connection has been fenced");
        *err = ESHUTDOWN;
    }
    return counted;
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
    int counted, r;

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
    counted = change_begin(c, err);
    if (counted == -1)
        return -1;
    r = qms_write(s, next, slot, buf, count, offset, flags, err);
    qms_member_change_end(&c->member, counted);
    return r;
}

static int quickmine_zero(nbdkit_next *next, void *handle, uint32_t count,
                          uint64_t offset, uint32_t flags, int *err)
{
    struct qms_server *s = &qms_server;
    struct qms_connection *c = handle;
    int counted = change_begin(c, err), r;

    if (counted == -1)
        return -1;
    r = qms_zero(s, next, untag(s, c, &offset), count, offset, flags, err);
    qms_member_change_end(&c->member, counted);
    return r;
}

static int quickmine_trim(nbdkit_next *next, void *handle, uint32_t count,
                          uint64_t offset, uint32_t flags, int *err)
{
    struct qms_connection *c = handle;
    int counted = change_begin(c, err), r;

    if (counted == -1)
        return -1;
    r = qms_trim(&qms_server, next, count, offset, flags, err);
    qms_member_change_end(&c->member, counted);
    return r;
}

static int quickmine_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
    return qms_flush(&qms_server, next, flags, err);
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
    return qms_fill(s, c, next, count, offset, err);
}

static struct nbdkit_filter filter = {
    .name = "quickmine",
    .longname = "QuickMine filter",
    .description = "Caches blocks, and prefetches by what clients say of their reads'"
                   " contexts.",
    .load = quickmine_load,
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
    .flush = quickmine_flush,
    .cache = quickmine_cache,
};

/* What nbdkit looks for in a filter; the macro does not declare it. */
struct nbdkit_filter *filter_init(void);
NBDKIT_REGISTER_FILTER(filter)
