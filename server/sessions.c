/* sessions.c - slots are handed out in ranges; messages change what is open in them. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>

#include "server/sessions.h"

/* The n-th session to be open gets an n-th of SLOTS_MAX, rounded down to a power of
 * two, but no less than SLOTS_MIN.  Whichever come and go, of those that are open the
 * n-th oldest never got more.  So those that have more than SLOTS_MIN have SLOTS_MAX
 * and half of it for each doubling of their number, all together; what is left is free
 * in n pieces at most, of which one is large enough; and 1,023 sessions have room,
 * since ranges and gaps are multiples of SLOTS_MIN. */
#define SLOTS_MIN 16
#define SLOTS_MAX 4096

int qms_sessions_init(struct qms_sessions *s, struct qms_contexts *contexts,
                      struct qms_clients *clients, struct qms_classes *classes,
                      struct qms_stats *stats)
{
    s->contexts = contexts;
    s->clients = clients;
    s->classes = classes;
    s->stats = stats;
    CDS_INIT_LIST_HEAD(&s->list);
    s->count = 0;
    /* Each is made when a session gets it. */
    s->slots = aligned_alloc(_Alignof(struct qms_slot),
                             (QM_WIRE_SLOT_MAX + 1) * sizeof *s->slots);
    if (!s->slots)
        return ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    return 0;
}

/* Ends the contexts of a session that has no members any more, and frees it.  The
 * table's lock is not held; the session is still in the list, so that its slots are not
 * handed out meanwhile. */
static void end_session(struct qms_sessions *s, struct qms_session *session)
{
    for (unsigned n = 1; n <= session->count; n++) {
        struct qms_slot *slot = &s->slots[session->first + n - 1];

        qms_context_end(s->contexts, slot);
    }
    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; n < session->count; n++)
        qms_slot_destroy(&s->slots[session->first + n]);
    cds_list_del(&session->list);
    s->count--;
    pthread_mutex_unlock(&s->lock);
    qms_client_leave(s->clients, session->client);
    pthread_mutex_destroy(&session->lock);
    free(session->forest);
    free(session);
}

void qms_sessions_destroy(struct qms_sessions *s)
{
    struct qms_session *session, *next;

    cds_list_for_each_entry_safe(session, next, &s->list, list) end_session(s, session);
    pthread_mutex_destroy(&s->lock);
    free(s->slots);
}

/* The largest free range; the table's lock is held.  *before is what it comes before in
 * the list. */
static unsigned largest_gap(struct qms_sessions *s, unsigned *first,
                            struct cds_list_head **before)
{
    unsigned at = QM_WIRE_SLOT_MIN, largest = 0;
    struct qms_session *session;

    *first = at;
    *before = &s->list;
    cds_list_for_each_entry(session, &s->list, list)
    {
        if (session->first - at > largest) {
            largest = session->first - at;
            *first = at;
            *before = &session->list;
        }
        at = session->first + session->count;
    }
    if (QM_WIRE_SLOT_MAX + 1 - at > largest) {
        largest = QM_WIRE_SLOT_MAX + 1 - at;
        *first = at;
        *before = &s->list;
    }
    return largest;
}

static struct qms_session *find(struct qms_sessions *s, uint64_t id)
{
    struct qms_session *session;

    cds_list_for_each_entry(session, &s->list, list)
    {
        if (session->id == id && session->members > 0)
            return session;
    }
    return NULL;
}

/* Slots for the session with which so many are open. */
static unsigned share(unsigned sessions)
{
    unsigned count = SLOTS_MAX;

    while (count > SLOTS_MAX / sessions && count > SLOTS_MIN)
        count /= 2;
    return count;
}

struct qms_session *qms_session_new(struct qms_sessions *s)
{
    struct qms_session *session = calloc(1, sizeof *session);
    struct cds_list_head *before;
    unsigned count, gap;

