/* SPDX-License-Identifier: BSD-3-Clause */
/* binlog.c - the events of a binary log; see binlog.h. */
#include "rowcache/follow/binlog.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "rowcache/follow/row-event.h"
#include "rowcache/follow/table-map.h"

#define HEADER   19
#define FILE_MAX 512

enum event {
    QUERY = 2,
    ROTATE = 4,
    FORMAT = 15,
    XID = 16,
    EXECUTE_LOAD = 18,
    TABLE_MAP = 19,
    WRITE_V1 = 23,
    UPDATE_V1 = 24,
    DELETE_V1 = 25,
    INCIDENT = 26,
    HEARTBEAT = 27,
    WRITE = 30,
    UPDATE = 31,
    DELETE = 32,
    XA_PREPARE = 38,
    GTID = 162,
    QUERY_COMPRESSED = 165,
    WRITE_COMPRESSED_V1 = 166,
    UPDATE_COMPRESSED_V1 = 167,
    DELETE_COMPRESSED_V1 = 168,
    WRITE_COMPRESSED = 169,
    UPDATE_COMPRESSED = 170,
    DELETE_COMPRESSED = 171,
};

/* Those that change no row: START, STOP, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND,
 * USER_VAR, BEGIN_LOAD_QUERY, IGNORABLE, ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID_LIST
 * and START_ENCRYPTION. */
static bool changes_nothing(unsigned type)
{
    return type == 1 || type == 3 || type == 5 || type == 9 || type == 11 ||
           type == 13 || type == 14 || type == 17 || type == 28 || type == 29 ||
           (type >= 160 && type <= 164 && type != GTID);
}

#define STANDALONE    1 /* flag of a GTID: one statement, with no end after it */
#define STATEMENT_END 1 /* flag of a row event */
#define IGNORABLE     0x80

struct qm_binlog {
    struct qm_binlog_calls calls;
    struct qm_maps maps;
    struct qm_gtid gtid;
    bool crc, lower_case;
    bool open;       /* between a GTID and its transaction's end */
    bool standalone; /* ends with its statement */
    char file[FILE_MAX];
    struct qm_statement statement;
};

struct qm_binlog *qm_binlog_new(const struct qm_binlog_calls *calls)
{
    struct qm_binlog *binlog = calloc(1, sizeof *binlog);

    if (binlog)
        binlog->calls = *calls;
    return binlog;
}

void qm_binlog_free(struct qm_binlog *binlog)
{
    if (binlog)
        qm_maps_clear(&binlog->maps);
    free(binlog);
}

void qm_binlog_reset(struct qm_binlog *binlog, bool crc, bool lower_case)
{
    qm_maps_clear(&binlog->maps);
    binlog->crc = crc;
    binlog->lower_case = lower_case;
    binlog->open = false;
    binlog->file[0] = '\0';
}

static void all_changed(struct qm_binlog *binlog)
{
    binlog->calls.all_changed(binlog->calls.opaque, NULL, NULL);
}

static void transaction_ends(struct qm_binlog *binlog, uint64_t position)
{
    if (!binlog->open)
        return;
    binlog->open = false;
    binlog->calls.end(binlog->calls.opaque, binlog->gtid, binlog->file, position);
}

static void lower(char *text)
{
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'Z')
            *text = (char)(*text - 'A' + 'a');
}

static void tell_changed(struct qm_binlog *binlog, const char *schema,
                         const char *table)
{
    binlog->calls.all_changed(binlog->calls.opaque, schema, table);
    if (binlog->statement.definition)
        binlog->calls.defined(binlog->calls.opaque, schema, table);
}

static void tell_statement(struct qm_binlog *binlog)
{
    struct qm_statement *statement = &binlog->statement;

    switch (statement->kind) {
    case QM_STATEMENT_NOTHING:
    case QM_STATEMENT_END:
        break;
    case QM_STATEMENT_TABLES_CHANGED:
    case QM_STATEMENT_SCHEMA_CHANGED:
        for (unsigned i = 0; i < statement->count; i++) {
            struct qm_name *name = statement->name + i;

            if (binlog->lower_case) {
                lower(name->schema);
                lower(name->table);
            }
            tell_changed(binlog, name->schema, name->table[0] ? name->table : NULL);
        }
        break;
    case QM_STATEMENT_ALL_CHANGED:
        tell_changed(binlog, NULL, NULL);
        break;
    }
}

static const char *query(struct qm_binlog *binlog, struct qm_bytes *b, bool compressed,
                         uint64_t position)
{
    const uint8_t *head = qm_bytes_take(b, 13), *schema;
    uint8_t *inflated = NULL;
    struct qm_bytes text;
    size_t size;

    if (!head || !qm_bytes_take(b, qm_little(head + 11, 2)))
        return "a statement that is cut short";
    schema = qm_bytes_take(b, (size_t)head[8] + 1);
    if (!schema || schema[head[8]] != '\0')
        return "a statement without a schema";
    text = *b;
    if (compressed) {
        inflated = qm_inflate(b, &size);
        if (!inflated)
            return "a statement that cannot be inflated";
        text = (struct qm_bytes){inflated, inflated + size, false};
    }
    qm_statement_read(&binlog->statement, (const char *)text.at, qm_bytes_left(&text),
                      (const char *)schema);
    free(inflated);
    tell_statement(binlog);
    if (binlog->standalone || binlog->statement.kind == QM_STATEMENT_END)
        transaction_ends(binlog, position);
    return NULL;
}

