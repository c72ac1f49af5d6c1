/* SPDX-License-Identifier: BSD-3-Clause */
/* mock-server.c - see mock-server.h. */
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clients/protocol/quickmine-protocol.h"
#include "mock-server.h"

enum { PATIENCE = 60 }; /* seconds that a test waits for a condition */

/* --- the handshake --- */

static bool get(int fd, void *buf, size_t count)
{
    return count == 0 || recv(fd, buf, count, MSG_WAITALL) == (ssize_t)count;
}

static bool put(int fd, const void *buf, size_t count)
{
    return send(fd, buf, count, MSG_NOSIGNAL) == (ssize_t)count;
}

static bool reply_option(int fd, uint32_t option, uint32_t type, const void *data,
                         uint32_t len)
{
    struct {
        uint64_t magic;
        uint32_t option, type, len;
    } __attribute__((packed)) r = {htobe64(UINT64_C(0x3e889045565a9)), htobe32(option),
                                   htobe32(type), htobe32(len)};

    return put(fd, &r, sizeof r) && put(fd, data, len);
}

/* Has the connection serve an export; false: there is none of that name. */
static bool choose(struct mock_conn *c, const char *name)
{
    struct mock_server *m = c->server;

    if (strcmp(name, QM_WIRE_EXPORT) == 0)
        return true;
    c->plain = true;
    if (*name == '\0')
        return true;
    if (m->no_instance || strncmp(name, QM_WIRE_PLAIN_EXPORT, 6) != 0)
        return false;
    c->session = strtoull(name + 6, NULL, 16);
    return true;
}

static bool go(struct mock_conn *c, const char *data)
{
    struct mock_server *m = c->server;
    struct {
        uint16_t type;
        uint64_t size;
        uint16_t flags;
    } __attribute__((packed)) info = {0};
    char name[128] = "";
    uint32_t len;

    memcpy(&len, data, sizeof len);
    len = be32toh(len);
    if (len < sizeof name)
        memcpy(name, data + 4, len);
    pthread_mutex_lock(&m->lock);
    bool there = choose(c, name);
    info.size = htobe64(c->plain ? m->size : QM_WIRE_SIZE);
    info.flags =
        htobe16((uint16_t)(1 | (m->no_flush ? 0 : 4) | (m->no_fua ? 0 : 8) |
                           (c->plain ? 64 : 0) | (c->plain && !m->no_trim ? 32 : 0) |
                           (m->no_multi_conn ? 0 : 256)));
    pthread_mutex_unlock(&m->lock);
    if (!there)
        return reply_option(c->fd, 7, 0x80000006, NULL, 0);
    return reply_option(c->fd, 7, 3, &info, sizeof info) &&
           reply_option(c->fd, 7, 1, NULL, 0);
}

static bool shake_hands(struct mock_conn *c)
{
    struct {
        uint64_t magic;
        uint32_t option, len;
    } __attribute__((packed)) o;
    char data[4096];
    uint32_t flags;

    if (!put(c->fd, "NBDMAGICIHAVEOPT\0\3", 18) || !get(c->fd, &flags, 4))
        return false;
    while (get(c->fd, &o, sizeof o)) {
        uint32_t option = be32toh(o.option), len = be32toh(o.len);

        if (len > sizeof data || !get(c->fd, data, len) || option == 2)
            return false;
        if (option != 7) {
            if (!reply_option(c->fd, option, 0x80000001, NULL, 0))
                return false;
            continue;
        }
        c->plain = false;
        return go(c, data);
    }
    return false;
}

/* --- requests --- */

struct request {
    uint32_t magic;
    uint16_t flags, type;
    uint64_t handle, offset;
    uint32_t count;
} __attribute__((packed));

static bool is_change(enum mock_type type)
{
    return type == MOCK_WRITE || type == MOCK_ZERO || type == MOCK_TRIM;
}

static bool is_changing(struct mock_server *m, uint64_t session)
{
    for (unsigned i = 0; i < MOCK_CONNS; i++)
        if (m->changing[i] == session)
            return true;
    return false;
}

