/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-binlog.c - a binary log's events, as a server may send them.
 *
 * The first byte says what is known of tables; then come events, each of the length
 * that its header says, or of what is left.  Promised: nothing outside an event is
 * read, names are strings, and keys fit.
 */
#include "fuzz.h"
#include "rowcache/follow/binlog.h"

struct knowledge {
    struct qm_table table;
    bool known;
};

static const struct qm_table *table(void *opaque, const char *schema, const char *name)
{
    struct knowledge *knowledge = opaque;

    promise(strlen(schema) < QM_NAME_MAX && strlen(name) < QM_NAME_MAX);
    return knowledge->known ? &knowledge->table : NULL;
}

static void changed(void *opaque, const char *schema, const char *name, const char *key,
                    size_t length)
{
    promise(length <= QM_KEY_MAX);
    promise(length == 0 || key[0] != ' ');
}

static void all_changed(void *opaque, const char *schema, const char *name)
{
    promise(!name || (schema && strlen(name) < QM_NAME_MAX));
}

static void begin(void *opaque, struct qm_gtid gtid)
{
}

static void end(void *opaque, struct qm_gtid gtid, const char *file, uint64_t position)
{
    promise(strlen(file) < 512);
}

static void file(void *opaque, const char *name, uint32_t made)
{
    promise(strlen(name) < 512);
}

static void idle(void *opaque)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *labels[] = {"a", "b", "c"};
    struct knowledge knowledge = {.known = size > 0 && data[0] & 1};
    struct qm_binlog_calls calls = {.opaque = &knowledge,
                                    .table = table,
                                    .changed = changed,
                                    .all_changed = all_changed,
                                    .defined = all_changed,
                                    .begin = begin,
                                    .end = end,
                                    .file = file,
                                    .idle = idle};
    struct qm_binlog *binlog = qm_binlog_new(&calls);
    struct food f = {data, size};
    unsigned known = (unsigned)eat_number(&f, 1);
    unsigned referenced = 0;

    promise(binlog);
    knowledge.table = (struct qm_table){.columns = known >> 5,
                                        .key_count = 1 + (known >> 4 & 1),
                                        .referenced_count = 1,
                                        .referenced = &referenced};
    for (int i = 0; i < 2; i++)
        knowledge.table.key[i] = (struct qm_key_column){
            .ordinal = (unsigned)i,
            .print = (enum qm_print)(eat_number(&f, 1) % (QM_PRINT_INET6 + 1)),
            .labels = labels,
            .labels_count = 3};
    qm_binlog_reset(binlog, known & 2, known & 4);
    while (f.left >= 13) {
        size_t length = (size_t)qm_little(f.at + 9, 4);
        uint8_t *event;

        if (length > f.left || length < 13)
            length = f.left;
        event = malloc(length);
        promise(event);
        eat(&f, event, length);
        for (int i = 0; i < 4; i++)
            event[9 + i] = (uint8_t)(length >> 8 * i);
        if (qm_binlog_event(binlog, event, length))
            f.left = 0;
        free(event);
    }
    qm_binlog_free(binlog);
    return 0;
}
