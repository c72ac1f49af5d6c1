/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - slots are handed out in ranges; messages change what is open in them. */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/sessions.h"

/* The n-th session to be open gets an n-th of SLOTS_MAX, rounded down to a power of
 * two, but no less than SLOTS_MIN.  Whichever come and go, of those that are open the
 * n-th oldest never got more.  So those that have more than SLOTS_MIN have SLOTS_MAX
 * and half of it for each doubling of their number, all together; what is left is free
 * in n pieces at most, of which one is large enough; and 1,023 sessions have room,
 * since ranges and gaps are multiples of SLOTS_MIN. */
#define SLOTS_MIN 16
#define SLOTS_MAX 4096

/* How often a fence that waits asks whether it need. */
#define GONE_NS 50000000

int qms_sessions_init(struct qms_sessions *s, struct qms_contexts *contexts,
                      struct qms_clients *clients, struct qms_classes *classes,
                      struct qms_stats *stats)
{
    s->contexts = contexts;
    s->clients = clients;
    s->classes = classes;
    s->stats = stats;
    s->gone = NULL;
    CDS_INIT_LIST_HEAD(&s->list);
    CDS_INIT_LIST_HEAD(&s->slotless);
    s->count = s->slotless_count = 0;
    s->owns = 0;
    /* Each is made when a session gets it. */
    s->slots = aligned_alloc(_Alignof(struct qms_slot),
                             (QM_WIRE_SLOT_MAX + 1) * sizeof *s->slots);
    if (!s->slots)
        return ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    return 0;
}

/* Nobody has a reference any more. */
static void free_session(struct qms_session *session)
{
    pthread_cond_destroy(&session->unchanging);
    pthread_mutex_destroy(&session->change_lock);
    pthread_mutex_destroy(&session->lock);
    free(session->forest);
    free(session);
}

/* Ends the contexts of a session that has no members any more, and frees it.  The
 * table's lock is not held; the session is still in the list, so that its slots are not
 * handed out meanwhile. */
static void end_session(struct qms_sessions *s, struct qms_session *session)
{
    const unsigned count = session->count, client = session->client;
    const bool hints = session->hints;
    const unsigned source = session->source;
    bool last;

    for (unsigned n = 0; n < count; n++)
        qms_context_end(s->contexts, &s->slots[session->first + n]);
    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; n < count; n++)
        qms_slot_destroy(&s->slots[session->first + n]);
    cds_list_del(&session->list);
    if (count > 0)
        s->count--;
    else
        s->slotless_count--;
    last = --session->refs == 0; /* if not, a fence may free it from now on */
    pthread_mutex_unlock(&s->lock);
    if (hints)
        s->hinting_ended(s->opaque, source);
    if (count > 0)
        qms_client_leave(s->clients, client);
    if (last)
        free_session(session);
}

