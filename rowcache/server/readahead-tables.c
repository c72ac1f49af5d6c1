/* SPDX-License-Identifier: BSD-3-Clause */
/* readahead-tables.c - what read-ahead knows of tables and their rows; see
 * readahead-internal.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/server/readahead-internal.h"

enum { RETRY_MS = 100, FULL_MS = 1000 };

struct table *readahead_find_table(struct readahead *ra, const char *key, size_t length)
{
    struct table *t;

    HASH_FIND(hh, ra->tables, key, length, t);
    return t;
}

/* The table that was not used for longest, if that is long enough; or NULL. */
static struct table *unused_table(struct readahead *ra, uint64_t ms)
{
    struct table *longest = NULL;

    if (ms < ra->full_until)
        return NULL;
    for (unsigned i = 0; i < ra->count; i++) {
        struct table *t = ra->by_id[i];
        unsigned least = t->known ? READAHEAD_IDLE_MS : READAHEAD_GONE_MS;

        if (t->jobs == 0 && ms - t->used_at >= least &&
            (!longest || t->used_at < longest->used_at))
            longest = t;
    }
    if (!longest) /* all are looked at again, but not for each read */
        ra->full_until = ms + FULL_MS;
    return longest;
}

/* Its number is another's from now on: nothing of it is kept that could be taken for
 * the other's.  What was mined, or asked for and not given, may be: such rows are not
 * used, and judged so. */
static void free_table(struct readahead *ra, uint64_t ms, struct table *t)
{
    readahead_waste_table(ra, t);
    qm_auto_emptied(ra->learner, ms, t->id);
    qm_auto_forget_table(ra->learner, t->id);
    HASH_DEL(ra->tables, t);
    free(t);
}

struct table *readahead_get_table(struct readahead *ra, uint64_t ms, const char *key,
                                  size_t length)
{
    struct table *t = readahead_find_table(ra, key, length), *unused = NULL;
    const char *dot = memchr(key, '.', length);
    uint32_t id = ra->count;

    if (t)
        t->used_at = ms;
    if (t || !dot || length >= sizeof t->key || (size_t)(dot - key) > QM_NAME_LENGTH ||
        length - (size_t)(dot + 1 - key) > QM_NAME_LENGTH)
        return t;
    if (id == READAHEAD_TABLES && !(unused = unused_table(ra, ms)))
        return NULL;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    if (unused) {
        id = unused->id;
        free_table(ra, ms, unused);
    }
    t->id = id;
    t->used_at = ms;
    memcpy(t->key, key, length);
    memcpy(t->schema, key, (size_t)(dot - key));
    memcpy(t->table, dot + 1, length - (size_t)(dot + 1 - key));
    ra->by_id[id] = t;
    ra->count += !unused;
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
    t->jobs++;
    job->changes = t->changes;
    memcpy(job->fill.schema, t->schema, sizeof t->schema);
    memcpy(job->fill.table, t->table, sizeof t->table);
    job->fill.done = done;
    return job;
}

void readahead_free_job(struct job *job)
{
    job->table->jobs--;
    free(job);
}

static void described(struct qm_fill_ahead *fill)
{
    struct table_job *of_table = (struct table_job *)fill;
    struct job *job = &of_table->job;
    struct readahead *ra = job->ra;
    struct table *t = job->table;

    pthread_mutex_lock(&ra->lock);
    t->asked = false;
    if (!fill->failed && job->changes == t->changes) {
        t->known = true;
        t->info = of_table->info;
    }
    readahead_free_job(job);
    pthread_mutex_unlock(&ra->lock);
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
    readahead_free_job(&job->job);
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
    t = readahead_get_table(ra, readahead_clock_ms(), key, (size_t)n);
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
    struct table *t = ra->by_id[item.table];
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
    t->used_at = readahead_clock_ms(); /* it stays while tables that it names come */
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