static const char *rows(struct qm_binlog *binlog, struct qm_bytes *b,
                        enum qm_row_event kind, bool second, bool compressed)
{
    uint64_t id = qm_bytes_number(b, 6), flags = qm_bytes_number(b, 2);
    const struct qm_map *map = qm_maps_find(&binlog->maps, id);
    const char *why = NULL;

    if (second) {
        uint64_t more = qm_bytes_number(b, 2);

        if (more < 2 || !qm_bytes_take(b, more - 2))
            b->failed = true;
    }
    if (b->failed)
        return "a row event that is cut short";
    if (map)
        why = qm_row_event(&binlog->calls, map, kind, compressed, b);
    else if (id != 0xffffff) /* that one only ends a statement */
        all_changed(binlog);
    if (flags & STATEMENT_END)
        qm_maps_clear(&binlog->maps);
    return why;
}

static const char *gtid(struct qm_binlog *binlog, struct qm_bytes *b, uint32_t server,
                        uint64_t position)
{
    struct qm_gtid gtid = {.sequence = qm_bytes_number(b, 8), .server = server};
    uint64_t flags;

    gtid.domain = (uint32_t)qm_bytes_number(b, 4);
    flags = qm_bytes_number(b, 1);
    if (b->failed)
        return "a GTID that is cut short";
    transaction_ends(binlog, position);
    qm_maps_clear(&binlog->maps);
    binlog->gtid = gtid;
    binlog->open = true;
    binlog->standalone = flags & STANDALONE;
    binlog->calls.begin(binlog->calls.opaque, gtid);
    return NULL;
}

static const char *rotate(struct qm_binlog *binlog, struct qm_bytes *b)
{
    size_t size;

    qm_bytes_number(b, 8);
    size = qm_bytes_left(b);
    if (b->failed || size == 0 || size >= sizeof binlog->file)
        return "a rotation without a file";
    memcpy(binlog->file, b->at, size);
    binlog->file[size] = '\0';
    return NULL;
}

/* The server's version is not looked at: those without checksums have no GTID either.
 */
static const char *format(struct qm_binlog *binlog, const uint8_t *event, size_t size)
{
    if (size < HEADER + 57 + 5 || qm_little(event + HEADER, 2) != 4 ||
        event[HEADER + 56] != HEADER)
        return "a log of another format";
    if (event[size - 5] > 1)
        return "checksums of another kind";
    binlog->crc = event[size - 5] == 1;
    binlog->calls.file(binlog->calls.opaque, binlog->file,
                       (uint32_t)qm_little(event, 4));
    return NULL;
}

static const char *by_type(struct qm_binlog *binlog, unsigned type, struct qm_bytes *b,
                           const uint8_t *event)
{
    uint64_t position = qm_little(event + 13, 4);

    switch (type) {
    case QUERY:
    case QUERY_COMPRESSED:
        return query(binlog, b, type == QUERY_COMPRESSED, position);
    case EXECUTE_LOAD: /* LOAD DATA as a statement */
        all_changed(binlog);
        if (binlog->standalone)
            transaction_ends(binlog, position);
        return NULL;
    case ROTATE:
        return rotate(binlog, b);
    case XID:
    case XA_PREPARE:
        transaction_ends(binlog, position);
        return NULL;
    case TABLE_MAP:
        return qm_maps_add(&binlog->maps, b);
    case WRITE_V1:
    case WRITE:
    case WRITE_COMPRESSED_V1:
    case WRITE_COMPRESSED:
        return rows(binlog, b, QM_ROW_WRITE, type == WRITE || type == WRITE_COMPRESSED,
                    type >= WRITE_COMPRESSED_V1);
    case UPDATE_V1:
    case UPDATE:
    case UPDATE_COMPRESSED_V1:
    case UPDATE_COMPRESSED:
        return rows(binlog, b, QM_ROW_UPDATE,
                    type == UPDATE || type == UPDATE_COMPRESSED,
                    type >= WRITE_COMPRESSED_V1);
    case DELETE_V1:
    case DELETE:
    case DELETE_COMPRESSED_V1:
    case DELETE_COMPRESSED:
        return rows(binlog, b, QM_ROW_DELETE,
                    type == DELETE || type == DELETE_COMPRESSED,
                    type >= WRITE_COMPRESSED_V1);
    case HEARTBEAT:
        binlog->calls.idle(binlog->calls.opaque);
        return NULL;
    case GTID:
        return gtid(binlog, b, (uint32_t)qm_little(event + 5, 4), position);
    case INCIDENT:
        return "the server says that its log has lost something (INCIDENT)";
    default:
        if (!changes_nothing(type) && !(event[17] & IGNORABLE))
            return "an event of an unknown type";
        return NULL;
    }
}

const char *qm_binlog_event(struct qm_binlog *binlog, const uint8_t *event, size_t size)
{
    struct qm_bytes b = {event + HEADER, event + size, false};
    unsigned type;
    const char *why;

    if (size < HEADER || qm_little(event + 9, 4) != size)
        return "an event of another length than it says";
    type = event[4];
    if (type == FORMAT && (why = format(binlog, event, size)))
        return why;
    if (binlog->crc) {
        if (size < HEADER + 4)
            return "an event without its checksum";
        b.end -= 4;
        if (crc32(0, event, (uInt)(size - 4)) != qm_little(b.end, 4))
            return "an event with a wrong checksum";
    }
    return type == FORMAT ? NULL : by_type(binlog, type, &b, event);
}