    if (!session)
        return NULL;
    pthread_mutex_lock(&s->lock);
    do {
        if (getrandom(&session->id, sizeof session->id, 0) !=
            (ssize_t)sizeof session->id)
            goto error;
    } while (session->id == 0 || find(s, session->id));
    gap = largest_gap(s, &session->first, &before);
    count = share(s->count + 1);
    if (count > gap)
        goto error;
    session->forest = qms_forest_new(count);
    if (!session->forest)
        goto error;
    session->count = count;
    session->members = 1;
    pthread_mutex_init(&session->lock, NULL);
    session->client = qms_client_enter(s->clients);
    for (unsigned n = 0; n < count; n++)
        qms_slot_init(&s->slots[session->first + n], session->client);
    cds_list_add_tail(&session->list, before);
    s->count++;
    pthread_mutex_unlock(&s->lock);
    return session;

error:
    pthread_mutex_unlock(&s->lock);
    free(session);
    return NULL;
}

struct qms_session *qms_session_join(struct qms_sessions *s, uint64_t id)
{
    struct qms_session *session;

    pthread_mutex_lock(&s->lock);
    session = find(s, id);
    if (session)
        session->members++;
    pthread_mutex_unlock(&s->lock);
    return session;
}

void qms_session_leave(struct qms_sessions *s, struct qms_session *session)
{
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --session->members == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        end_session(s, session);
}

unsigned qms_sessions_count(struct qms_sessions *s)
{
    unsigned n;

    pthread_mutex_lock(&s->lock);
    n = s->count;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static unsigned node_of(const struct qms_session *session, unsigned slot)
{
    return slot == QM_WIRE_SLOT_NONE ? 0 : slot - session->first + 1;
}

static int judge(const struct qms_session *session, const struct qms_forest *forest,
                 const struct qms_message *m)
{
    if (m->op == QM_WIRE_BEGIN &&
        !qms_forest_may_begin(forest, node_of(session, m->slot),
                              node_of(session, m->parent)))
        return EINVAL;
    return 0;
}

static void change(const struct qms_session *session, struct qms_forest *forest,
                   const struct qms_message *m)
{
    if (m->op == QM_WIRE_BEGIN)
        qms_forest_begin(forest, node_of(session, m->slot),
                         node_of(session, m->parent));
    else if (m->op == QM_WIRE_END)
        qms_forest_end(forest, node_of(session, m->slot));
}

/* Whether all messages may take effect, one after the other; the lock is held. */
static int judge_all(const struct qms_session *session,
                     const struct qms_message *messages, size_t n)
{
    struct qms_forest *copy;
    int error = 0;

    if (n == 1)
        return judge(session, session->forest, messages);
    copy = qms_forest_copy(session->forest);
    if (!copy)
        return ENOMEM;
    for (size_t i = 0; i < n && error == 0; i++) {
        error = judge(session, copy, &messages[i]);
        if (error == 0)
            change(session, copy, &messages[i]);
    }
    free(copy);
    return error;
}

static void carry_out(struct qms_sessions *s, const struct qms_message *m)
{
    struct qms_slot *slot = &s->slots[m->slot];
    struct qms_class *klass;

    if (m->op == QM_WIRE_JOIN)
        return;
    qms_context_end(s->contexts, slot);
    if (m->op == QM_WIRE_END)
        return;
    klass = qms_class_find(s->classes, m->kind, m->klass, m->name, m->name_len);
    /* Without memory the slot counts as open, but reads in it have no context. */
    (void)qms_context_begin(
        s->contexts, slot, m->parent == QM_WIRE_SLOT_NONE ? NULL : &s->slots[m->parent],
        m->kind, klass);
}

int qms_session_apply(struct qms_sessions *s, struct qms_session *session,
                      const struct qms_message *messages, size_t n)
{
    int error;

    pthread_mutex_lock(&session->lock);
    error = judge_all(session, messages, n);
    for (size_t i = 0; i < n && error == 0; i++) {
        const struct qms_message *m = &messages[i];

        if (m->op == QM_WIRE_END &&
            !qms_forest_open(session->forest, node_of(session, m->slot)))
            qms_stats_add(s->stats, QMS_IGNORED_ENDS, 1);
        change(session, session->forest, m);
        carry_out(s, m);
    }
    pthread_mutex_unlock(&session->lock);
    return error;
}
