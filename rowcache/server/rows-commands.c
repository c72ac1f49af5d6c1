/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-commands.c - the commands of database 0: rows of MariaDB; see server.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/server/rows-ask.h"

enum { FIELDS_MOST = 4096 /* MariaDB's tables have no more columns */ };

/* --- replies --- */

static bool reply_failed(struct client *c, const struct answer *a)
{
    if (a->outcome != QM_FILL_ERROR)
        return false;
    client_error(c, "%.*s", (int)a->length, a->text);
    return true;
}

static void finish_get(struct client *c, struct request *r)
{
    const struct answer *a = &r->answer[0];

    if (a->outcome == QM_FILL_ROW)
        qm_reply_bulk(&c->out, a->text, a->length);
    else if (!reply_failed(c, a))
        qm_reply_null(&c->out, c->resp3);
}

void cmd_get(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_get);
}

/* The first error of several answers. */
static bool any_failed(struct client *c, const struct request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        if (reply_failed(c, &r->answer[i]))
            return true;
    return false;
}

static void finish_mget(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, r->count);
    for (unsigned i = 0; i < r->count; i++) {
        if (r->answer[i].outcome == QM_FILL_ROW)
            qm_reply_bulk(&c->out, r->answer[i].text, r->answer[i].length);
        else
            qm_reply_null(&c->out, c->resp3);
    }
}

void cmd_mget(struct client *c)
{
    rows_ask(c, 1, word_count(c) - 1, false, finish_mget);
}

static void finish_exists(struct client *c, struct request *r)
{
    int64_t there = 0;

    if (any_failed(c, r))
        return;
    for (unsigned i = 0; i < r->count; i++)
        there += r->answer[i].outcome == QM_FILL_ROW;
    qm_reply_integer(&c->out, there);
}

void cmd_exists(struct client *c)
{
    rows_ask(c, 1, word_count(c) - 1, true, finish_exists);
}

static void finish_ttl(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, r->answer[0].outcome == QM_FILL_ROW ? -1 : -2);
}

void cmd_ttl(struct client *c)
{
    rows_ask(c, 1, 1, true, finish_ttl);
}

static void finish_type(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_simple(&c->out, r->answer[0].outcome == QM_FILL_ROW ? "hash" : "none");
}

void cmd_type(struct client *c)
{
    rows_ask(c, 1, 1, true, finish_type);
}

static void finish_strlen(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, (int64_t)r->answer[0].length);
}

void cmd_strlen(struct client *c)
{
    rows_ask(c, 1, 1, true, finish_strlen);
}

/* --- columns --- */

static size_t count_members(const struct answer *a)
{
    struct qm_member m = {0};
    const char *at = a->text;
    size_t n = 0;

    while (a->outcome == QM_FILL_ROW && qm_json_next(&at, a->text + a->length, &m) == 1)
        n++;
    qm_member_free(&m);
    return n;
}

static void reply_value(struct client *c, const struct qm_member *m)
{
    if (m->null)
        qm_reply_null(&c->out, c->resp3);
    else
        qm_reply_bulk(&c->out, m->value.bytes, m->value.length);
}

static bool is_member(const struct client *c, unsigned i, const struct qm_member *m)
{
    return m->name.length == word_length(c, i) &&
           memcmp(m->name.bytes, word(c, i), m->name.length) == 0;
}

/* The column that word i names; false: there is none. */
static bool find_member(struct client *c, const struct answer *a, unsigned i,
                        struct qm_member *m)
{
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW && qm_json_next(&at, a->text + a->length, m) == 1)
        if (is_member(c, i, m))
            return true;
    return false;
}

static void reply_member(struct client *c, const struct answer *a, unsigned i)
{
    struct qm_member m = {0};

    if (find_member(c, a, i, &m))
        reply_value(c, &m);
    else
        qm_reply_null(&c->out, c->resp3);
    qm_member_free(&m);
}

static void finish_hget(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        reply_member(c, &r->answer[0], 2);
}

void cmd_hget(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hget);
}

struct members {
    struct qm_member *at;
    size_t count, room;
};

/* All of a row, so that it is read once for however many fields.  False: there is no
 * memory. */
static bool read_members(const struct answer *a, struct members *m)
{
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW) {
        if (m->count == m->room) {
            size_t room = m->room ? 2 * m->room : 32;
            struct qm_member *more = realloc(m->at, room * sizeof *more);

            if (!more)
                return false;
            memset(more + m->room, 0, (room - m->room) * sizeof *more);
            m->at = more;
            m->room = room;
        }
        if (qm_json_next(&at, a->text + a->length, &m->at[m->count]) != 1)
            break;
        m->count++;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct qm_text *x = &((const struct qm_member *)a)->name;
    const struct qm_text *y = &((const struct qm_member *)b)->name;
    size_t n = x->length < y->length ? x->length : y->length;
    int r = n > 0 ? memcmp(x->bytes, y->bytes, n) : 0;

    return r ? r : (x->length > y->length) - (x->length < y->length);
}

/* The column that word i names, of members sorted by name; NULL: there is none. */
static const struct qm_member *find_sorted(const struct client *c,
                                           const struct members *m, unsigned i)
{
    struct qm_member key = {
        .name = {.bytes = (char *)(uintptr_t)word(c, i), .length = word_length(c, i)}};

    return m->count > 0 ? bsearch(&key, m->at, m->count, sizeof key, by_name) : NULL;
}

static void free_members(struct members *m)
{
    for (size_t i = 0; i < m->room; i++)
        qm_member_free(&m->at[i]);
    free(m->at);
}

