/* SPDX-License-Identifier: BSD-3-Clause */
/* readahead-tables.c - what read-ahead knows of tables and their rows; see
 * readahead-internal.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/server/readahead-internal.h"

enum { RETRY_MS = 100 };

struct table *readahead_find_table(struct readahead *ra, const char *key, size_t length)
{
    struct table *t;

    HASH_FIND(hh, ra->tables, key, length, t);
    return t;
}

/* NULL: there are too many, or it is no name. */
struct table *readahead_get_table(struct readahead *ra, const char *key, size_t length)
{
    struct table *t = readahead_find_table(ra, key, length);
    const char *dot = memchr(key, '.', length);

    if (t || !dot || ra->count == READAHEAD_TABLES || length >= sizeof t->key ||
        (size_t)(dot - key) > QM_NAME_LENGTH ||
        length - (size_t)(dot + 1 - key) > QM_NAME_LENGTH)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->id = ra->count;
    memcpy(t->key, key, length);
    memcpy(t->schema, key, (size_t)(dot - key));
    memcpy(t->table, dot + 1, length - (size_t)(dot + 1 - key));
    ra->by_id[ra->count++] = t;
    HASH_ADD_KEYPTR(hh, ra->tables, t->key, length, t);
    return t;
}

void *readahead_new_job(struct readahead *ra, struct table *t, size_t size,
                        void (*done)(struct qm_fill_ahead *fill))
{
    struct job *job = calloc(1, size);

    if (!job)
        return NULL;
    job->ra = ra;
    job->table = t;
    job->changes = t->changes;
    memcpy(job->fill.schema, t->schema, sizeof t->schema);
    memcpy(job->fill.table, t->table, sizeof t->table);
    job->fill.done = done;
    return job;
}

static void described(struct qm_fill_ahead *fill)
{
    struct table_job *of_table = (struct table_job *)fill;
    const struct job *job = &of_table->job;
    struct table *t = job->table;

    pthread_mutex_lock(&job->ra->lock);
    t->asked = false;
    if (!fill->failed && job->changes == t->changes) {
        t->known = true;
        t->info = of_table->info;
    }
    pthread_mutex_unlock(&job->ra->lock);
    free(of_table);
}

void readahead_ask_of_table(struct readahead *ra, struct table *t, uint64_t ms)
{
    struct table_job *job;

    if (t->asked || ms < t->retry_at)
        return;
    t->retry_at = ms + RETRY_MS;
    job = readahead_new_job(ra, t, sizeof *job, described);
    if (!job)
        return;
    job->job.fill.describe = &job->info;
    t->asked = true;
    if (qm_fill_give_ahead(ra->server->fill, &job->job.fill))
        return;
    t->asked = false;
    free(job);
}

/* --- what the rules ask of a row --- */

/* As it is printed: no zeros before it, no other sign than -. */
bool readahead_read_integer(const char *text, size_t length, int64_t *value)
{
    bool negative = length > 0 && *text == '-';
    int64_t v = 0;

    text += negative;
    length -= negative;
    if (length == 0 || (*text == '0' && (length > 1 || negative)))
        return false;
    for (size_t i = 0; i < length; i++) {
        int digit = text[i] - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return false;
    }
    *value = v;
    return true;
}

static void add_foreign(struct readahead *ra, const struct qm_fill_foreign *f,
                        const struct qm_member *m, struct qm_seer_row *row)
{
    struct qm_item *to = &row->foreign[row->foreign_count];
    char key[2 * QM_NAME_LENGTH + 2];
    struct table *t;
    int n = snprintf(key, sizeof key, "%s.%s", f->schema, f->table);

    /* A key of such a table would be taken for one of another. */
    if (strpbrk(f->schema, ".:") || strpbrk(f->table, ".:"))
        return;
    if (m->null || !readahead_read_integer(m->value.bytes, m->value.length, &to->row))
        return;
    t = readahead_get_table(ra, key, (size_t)n);
    if (!t)
        return;
    to->table = t->id;
    row->foreign_count++;
}

static void find_foreign(struct readahead *ra, const struct table *t, const char *text,
                         size_t length, struct qm_seer_row *row)
{
    struct qm_member m = {0};
    const char *at = text;

    while (qm_json_next(&at, text + length, &m) == 1)
        for (unsigned i = 0; i < t->info.foreign_count; i++) {
            const struct qm_fill_foreign *f = &t->info.foreign[i];

            if (row->foreign_count < QM_SEER_FOREIGN &&
                strlen(f->column) == m.name.length &&
                memcmp(f->column, m.name.bytes, m.name.length) == 0)
                add_foreign(ra, f, &m, row);
        }
    qm_member_free(&m);
}

/* qm_seer_calls.describe */
bool readahead_describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    struct readahead *ra = opaque;
    const struct table *t = ra->by_id[item.table];
    struct qm_reader reader = {0};
    char key[2 * QM_NAME_LENGTH + 26];
    const char *text;
    size_t length;
    void *value;
    int n;

    if (!t->known || t->info.last < t->info.first)
        return false;
    *row = (struct qm_seer_row){.first = t->info.first, .last = t->info.last};
    if (t->info.foreign_count == 0)
        return true;
    if (ra->row && item.table == ra->current.table && item.row == ra->current.row) {
        find_foreign(ra, t, ra->row, ra->row_length, row);
        return true;
    }
    n = snprintf(key, sizeof key, "%s:%" PRId64, t->key, item.row);
    if (qm_rows_get(ra->server->rows, &reader, qm_rows_now(), key, (size_t)n, &value,
                    &text, &length) == QM_ROWS_NONE)
        return true;
    find_foreign(ra, t, text, length, row);
    free(value);
    return true;
}
