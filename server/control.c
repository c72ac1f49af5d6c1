/* SPDX-License-Identifier: BSD-3-Clause */
/* control.c - headers out, records and hints in. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/control.h"

/* Whether a slot is one of the session's; of no slots none is, and their first is not
 * set. */
static bool is_in(const struct qms_session *session, unsigned slot)
{
    unsigned count = atomic_load_explicit(&session->count, memory_order_acquire);

    return count > 0 && slot - session->first < count;
}

void qms_member_init(struct qms_member *member)
{
    memset(member, 0, sizeof *member);
    pthread_mutex_init(&member->lock, NULL);
}

void qms_member_leave(struct qms_sessions *sessions, struct qms_member *member)
{
    unsigned n = atomic_exchange(&member->count, 0);

    while (n > 0)
        qms_session_leave(sessions, member->sessions[--n]);
}

void qms_member_destroy(struct qms_member *member)
{
    pthread_mutex_destroy(&member->lock);
}

struct qms_slot *qms_member_slot(struct qms_sessions *sessions,
                                 struct qms_member *member, unsigned number)
{
    unsigned n = atomic_load_explicit(&member->count, memory_order_acquire);

    for (unsigned i = 0; i < n; i++)
        if (is_in(member->sessions[i], number))
            return &sessions->slots[number];
    return NULL;
}

/* The connection's session of that number (0: its first), or NULL. */
static struct qms_session *member_session(struct qms_member *member, uint64_t id)
{
    unsigned n = atomic_load_explicit(&member->count, memory_order_acquire);

    for (unsigned i = 0; i < n; i++)
        if (id == 0 || member->sessions[i]->id == id)
            return member->sessions[i];
    return NULL;
}

/* Adds a session, of which the connection was counted a member.  If it is one already,
 * or of too many, the session is left again: then it is false. */
static bool member_add(struct qms_sessions *sessions, struct qms_member *member,
                       struct qms_session *session)
{
    unsigned n;
    bool added;

    pthread_mutex_lock(&member->lock);
    n = atomic_load_explicit(&member->count, memory_order_relaxed);
    added = n < QMS_MEMBER_MAX && !member_session(member, session->id);
    if (added) {
        member->sessions[n] = session;
        atomic_store_explicit(&member->count, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&member->lock);
    if (!added)
        qms_session_leave(sessions, session);
    return added;
}

int qms_member_change_begin(struct qms_member *member)
{
    int n = (int)atomic_load_explicit(&member->count, memory_order_acquire);

    for (int i = 0; i < n; i++)
        if (!qms_session_change_begin(member->sessions[i])) {
            qms_member_change_end(member, i);
            return -1;
        }
    return n;
}

void qms_member_change_end(struct qms_member *member, int counted)
{
    while (counted > 0)
        qms_session_change_end(member->sessions[--counted]);
}

bool qms_member_join(struct qms_sessions *sessions, struct qms_member *member,
                     uint64_t id)
{
    struct qms_session *session = qms_session_join(sessions, id);

    return session && member_add(sessions, member, session);
}

void qms_control_header(struct qms_sessions *sessions, struct qms_member *member,
                        const struct qms_device *device, struct qm_wire_header *header)
{
    struct qms_session *session = member_session(member, 0);
    uint32_t flags = QM_WIRE_HINTED | QM_WIRE_TAKES_EXTENTS | QM_WIRE_TAKES_OWNERS;

    if (!session) {
        session = qms_session_new(sessions);
        if (session && !member_add(sessions, member, session))
            session = member_session(member, 0);
    }
    if (session)
        qms_session_lend(sessions, session);
    if (device->ordered)
        flags |= QM_WIRE_ORDERED;
    if (device->readonly)
        flags |= QM_WIRE_READONLY;
    memset(header, 0, sizeof *header);
    header->magic = htole64(QM_WIRE_MAGIC);
    header->version = htole32(QM_WIRE_VERSION);
    header->flags = htole32(flags);
    header->size = htole64(device->size);
    if (device->size_now > device->size)
        header->size_now = htole64(device->size_now);
    header->block_size = htole32(device->block_size);
    header->instance = htole64(device->instance);
    memcpy(header->boot_id, device->boot_id, sizeof header->boot_id);
    memcpy(header->volume, device->volume, sizeof header->volume);
    if (session) {
        unsigned count = atomic_load_explicit(&session->count, memory_order_acquire);

        header->slot_first = htole32(count > 0 ? session->first : 0);
        header->slot_count = htole32(count);
        header->session = htole64(session->id);
    }
}

static bool is_zero(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    while (n > 0 && *p == 0)
        p++, n--;
    return n == 0;
}

_Static_assert((int)QM_CONNECTION == QM_WIRE_CONNECTION &&
                   (int)QM_THREAD == QM_WIRE_THREAD &&
                   (int)QM_TRANSACTION == QM_WIRE_TRANSACTION &&
                   (int)QM_QUERY == QM_WIRE_QUERY,
               "the numbers on the wire");

/* Checks a message's numbers by what its operation uses. */
static int check(const struct qms_session *session, const struct qms_message *m)
{
    switch (m->op) {
    case QM_WIRE_BEGIN:
        if (!is_in(session, m->slot) || m->slot == m->parent ||
            (m->parent != QM_WIRE_SLOT_NONE && !is_in(session, m->parent)) ||
            m->kind < QM_CONNECTION || m->kind > QM_QUERY)
            return EINVAL;
        return 0;
    case QM_WIRE_END:
        if (!is_in(session, m->slot))
            return EINVAL;
        break;
    case QM_WIRE_JOIN:
        if (m->slot != QM_WIRE_SLOT_NONE)
            return EINVAL;
        break;
    default:
        return EINVAL;
    }
    if (m->parent != QM_WIRE_SLOT_NONE || m->kind != 0 || m->klass != 0 ||
        m->name_len != 0)
        return EINVAL;
    return 0;
}

/* Decodes reads that are said, at bytes, which need not be aligned.  Their bytes are
 * added to *total. */
static int decode_reads(const struct qms_session *session, const char *bytes,
                        struct qms_message *m, uint64_t *total)
{
    struct qm_wire_reads reads;
    unsigned count;