/* lock is held. */
static int fence(struct mock_server *m, uint64_t session)
{
    if (m->no_instance)
        return EINVAL;
    for (unsigned i = 0; i < MOCK_CONNS; i++) {
        if (m->fenced[i] == 0) {
            m->fenced[i] = session;
            break;
        }
    }
    while (m->running && is_changing(m, session))
        pthread_cond_wait(&m->changed, &m->lock);
    return 0;
}

static bool is_fenced(struct mock_server *m, uint64_t session)
{
    for (unsigned i = 0; session && i < MOCK_CONNS; i++)
        if (m->fenced[i] == session)
            return true;
    return false;
}

/* lock is held. */
static int control(struct mock_conn *c, enum mock_type type, char *data)
{
    struct mock_server *m = c->server;
    struct qm_wire_record *record = (struct qm_wire_record *)data;
    struct qm_wire_header *header = (struct qm_wire_header *)data;

    if (type == MOCK_HEADER) {
        if (c->session == 0)
            c->session = ++m->last_session;
        memset(header, 0, sizeof *header);
        header->magic = htole64(QM_WIRE_MAGIC);
        header->version = htole32(QM_WIRE_VERSION);
        header->flags = htole32(m->unordered ? 0 : QM_WIRE_ORDERED);
        header->size = htole64(m->size);
        header->block_size = htole32(m->block_size);
        header->slot_first = htole32(1);
        header->slot_count = htole32(64);
        header->session = htole64(c->session);
        header->instance = htole64(m->no_instance ? 0 : m->instance);
        header->volume[0] = m->volume;
        return 0;
    }
    if (le32toh(record->op) == QM_WIRE_FENCE)
        return fence(m, le64toh(record->session));
    c->session = le64toh(record->session);
    return 0;
}

/* What is stored, which two servers may be in front of, each with a lock of its own. */
static pthread_mutex_t storage = PTHREAD_MUTEX_INITIALIZER;

static void lose_what_is_not_durable(struct mock_server *m)
{
    pthread_mutex_lock(&storage);
    memcpy(m->image, m->durable, MOCK_SIZE);
    pthread_mutex_unlock(&storage);
}

/* lock is held.  What is asked for, done. */
static int carry_out(struct mock_server *m, const struct mock_op *op, char *data)
{
    char *at = m->image + op->offset;

    pthread_mutex_lock(&storage);
    switch (op->type) {
    case MOCK_READ:
        memcpy(data, at, op->count);
        break;
    case MOCK_WRITE:
        memcpy(at, data, op->count);
        break;
    case MOCK_ZERO:
    case MOCK_TRIM:
        memset(at, 0, op->count);
        break;
    default:
        memcpy(m->durable, m->image, MOCK_SIZE);
    }
    if (op->fua)
        memcpy(m->durable + op->offset, at, op->count);
    pthread_mutex_unlock(&storage);
    return 0;
}

/* lock is held. */
static int serve(struct mock_conn *c, struct mock_op *op, char *data)
{
    struct mock_server *m = c->server;
    unsigned number = (unsigned)(c - m->conn);
    int error = 0;

    if (m->ending || (is_change(op->type) && is_fenced(m, c->session)))
        return ESHUTDOWN;
    if (is_change(op->type))
        m->changing[number] = c->session;
    m->held[op->type]++;
    pthread_cond_broadcast(&m->changed);
    while (m->hold[op->type] && m->running)
        pthread_cond_wait(&m->changed, &m->lock);
    if (!m->running) {
        error = ESHUTDOWN; /* which nobody will hear */
    } else if (m->errors[op->type] > 0) {
        m->errors[op->type]--;
        error = m->error[op->type];
        if (op->type == MOCK_FLUSH && m->forget)
            lose_what_is_not_durable(m);
    } else if (op->type >= MOCK_HEADER) {
        error = control(c, op->type, data);
    } else {
        op->first = data[0];
        error = carry_out(m, op, data);
    }
    m->held[op->type]--;
    if (m->running && m->ops < MOCK_OPS)
        m->op[m->ops++] = *op;
    m->changing[number] = 0;
    pthread_cond_broadcast(&m->changed);
    return error;
}