static void finish_hmget(struct client *c, struct request *r)
{
    struct members m = {0};
    size_t from = c->out.length;

    if (any_failed(c, r))
        return;
    if (!read_members(&r->answer[0], &m)) {
        client_error(c, "TRYAGAIN out of memory");
        free_members(&m);
        return;
    }
    if (m.count > 0)
        qsort(m.at, m.count, sizeof m.at[0], by_name);
    qm_reply_array(&c->out, word_count(c) - 2);
    for (unsigned i = 2; i < word_count(c) && !c->out.failed; i++) {
        const struct qm_member *found = find_sorted(c, &m, i);

        if (found)
            reply_value(c, found);
        else
            qm_reply_null(&c->out, c->resp3);
        if (!client_reply_fits(c, from))
            break;
    }
    free_members(&m);
}

void cmd_hmget(struct client *c)
{
    if (word_count(c) - 2 > FIELDS_MOST)
        client_error(c, "ERR HMGET takes up to %d fields: a row has no more columns",
                     FIELDS_MOST);
    else
        rows_ask(c, 1, 1, false, finish_hmget);
}

static void finish_hexists(struct client *c, struct request *r)
{
    struct qm_member m = {0};

    if (!any_failed(c, r))
        qm_reply_integer(&c->out, find_member(c, &r->answer[0], 2, &m));
    qm_member_free(&m);
}

void cmd_hexists(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hexists);
}

static void reply_members(struct client *c, const struct answer *a, bool names,
                          bool values)
{
    struct qm_member m = {0};
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW &&
           qm_json_next(&at, a->text + a->length, &m) == 1) {
        if (names)
            qm_reply_bulk(&c->out, m.name.bytes, m.name.length);
        if (values)
            reply_value(c, &m);
    }
    qm_member_free(&m);
}

static void finish_hgetall(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_map(&c->out, count_members(&r->answer[0]), c->resp3);
    reply_members(c, &r->answer[0], true, true);
}

void cmd_hgetall(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hgetall);
}

static void finish_hkeys(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, count_members(&r->answer[0]));
    reply_members(c, &r->answer[0], true, false);
}

void cmd_hkeys(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hkeys);
}

static void finish_hvals(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, count_members(&r->answer[0]));
    reply_members(c, &r->answer[0], false, true);
}

void cmd_hvals(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hvals);
}

static void finish_hlen(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, (int64_t)count_members(&r->answer[0]));
}

void cmd_hlen(struct client *c)
{
    rows_ask(c, 1, 1, false, finish_hlen);
}

/* --- OBJECT and MEMORY: redis's words for what the store does not count --- */

static bool object_refused(struct client *c)
{
    if (word_is(c, 1, "ENCODING") && word_count(c) == 3)
        return false;
    if (word_is(c, 1, "FREQ") && word_count(c) == 3)
        client_error(c, "ERR An LFU maxmemory policy is not selected, access frequency "
                        "not tracked. Please note that when switching between policies "
                        "at runtime LRU and LFU data will take some time to adjust.");
    else
        client_error(c,
                     "ERR unknown subcommand or wrong number of arguments for '%.*s'. "
                     "Only OBJECT ENCODING key is known here.",
                     word_length(c, 1) > 60 ? 60 : (int)word_length(c, 1), word(c, 1));
    return true;
}

static void finish_encoding(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    if (r->answer[0].outcome == QM_FILL_ROW)
        qm_reply_string(&c->out, "hashtable");
    else
        qm_reply_null(&c->out, c->resp3);
}

void cmd_object(struct client *c)
{
    if (!object_refused(c))
        rows_ask(c, 2, 1, true, finish_encoding);
}

void plain_object(struct client *c)
{
    int error;

    if (object_refused(c))
        return;
    error = qmstore_get(c->server->plain_store, word(c, 2), word_length(c, 2), NULL,
                        NULL, NULL);
    if (error == 0)
        qm_reply_string(&c->out, "raw");
    else if (error == ENOENT || error == EINVAL)
        qm_reply_null(&c->out, c->resp3);
    else
        client_error(c, "MISCONF the store refuses: %s", strerror(error));
}

void cmd_memory(struct client *c)
{
    client_error(c,
                 "ERR unknown subcommand or wrong number of arguments for '%.*s'. The "
                 "memory of one key is not counted here; INFO store has that of all",
                 word_length(c, 1) > 60 ? 60 : (int)word_length(c, 1), word(c, 1));
}

/* --- what is kept --- */

void cmd_del(struct client *c)
{
    int64_t dropped = 0;
    struct qm_row_name name;

    for (unsigned i = 1; i < word_count(c); i++)
        if (!qm_row_name_parse(&name, word(c, i), word_length(c, i),
                               c->server->config->schema)) {
            dropped += qm_rows_drop(c->server->rows, name.key, name.length);
            readahead_dropped(c->server, name.key, name.length);
        }
    qm_reply_integer(&c->out, dropped);
}

void cmd_flushdb(struct client *c)
{
    qm_rows_drop_all(c->server->rows);
    readahead_dropped(c->server, NULL, 0);
    qm_reply_simple(&c->out, "OK");
}

void cmd_waitgtid(struct client *c)
{
    struct qm_gtid_list position;

    if (!qm_gtid_parse(&position, word(c, 1), word_length(c, 1))) {
        client_error(c, "ERR a GTID is DOMAIN-SERVER-SEQUENCE, or several with commas");
        return;
    }
    /* Until it is applied, reads of this connection go to the database, and wait until
     * that has it, as a replica may not yet. */
    qm_reader_saw(&c->reader, &position);
    c->reader.told = c->reader.seen != NULL;
    c->last_read = atomic_load(&c->server->tick);
    qm_reply_simple(&c->out, "OK");
}

void cmd_plain_only(struct client *c)
{
    client_error(c,
                 "ERR '%s' would change a row of MariaDB, and database 0 only reads "
                 "them; SELECT 1 has plain keys",
                 c->command);
}