    memcpy(&reads, bytes, sizeof reads);
    count = le16toh(reads.count);
    if (count == 0 || count > QM_WIRE_READS_MAX || reads.reserved0 != 0 ||
        le64toh(reads.session) != session->id ||
        !is_zero(&reads.reads[count],
                 (QM_WIRE_READS_MAX - count) * sizeof *reads.reads))
        return EINVAL;
    for (unsigned i = 0; i < count; i++) {
        unsigned slot = le64toh(reads.reads[i].where) >> QM_WIRE_SHIFT;
        uint32_t length = le32toh(reads.reads[i].length);

        /* A read of a byte is as much work as one of a block. */
        *total += (uint64_t)length + 4096;
        if (length == 0 || length > QM_WIRE_READ_BYTES ||
            reads.reads[i].reserved0 != 0 || *total > QM_WIRE_READS_BYTES ||
            (slot != QM_WIRE_SLOT_NONE && !is_in(session, slot)))
            return EINVAL;
    }
    *m = (struct qms_message){.op = QM_WIRE_READS, .reads = (const void *)bytes};
    return 0;
}

/* Decodes extents of a file, at bytes, which need not be aligned.  *records counts such
 * records. */
static int decode_extents(const struct qms_session *session, const char *bytes,
                          struct qms_message *m, unsigned *records)
{
    const uint64_t end = QM_WIRE_OFFSET_MASK + 1;
    struct qm_wire_extents extents;
    unsigned count;

    memcpy(&extents, bytes, sizeof extents);
    count = le16toh(extents.count);
    if (++*records > QM_WIRE_EXTENTS_RECORDS || count == 0 ||
        count > QM_WIRE_EXTENTS_MAX || extents.reserved0 != 0 ||
        le64toh(extents.session) != session->id ||
        !is_zero(&extents.extents[count],
                 (QM_WIRE_EXTENTS_MAX - count) * sizeof *extents.extents))
        return EINVAL;
    for (unsigned i = 0; i < count; i++) {
        uint64_t offset = le64toh(extents.extents[i].offset);
        uint64_t length = le64toh(extents.extents[i].length);

        if (offset % 512 != 0 || length % 512 != 0 || offset >= end || length == 0 ||
            length > end - offset)
            return EINVAL;
    }
    *m = (struct qms_message){.op = QM_WIRE_EXTENTS, .extents = (const void *)bytes};
    return 0;
}

static uint32_t op_of(const char *bytes)
{
    uint32_t op;

    memcpy(&op, bytes, sizeof op);
    return le32toh(op);
}

/* Decodes the record at bytes, which need not be aligned.  The message's name points
 * there. */
static int decode(const struct qms_session *session, const char *bytes,
                  struct qms_message *m)
{
    struct qm_wire_record record;
    unsigned name_len;

