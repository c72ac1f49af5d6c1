/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-control.c - the control window: two connections that send what they like.
 *
 * An input is a sequence of steps: a byte that says what, and which connection; then
 * what that needs.  Records come as they are, or put together from a few bytes so that
 * good ones are frequent.
 *
 * Promised: what is refused changes nothing; nothing that one connection sends begins
 * or ends a context outside its sessions; all contexts end with their connections; data
 * can be changed by those who are a member of no fenced session; what is said of reads
 * is within bounds, and of the sender's own slots; so is what is said of files.
 */
#include <endian.h>
#include <errno.h>

#include "fuzz.h"
#include "server/control.h"

#define CONNECTIONS 2
#define RECORDS     4
#define SOURCE      17

static struct qm_engine engine;
static struct qms_contexts contexts;
static struct qms_clients clients;
static struct qms_sessions sessions;

static struct connection {
    struct qms_member member;
    uint64_t session;
    unsigned first, count;
} connections[CONNECTIONS];

/* Who is saying what is being read, and how much of it has come. */
static const struct connection *saying;
static uint64_t said, said_bytes;

/* A connection that has joined another's session may have read its header before the
 * session had slots: the slots are the session's. */
static bool is_own(const struct qms_slot *slot)
{
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        const struct connection *c = &connections[i];

        if (c->session == saying->session && slot >= &sessions.slots[c->first] &&
            slot < &sessions.slots[c->first + c->count])
            return true;
    }
    return false;
}

static void hinted(void *opaque, unsigned source, struct qms_slot *slot,
                   uint64_t offset, uint32_t length)
{
    promise(source == SOURCE);
    promise(length > 0 && length <= QM_WIRE_READ_BYTES);
    promise(offset <= QM_WIRE_OFFSET_MASK);
    promise(!slot || !saying || is_own(slot));
    said++;
    said_bytes += length + 4096;
}

static void told(void *opaque, const struct qm_bytes *extents, unsigned n)
{
    promise(n > 0 && n <= QM_WIRE_EXTENTS_MAX);
    for (unsigned i = 0; i < n; i++)
        promise(extents[i].length > 0 &&
                extents[i].offset + extents[i].length <= QM_WIRE_OFFSET_MASK + 1 &&
                (extents[i].offset | extents[i].length) % 512 == 0);
    said++;
}

static unsigned hinting(void *opaque)
{
    return SOURCE;
}

static void hinting_ended(void *opaque, unsigned source)
{
    promise(source == SOURCE);
}

static void start(void)
{
    struct qm_mining_config config;
    char err[200];

    qm_mining_defaults(&config);
    contexts.engine = &engine;
    contexts.level = QM_LEVEL_INNERMOST;
    contexts.mining = true;
    contexts.held_max = 1000;
    contexts.classes = qms_classes_new();
    contexts.stats = qms_stats_new();
    promise(qm_engine_make_prefetcher(&engine, qm_prefetcher_find("none"), &config, err,
                                      sizeof err) == 0);
    promise(qms_contexts_init(&contexts) == 0);
    qms_clients_init(&clients, engine.prefetcher);
    promise(qms_sessions_init(&sessions, &contexts, &clients, contexts.classes,
                              contexts.stats) == 0);
    sessions.hinted = hinted;
    sessions.hinting = hinting;
    sessions.hinting_ended = hinting_ended;
    sessions.told = told;
}

static void get_header(struct connection *c)
{
    static const struct qms_device device = {.size = 1 << 20, .block_size = 4096};
    struct qm_wire_header header;

    qms_control_header(&sessions, &c->member, &device, &header);
    c->session = le64toh(header.session);
    c->first = le32toh(header.slot_first);
    c->count = le32toh(header.slot_count);
}

/* A record that is nearly good. */
static void compose(struct food *f, const struct connection *c,
                    struct qm_wire_record *record)
{
    *record = (struct qm_wire_record){
        .op = htole32(eat_number(f, 1) % 5),
        .slot = htole16(c->first + eat_number(f, 1) % 32 - 1),
        .session = htole64(c->session),
        .klass = htole64(eat_number(f, 1)),
        .kind = htole16(eat_number(f, 1) % 6),
    };
    if (eat_number(f, 1) % 2)
        record->parent = htole16(c->first + eat_number(f, 1) % 32 - 1);
    record->name_len = htole16(eat_number(f, 1));
    eat(f, record->name, le16toh(record->name_len));
    if (eat_number(f, 1) % 16 == 1)
        record->reserved[eat_number(f, 1) % sizeof record->reserved] = 1;
}

