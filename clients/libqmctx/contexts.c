/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - contexts of the direct transport, and the session's slots.
 *
 * A context is found by its id: an index into a table in the low half (plus 1), a
 * generation in the high one, so that the id of a context that has ended names nothing.
 *
 * A context that is used gets a slot of the session and is begun on the wire, after
 * those around it.  What holds under direct.lock:
 *
 *   - A context that has a slot lies within one that has, unless it is a root:
 *     slotted_children counts the other direction.
 *   - A slot can be taken away (for another context) only if nothing is in flight in it
 *     and no context within has a slot: the server ends with a context what is nested.
 *     Such contexts are in session.idle, least recently used first.  They are begun
 *     anew when they are used again.
 *   - A slot is free again when the server has replied to the END of its context, so
 *     that on another connection its next BEGIN cannot overtake it.
 *   - References: one for being open (until the reply to END, if one is sent), one for
 *     each request in flight.  The last one gives back the slot.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"

#define DRAIN_EVERY 64 /* ENDs, if nobody handles their replies */

_Static_assert((int)QMCTX_CONNECTION == QM_WIRE_CONNECTION &&
                   (int)QMCTX_THREAD == QM_WIRE_THREAD &&
                   (int)QMCTX_TRANSACTION == QM_WIRE_TRANSACTION &&
                   (int)QMCTX_QUERY == QM_WIRE_QUERY,
               "the numbers on the wire");

struct context {
    qmctx_id id;
    struct context *parent; /* NULL: a root, or ended */
    struct cds_list_head children, siblings;
    struct conn *conn; /* of a root: over which the tree speaks */
    unsigned level;    /* 1: a root */
    unsigned refs;
    bool open;

    struct session *session; /* that slot is of, with the serial it had */
    uint64_t serial;
    uint16_t slot;    /* 0: none */
    uint64_t epoch;   /* of the connection: slot was begun in it */
    uint64_t refused; /* the epoch in which the server did not take it */
    unsigned slotted_children;
    bool idle; /* in session.idle, by: */
    struct cds_list_head in_idle;
    struct context *next_ended; /* of a struct control */

    uint64_t klass;
    uint16_t kind, name_len;
    char name[];
};

/* Records of one request, with the contexts that they are about. */
struct control {
    struct request request;
    bool waited; /* a thread waits for it, and frees it */
    struct context
        *ended;     /* a list: END of the first, the rest were nested in it ... */
    unsigned count; /* ... or the number of contexts that BEGIN, and of records */
    struct context *begun[MAX_LEVEL];
    struct qm_wire_record record[];
};

static uint32_t low(qmctx_id id)
{
    return (uint32_t)id - 1;
}

/* All of the static functions: direct.lock is held. */

static struct context *find(struct direct *d, qmctx_id id)
{
    struct context *c = low(id) < d->table_size ? d->table[low(id)] : NULL;

    return c && c->id == id ? c : NULL;
}

static struct context *root_of(struct context *c)
{
    while (c->parent)
        c = c->parent;
    return c;
}

static bool has_slot(const struct context *c)
{
    return c->slot && c->serial == c->session->serial;
}

static void update_idle(struct context *c)
{
    bool idle = c->open && has_slot(c) && c->refs == 1 && c->slotted_children == 0;

    if (idle && !c->idle)
        cds_list_add_tail(&c->in_idle, &c->session->idle);
    else if (!idle && c->idle)
        cds_list_del(&c->in_idle);
    c->idle = idle;
}

/* The context has no slot any more; what becomes of the slot is the caller's. */
static void forget_slot(struct context *c)
{
    if (!c->slot)
        return;
    c->slot = 0;
    update_idle(c);
    if (c->parent) {
        c->parent->slotted_children--;
        update_idle(c->parent);
    }
}

static void free_slot(struct session *s, uint16_t slot)
{
    s->slots[(s->at + s->free++) % s->count] = slot;
}

/* A slot, if need be that of the context that was not used for the longest time; 0 if
 * all are in use. */
static uint16_t take_slot(struct session *s)
{
    struct context *victim;
    uint16_t slot;

    if (s->free > 0) {
        slot = s->slots[s->at];
        s->at = (s->at + 1) % s->count;
        s->free--;
        return slot;
    }
    if (cds_list_empty(&s->idle))
        return 0;
    victim = cds_list_first_entry(&s->idle, struct context, in_idle);
    slot = victim->slot;
    forget_slot(victim);
    return slot;
}