static bool is_control(const struct mock_conn *c, const struct request *r)
{
    return !c->plain && be64toh(r->offset) >> QM_WIRE_SHIFT == QM_WIRE_SLOT_CONTROL;
}

static void transmit(struct mock_conn *c)
{
    struct mock_server *m = c->server;
    char *data = calloc(1, MOCK_SIZE);
    struct request r;

    while (data && get(c->fd, &r, sizeof r)) {
        struct {
            uint32_t magic, error;
            uint64_t handle;
        } __attribute__((packed)) reply = {htobe32(0x67446698), 0, r.handle};
        struct mock_op op = {
            .type = be16toh(r.type),
            .offset = be64toh(r.offset) & QM_WIRE_OFFSET_MASK,
            .count = be32toh(r.count),
            .fua = be16toh(r.flags) & 1,
        };
        bool read = op.type == MOCK_READ;
        int error;

        if (op.type == 2 || op.count > MOCK_SIZE ||
            (op.type == MOCK_WRITE && !get(c->fd, data, op.count)))
            break;
        if (is_control(c, &r))
            op.type = read ? MOCK_HEADER : MOCK_FENCE;
        pthread_mutex_lock(&m->lock);
        error = serve(c, &op, data);
        pthread_mutex_unlock(&m->lock);
        reply.error = htobe32((uint32_t)error);
        if (!put(c->fd, &reply, sizeof reply) ||
            (read && !error && !put(c->fd, data, op.count)))
            break;
    }
    free(data);
}

/* --- connections --- */

static void *serve_conn(void *opaque)
{
    struct mock_conn *c = opaque;
    struct mock_server *m = c->server;
    bool silent, refused;
    char end;

    pthread_mutex_lock(&m->lock);
    silent = m->silent;
    refused = m->at_most > 0 && m->conns > m->at_most;
    m->accepted++;
    m->ungreeted += silent;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (silent)
        (void)!read(c->fd, &end, 1); /* the client closes it */
    else if (!refused && shake_hands(c))
        transmit(c);
    pthread_mutex_lock(&m->lock);
    m->ungreeted -= silent;
    close(c->fd);
    c->fd = -1;
    m->conns--;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* lock is held. */
static struct mock_conn *unused(struct mock_server *m)
{
    for (unsigned i = 0; i < MOCK_CONNS; i++) {
        struct mock_conn *c = &m->conn[i];

        if (c->used && c->fd != -1)
            continue;
        if (c->used)
            pthread_join(c->thread, NULL);
        *c = (struct mock_conn){.server = m, .used = true, .fd = -1};
        return c;
    }
    errx(1, "too many connections");
}

static void *accept_all(void *opaque)
{
    struct mock_server *m = opaque;
    struct mock_conn *c;
    int fd;

    while ((fd = accept(m->listener, NULL, NULL)) != -1) {
        pthread_mutex_lock(&m->lock);
        c = unused(m);
        c->fd = fd;
        m->conns++;
        if (pthread_create(&c->thread, NULL, serve_conn, c))
            errx(1, "pthread_create");
        pthread_mutex_unlock(&m->lock);
    }
    return NULL;
}

void mock_init(struct mock_server *m)
{
    *m = (struct mock_server){
        .dir = "/tmp/qmctx.XXXXXX",
        .size = MOCK_SIZE,
        .block_size = 4096,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .image = calloc(1, MOCK_SIZE),
        .durable = calloc(1, MOCK_SIZE),
        .listener = -1,
    };
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!mkdtemp(m->dir) || !m->image || !m->durable)
        err(1, "mock server");
    snprintf(m->uri, sizeof m->uri, "nbd+unix:///?socket=%s/socket", m->dir);
}

void mock_start(struct mock_server *m)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", m->dir);
    unlink(address.sun_path);
    m->instance++;
    m->ending = false;
    m->running = true;
    memset(m->fenced, 0, sizeof m->fenced);
    m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->listener == -1 ||
        bind(m->listener, (struct sockaddr *)&address, sizeof address) == -1 ||
        listen(m->listener, 64) == -1)
        err(1, "%s", address.sun_path);
    if (pthread_create(&m->acceptor, NULL, accept_all, m))
        errx(1, "pthread_create");
}