    memcpy(&record, bytes, sizeof record);
    name_len = le16toh(record.name_len);
    if (name_len > QM_WIRE_NAME_MAX || record.reserved0 != 0 ||
        !is_zero(record.reserved, sizeof record.reserved) ||
        !is_zero(record.name + name_len, sizeof record.name - name_len) ||
        le64toh(record.session) != session->id)
        return EINVAL;
    *m = (struct qms_message){
        .op = le32toh(record.op),
        .slot = le16toh(record.slot),
        .parent = le16toh(record.parent),
        .kind = le16toh(record.kind),
        .klass = le64toh(record.klass),
        .name = bytes + offsetof(struct qm_wire_record, name),
        .name_len = name_len,
    };
    return check(session, m);
}

/* Whether that is a record by itself that fences a session, and has nothing else. */
static bool is_fence(const char *bytes, size_t n)
{
    struct qm_wire_record record, fence = {.op = htole32(QM_WIRE_FENCE)};

    memcpy(&record, bytes, sizeof record);
    fence.session = record.session;
    return n == 1 && memcmp(&record, &fence, sizeof record) == 0;
}

/* A record that names a session's owner, which came in a WRITE of n. */
static int own(struct qms_sessions *sessions, struct qms_session *session,
               const char *bytes, size_t n)
{
    struct qm_wire_own record;

    memcpy(&record, bytes, sizeof record);
    if (n != 1 || record.reserved0 != 0 ||
        !is_zero(record.reserved, sizeof record.reserved) ||
        is_zero(record.owner, sizeof record.owner))
        return EINVAL;
    return qms_session_own(sessions, session, record.owner);
}

/* Decodes all n records, judges them, and carries them out. */
static int apply(struct qms_sessions *sessions, struct qms_session *session,
                 const char *records, size_t n)
{
    struct qms_message one, *messages = &one;
    unsigned extents = 0;
    uint64_t total = 0;
    int error = 0;

    if (n > 1) {
        messages = malloc(n * sizeof *messages);
        if (!messages)
            return ENOMEM;
    }
    for (size_t i = 0; i < n && error == 0; i++) {
        const char *record = records + i * sizeof(struct qm_wire_record);

        if (op_of(record) == QM_WIRE_READS)
            error = decode_reads(session, record, &messages[i], &total);
        else if (op_of(record) == QM_WIRE_EXTENTS)
            error = decode_extents(session, record, &messages[i], &extents);
        else
            error = decode(session, record, &messages[i]);
    }
    if (error == 0)
        error = qms_session_apply(sessions, session, messages, n);
    if (messages != &one)
        free(messages);
    return error;
}

int qms_control_write(struct qms_sessions *sessions, struct qms_member *member,
                      const void *buf, uint32_t count, uint64_t offset)
{
    size_t n = count / sizeof(struct qm_wire_record);
    struct qms_session *session;
    bool joined = false;
    uint64_t id;
    int error;

    if (n == 0 || count % sizeof(struct qm_wire_record) != 0 ||
        offset % sizeof(struct qm_wire_record) != 0)
        return EINVAL;
    /* All records of a WRITE name one session. */
    memcpy(&id, (const char *)buf + offsetof(struct qm_wire_record, session),
           sizeof id);
    id = le64toh(id);
    if (id == 0)
        return EINVAL;
    session = member_session(member, id);
    if (is_fence(buf, n))
        return session ? EINVAL : qms_session_fence(sessions, id);
    if (!session) {
        if (atomic_load(&member->count) == QMS_MEMBER_MAX)
            return EINVAL;
        session = qms_session_join(sessions, id);
        if (!session)
            return EINVAL;
        joined = true;
    }
    error = op_of(buf) == QM_WIRE_OWN ? own(sessions, session, buf, n)
                                      : apply(sessions, session, buf, n);
    if (joined && error == 0)
        member_add(sessions, member, session);
    else if (joined)
        qms_session_leave(sessions, session);
    return error;
}

int qms_control_hint(struct qms_sessions *sessions, struct qms_member *member,
                     uint32_t count, uint64_t offset)
{
    struct qms_session *session = member_session(member, 0);
    struct qms_message m = {
        .op = offset >> 43 & 0x3,
        .kind = offset >> 39 & 0xf,
        .slot = offset >> 24 & 0x7fff,
        .parent = offset >> 9 & 0x7fff,
    };
    int error;

    /* Read back what was decoded: no other bit may be set. */
    if (!session || count == 0 || count % 512 != 0 ||
        count / 512 > QM_WIRE_HINT_CLASSES ||
        (QM_WIRE_CONTROL | offset) != qm_wire_hint(m.op, m.kind, m.slot, m.parent))
        return EINVAL;
    m.klass = count / 512 - 1;
    if (m.op == QM_WIRE_JOIN) /* names a session, which a hint cannot */
        return EINVAL;
    error = check(session, &m);
    if (error == 0)
        error = qms_session_apply(sessions, session, &m, 1);
    return error;
}