static void unref(struct context *c)
{
    if (--c->refs > 0) {
        update_idle(c);
        return;
    }
    if (has_slot(c))
        free_slot(c->session, c->slot);
    free(c);
}

int qm_session_start(struct direct *d, struct session *s, uint64_t id, uint32_t first,
                     uint32_t count)
{
    uint16_t *slots = malloc((count ? count : 1) * sizeof *slots);

    if (!slots)
        return ENOMEM;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->table_size; i++)
        if (d->table[i] && d->table[i]->session == s)
            forget_slot(d->table[i]);
    free(s->slots);
    s->slots = slots;
    s->id = id;
    s->serial = ++d->last_serial;
    s->first = first;
    s->count = s->free = count;
    s->at = 0;
    for (uint32_t i = 0; i < count; i++)
        slots[i] = (uint16_t)(first + i);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* Makes the table larger. */
static bool grow(struct direct *d)
{
    uint32_t size = d->table_size ? 2 * d->table_size : 64, i;
    struct context **table;
    uint32_t *generations, *unused;

    if (size <= d->table_size || size == UINT32_MAX)
        return false;
    table = realloc(d->table, size * sizeof(struct context *));
    if (table)
        d->table = table;
    generations = realloc(d->generations, size * sizeof *generations);
    if (generations)
        d->generations = generations;
    unused = realloc(d->unused, size * sizeof *unused);
    if (unused)
        d->unused = unused;
    if (!table || !generations || !unused)
        return false;
    for (i = size; i-- > d->table_size;) {
        unused[d->unused_count++] = i;
        table[i] = NULL;
        generations[i] = 0;
    }
    d->table_size = size;
    return true;
}