/* A fence: of the other's session, its own, or of none. */
static void send_fence(struct food *f, struct connection *c, uint64_t other)
{
    struct qm_wire_record records[2] = {{.op = htole32(QM_WIRE_FENCE)}};
    unsigned what = eat_number(f, 1), n = what % 16 == 15 ? 2 : 1;
    uint64_t id = what & 64 ? c->session : what & 32 ? what : other;
    bool mine = false;
    int error;

    records[0].session = records[1].session = htole64(id);
    if (n == 2)
        records[1].op = htole32(eat_number(f, 1) % 5);
    if (what & 128)
        ((unsigned char *)records)[eat_number(f, 2) % sizeof records[0]] ^=
            eat_number(f, 1);
    id = le64toh(records[0].session);
    for (unsigned i = 0; i < atomic_load(&c->member.count); i++)
        mine = mine || c->member.sessions[i]->id == id;
    error = qms_control_write(&sessions, &c->member, records, n * sizeof records[0], 0);
    if (what < 128 && n == 1)
        promise(error == (mine || id == 0 ? EINVAL : 0));
}

/* A change is refused if, and only if, one of the connection's sessions is fenced. */
static void change_data(struct connection *c)
{
    bool fenced = false;
    int n;

    for (unsigned i = 0; i < atomic_load(&c->member.count); i++)
        fenced = fenced || c->member.sessions[i]->fenced;
    n = qms_member_change_begin(&c->member);
    promise((n == -1) == fenced);
    if (n != -1)
        qms_member_change_end(&c->member, n);
    for (unsigned i = 0; i < atomic_load(&c->member.count); i++)
        promise(c->member.sessions[i]->changes == 0);
}

static void send_records(struct food *f, struct connection *c, bool composed)
{
    struct qm_wire_record records[RECORDS];
    size_t n = 1 + eat_number(f, 1) % RECORDS;
    uint64_t offset = eat_number(f, 1) % 8 == 7 ? eat_number(f, 4) : 0;
    uint32_t count = n * sizeof records[0];
    uint64_t open = atomic_load(&contexts.open);
    uint64_t begun = atomic_load(&contexts.next_id);

    for (size_t i = 0; i < n; i++)
        if (composed)
            compose(f, c, &records[i]);
        else
            eat(f, &records[i], sizeof records[i]);
    if (eat_number(f, 1) % 16 == 15)
        count -= eat_number(f, 2) % (count + 1);
    if (qms_control_write(&sessions, &c->member, records, count, offset) != 0)
        promise(open == atomic_load(&contexts.open) &&
                begun == atomic_load(&contexts.next_id));
}

/* Says what is being read: well, or nearly. */
static void send_reads(struct food *f, struct connection *c)
{
    struct qm_wire_reads records[RECORDS];
    size_t n = 1 + eat_number(f, 1) % RECORDS;

    memset(records, 0, sizeof records);
    for (size_t i = 0; i < n; i++) {
        unsigned count = eat_number(f, 1) % (QM_WIRE_READS_MAX + 2);

        records[i].op = htole32(QM_WIRE_READS);
        records[i].session = htole64(c->session);
        records[i].count = htole16(count);
        for (unsigned k = 0; k < count && k < QM_WIRE_READS_MAX; k++) {
            uint64_t slot = eat_number(f, 1) % 32;

            slot = slot == 0 ? 0 : c->first + slot - 1;
            records[i].reads[k].where =
                htole64(slot << QM_WIRE_SHIFT | eat_number(f, 3) << 9);
            records[i].reads[k].length = htole32(eat_number(f, 3) >> 2);
        }
        if (eat_number(f, 1) % 8 == 1)
            ((unsigned char *)&records[i])[eat_number(f, 2) % sizeof records[i]] ^=
                eat_number(f, 1);
    }
    saying = c;
    said = said_bytes = 0;
    if (qms_control_write(&sessions, &c->member, records, n * sizeof records[0], 0) !=
        0)
        promise(said == 0);
    promise(said <= n * QM_WIRE_READS_MAX && said_bytes <= QM_WIRE_READS_BYTES);
    saying = NULL;
}

