/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged-plugin.c - an nbdkit plugin: a tagged export without a cache, for tests.
 *
 * It can be what the real server is not, or seldom: unordered, with few slots or none,
 * with one connection only, refusing to begin contexts.  It writes down what reaches
 * it, a line an event, in the order in which it was carried out:
 *
 *   begin SLOT PARENT KIND CLASS CONNECTION
 *   end SLOT CONNECTION
 *   read SLOT OFFSET LENGTH CONNECTION      SLOT is -SLOT if it is not open
 *   refused
 */
#define NBDKIT_API_VERSION 2

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "clients/protocol/quickmine-protocol.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SIZE         (UINT64_C(1) << 30)
#define SESSION      UINT64_C(0x0123456789abcdef)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static unsigned slots = 100, delay_us, next_connection;
static int ordered, refuse, single; /* as nbdkit_parse_bool() says */
static bool is_open[QM_WIRE_SLOT_MAX + 1];

struct handle {
    bool tagged;
    unsigned connection;
};

static int tagged_config(const char *key, const char *value)
{
    if (strcmp(key, "log") == 0)
        return (out = fopen(value, "w")) ? 0 : -1;
    if (strcmp(key, "slots") == 0)
        return nbdkit_parse_unsigned(key, value, &slots);
    if (strcmp(key, "delay") == 0)
        return nbdkit_parse_unsigned(key, value, &delay_us);
    if (strcmp(key, "ordered") == 0)
        return (ordered = nbdkit_parse_bool(value)) == -1 ? -1 : 0;
    if (strcmp(key, "refuse") == 0)
        return (refuse = nbdkit_parse_bool(value)) == -1 ? -1 : 0;
    if (strcmp(key, "single") == 0)
        return (single = nbdkit_parse_bool(value)) == -1 ? -1 : 0;
    nbdkit_error("unknown parameter %s", key);
    return -1;
}

/* What the header says had better be true. */
static int tagged_thread_model(void)
{
    return ordered ? NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS
                   : NBDKIT_THREAD_MODEL_PARALLEL;
}

static void tagged_unload(void)
{
    if (out)
        fclose(out);
}

static void *tagged_open(int readonly)
{
    struct handle *h = calloc(1, sizeof *h);
    const char *name = nbdkit_export_name();

    if (!h || !name) {
        free(h);
        return NULL;
    }
    h->tagged = strcmp(name, QM_WIRE_EXPORT) == 0;
    pthread_mutex_lock(&lock);
    h->connection = ++next_connection;
    pthread_mutex_unlock(&lock);
    return h;
}

static void tagged_close(void *handle)
{
    free(handle);
}

static int64_t tagged_get_size(void *handle)
{
    struct handle *h = handle;

    return (int64_t)(h->tagged ? QM_WIRE_SIZE : SIZE);
}

static int tagged_can_multi_conn(void *handle)
{
    return !single;
}

static int tagged_can_zero(void *handle)
{
    return 0;
}

static int tagged_pread(void *handle, void *buf, uint32_t count, uint64_t offset,
                        uint32_t flags)
{
    struct handle *h = handle;
    unsigned slot = (unsigned)(offset >> QM_WIRE_SHIFT);
    struct qm_wire_header header = {
        .magic = htole64(QM_WIRE_MAGIC),
        .version = htole32(QM_WIRE_VERSION),
        .flags = htole32(ordered ? QM_WIRE_ORDERED : 0),
        .size = htole64(SIZE),
        .block_size = htole32(4096),
        .slot_first = htole32(slots ? 7 : 0),
        .slot_count = htole32(slots),
        .session = htole64(slots ? SESSION : 0),
    };

    memset(buf, 0, count);
    if (slot == QM_WIRE_SLOT_CONTROL) {
        memcpy(buf, &header, count < sizeof header ? count : sizeof header);
        return 0;
    }
    offset &= QM_WIRE_OFFSET_MASK;
    for (uint32_t i = 0; i + 8 <= count; i += 8)
        memcpy((char *)buf + i, &(uint64_t){htobe64(offset + i)}, 8);
    pthread_mutex_lock(&lock);
    if (h->tagged && out)
        fprintf(out, "read %d %" PRIu64 " %u %u\n",
                is_open[slot] ? (int)slot : -(int)slot, offset, count, h->connection);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* lock is held. */
static int take(struct handle *h, const struct qm_wire_record *r)
{
    unsigned slot = le16toh(r->slot);

    if (le64toh(r->session) != SESSION || (le32toh(r->op) == QM_WIRE_BEGIN && refuse)) {
        fputs("refused\n", out);
        return EINVAL;
    }
    switch (le32toh(r->op)) {
    case QM_WIRE_BEGIN:
        fprintf(out, "begin %u %u %u %" PRIu64 " %u\n", slot, le16toh(r->parent),
                le16toh(r->kind), le64toh(r->klass), h->connection);
        is_open[slot] = true;
        return 0;
    case QM_WIRE_END:
        fprintf(out, "end %u %u\n", slot, h->connection);
        is_open[slot] = false;
        return 0;
    default:
        return 0;
    }
}

static int tagged_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
                         uint32_t flags)
{
    const struct qm_wire_record *r = buf;
    int err = 0;

    if (offset >> QM_WIRE_SHIFT != QM_WIRE_SLOT_CONTROL)
        return 0;
    if (delay_us)
        usleep(delay_us);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; !err && i < count / sizeof *r; i++)
        err = take(handle, &r[i]);
    fflush(out);
    pthread_mutex_unlock(&lock);
    if (err)
        nbdkit_set_error(err);
    return err ? -1 : 0;
}

static struct nbdkit_plugin plugin = {
    .name = "tagged",
    .version = "1",
    .config = tagged_config,
    .thread_model = tagged_thread_model,
    .unload = tagged_unload,
    .open = tagged_open,
    .close = tagged_close,
    .get_size = tagged_get_size,
    .can_multi_conn = tagged_can_multi_conn,
    .can_zero = tagged_can_zero,
    .pread = tagged_pread,
    .pwrite = tagged_pwrite,
};

/* What the macro defines, it does not declare. */
struct nbdkit_plugin *plugin_init(void);

NBDKIT_REGISTER_PLUGIN(plugin)