int qm_context_open(struct direct *d, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id)
{
    size_t len = name ? qm_name_len(name, QM_WIRE_NAME_MAX) : 0;
    struct context *c = calloc(1, sizeof *c + len);
    uint32_t i;

    if (!c)
        return ENOMEM;
    CDS_INIT_LIST_HEAD(&c->children);
    c->refs = 1;
    c->open = true;
    c->kind = (uint16_t)kind;
    c->klass = klass;
    c->name_len = (uint16_t)len;
    if (len)
        memcpy(c->name, name, len);
    pthread_mutex_lock(&d->lock);
    if (d->unused_count == 0 && !grow(d)) {
        pthread_mutex_unlock(&d->lock);
        free(c);
        return ENOMEM;
    }
    i = d->unused[--d->unused_count];
    d->table[i] = c;
    *id = c->id = (uint64_t)++d->generations[i] << 32 | (i + 1);
    c->parent = find(d, parent);
    if (c->parent) {
        cds_list_add_tail(&c->siblings, &c->parent->children);
        c->level = c->parent->level + 1;
    } else {
        CDS_INIT_LIST_HEAD(&c->siblings);
        c->level = 1;
        c->conn = &d->conn[atomic_fetch_add(&d->next_conn, 1) % d->connections];
    }
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* Of the connections that are up, the next one on which nothing is in flight, or else
 * the least: a request waits for those before it on its connection, at a server that
 * serves them in order.  NULL: none is up. */
static struct conn *free_conn(struct direct *d)
{
    unsigned next = atomic_fetch_add(&d->next_conn, 1), least = UINT_MAX;
    struct conn *found = NULL;

    for (unsigned i = 0; i < d->connections && least > 0; i++) {
        struct conn *conn = &d->conn[(next + i) % d->connections];
        unsigned n = atomic_load_explicit(&conn->in_flight, memory_order_relaxed);

        if (n < least && atomic_load(&conn->up)) {
            least = n;
            found = conn;
        }
    }
    return found;
}

struct conn *qm_context_conn(struct direct *d, qmctx_id id)
{
    struct context *c;
    struct conn *conn;

    for (;;) {
        pthread_mutex_lock(&d->lock);
        c = find(d, id);
        conn = c ? root_of(c)->conn : NULL;
        pthread_mutex_unlock(&d->lock);
        if (!conn || !atomic_load(&conn->up)) {
            conn = free_conn(d);
            if (!conn)
                return NULL;
        }
        pthread_mutex_lock(&conn->lock);
        pthread_mutex_lock(&d->lock);
        c = find(d, id);
        if (c) {
            c = root_of(c);
            /* A tree whose connection is down goes on over another. */
            if (!atomic_load(&c->conn->up))
                c->conn = conn;
        }
        if (atomic_load(&conn->up) && (!c || c->conn == conn)) {
            pthread_mutex_unlock(&d->lock);
            return conn;
        }
        pthread_mutex_unlock(&d->lock);
        pthread_mutex_unlock(&conn->lock);
    }
}

static bool is_begun(const struct context *c, const struct conn *conn)
{
    return has_slot(c) && c->session == conn->session && c->epoch == conn->epoch;
}

static void fill_in(struct qm_wire_record *r, const struct conn *conn,
                    const struct context *c)
{
    memset(r, 0, sizeof *r);
    r->op = htole32(QM_WIRE_BEGIN);
    r->slot = htole16(c->slot);
    r->parent = htole16(c->parent ? c->parent->slot : 0);
    r->session = htole64(conn->session->id);
    r->klass = htole64(c->klass);
    r->kind = htole16(c->kind);
    r->name_len = htole16(c->name_len);
    memcpy(r->name, c->name, c->name_len);
}

/* Gives c a slot for this epoch of conn.  The one around it has one. */
static bool give_slot(struct context *c, const struct conn *conn)
{
    struct session *s = conn->session;
    struct context *parent = c->parent;

    if (!(has_slot(c) && c->session == s)) {
        forget_slot(c);
        /* Meanwhile the parent's must stay. */
        if (parent) {
            parent->slotted_children++;
            update_idle(parent);
        }
        c->slot = take_slot(s);
        if (!c->slot) {
            if (parent) {
                parent->slotted_children--;
                update_idle(parent);
            }
            return false;
        }
        c->session = s;
        c->serial = s->serial;
    }
    c->epoch = conn->epoch;
    return true;
}

/* Hints are a request each, and may overtake each other: the one around goes first. */
static bool one_by_one(const struct conn *conn)
{
    return conn->direct->hints && !conn->ordered;
}

/* Begins, as far as there are slots, what is not begun of the contexts around c and of
 * c itself, but only the outermost of it if that must go one by one.  Returns the
 * innermost one that is begun then, or NULL.  *control: the records to be sent for it,
 * or NULL. */
static struct context *begin(struct conn *conn, struct context *c,
                             struct control **control)
{
    struct context *path[MAX_LEVEL], *used = NULL;
    struct control *k = NULL;
    unsigned n, i;

    while (c->level > MAX_LEVEL)
        c = c->parent;
    n = c->level;
    for (i = n; i > 0; c = c->parent)
        path[--i] = c;
    for (i = 0; i < n && is_begun(path[i], conn); i++)
        used = path[i];
    if (i < n && path[i]->refused != conn->epoch && conn->session->count > 0)
        k = malloc(sizeof *k + (n - i) * sizeof k->record[0]);
    if (k)
        *k = (struct control){.count = 0};
    for (; k && i < n && !(k->count > 0 && one_by_one(conn)); i++) {
        if (path[i]->refused == conn->epoch || !give_slot(path[i], conn))
            break;
        used = path[i];
        used->refs++;
        update_idle(used);
        k->begun[k->count] = used;
        fill_in(&k->record[k->count++], conn, used);
    }
    if (k && k->count == 0) {
        free(k);
        k = NULL;
    }
    *control = k;
    return used;
}

/* From here on without direct.lock. */

void qm_context_release(struct direct *d, struct context *c)
{
    pthread_mutex_lock(&d->lock);
    unref(c);
    pthread_mutex_unlock(&d->lock);
}

/* A request in a context is complete. */
static void request_ended(struct request *request)
{
    qm_context_release(request->conn->direct, request->context);
}

void qm_context_hold(struct request *request, struct context *context)
{
    request->context = context;
    request->ended = context ? request_ended : NULL;
}

/* Records have been replied to. */
static void records_ended(struct request *request)
{
    struct control *k = caa_container_of(request, struct control, request);
    struct direct *d = request->conn->direct;
    struct context *c;

    pthread_mutex_lock(&d->lock);
    for (unsigned i = 0; i < k->count; i++) {
        /* Do not ask again in this epoch; the reads go on, as of the context around. */
        if (k->request.error) {
            k->begun[i]->refused = k->begun[i]->epoch;
            k->begun[i]->epoch = 0;
        }
        unref(k->begun[i]);
    }
    while ((c = k->ended)) {
        k->ended = c->next_ended;
        unref(c);
    }
    pthread_mutex_unlock(&d->lock);
    if (!k->waited)
        free(k);
}

/* Sends records.  conn.lock is held. */
static void send_records(struct conn *conn, struct control *k, unsigned count)
{
    struct direct *d = conn->direct;
    struct request *request = &k->request;

    qm_request_init(request, conn);
    request->ended = records_ended;
    conn->unattended++;
    if (!d->hints) {
        qm_conn_issue(request, CMD_WRITE, k->record, count * sizeof k->record[0],
                      QM_WIRE_CONTROL, 0);
    } else {
        for (unsigned i = 0; i < count; i++) {
            const struct qm_wire_record *r = &k->record[i];
            uint64_t klass = le64toh(r->klass) % QM_WIRE_HINT_CLASSES;

            qm_conn_issue(request, CMD_CACHE, NULL, 512 * (klass + 1),
                          qm_wire_hint(le32toh(r->op), le16toh(r->kind),
                                       le16toh(r->slot), le16toh(r->parent)),
                          0);
        }
    }
    qm_conn_issued(request);
}

int qm_context_tag(struct conn *conn, qmctx_id id, struct context **result)
{
    struct direct *d = conn->direct;
    struct control *control = NULL;
    struct context *c, *used = NULL;
    uint64_t epoch = conn->epoch;
    int slot = 0;

    *result = NULL;
    if (id == 0)
        return 0;
    if (conn->tagging) {
        while (conn->tagging)
            pthread_cond_wait(&conn->changed, &conn->lock);
        errno = EAGAIN;
        return -1;
    }
    pthread_mutex_lock(&d->lock);
    c = find(d, id);
    if (c)
        used = begin(conn, c, &control);
    if (used) {
        used->refs++;
        update_idle(used);
        slot = used->slot;
    }
    pthread_mutex_unlock(&d->lock);
    *result = used;
    if (!used || !control) /* what is begun is used: without the one, neither */
        return slot;

    control->waited = !conn->ordered;
    if (conn->ordered) {
        send_records(conn, control, control->count);
        return slot;
    }
    conn->tagging = true;
    send_records(conn, control, control->count);
    qm_conn_wait(&control->request);
    conn->tagging = false;
    pthread_cond_broadcast(&conn->changed);
    free(control);
    if (conn->epoch == epoch && !one_by_one(conn))
        return slot;
    qm_context_release(d, used);
    *result = NULL;
    errno = EAGAIN;
    return -1;
}

/* Takes one context, which has no children, out of the tree and the table.  Its first
 * reference becomes the caller's.  direct.lock is held. */
static void retire(struct direct *d, struct context *c)
{
    uint32_t i = low(c->id);

    d->table[i] = NULL;
    d->unused[d->unused_count++] = i;
    c->open = false;
    update_idle(c);
    cds_list_del(&c->siblings);
    if (c->parent && c->slot) {
        c->parent->slotted_children--;
        update_idle(c->parent);
    }
    c->parent = NULL;
}

/* Ends c and what is nested in it.  Returns what is to be sent for it, or NULL.  conn
 * is over which, or NULL.  direct.lock is held. */
static struct control *end(struct direct *d, struct context *c, struct conn *conn)
{
    struct control *k = NULL;
    struct context *n;
    bool last;

    if (conn && has_slot(c) && c->session == conn->session)
        k = malloc(sizeof *k + sizeof k->record[0]);
    if (k) {
        *k = (struct control){.count = 0};
        memset(k->record, 0, sizeof k->record[0]);
        k->record[0].op = htole32(QM_WIRE_END);
        k->record[0].slot = htole16(c->slot);
        k->record[0].session = htole64(conn->session->id);
    }
    do {
        for (n = c; !cds_list_empty(&n->children);)
            n = cds_list_first_entry(&n->children, struct context, siblings);
        last = n == c;
        retire(d, n);
        if (k && has_slot(n)) {
            n->next_ended = k->ended;
            k->ended = n;
        } else {
            unref(n);
        }
    } while (!last);
    return k;
}

int qm_context_close(struct direct *d, qmctx_id id)
{
    struct conn *conn = qm_context_conn(d, id);
    struct control *control = NULL;
    struct context *c;

    pthread_mutex_lock(&d->lock);
    c = find(d, id);
    if (c)
        control = end(d, c, conn);
    pthread_mutex_unlock(&d->lock);
    if (control)
        send_records(conn, control, 1);
    if (conn) {
        if (conn->unattended >= DRAIN_EVERY)
            qm_conn_drain(conn);
        pthread_mutex_unlock(&conn->lock);
    }
    return c ? 0 : EINVAL;
}

void qm_contexts_free(struct direct *d)
{
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->table_size; i++)
        if (d->table[i])
            end(d, root_of(d->table[i]), NULL);
    pthread_mutex_unlock(&d->lock);
    free(d->table);
    free(d->generations);
    free(d->unused);
}