/* Says where a file lies: well, or nearly. */
static void send_extents(struct food *f, struct connection *c)
{
    struct qm_wire_extents records[RECORDS];
    size_t n = 1 + eat_number(f, 1) % RECORDS;

    memset(records, 0, sizeof records);
    for (size_t i = 0; i < n; i++) {
        unsigned count = eat_number(f, 1) % (QM_WIRE_EXTENTS_MAX + 2);

        records[i].op = htole32(QM_WIRE_EXTENTS);
        records[i].session = htole64(c->session);
        records[i].count = htole16(count);
        for (unsigned k = 0; k < count && k < QM_WIRE_EXTENTS_MAX; k++) {
            records[i].extents[k].offset = htole64(eat_number(f, 5) << 9);
            records[i].extents[k].length = htole64(eat_number(f, 5) << 9);
        }
        if (eat_number(f, 1) % 8 == 1)
            ((unsigned char *)&records[i])[eat_number(f, 2) % sizeof records[i]] ^=
                eat_number(f, 1);
    }
    said = 0;
    if (qms_control_write(&sessions, &c->member, records, n * sizeof records[0], 0) !=
        0)
        promise(said == 0);
    promise(said <= n);
}

static void read_something(struct food *f, struct connection *c)
{
    unsigned number = eat_number(f, 2) % (QM_WIRE_SLOT_CONTROL + 1);
    struct qms_slot *slot = qms_member_slot(&sessions, &c->member, number);
    struct qms_ref ref;
    struct qm_candidate candidates[QM_CANDIDATES_MAX];

    qms_context_arrive(&contexts, slot, QM_TRACE_READ, 0, 4096, &ref);
    promise(ref.klass);
    promise(slot || ref.id == 0);
    qms_context_access(&contexts, &ref, eat_number(f, 1), QM_ACCESS_MISS, candidates);
}

static void leave(struct connection *c)
{
    qms_member_leave(&sessions, &c->member);
    qms_member_destroy(&c->member);
    c->session = 0;
    c->first = c->count = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};

    if (!contexts.classes)
        start();
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        qms_member_init(&connections[i].member);
        if (i == 0)
            get_header(&connections[i]);
    }
    while (f.left > 0) {
        unsigned what = eat_number(&f, 1);
        struct connection *c = &connections[what >> 7];

        switch (what % 8) {
        case 0:
            if (what & 64)
                send_fence(&f, c, connections[1 - (what >> 7)].session);
            else
                get_header(c);
            break;
        case 1:
        case 2:
        case 3:
            send_records(&f, c, true);
            break;
        case 4:
            send_records(&f, c, false);
            break;
        case 5: {
            uint64_t offset = eat_number(&f, 8);
            uint32_t count = eat_number(&f, 4);

            if (what & 16) {
                (what & 32 ? send_extents : send_reads)(&f, c);
                break;
            }
            if (what & 64) /* nearly good */
                offset =
                    qm_wire_hint(offset & 3, offset >> 2 & 7,
                                 c->first + (offset >> 8 & 31) - 1,
                                 offset & 32 ? c->first + (offset >> 16 & 31) - 1 : 0) -
                    QM_WIRE_CONTROL;
            if (what & 32)
                count = count % 4096 * 512;
            qms_control_hint(&sessions, &c->member, count, offset);
            break;
        }
        case 6:
            if (what & 64)
                change_data(c);
            else
                read_something(&f, c);
            break;
        case 7:
            if (what & 64) {
                leave(c);
                qms_member_init(&c->member);
            } else { /* the other's session, by its number */
                c->session = connections[1 - (what >> 7)].session;
                c->first = connections[1 - (what >> 7)].first;
            }
            break;
        }
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        leave(&connections[i]);
    promise(atomic_load(&contexts.open) == 0);
    promise(qms_sessions_count(&sessions) == 0);
    return 0;
}