/* lock is held. */
static void shut_all(struct mock_server *m)
{
    for (unsigned i = 0; i < MOCK_CONNS; i++)
        if (m->conn[i].used && m->conn[i].fd != -1)
            shutdown(m->conn[i].fd, SHUT_RDWR);
}

void mock_crash(struct mock_server *m, bool lose)
{
    char path[64];

    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->acceptor, NULL);
    close(m->listener);
    pthread_mutex_lock(&m->lock);
    m->running = false;
    shut_all(m);
    pthread_cond_broadcast(&m->changed);
    while (m->conns > 0)
        pthread_cond_wait(&m->changed, &m->lock);
    if (lose)
        lose_what_is_not_durable(m);
    pthread_mutex_unlock(&m->lock);
    for (unsigned i = 0; i < MOCK_CONNS; i++)
        if (m->conn[i].used)
            pthread_join(m->conn[i].thread, NULL);
    memset(m->conn, 0, sizeof m->conn);
    snprintf(path, sizeof path, "%s/socket", m->dir);
    unlink(path);
}

void mock_destroy(struct mock_server *m)
{
    if (m->running)
        mock_crash(m, false);
    pthread_cond_destroy(&m->changed);
    free(m->image);
    free(m->durable);
    rmdir(m->dir);
}

void mock_cut(struct mock_server *m)
{
    pthread_mutex_lock(&m->lock);
    shut_all(m);
    pthread_mutex_unlock(&m->lock);
}

/* --- what a test says and asks --- */

void mock_hold(struct mock_server *m, enum mock_type type, bool hold)
{
    pthread_mutex_lock(&m->lock);
    m->hold[type] = hold;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void mock_fail(struct mock_server *m, enum mock_type type, int error, unsigned times)
{
    pthread_mutex_lock(&m->lock);
    m->error[type] = error;
    m->errors[type] = times;
    pthread_mutex_unlock(&m->lock);
}

/* lock is held. */
static void await_change(struct mock_server *m, const struct timespec *until)
{
    if (pthread_cond_timedwait(&m->changed, &m->lock, until) == ETIMEDOUT)
        errx(1, "the mock server waited in vain");
}

static struct timespec deadline(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE;
    return until;
}

void mock_await_held(struct mock_server *m, enum mock_type type, unsigned n)
{
    struct timespec until = deadline();

    pthread_mutex_lock(&m->lock);
    while (m->held[type] < n)
        await_change(m, &until);
    pthread_mutex_unlock(&m->lock);
}

static unsigned count(struct mock_server *m, enum mock_type type)
{
    unsigned n = 0;

    for (unsigned i = 0; i < m->ops; i++)
        n += m->op[i].type == type;
    return n;
}

void mock_await_ops(struct mock_server *m, enum mock_type type, unsigned n)
{
    struct timespec until = deadline();

    pthread_mutex_lock(&m->lock);
    while (count(m, type) < n)
        await_change(m, &until);
    pthread_mutex_unlock(&m->lock);
}

unsigned mock_count(struct mock_server *m, enum mock_type type)
{
    unsigned n;

    pthread_mutex_lock(&m->lock);
    n = count(m, type);
    pthread_mutex_unlock(&m->lock);
    return n;
}

unsigned mock_open_conns(struct mock_server *m)
{
    unsigned n;

    pthread_mutex_lock(&m->lock);
    n = m->conns;
    pthread_mutex_unlock(&m->lock);
    return n;
}

char mock_byte(struct mock_server *m, bool durable, uint64_t offset)
{
    char c;

    pthread_mutex_lock(&m->lock);
    pthread_mutex_lock(&storage);
    c = (durable ? m->durable : m->image)[offset];
    pthread_mutex_unlock(&storage);
    pthread_mutex_unlock(&m->lock);
    return c;
}

bool mock_is_all_durable(struct mock_server *m)
{
    bool same;

    pthread_mutex_lock(&m->lock);
    pthread_mutex_lock(&storage);
    same = memcmp(m->image, m->durable, MOCK_SIZE) == 0;
    pthread_mutex_unlock(&storage);
    pthread_mutex_unlock(&m->lock);
    return same;
}