void qms_sessions_destroy(struct qms_sessions *s)
{
    struct qms_session *session, *next;

    cds_list_for_each_entry_safe(session, next, &s->list, list) end_session(s, session);
    cds_list_for_each_entry_safe(session, next, &s->slotless, list)
        end_session(s, session);
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

/* The session of that number, which may be ending, or NULL; the table's lock is held.
 */
static struct qms_session *find(struct qms_sessions *s, uint64_t id)
{
    struct qms_session *session;

    cds_list_for_each_entry(session, &s->list, list)
    {
        if (session->id == id)
            return session;
    }
    cds_list_for_each_entry(session, &s->slotless, list)
    {
        if (session->id == id)
            return session;
    }
    return NULL;
}

/* The number of slots of a new session; sessions: those then open, with it. */
static unsigned share(unsigned sessions)
{
    unsigned count = SLOTS_MAX;

    while (count > SLOTS_MAX / sessions && count > SLOTS_MIN)
        count /= 2;
    return count;
}

/* Gives a session slots, which then has a place in the list; the table's lock is held.
 * False: there are none left, or there is no memory. */
static bool lend(struct qms_sessions *s, struct qms_session *session)
{
    struct cds_list_head *before;
    struct qms_forest *forest;
    unsigned count, gap;

    gap = largest_gap(s, &session->first, &before);
    count = share(s->count + 1);
    if (count > gap)
        return false;
    forest = qms_forest_new(count);
    if (!forest)
        return false;
    free(session->forest);
    session->forest = forest;
    session->client = qms_client_enter(s->clients);
    for (unsigned n = 0; n < count; n++)
        qms_slot_init(&s->slots[session->first + n], session->client);
    cds_list_add_tail(&session->list, before);
    s->count++;
    atomic_store_explicit(&session->count, count, memory_order_release);
    return true;
}

static struct qms_session *allocate(void)
{
    struct qms_session *session = calloc(1, sizeof *session);
    pthread_condattr_t monotonic;

    if (!session)
        return NULL;
    session->forest = qms_forest_new(0);
    if (!session->forest) {
        free(session);
        return NULL;
    }
    session->members = session->refs = 1;
    pthread_mutex_init(&session->lock, NULL);
    pthread_mutex_init(&session->change_lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&session->unchanging, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return session;
}

struct qms_session *qms_session_new(struct qms_sessions *s)
{
    struct qms_session *session = allocate();
    ssize_t n;

    if (!session)
        return NULL;
    pthread_mutex_lock(&s->lock);
    do
        n = getrandom(&session->id, sizeof session->id, 0);
    while (n == (ssize_t)sizeof session->id &&
           (session->id == 0 || find(s, session->id)));
    if (n != (ssize_t)sizeof session->id) {
        pthread_mutex_unlock(&s->lock);
        free_session(session);
        return NULL;
    }
    if (!lend(s, session)) {
        cds_list_add_tail(&session->list, &s->slotless);
        s->slotless_count++;
    }
    pthread_mutex_unlock(&s->lock);
    return session;
}

void qms_session_lend(struct qms_sessions *s, struct qms_session *session)
{
    if (atomic_load_explicit(&session->count, memory_order_acquire) > 0)
        return;
    pthread_mutex_lock(&session->lock); /* the forest changes */
    pthread_mutex_lock(&s->lock);
    if (atomic_load_explicit(&session->count, memory_order_relaxed) == 0) {
        cds_list_del(&session->list);
        if (lend(s, session))
            s->slotless_count--;
        else
            cds_list_add_tail(&session->list, &s->slotless);
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&session->lock);
}

struct qms_session *qms_session_join(struct qms_sessions *s, uint64_t id)
{
    struct qms_session *session;

    pthread_mutex_lock(&s->lock);
    session = find(s, id);
    if (session && (session->members == 0 || session->fenced))
        session = NULL;
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

void qms_sessions_each_slot(struct qms_sessions *s,
                            void (*each)(void *opaque, struct qms_slot *slot),
                            void *opaque)
{
    struct qms_session *session;

    cds_list_for_each_entry(session, &s->list, list)
    {
        for (unsigned n = 0; n < session->count; n++)
            each(opaque, &s->slots[session->first + n]);
    }
}

unsigned qms_sessions_count(struct qms_sessions *s)
{
    unsigned n;

    pthread_mutex_lock(&s->lock);
    n = s->count + s->slotless_count;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool qms_session_change_begin(struct qms_session *session)
{
    bool begins;

    pthread_mutex_lock(&session->change_lock);
    begins = !session->fenced;
    session->changes += begins;
    pthread_mutex_unlock(&session->change_lock);
    return begins;
}

void qms_session_change_end(struct qms_session *session)
{
    pthread_mutex_lock(&session->change_lock);
    if (--session->changes == 0 && session->fenced)
        pthread_cond_broadcast(&session->unchanging);
    pthread_mutex_unlock(&session->change_lock);
}

/* Waits until no change is being carried out.  Returns 0 or ESHUTDOWN. */
static int wait_for_changes(struct qms_sessions *s, struct qms_session *session)
{
    struct timespec until;
    int error = 0;

    pthread_mutex_lock(&session->change_lock);
    while (session->changes > 0 && error == 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += GONE_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_cond_timedwait(&session->unchanging, &session->change_lock,
                                   &until) != ETIMEDOUT ||
            !s->gone)
            continue;
        pthread_mutex_unlock(&session->change_lock);
        if (s->gone())
            error = ESHUTDOWN;
        pthread_mutex_lock(&session->change_lock);
    }
    if (session->changes == 0)
        error = 0;
    pthread_mutex_unlock(&session->change_lock);
    return error;
}

/* The table's lock is held. */
static void fence(struct qms_session *session)
{
    pthread_mutex_lock(&session->change_lock);
    session->fenced = true;
    pthread_mutex_unlock(&session->change_lock);
}

/* Waits for the requests in flight of a session that is fenced.  The table's lock is
 * held, and let go of meanwhile. */
static int await_end(struct qms_sessions *s, struct qms_session *session)
{
    int error;

    session->refs++;
    pthread_mutex_unlock(&s->lock);
    error = wait_for_changes(s, session);
    pthread_mutex_lock(&s->lock);
    if (--session->refs == 0)
        free_session(session);
    return error;
}

int qms_session_fence(struct qms_sessions *s, uint64_t id)
{
    struct qms_session *session;
    int error = 0;

    pthread_mutex_lock(&s->lock);
    session = find(s, id);
    /* Without members, it has no requests. */
    if (session && session->members > 0) {
        fence(session);
        error = await_end(s, session);
    }
    pthread_mutex_unlock(&s->lock);
    return error;
}

static bool is_changing(struct qms_session *session)
{
    bool changing;

    pthread_mutex_lock(&session->change_lock);
    changing = session->changes > 0;
    pthread_mutex_unlock(&session->change_lock);
    return changing;
}

/* Fences the sessions that were the owner's before this one.  Returns one that carries
 * out changes, or NULL.  The table's lock is held. */
static struct qms_session *fence_older(struct qms_sessions *s,
                                       const struct qms_session *session)
{
    struct cds_list_head *const lists[] = {&s->list, &s->slotless};
    struct qms_session *older, *changing = NULL;

    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        cds_list_for_each_entry(older, lists[i], list)
        {
            if (older->owned == 0 || older->owned >= session->owned ||
                older->members == 0 ||
                memcmp(older->owner, session->owner, sizeof older->owner) != 0)
                continue;
            fence(older);
            if (is_changing(older))
                changing = older;
        }
    }
    return changing;
}

int qms_session_own(struct qms_sessions *s, struct qms_session *session,
                    const uint8_t owner[QM_WIRE_OWNER_SIZE])
{
    struct qms_session *older;
    int error = 0;

    pthread_mutex_lock(&s->lock);
    if (session->owned == 0) {
        memcpy(session->owner, owner, sizeof session->owner);
        session->owned = ++s->owns;
    } else if (memcmp(session->owner, owner, sizeof session->owner) != 0) {
        error = EINVAL;
    }
    while (error == 0 && (older = fence_older(s, session)))
        error = await_end(s, older);
    /* Another of the owner's came later. */
    if (error == 0 && session->fenced)
        error = ESHUTDOWN;
    pthread_mutex_unlock(&s->lock);
    return error;
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

/* The session's lock is held. */
static void carry_out_reads(struct qms_sessions *s, struct qms_session *session,
                            const void *bytes)
{
    struct qm_wire_reads reads;

    if (!s->hinted)
        return;
    memcpy(&reads, bytes, sizeof reads);
    if (!session->hints) {
        session->source = s->hinting(s->opaque);
        session->hints = true;
    }
    for (unsigned i = 0; i < le16toh(reads.count); i++) {
        uint64_t where = le64toh(reads.reads[i].where);
        unsigned slot = where >> QM_WIRE_SHIFT;

        s->hinted(s->opaque, session->source,
                  slot == QM_WIRE_SLOT_NONE ? NULL : &s->slots[slot],
                  where & QM_WIRE_OFFSET_MASK, le32toh(reads.reads[i].length));
    }
}

/* The session's lock is held. */
static void carry_out_extents(struct qms_sessions *s, const void *bytes)
{
    struct qm_bytes told[QM_WIRE_EXTENTS_MAX];
    struct qm_wire_extents extents;
    unsigned n;

    if (!s->told)
        return;
    memcpy(&extents, bytes, sizeof extents);
    n = le16toh(extents.count);
    for (unsigned i = 0; i < n; i++)
        told[i] = (struct qm_bytes){le64toh(extents.extents[i].offset),
                                    le64toh(extents.extents[i].length)};
    s->told(s->opaque, told, n);
}

static void carry_out(struct qms_sessions *s, struct qms_session *session,
                      const struct qms_message *m)
{
    struct qms_slot *slot = &s->slots[m->slot];
    struct qms_class *klass;

    if (m->op == QM_WIRE_READS)
        carry_out_reads(s, session, m->reads);
    if (m->op == QM_WIRE_EXTENTS)
        carry_out_extents(s, m->extents);
    if (m->op == QM_WIRE_JOIN || m->op == QM_WIRE_READS || m->op == QM_WIRE_EXTENTS)
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
        carry_out(s, session, m);
    }
    pthread_mutex_unlock(&session->lock);
    return error;
}
